package main

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"retryproxy/internal/memnet"
)

// random is a body that is the same in every run.
func random(n int) string {
	b := make([]byte, n)
	source := rand.NewChaCha8([32]byte{1})
	source.Read(b)
	return string(b)
}

// inChunks is a request whose body comes in chunks of a size, with a trailer
// section.
func inChunks(method, url, body string, size int, trailers string, headers ...string) string {
	head := rawRequest("GET", url, "", append(headers, "Transfer-Encoding: chunked")...)
	var b strings.Builder
	b.WriteString(method + strings.TrimPrefix(head, "GET"))
	for part := body; part != ""; {
		n := min(size, len(part))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, part[:n])
		part = part[n:]
	}
	b.WriteString("0\r\n" + trailers + "\r\n")
	return b.String()
}

// wantBodies checks that every request carried a body and one way to frame it.
func (r *rig) wantBodies(s *scripted, want string) {
	r.t.Helper()
	for i, req := range s.seen() {
		if sha256.Sum256(req.Body) != sha256.Sum256([]byte(want)) {
			r.t.Errorf("body of request %d = %d bytes %.100q, want the client's %d", i+1, len(req.Body), req.Body, len(want))
		}
		head := strings.ToLower(string(req.Raw))
		if n := strings.Count(head, "\r\ncontent-length:") + strings.Count(head, "\r\ntransfer-encoding:"); n != 1 {
			r.t.Errorf("request %d has %d framing headers, want 1:\n%s", i+1, n, req.Raw)
		}
	}
}

func TestCase_BR_01_WholeBodyAgain(t *testing.T) {
	body := random(4 << 10)
	for _, tt := range []struct{ name, request string }{
		{"with a length", rawRequest("POST", "http://u1.test/x", body, "X-Idempotency-Key: k")},
		{"chunked", inChunks("POST", "http://u1.test/x", body, 1000, "", "X-Idempotency-Key: k")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", answer(503, "busy"), hangUp, answer(200, "ok"))
				c := r.dial()
				defer c.Close()
				r.want(r.exchange(c, tt.request, "POST"), 200, u, 3)
				r.wantBodies(u, body)
				for n, count := range []string{"", "1", "2"} {
					r.wantSent(u, n+1, "X-Idempotency-Key", "k")
					r.wantSent(u, n+1, "X-Retry-Count", count)
				}
			})
		})
	}
}

// The body goes through a temporary file when it is over body.memory.
func TestCase_BR_01_WholeBodyFromAFile(t *testing.T) {
	dir := t.TempDir()
	body := random(300 << 10)
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"), hangUp, answer(200, "ok"))
		r.want(r.post("http://u1.test/x", body, "X-Idempotency-Key: k"), 200, u, 3)
		r.wantBodies(u, body)
	}, "idempotency:", fmt.Sprintf("body: {memory: 64KiB, dir: %q}\nidempotency:", dir))
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("temporary files left behind: %v", left)
	}
}

// trickle sends a request 16 KiB at a time, as long as it is taken, and reads the
// answer meanwhile.
func (r *rig) trickle(text string, every time.Duration) reply {
	r.t.Helper()
	began, method, c := time.Now(), text[:strings.IndexByte(text, ' ')], r.dial()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for text != "" {
			n := min(16<<10, len(text))
			if _, err := io.WriteString(c, text[:n]); err != nil {
				return
			}
			text = text[n:]
			time.Sleep(every)
		}
	}()
	got := readReply(bufio.NewReader(c), method)
	got.Took = time.Since(began)
	c.Close()
	<-done
	return got
}

// smallLimit lets bodies be repeated up to the fixture's replay limit.
var smallLimit = []string{"idempotency:", "body: {memory: 16KiB, limit: 64KiB}\nidempotency:"}

// By the contract a keyed call must be repeatable: its body over the limit is
// refused before anything is sent.
func TestCase_BR_02_OverTheLimitKeyed(t *testing.T) {
	body := random(1 << 20)
	for _, tt := range []struct{ name, request string }{
		{"with a length", rawRequest("POST", "http://u1.test/x", body, "X-Idempotency-Key: k")},
		{"chunked", inChunks("POST", "http://u1.test/x", body, 16<<10, "", "X-Idempotency-Key: k")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", answer(200, "ok"))
				got := r.trickle(tt.request, 10*time.Millisecond)
				r.want(got, 413, u, 0)
				r.wantHeader(got, "X-Retry-Reason", "body_too_large")
				r.wantHeader(got, "X-Retry-Executed", "no")
				r.wantHeader(got, "X-Retry-Advice", "stop")
				r.wantEnd("rejected", "body_too_large", 0)
			}, smallLimit...)
		})
	}
}

