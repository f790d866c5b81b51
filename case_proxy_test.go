package main

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// basic is the value of a Basic credential.
func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// bcryptOf is a cheap hash for tests.
func bcryptOf(t *testing.T, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(hash)
}

func TestCase_PX_01_ConnectionCannotStripTheKey(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, ""), answer(200, "ok"))
		got := r.post("http://u1.test/x", "{}", keyed, "X-Junk: 1", "X-Shop-Id: s1",
			"Connection: close, X-Idempotency-Key, X-Retry-Count, X-Shop-Id, X-Junk")
		r.want(got, 200, u, 2)
		for i, q := range u.seen() {
			h := q.Header
			if h.Get("X-Idempotency-Key") != "k" || h.Get("X-Junk") != "" || h.Get("Connection") != "" || h.Get("X-Shop-Id") != "" {
				t.Errorf("attempt %d sent %v, want the key, and neither X-Junk, labels nor Connection", i+1, h)
			}
		}
		if n := u.seen()[1].Header.Get("X-Retry-Count"); n != "1" {
			t.Errorf("X-Retry-Count of attempt 2 = %q, want 1", n)
		}
		if labels := r.last().Labels; labels.Shop != "s1" {
			t.Errorf("shop = %q, want the one that Connection named", labels.Shop)
		}
	})
}

func TestCase_PX_03_ProxyAuthorizationStaysHere(t *testing.T) {
	const secret = "c2VjcmV0" // also base64 of secret
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, ""), echo)
		got := r.get("http://u1.test/x", "Proxy-Authorization: Basic "+secret)
		r.want(got, 200, u, 2)
		for _, q := range u.seen() {
			if strings.Contains(string(q.Raw), secret) || strings.Contains(string(q.Raw), "Proxy-Auth") {
				t.Errorf("upstream got %q", q.Raw)
			}
		}
		r.none(secret)
	})
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, ""), echo)
		for _, wrong := range [][]string{nil, {"Proxy-Authorization: Basic " + secret}, {"Proxy-Authorization: " + basic("bot1", "wrong")}} {
			got := r.get("http://u1.test/x", wrong...)
			r.want(got, 407, u, 0)
			r.wantHeader(got, "Proxy-Authenticate", `Basic realm="retryproxy"`)
			r.wantHeader(got, "X-Retry-Reason", "auth_required")
		}
		right := basic("bot1", "open sesame")
		r.want(r.get("http://u1.test/x", "Proxy-Authorization: "+right), 200, u, 2)
		for _, q := range u.seen() {
			if strings.Contains(string(q.Raw), "Proxy-Auth") {
				t.Errorf("upstream got %q", q.Raw)
			}
		}
		r.none(secret, right[6:], "open sesame")
	}, "\nlisten:", "\nclients: {users: {bot1: {hash: '"+bcryptOf(t, "open sesame")+"'}}}\nlisten:")
}

func TestCase_PX_03_ThroughInterception(t *testing.T) {
	const secret = "c2VjcmV0" // also base64 of secret
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(503, ""), echo, answer(503, ""), echo)
		v := visitor{headers: []string{"Proxy-Authorization: Basic " + secret}}
		for n, inside := range [][]string{nil, {"Proxy-Authorization: Basic " + secret, "Proxy-Connection: keep-alive"}} {
			got := r.secretlyAs(v, "GET", "https://u1.test/x", "", inside...)
			r.want(got, 200, u, 2*n+2)
		}
		for _, q := range u.seen() {
			if strings.Contains(string(q.Raw), secret) || strings.Contains(string(q.Raw), "Proxy-") {
				t.Errorf("upstream got %q", q.Raw)
			}
		}
		r.none(secret)
	}, opening(ca, "[u1.test]")...)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(503, ""), echo)
		for _, wrong := range [][]string{nil, {"Proxy-Authorization: Basic " + secret}} {
			c, _, got := r.connect("u1.test:443", wrong...)
			c.Close()
			r.want(got, 407, u, 0)
			r.wantHeader(got, "Proxy-Authenticate", `Basic realm="retryproxy"`)
		}
		right := basic("bot1", "open sesame")
		v := visitor{headers: []string{"Proxy-Authorization: " + right}, protos: []string{"h2"}}
		c := r.openH2As("u1.test:443", v)
		defer c.Close()
		r.want(c.ask("GET", "/x", "", "Proxy-Authorization: "+right), 200, u, 2)
		for _, q := range u.seen() {
			if strings.Contains(string(q.Raw), "Proxy-Auth") {
				t.Errorf("upstream got %q", q.Raw)
			}
		}
		r.none(secret, right[6:], "open sesame")
	}, patches(opening(ca, "[u1.test]"), lays("clients: {users: {bot1: {hash: '"+bcryptOf(t, "open sesame")+"'}}}"))...)
}

