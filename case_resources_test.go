package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// busyConfig is for load on loopback: quick retries, nothing else that limits.
const busyConfig = `
retry_limits: {global: off, task_type: off, shop: off}
breakers: {host: {consecutive_failures: 1000000, min_calls: 1000000}}
retry_policies: [{name: default, max_retries: 3, base_delay: 1ms, max_delay: 10ms, deadline: 20s, per_try_timeout: 10s}]
`

// countingConns is an upstream on a socket that counts the connections made to it.
func countingConns(t *testing.T, handler http.HandlerFunc) (s *httptest.Server, opened *atomic.Int64) {
	t.Helper()
	opened = &atomic.Int64{}
	s = httptest.NewUnstartedServer(handler)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s, opened
}

// load makes n calls from so many clients at once and returns how many did not
// end with status 200.
func load(t *testing.T, proxy string, clients, n int, target func(i int) string) (failed int64) {
	t.Helper()
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: proxy}), MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var next, bad atomic.Int64
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				res, err := client.Get(target(int(i)))
				if err != nil {
					t.Error(err)
					return
				}
				_, err = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if err != nil || res.StatusCode != 200 {
					bad.Add(1)
				}
			}
		})
	}
	group.Wait()
	return bad.Load()
}

// wantNothingLeft checks that what has ended left no goroutines and descriptors.
func wantNothingLeft(t *testing.T, goroutines, descriptors int) {
	t.Helper()
	if n := runtime.NumGoroutine(); n > goroutines+10 {
		buf := make([]byte, 1<<20)
		t.Errorf("goroutines = %d, began with %d\n%s", n, goroutines, buf[:runtime.Stack(buf, true)])
	}
	if n := openFiles(); n > descriptors+10 {
		t.Errorf("descriptors = %d, began with %d", n, descriptors)
	}
}

// openFiles counts our descriptors; 0 where the system does not tell. Pipes are
// left out: those of copies in the kernel are kept for the next one by the
// runtime, and go with a garbage collection.
func openFiles() (n int) {
	list, _ := os.ReadDir("/proc/self/fd")
	for _, f := range list {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && !strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}

func TestCase_RS_01_E2E_FailingAnswersLeakNothing(t *testing.T) {
	goroutines, descriptors := runtime.NumGoroutine(), openFiles()
	junk := make([]byte, 256<<10)
	var requests atomic.Int64
	up, opened := countingConns(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("X-Retry-Count") == "3" {
			io.WriteString(w, "ok")
			return
		}
		w.WriteHeader(503)
		w.Write(junk)
	})
	a, stop := onSockets(t, busyConfig)
	const calls = 100
	if failed := load(t, a.proxies[0].Addr().String(), 50, calls, func(int) string { return up.URL }); failed > 0 {
		t.Errorf("%d of %d calls failed", failed, calls)
	}
	if n := requests.Load(); n != 4*calls {
		t.Errorf("requests at the upstream = %d, want %d", n, 4*calls)
	}
	if n := opened.Load(); n > 4*calls/6 { // 2000 of 12000
		t.Errorf("connections opened = %d for %d attempts", n, 4*calls)
	}
	if open, _ := a.up.Stats(); open > idlePerHost+5 {
		t.Errorf("open upstream connections = %d, want at most the idle limit", open)
	}
	stop()
	up.Close()
	wantNothingLeft(t, goroutines, descriptors)
}

func TestCase_RS_03_E2E_PoolFitsTheLoad(t *testing.T) {
	var requests, fresh atomic.Int64
	up, opened := countingConns(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("X-Retry-Count") == "" && fresh.Add(1)%10 == 0 {
			w.WriteHeader(503)
			return
		}
		time.Sleep(2 * time.Millisecond)
	})
	a, _ := onSockets(t, busyConfig)
	const calls = 1000
	if failed := load(t, a.proxies[0].Addr().String(), 100, calls, func(int) string { return up.URL }); failed > 0 {
		t.Errorf("%d of %d calls failed", failed, calls)
	}
	if n := requests.Load(); n != calls*11/10 {
		t.Errorf("requests at the upstream = %d for %d calls, want a tenth more", n, calls)
	}
	if n := opened.Load(); n > 400 {
		t.Errorf("connections opened = %d, want 400 at most", n)
	}
}