// By the contract a keyless body over the limit is streamed once.
func TestCase_BR_02_OverTheLimitKeyless(t *testing.T) {
	body := random(1 << 20)
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, `{"e":1}`), answer(200, "ok"))
		got := r.trickle(inChunks("POST", "http://u1.test/x", body, 16<<10, ""), 10*time.Millisecond)
		r.want(got, 503, u, 1)
		r.wantBody(got, `{"e":1}`)
		r.wantHeader(got, "X-Retry-Reason", "body_not_replayable")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantBodies(u, body)
		r.wantMetric(1, "stops_total", "reason=body_not_replayable")
	}, smallLimit...)
}

// The contract has no replay limit to set to 0: max_retries and safe switch
// repeats off.
func TestCase_BR_05_RepeatsSwitchedOff(t *testing.T) {
	for _, tt := range []struct {
		name, old, text, reason string
		status                  int
	}{
		{"max_retries 0", "max_retries: 3", "max_retries: 0", "attempts_exhausted", 503},
		{"safe: never", "max_retries: 3", "max_retries: 3, safe: never", "manual_review", 500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", answer(tt.status, "busy"), answer(200, "ok"))
				got := r.post("http://u1.test/x", random(100), "X-Idempotency-Key: k")
				r.want(got, tt.status, u, 1)
				r.wantHeader(got, "X-Retry-Reason", tt.reason)
			}, tt.old, tt.text)
		})
	}
}

func TestCase_BR_07_ConnectFailureOfAnOversizedPost(t *testing.T) {
	body := random(1 << 20)
	bubble(t, func(r *rig) {
		u := r.closed("u1.test:80", answer(200, "ok"))
		u.openAfter(50 * time.Millisecond)
		got := r.post("http://u1.test/x", body)
		r.want(got, 200, u, 1)
		r.wantBodies(u, body)
		r.wantEnd("recovered", "ok", 2)
		r.wantVerdict(1, "transient", "connect_refused")
		if b := r.last().Attempts[0].Verdict.Basis; b != "not_sent" {
			t.Errorf("basis of attempt 1 = %q, want not_sent", b)
		}
		r.wantSent(u, 1, "X-Retry-Count", "1")
	}, smallLimit...)
}

func TestCase_BR_09_ExpectContinue(t *testing.T) {
	body := random(2 << 10)
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "busy"), func(s *scripted, c net.Conn, req *request) bool {
			io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
			return answer(200, "ok")(s, c, req)
		})
		began := time.Now()
		c := r.dial()
		defer c.Close()
		head := strings.TrimSuffix(rawRequest("POST", "http://u1.test/x", body, "X-Idempotency-Key: k", "Expect: 100-continue"), body)
		io.WriteString(c, head)
		in := bufio.NewReader(c)
		first := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
		if _, err := io.ReadFull(in, first); err != nil || string(first) != "HTTP/1.1 100 Continue\r\n\r\n" {
			t.Fatalf("first answer = %q, %v, want a 100", first, err)
		}
		io.WriteString(c, body)
		rest, err := in.Peek(len("HTTP/1.1 200"))
		if string(rest) != "HTTP/1.1 200" {
			t.Errorf("behind the 100 = %q, %v, want the 200", rest, err)
		}
		r.want(readReply(in, "POST"), 200, u, 2)
		r.wantBodies(u, body)
		r.wantSent(u, 1, "Expect", "")
		r.between("time to the answer", time.Since(began), 80*time.Millisecond, 120*time.Millisecond)
	})
}

// refuseEarly answers 413 to the header and reads nothing more.
func refuseEarly(s *scripted, c net.Conn, req *request) bool {
	answer(413, `{"max":1}`, "Connection: close")(s, c, req)
	time.Sleep(10 * time.Second)
	return false
}

// By the contract a keyed body is read before attempt 1, so the early answer
// comes after the client's upload.
func TestCase_BR_10_EarlyAnswerKeyed(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", refuseEarly)
		u.headOnly = true
		got := r.post("http://u1.test/x", random(8<<20), "X-Idempotency-Key: k")
		r.want(got, 413, u, 1)
		r.wantBody(got, `{"max":1}`)
		r.wantHeader(got, "X-Retry-Reason", "fail_permanent")
		r.between("time to the answer", got.Took, 0, 0)
	})
}