func TestCase_PX_04_LoopsEndAfterOneHop(t *testing.T) {
	bubble(t, func(r *rig) {
		r.hosts["retryproxy.local"] = r.hosts["x"] // grows the map before anything runs
		delete(r.hosts, "x")
		u := r.upstream("u1.test:80", echo)
		r.hosts["retryproxy.local"] = mustAddr("127.0.0.1")
		for _, target := range []string{"http://127.0.0.1:18080/", "http://retryproxy.local:18080/x", "http://127.0.0.1:18090/api/v1/config"} {
			got := r.get(target)
			r.want(got, 508, u, 0)
			r.wantHeader(got, "X-Retry-Reason", "loop")
			r.wantHeader(got, "X-Retry-Advice", "stop")
		}
		_, _, got := r.connectOn(r.dial(), "127.0.0.1:18080")
		r.want(got, 508, nil, 0)
		r.wantDials(0)
		r.want(r.origin("GET", "127.0.0.1:18080", "/", ""), 400, nil, 0)
		r.want(r.origin("GET", "127.0.0.1:18080", "/self/x", ""), 508, nil, 0)
		r.wantDials(0)

		// The other way to see a loop: our own entry in Via.
		via := ""
		for line := range strings.Lines(r.get("http://u1.test/x").Body) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "Via: "); ok {
				via = v
			}
		}
		if !strings.HasPrefix(via, "1.1 retryproxy-") {
			t.Fatalf("Via upstream = %q, want our own entry", via)
		}
		r.want(r.get("http://u1.test/x", "Via: 1.1 front, "+via+", 1.0 back"), 508, u, 1)
		r.want(r.get("http://u1.test/x", "Via: "+via[:len(via)-1]+"~"), 200, u, 2)
	}, "\nlisten:", "\nroutes: [{name: self, prefix: /self, upstreams: ['http://127.0.0.1:18080']}]\nlisten:",
		"connect_ports: [443, 80, 7000, 7001]", "connect_ports: [18080]")
}

func TestCase_PX_05_LongForwardedForIsNoLoop(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		var hops, via []string
		for i := range 20 {
			hops = append(hops, fmt.Sprintf("10.0.0.%d", i+1))
			via = append(via, fmt.Sprintf("1.1 p%d", i))
		}
		r.want(r.get("http://u1.test/x", "X-Forwarded-For: "+strings.Join(hops, ", "), "Via: "+strings.Join(via[:15], ", ")), 200, u, 1)
		sent := u.seen()[0].Header
		if got := sent.Get("X-Forwarded-For"); got != strings.Join(hops, ", ") {
			t.Errorf("X-Forwarded-For upstream = %q, want it untouched", got)
		}
		if got := sent.Values("Via"); len(got) != 2 || got[0] != strings.Join(via[:15], ", ") {
			t.Errorf("Via upstream = %q, want what came, then our own", got)
		}
	})
}

func TestCase_PX_06_ConnectTargets(t *testing.T) {
	bubble(t, func(r *rig) {
		for _, target := range []string{
			"u1.test", "u1.test:", ":443", "u1.test:99999", "u1.test:443/path", "user:pw@u1.test:443", "::1:443", "http://u1.test:443",
			"u1.test:0", "u1.test:+443", "u1.test:4 43", "[::1:443", "[u1.test]:443",
		} {
			c, _, got := r.connect(target)
			c.Close()
			if got.Status != 400 {
				t.Errorf("CONNECT %s = %d, want 400", target, got.Status)
			}
		}
		r.wantDials(0)
		r.none("user:pw", "pw@u1")
		echoLine := func(_ *scripted, c net.Conn, req *request) bool { return false }
		r.upstream("u1.test:7000", echoLine)
		r.hosts["::1"] = mustAddr("::1")
		r.upstream("[::1]:7001", echoLine)
		for _, target := range []string{"u1.test:7000", "[::1]:7001"} {
			c, _, got := r.connect(target)
			r.want(got, 200, nil, 0)
			c.Close()
		}
		r.wantDials(2)
	})
}

func TestCase_PX_08_UserinfoGoesNowhere(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, ""), echo)
		text := func(target string) string { return "GET " + target + " HTTP/1.1\r\nHost: u1.test\r\n\r\n" }
		got := r.ask(text("http://bot:s3cret@u1.test/x"))
		r.want(got, 200, u, 2)
		bodies := got.Body
		for _, target := range []string{"http://bot:s3cret@u1.test:99999/x", "http://bot:p@ss@u1.test/x", "http://bot:s3cret@/x", "http://bot:s3cret@[u1]/x"} {
			got := r.ask(text(target))
			r.want(got, 400, u, 2)
			bodies += got.Body
		}
		for _, q := range u.seen() {
			bodies += string(q.Raw)
			if q.Host != "u1.test" || q.Header.Get("Authorization") != "" {
				t.Errorf("upstream got Host %q, Authorization %q", q.Host, q.Header.Get("Authorization"))
			}
		}
		if strings.Contains(bodies, "s3cret") || strings.Contains(bodies, "p@ss") {
			t.Errorf("credentials shown: %s", bodies)
		}
		r.none("s3cret", "p@ss")
	})
	// The contract: an upstream with credentials in its URL is refused when the
	// configuration is read, and its URL is not repeated.
	_, err := parseText("routes: [{name: a, prefix: /a, upstreams: ['http://bot:s3cret@u1.test']}]")
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a route with credentials: %v, want an error without them", err)
	}
}