func TestCase_PX_12_E2E_TunnelsLeakNothing(t *testing.T) {
	goroutines, descriptors := runtime.NumGoroutine(), openFiles()
	half := []byte(strings.Repeat("x", 64<<10))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var ends sync.WaitGroup
	ends.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			ends.Go(func() { tunnelPeer(c, half, n%3 == 0) })
		}
	})
	port := l.Addr().(*net.TCPAddr).Port
	a, stop := onSockets(t, fmt.Sprintf("destinations: {connect_ports: [%d]}\nlimits: {tunnel_idle: 1s}\n", port))
	var clients sync.WaitGroup
	for i := range 90 {
		clients.Go(func() { tunnelClient(t, a.proxies[0].Addr().String(), l.Addr().String(), i%3 == 1, half) })
	}
	clients.Wait()
	l.Close()
	ends.Wait()
	stop()
	wantNothingLeft(t, goroutines, descriptors)
}

// tunnelPeer reads to the end and answers, or stalls after half of it.
func tunnelPeer(c net.Conn, half []byte, stalls bool) {
	defer c.Close()
	if stalls {
		io.CopyN(io.Discard, c, int64(len(half)/2))
		c.Write(half)
		io.Copy(io.Discard, c)
		return
	}
	io.Copy(io.Discard, c)
	c.Write(half)
}

// tunnelClient sends, half-closes and reads to the end.
func tunnelClient(t *testing.T, proxy, target string, old bool, half []byte) {
	version := "1.1"
	if old {
		version = "1.0"
	}
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	fmt.Fprintf(c, "CONNECT %s HTTP/%s\r\nHost: %s\r\n\r\n", target, version, target)
	in := bufio.NewReader(c)
	if head := responseHead(t, in); !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		t.Errorf("CONNECT = %q, want 200", head)
	}
	c.Write(half)
	c.(*net.TCPConn).CloseWrite()
	if back, _ := io.ReadAll(in); len(back) != len(half) {
		t.Errorf("read %d bytes through the tunnel, want %d", len(back), len(half))
	}
}

func TestCase_OB_02_SeriesStayBounded(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", answer(503, ""))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		word := func(n int) string { return fmt.Sprintf("%x", rand.Uint64N(1<<62))[:n] }
		r.together(1000, func(i int) reply {
			target := "http://" + word(9) + ".test/" + word(5)
			switch i % 5 {
			case 0:
				target = "http://u1.test/" + word(9)
			case 1:
				if i%50 == 1 {
					target = "http://" + strings.Repeat(word(5), 5<<10) + "/"
				}
			case 2:
				target = "http://\xff\xfe" + word(3) + "/"
			}
			return r.do("M"+strings.ToUpper(word(6)), target, "", "X-Shop-Id: s"+word(9), "X-Task-Type: t"+word(9), "X-Idempotency-Key: "+word(9))
		})
		start := time.Now()
		text := r.admin("GET", "/metrics", "", nil).Body
		if took := time.Since(start); len(text) > 1<<20 || took > time.Second {
			t.Errorf("/metrics has %d bytes after %v, want less than 1 MiB within 1 s", len(text), took)
		}
		series := 0
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "#") {
				series++
			}
		}
		if series > 2000 {
			t.Errorf("series = %d, want at most 2000", series)
		}
		if !strings.Contains(text, `host="other"`) {
			t.Error("no series counts the hosts beyond the bound")
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
			t.Errorf("memory grew by %d MiB, want less than 32", grown>>20)
		}
	}, "max_retries: 3", "max_retries: 1")
}

// HTTP_PROXY with a Go client skips loopback targets: a call to 127.0.0.1 says
// nothing about the proxy, one to a name does.
func TestCase_HN_01_GoClientsSkipLoopback(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		proxy := (&httpproxy.Config{HTTPProxy: "http://" + proxyAddr}).ProxyFunc()
		transport := &http.Transport{
			Proxy:       func(q *http.Request) (*url.URL, error) { return proxy(q.URL) },
			DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return r.net.Dial(ctx, addr) },
		}
		defer transport.CloseIdleConnections()
		for _, tt := range []struct {
			target string
			via    bool
		}{{"http://" + r.hosts["u1.test"].String() + ":80/", false}, {"http://u1.test/", true}} {
			res, err := (&http.Client{Transport: transport}).Get(tt.target)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
			all := u.seen()
			if got := all[len(all)-1].Header.Get("Via") != ""; got != tt.via || res.StatusCode != 200 {
				t.Errorf("%s: status %d, through the proxy: %v, want %v", tt.target, res.StatusCode, got, tt.via)
			}
		}
		r.want(reply{Status: 200}, 200, u, 2)
	})
}