func TestCase_BR_10_EarlyAnswerStreamed(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", refuseEarly)
		u.headOnly = true
		got := r.trickle(rawRequest("POST", "http://u1.test/x", random(8<<20)), 100*time.Millisecond)
		r.want(got, 413, u, 1)
		r.wantBody(got, `{"max":1}`)
		r.between("time to the answer", got.Took, 0, time.Second)
	}, smallLimit...)
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// By the contract a keyless body is kept too, for it is repeated when nothing
// was sent or the server says not now; but on disk, not in memory. 20 uploads
// of 4 MiB instead of 32 keep the test short.
func TestCase_BR_06_UploadsDoNotFillMemory(t *testing.T) {
	const uploads, size = 20, 4 << 20
	var before, during runtime.MemStats
	var all sync.WaitGroup
	all.Add(uploads)
	measured := make(chan struct{})
	go func() {
		defer close(measured)
		all.Wait() // every upload is at the upstream, none is answered
		runtime.ReadMemStats(&during)
	}()
	up := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if n, err := io.Copy(io.Discard, r.Body); n != size || err != nil {
			t.Errorf("the upstream read %d bytes, %v, want %d", n, err, size)
		}
		all.Done()
		<-measured
	})
	dir := t.TempDir()
	a, stop := onSockets(t, fmt.Sprintf("body: {dir: %q}", dir))
	runtime.GC()
	runtime.ReadMemStats(&before)
	var clients sync.WaitGroup
	for range uploads {
		clients.Go(func() {
			if got := upload(t, a.proxies[0].Addr().String(), up, size); got.Status != 200 {
				t.Errorf("status = %d, %v, want 200", got.Status, got.Err)
			}
		})
	}
	clients.Wait()
	if grown := int64(during.HeapInuse) - int64(before.HeapInuse); grown > 32<<20 {
		t.Errorf("memory grew by %d MiB, want at most 32", grown>>20)
	}
	stop()
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("temporary files left behind: %v", left)
	}
}

// upload sends a keyless body of zeros on a connection of its own.
func upload(t *testing.T, proxy, up string, size int64) reply {
	t.Helper()
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		return reply{Err: err}
	}
	defer c.Close()
	fmt.Fprintf(c, "POST http://%s/x HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", up, up, size)
	if _, err := io.Copy(c, io.LimitReader(zeros{}, size)); err != nil {
		return reply{Err: err}
	}
	return readReply(bufio.NewReader(c), "POST")
}

// By the contract a keyed body is read before attempt 1: an upload that is
// broken off reaches no upstream at all. 300 times instead of 2000.
func TestCase_BR_11_AbortedUploadsLeaveNothing(t *testing.T) {
	const uploads = 300
	before := runtime.NumGoroutine()
	requests := 0
	up := serving(t, func(http.ResponseWriter, *http.Request) { requests++ })
	dir := t.TempDir()
	a, stop := onSockets(t, fmt.Sprintf("body: {memory: 16KiB, dir: %q}", dir))
	var clients sync.WaitGroup
	for worker := range 10 {
		clients.Go(func() {
			for n := range uploads / 10 {
				abortUpload(t, a.proxies[0].Addr().String(), up, fmt.Sprintf("k%d-%d", worker, n))
			}
		})
	}
	clients.Wait()
	stop() // ends when every call has
	if got := counted(t, a, "calls_total", "result=cancelled"); got != uploads {
		t.Errorf("cancelled calls = %v, want %d", got, uploads)
	}
	if live, _ := a.up.Stats(); requests != 0 || live != 0 {
		t.Errorf("upstream: %d requests and %d connections, want none", requests, live)
	}
	if got := a.limiter.Hosts(time.Now()); len(got) != 0 && got[0].Breaker.Failures != 0 {
		t.Errorf("gates = %+v, want no failure", got)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("temporary files left behind: %v", left)
	}
	if n := runtime.NumGoroutine(); n > before+10 {
		t.Errorf("goroutines = %d, %d before", n, before)
	}
}

// abortUpload waits until its body is asked for, sends a tenth of it, and
// resets the connection.
func abortUpload(t *testing.T, proxy, up, key string) {
	t.Helper()
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	fmt.Fprintf(c, "POST http://%s/x HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nX-Idempotency-Key: %s\r\nExpect: 100-continue\r\n\r\n", up, up, 1<<20, key)
	if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
		t.Error(err)
	}
	c.Write(make([]byte, 100<<10))
	c.(*net.TCPConn).SetLinger(0)
}

func TestCase_BR_11_AbortedUploadIsCancelled(t *testing.T) {
	for _, key := range []string{"X-A: b", "X-Idempotency-Key: k"} {
		t.Run(key, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", answer(200, "ok"))
				c := r.dial()
				text := rawRequest("POST", "http://u1.test/x", random(1<<20), key)
				io.WriteString(c, text[:100<<10])
				time.Sleep(time.Second)
				c.(*memnet.Conn).Reset()
				r.wantEnd("cancelled", "client_gone", 0)
				r.wantMetric(1, "calls_total", "result=cancelled")
				r.wantMetric(0, "calls_total", "result=rejected")
				r.want(reply{}, 0, u, 0)
			})
		})
	}
}