func TestCase_PX_10_RedirectsArePassedOn(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(302, "", "Location: http://169.254.169.254/latest/"))
		got := r.get("http://u1.test/x", "Authorization: Bearer x")
		r.want(got, 302, u, 1)
		r.wantHeader(got, "Location", "http://169.254.169.254/latest/")
		r.wantHeader(got, "X-Retry-Reason", "")
		r.wantDials(1)
	})
}

func TestCase_PX_12_TunnelHalfClose(t *testing.T) {
	for _, version := range []string{"1.1", "1.0"} {
		bubble(t, func(r *rig) {
			half := strings.Repeat("x", 1<<20)
			r.tunnelEnd("u1.test:7000", func(c net.Conn) {
				got, err := io.ReadAll(c)
				if err != nil || string(got) != half {
					t.Errorf("upstream read %d bytes, %v, want 1 MiB to EOF", len(got), err)
				}
				io.WriteString(c, half)
			})
			c := r.dial()
			io.WriteString(c, "CONNECT u1.test:7000 HTTP/"+version+"\r\nHost: u1.test:7000\r\n\r\n")
			in := bufio.NewReader(c)
			head := responseHead(t, in)
			if !strings.HasPrefix(head, "HTTP/1.1 200 ") || strings.Contains(head, "Content-Length") || strings.Contains(head, "Transfer-Encoding") {
				t.Errorf("HTTP/%s: the 200 is %q, want no length", version, head)
			}
			io.WriteString(c, half)
			c.(interface{ CloseWrite() error }).CloseWrite()
			back, err := io.ReadAll(in)
			if err != nil || string(back) != half {
				t.Errorf("HTTP/%s: client read %d bytes, %v, want 1 MiB after its half-close", version, len(back), err)
			}
			c.Close()
		})
	}
}

func TestCase_PX_12_StalledTunnelsEnd(t *testing.T) {
	bubble(t, func(r *rig) {
		ended := make(chan time.Time, 1)
		r.tunnelEnd("u1.test:7000", func(c net.Conn) {
			io.WriteString(c, "half")
			io.Copy(io.Discard, c)
			ended <- time.Now()
		})
		c, in, got := r.connect("u1.test:7000")
		defer c.Close()
		r.want(got, 200, nil, 0)
		start := time.Now()
		if back, err := io.ReadAll(in); string(back) != "half" || err == nil && time.Since(start) < 2*time.Second {
			t.Errorf("client read %q, %v after %v", back, err, time.Since(start))
		}
		r.between("the tunnel's end", time.Since(start), 2*time.Second, 2*time.Second)
		<-ended
	}, "\nlisten:", "\nlimits: {tunnel_idle: 2s}\nlisten:")
}

func TestCase_PX_13_OnlyTheDialIsRetried(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:7000", func(_ *scripted, _ net.Conn, _ *request) bool { return false })
		u.l.Close()
		const hello = "\x16\x03\x01\x02\x00\x01\x00"
		go func() {
			time.Sleep(50 * time.Millisecond)
			l, err := r.net.Listen("127.0.1.1:7000")
			if err != nil {
				t.Error(err)
				return
			}
			c, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			l.Close()
			buf := make([]byte, len(hello))
			io.ReadFull(c, buf)
			io.WriteString(c, "\x16\x03\x03")
			time.Sleep(time.Millisecond)
			c.(interface{ Reset() error }).Reset()
		}()
		start := time.Now()
		c, in, got := r.connect("u1.test:7000")
		defer c.Close()
		r.want(got, 200, nil, 0)
		r.between("the second dial", time.Since(start), 80*time.Millisecond, 120*time.Millisecond)
		io.WriteString(c, hello)
		back, _ := io.ReadAll(in)
		if strings.TrimPrefix(string(back), "\x16\x03\x03") != "" {
			t.Errorf("client read %q, want only what the upstream sent", back)
		}
		synctest.Wait()
		r.wantDials(2)
		if a := r.last().Attempts; len(a) != 2 || a[0].Verdict.Reason != "connect_refused" || a[1].Verdict.Class.String() != "success" {
			t.Errorf("attempts = %+v, want a refused dial and one that stood", a)
		}
	})
}
