package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/classify"
	"retryproxy/message"
)

// body of 10000 bytes: it does not fit in the read buffer.
var big = strings.Repeat("0123456789", 1000)

func TestAnswers(t *testing.T) {
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, tt := range []struct {
		name, method, answer string
		status               int
		body                 string
		length               int64
		reuse                bool
	}{
		{"length", "GET", ok, 200, "ok", 2, true},
		{"length 0", "GET", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, "", 0, true},
		{"large", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" + big, 200, big, 10000, true},
		{"middling", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + big[:5000], 200, big[:5000], 5000, true},
		{"bare LF, no reason", "GET", "HTTP/1.1 200\nContent-Length: 2\n\nok", 200, "ok", 2, true},
		{"equal lengths", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2, 2\r\n\r\nok", 200, "ok", 2, true},
		{"connection: close", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: x, Close\r\n\r\nok", 200, "ok", 2, false},
		{"HTTP/1.0", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", 2, false},
		{"HTTP/1.0 keep-alive", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok", 200, "ok", 2, true},
		{"HTTP/1.0 keep-alive, close", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: close, keep-alive\r\n\r\nok", 200, "ok", 2, false},
		{"surplus", "GET", ok + ok, 200, "ok", 2, false},
		{"surplus after large", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + big, 200, big[:9000], 9000, false},
		{"chunked", "GET", chunked + "2\r\nok\r\n3;x=y\r\nabc\r\n0\r\n\r\n", 200, "okabc", -1, true},
		{"chunked, large", "GET", chunked + "2710\r\n" + big + "\r\n2710\r\n" + big + "\r\n0\r\n\r\n", 200, big + big, -1, true},
		{"chunked, surplus", "GET", chunked + "2\r\nok\r\n0\r\n\r\nHTTP/1.1", 200, "ok", -1, false},
		{"chunked, capital digits and BWS", "GET", chunked + "00A \r\n0123456789\r\n0\r\n\r\n", 200, "0123456789", -1, true},
		{"HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", 200, "", 900, true},
		{"HEAD, chunked", "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, "", -1, true},
		{"RI-10 204 with a body", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", 204, "", 5, false},
		{"RI-10 204 with a length", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 204, "", 5, false},
		{"RI-10 204 chunked", "GET", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 204, "", -1, false},
		{"RI-10 204", "GET", "HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n", 204, "", -1, true},
		{"RI-10 304 with a length", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 900\r\n\r\n", 304, "", 900, true},
		{"100 first", "POST", "HTTP/1.1 100 Continue\r\n\r\n" + ok, 200, "ok", 2, true},
		{"103 first", "GET", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + ok, 200, "ok", 2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t, always(tt.answer))
			c := client(t, Config{})
			r, body := mustFetch(t, c, attempt(s.target(), tt.method, "/", nil))
			got := r.Response
			if got.Status != tt.status || body != tt.body || got.Length != tt.length {
				t.Errorf("answer = %d, %d bytes, Length %d; want %d, %d bytes, Length %d", got.Status, len(body), got.Length, tt.status, len(tt.body), tt.length)
			}
			for _, f := range got.Fields {
				if ownField(f.Name) {
					t.Errorf("Fields hold %q, want no framing", f.Name)
				}
			}
			again, _ := mustFetch(t, c, attempt(s.target(), tt.method, "/", nil))
			if again.Reused != tt.reuse {
				t.Errorf("connection reused = %v, want %v", again.Reused, tt.reuse)
			}
		})
	}
}

func TestAnswerFields(t *testing.T) {
	s := newScript(t, always("HTTP/1.1 299 Fine, thanks\r\nx-b:  1 \t\r\nSet-Cookie: a=1\r\nX-A :2\r\nSet-Cookie: b=2\r\nConnection: X-A\r\nEmpty:\r\nContent-Length: 0\r\n\r\n"))
	r, _ := mustFetch(t, client(t, Config{}), attempt(s.target(), "GET", "/", nil))
	want := message.Fields{{Name: "x-b", Value: "1"}, {Name: "Set-Cookie", Value: "a=1"}, {Name: "X-A", Value: "2"}, {Name: "Set-Cookie", Value: "b=2"}, {Name: "Connection", Value: "X-A"}, {Name: "Empty"}}
	if diff := cmp.Diff(want, r.Response.Fields); diff != "" {
		t.Errorf("Fields (-want +got):\n%s", diff)
	}
	if r.Response.Reason != "Fine, thanks" || r.Response.Version != "1.1" || r.Outcome.Status != 299 || r.Outcome.Phase != classify.PhaseDone {
		t.Errorf("answer = %q, %q, %+v", r.Response.Reason, r.Response.Version, r.Outcome)
	}
}

func TestCase_RI_05_AnswerTrailers(t *testing.T) {
	s := newScript(t, always("HTTP/1.1 200 OK\r\nTrailer: X-Check\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Check: ok\r\nContent-Length: 9\r\nX-Late: 1\r\n\r\n"))
	c := client(t, Config{})
	r, _ := mustFetch(t, c, attempt(s.target(), "GET", "/", nil))
	want := message.Fields{{Name: "X-Check", Value: "ok"}, {Name: "X-Late", Value: "1"}}
	if diff := cmp.Diff(want, r.Response.Trailers()); diff != "" {
		t.Errorf("Trailers (-want +got):\n%s", diff)
	}
	if r.Response.Fields.Has("X-Check") {
		t.Errorf("a trailer is among the fields")
	}
	if _, idle := c.Stats(); idle != 1 {
		t.Errorf("idle = %d, want 1", idle)
	}
}

func TestIncompleteBodies(t *testing.T) {
	length, chunked := "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	closing := "HTTP/1.1 200 OK\r\n\r\n"
	fin := func(*peer) {}
	for _, tt := range []struct {
		name, answer string
		end          func(*peer)
		body         string
		fault        classify.Fault
	}{
		{"RI-02 short of the length", length + "part", fin, "part", classify.FaultEOF},
		{"RST", length + "part", (*peer).reset, "part", classify.FaultReset},
		{"stall", length + "part", (*peer).hold, "part", classify.FaultTimeout},
		{"chunked, no end", chunked + "4\r\npart\r\n", fin, "part", classify.FaultEOF},
		{"chunked, cut in a chunk", chunked + "8\r\npart", fin, "part", classify.FaultEOF},
		{"chunked, cut in a size", chunked + "4\r\npart\r\n1", fin, "part", classify.FaultEOF},
		{"chunked, cut in the trailers", chunked + "4\r\npart\r\n0\r\nX: 1\r\n", fin, "part", classify.FaultEOF},
		{"chunked, stall", chunked + "4\r\npart\r\n", (*peer).hold, "part", classify.FaultTimeout},
		{"chunked, no size", chunked + "4\r\npart\r\n\r\n", (*peer).hold, "part", classify.FaultMalformed},
		{"chunked, bad size", chunked + "4\r\npart\r\nxyz\r\n", (*peer).hold, "part", classify.FaultMalformed},
		{"chunked, signed size", chunked + "+4\r\npart\r\n", (*peer).hold, "", classify.FaultMalformed},
		{"chunked, size overflow", chunked + "fffffffffffffffff\r\n", (*peer).hold, "", classify.FaultMalformed},
		{"chunked, bare LF", chunked + "4\npart\r\n", (*peer).hold, "", classify.FaultMalformed},
		{"chunked, data too long", chunked + "4\r\npartX\r\n", (*peer).hold, "part", classify.FaultMalformed},
		{"chunked, endless extension", chunked + "4;" + strings.Repeat("x", 10000), (*peer).hold, "", classify.FaultMalformed},
		{"chunked, much framing", chunked + strings.Repeat("1;"+strings.Repeat("x", 1000)+"\r\na\r\n", 100), (*peer).hold, strings.Repeat("a", 16), classify.FaultMalformed},
		{"chunked, bad trailer", chunked + "4\r\npart\r\n0\r\nX 1\r\n\r\n", (*peer).hold, "part", classify.FaultMalformed},
		{"chunked, endless trailers", chunked + "4\r\npart\r\n0\r\n" + strings.Repeat("X: 1\r\n", 20000), (*peer).hold, "part", classify.FaultMalformed},
		{"to the end of the connection, stall", closing + "part", (*peer).hold, "part", classify.FaultTimeout},
		{"to the end of the connection, RST", closing + "part", (*peer).reset, "part", classify.FaultReset},
		{"to the end of the connection, FIN is the end", closing + "part", fin, "part", classify.FaultNone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t, func(p *peer) {
				p.request()
				p.say(tt.answer)
				tt.end(p)
			})
			c := client(t, Config{})
			a := attempt(s.target(), "GET", "/", nil)
			if tt.fault == classify.FaultTimeout {
				a.BodyIdle = 200 * time.Millisecond
			}
			r, body, err := fetch(c, a)
			if r.Response == nil || r.Outcome.Phase != classify.PhaseBody {
				t.Fatalf("Send = %+v, want a header", r.Outcome)
			}
			if body != tt.body || BodyFault(err) != tt.fault {
				t.Errorf("body = %q, %v (fault %v); want %q, fault %v", body, err, BodyFault(err), tt.body, tt.fault)
			}
			if _, again := r.Response.Body.Read(make([]byte, 1)); err != nil && again != err {
				t.Errorf("second Read = %v, want %v again", again, err)
			}
			if open, _ := c.Stats(); open != 0 {
				t.Errorf("open = %d, want 0", open)
			}
		})
	}
}

// A body that is not read to its end costs the connection, one that is here
// already does not.
func TestCloseEarly(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		open         int
	}{
		{"complete with the header", ok, 1},
		{"large", "HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" + big, 0},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", 0},
	} {
		s := newScript(t, always(tt.answer))
		c := client(t, Config{})
		r := c.Send(t.Context(), attempt(s.target(), "GET", "/", nil))
		if r.Response == nil {
			t.Fatalf("%s: Send = %+v", tt.name, r.Outcome)
		}
		for range 2 {
			if err := r.Response.Body.Close(); err != nil {
				t.Errorf("%s: Close = %v, want nil", tt.name, err)
			}
		}
		if _, err := r.Response.Body.Read(make([]byte, 1)); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: Read after Close = %v, want ErrClosed", tt.name, err)
		}
		if open, _ := c.Stats(); open != tt.open {
			t.Errorf("%s: open = %d, want %d", tt.name, open, tt.open)
		}
	}
}

func TestBodyWriteTo(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" + big[:10],
		"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" + big,
	} {
		s := newScript(t, always(answer))
		c := client(t, Config{})
		r := c.Send(t.Context(), attempt(s.target(), "GET", "/", nil))
		var got strings.Builder
		n, err := io.Copy(&got, r.Response.Body)
		if err != nil || n != r.Response.Length || int64(got.Len()) != n {
			t.Errorf("Copy = %d, %v, want %d bytes", n, err, r.Response.Length)
		}
		if n, err := r.Response.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("Read after Copy = %d, %v, want EOF", n, err)
		}
		_ = r.Response.Body.Close()
	}
}

func TestInterim(t *testing.T) {
	s := newScript(t, always("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"+ok))
	a := attempt(s.target(), "GET", "/", nil)
	var got []string
	a.Interim = func(status int, f message.Fields) {
		got = append(got, string(rune('0'+status%100))+f.Get("Link"))
	}
	mustFetch(t, client(t, Config{}), a)
	if diff := cmp.Diff([]string{"3</x>", "2"}, got); diff != "" {
		t.Errorf("interim answers (-want +got):\n%s", diff)
	}
}

func TestCase_RI_07_Upgrade(t *testing.T) {
	s := newScript(t, func(p *peer) {
		p.request()
		p.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
		p.say(p.until("!"))
		p.hold()
		p.say("bye")
	})
	c := client(t, Config{})
	r := c.Send(t.Context(), attempt(s.target(), "GET", "/", nil, "Connection", "Upgrade", "Upgrade", "websocket"))
	if r.Response == nil || r.Response.Status != 101 || r.Response.Upgrade == nil {
		t.Fatalf("Send = %+v, want an upgrade", r.Outcome)
	}
	up := r.Response.Upgrade
	if _, err := io.WriteString(up, "echo!"); err != nil {
		t.Fatal(err)
	}
	if err := up.CloseWrite(); err != nil {
		t.Errorf("CloseWrite = %v", err)
	}
	if got, err := io.ReadAll(up); string(got) != "helloecho!bye" || err != nil {
		t.Errorf("read %q, %v, want helloecho!bye", got, err)
	}
	_, _ = up.Close(), up.Close()
	if open, idle := c.Stats(); open != 0 || idle != 0 {
		t.Errorf("Stats = %d, %d, want 0, 0", open, idle)
	}
	if want := "GET / HTTP/1.1\r\nHost: u1.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\necho!"; s.wire() != want {
		t.Errorf("wire = %q, want %q", s.wire(), want)
	}
}

// None of the attempt's limits holds once the connection has left HTTP.
func TestUpgradeHasNoLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := memScript(t, func(p *peer) {
			p.request()
			p.say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")
			time.Sleep(time.Hour)
			p.say(p.until("!"))
		})
		a := attempt(s.target(), "GET", "/", nil, "Upgrade", "x")
		a.Deadline = time.Now().Add(time.Minute)
		r := c.Send(t.Context(), a)
		if r.Response == nil {
			t.Fatalf("Send = %+v", r.Outcome)
		}
		time.Sleep(time.Hour)
		_, _ = io.WriteString(r.Response.Upgrade, "late!")
		if got, err := io.ReadAll(r.Response.Upgrade); string(got) != "late!" || err != nil {
			t.Errorf("read %q, %v, want late!", got, err)
		}
		_ = r.Response.Upgrade.Close()
	})
}

func TestUpgradeEndsWithContext(t *testing.T) {
	s := newScript(t, func(p *peer) {
		p.request()
		p.say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")
		p.hold()
	})
	ctx, cancel := context.WithCancel(t.Context())
	r := client(t, Config{}).Send(ctx, attempt(s.target(), "GET", "/", nil, "Upgrade", "x"))
	if r.Response == nil {
		t.Fatalf("Send = %+v", r.Outcome)
	}
	cancel()
	if _, err := r.Response.Upgrade.Read(make([]byte, 1)); !timedOut(err) {
		t.Errorf("Read = %v, want it cut", err)
	}
	_ = r.Response.Upgrade.Close()
}

func TestCancel(t *testing.T) {
	bubble := func(name string, f func(t *testing.T, ctx context.Context, cancel func())) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				f(t, ctx, cancel)
			})
		})
	}
	later := func(f func()) { time.AfterFunc(time.Second, f) }
	bubble("while the header is read", func(t *testing.T, ctx context.Context, cancel func()) {
		s, c := memScript(t, func(p *peer) {
			p.request()
			p.say("HTTP/1.1 200 OK\r\nX: ")
			p.hold()
		})
		later(cancel)
		check(t, c.Send(ctx, attempt(s.target(), "GET", "/", nil)), classify.PhaseHeader, classify.FaultCancelled)
	})
	bubble("in an upload", func(t *testing.T, ctx context.Context, cancel func()) {
		s, c := memScript(t, func(p *peer) {
			p.until("\r\n\r\n")
			<-p.t.Context().Done()
		})
		later(cancel)
		check(t, c.Send(ctx, attempt(s.target(), "POST", "/", endless())), classify.PhaseSent, classify.FaultCancelled)
	})
	bubble("before", func(t *testing.T, ctx context.Context, cancel func()) {
		s, c := memScript(t, always(ok))
		mustFetch(t, c, attempt(s.target(), "GET", "/", nil))
		cancel()
		check(t, c.Send(ctx, attempt(s.target(), "GET", "/", nil)), classify.PhaseReady, classify.FaultCancelled)
		check(t, c.Send(ctx, attempt(s.target(), "GET", "/", nil)), classify.PhaseConnect, classify.FaultCancelled)
		if n := s.requests(); n != 1 {
			t.Errorf("requests on the wire = %d, want 1", n)
		}
	})
	bubble("while the body is read", func(t *testing.T, ctx context.Context, cancel func()) {
		s, c := memScript(t, func(p *peer) {
			p.request()
			p.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart")
			p.hold()
		})
		r := c.Send(ctx, attempt(s.target(), "GET", "/", nil))
		later(cancel)
		_, err := io.ReadAll(r.Response.Body)
		if !errors.Is(err, context.Canceled) || BodyFault(err) != classify.FaultCancelled {
			t.Errorf("ReadAll = %v, want context.Canceled", err)
		}
		_ = r.Response.Body.Close()
	})
	bubble("while connecting", func(t *testing.T, ctx context.Context, cancel func()) {
		c := client(t, Config{Dial: dialHanging})
		later(cancel)
		check(t, c.Send(ctx, attempt(Target{Scheme: "http", Host: "192.0.2.1", Port: 80}, "GET", "/", nil)), classify.PhaseConnect, classify.FaultCancelled)
	})
	t.Run("after the answer", func(t *testing.T) {
		s := newScript(t, always(ok))
		c := client(t, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		r := c.Send(ctx, attempt(s.target(), "GET", "/", nil))
		cancel()
		if b, err := io.ReadAll(r.Response.Body); string(b) != "ok" || err != nil {
			t.Errorf("ReadAll = %q, %v, want what is here already", b, err)
		}
		mustFetch(t, c, attempt(s.target(), "GET", "/", nil))
		if n := s.conns(); n != 1 {
			t.Errorf("connections = %d, want 1", n)
		}
	})
}

func dialHanging(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
