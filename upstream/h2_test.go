package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"retryproxy/classify"
	"retryproxy/internal/memnet"
	"retryproxy/message"
)

// h2peer is an HTTP/2 server that does only what a test says.
type h2peer struct {
	*peer
	fr     *http2.Framer
	buf    bytes.Buffer
	enc    *hpack.Encoder
	bodies map[uint32]string // of requests that have begun
}

// h2log is what a server saw over all connections.
type h2log struct {
	mu      sync.Mutex
	headers [][]string // of each HEADERS frame that began a stream
}

func (l *h2log) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.headers)
}

// request is a stream whose request is complete.
type h2request struct {
	id       uint32
	body     string
	trailers []string
}

// talk makes a play out of one that gets each request.
func talk(l *h2log, each func(*h2peer, h2request)) func(*peer) {
	return func(p *peer) {
		h := open(p)
		for h != nil {
			r, ok := h.next(l)
			if !ok {
				return
			}
			each(h, r)
		}
	}
}

// open does the preface; nil: the connection ended.
func open(p *peer) *h2peer {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(p, preface); err != nil || string(preface) != http2.ClientPreface {
		return nil
	}
	h := &h2peer{peer: p, fr: http2.NewFramer(p, p), bodies: map[uint32]string{}}
	h.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.enc = hpack.NewEncoder(&h.buf)
	_ = h.fr.WriteSettings()
	return h
}

// next reads to the end of the next request; the frames of others may come
// between.
func (h *h2peer) next(l *h2log) (r h2request, ok bool) {
	for {
		f, err := h.fr.ReadFrame()
		if err != nil {
			return r, false
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = h.fr.WriteSettingsAck()
			}
		case *http2.PingFrame:
			_ = h.fr.WritePing(true, f.Data)
		case *http2.MetaHeadersFrame:
			if body, begun := h.bodies[f.StreamID]; begun {
				return h2request{f.StreamID, body, fieldLines(f)}, true
			}
			l.mu.Lock()
			l.headers = append(l.headers, fieldLines(f))
			l.mu.Unlock()
			if h.bodies[f.StreamID] = ""; f.StreamEnded() {
				return h2request{id: f.StreamID}, true
			}
		case *http2.DataFrame:
			h.bodies[f.StreamID] += string(f.Data())
			if n := uint32(len(f.Data())); n > 0 {
				_, _ = h.fr.WriteWindowUpdate(0, n), h.fr.WriteWindowUpdate(f.StreamID, n)
			}
			if f.StreamEnded() {
				return h2request{id: f.StreamID, body: h.bodies[f.StreamID]}, true
			}
		}
	}
}

func fieldLines(f *http2.MetaHeadersFrame) (lines []string) {
	for _, hf := range f.Fields {
		lines = append(lines, hf.Name+": "+hf.Value)
	}
	return lines
}

// fields sends HEADERS.
func (h *h2peer) fields(id uint32, end bool, pairs ...string) {
	h.buf.Reset()
	for i := 0; i < len(pairs); i += 2 {
		_ = h.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	_ = h.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.buf.Bytes(), EndHeaders: true, EndStream: end})
}

func (h *h2peer) answer(id uint32, body string) {
	h.fields(id, body == "", ":status", "200", "content-length", fmt.Sprint(len(body)))
	if body != "" {
		_ = h.fr.WriteData(id, true, []byte(body))
	}
}

// fin ends the connection as an orderly close does.
func (h *h2peer) fin() { _ = h.Conn.Close() }

func newH2Script(t *testing.T, plays ...func(*peer)) *script {
	return newTLSScript(t, []string{"h2", "http/1.1"}, plays...)
}

func TestH2Answers(t *testing.T) {
	var log h2log
	s := newH2Script(t, talk(&log, func(h *h2peer, r h2request) {
		switch r.id {
		case 1:
			h.answer(1, "hello")
		case 3:
			h.fields(3, false, ":status", "103", "link", "</x>")
			h.fields(3, false, ":status", "200", "set-cookie", "b=2", "x-a", "1", "set-cookie", "a=1", "trailer", "x-check")
			_ = h.fr.WriteData(3, false, []byte("part"))
			h.fields(3, true, "x-check", "ok", "x-late", "1")
		case 5:
			h.fields(5, true, ":status", "204")
		case 7:
			h.fields(7, true, ":status", "200", "content-length", "900")
		case 9:
			h.fields(9, true, ":status", "304", "content-length", "900")
		}
	}))
	c := client(t, trusting())
	r, body := mustFetch(t, c, attempt(s.tlsTarget(), "POST", "//a//b/../c?q=%zz&x=1;y", text("req"), "X-A", "1", "Connection", "X-B", "X-a", "2", "TE", "trailers", "Host", "evil"))
	if body != "hello" || r.Response.Status != 200 || r.Response.Version != "2.0" || r.Response.Length != 5 || r.Reused || r.Sent == 0 {
		t.Errorf("answer = %+v, %q", r.Response, body)
	}
	a := attempt(s.tlsTarget(), "OPTIONS", "*", nil, "User-Agent", "bot")
	var interim string
	a.Interim = func(status int, f message.Fields) { interim += fmt.Sprint(status, f) }
	r, body = mustFetch(t, c, a)
	wantFields := message.Fields{{Name: "Set-Cookie", Value: "b=2"}, {Name: "Set-Cookie", Value: "a=1"}, {Name: "X-A", Value: "1"}, {Name: "Trailer", Value: "X-Check"}}
	if diff := cmp.Diff(wantFields, r.Response.Fields); diff != "" || body != "part" || !r.Reused {
		t.Errorf("fields (-want +got):\n%s body %q", diff, body)
	}
	wantTrailers := message.Fields{{Name: "X-Check", Value: "ok"}, {Name: "X-Late", Value: "1"}}
	if diff := cmp.Diff(wantTrailers, r.Response.Trailers()); diff != "" {
		t.Errorf("trailers (-want +got):\n%s", diff)
	}
	if want := "103 [{Link </x>}]"; interim != want {
		t.Errorf("interim = %q, want %q", interim, want)
	}
	if r, body := mustFetch(t, c, attempt(s.tlsTarget(), "POST", "/", nil)); r.Response.Status != 204 || r.Response.Length != -1 || body != "" || r.Outcome.Phase != classify.PhaseDone {
		t.Errorf("answer = %+v, %q, want an empty 204", r.Response, body)
	}
	if r, _ := mustFetch(t, c, attempt(s.tlsTarget(), "HEAD", "/", nil)); r.Response.Length != 900 {
		t.Errorf("Length = %d, want 900", r.Response.Length)
	}
	if r, body := mustFetch(t, c, attempt(s.tlsTarget(), "GET", "/", nil)); r.Response.Length != 900 || body != "" {
		t.Errorf("304: Length = %d, body %q, want 900 and none", r.Response.Length, body)
	}
	want := [][]string{
		{":authority: u1.test", ":method: POST", ":path: //a//b/../c?q=%zz&x=1;y", ":scheme: https", "content-length: 3", "te: trailers", "x-a: 1", "x-a: 2"},
		{":authority: u1.test", ":method: OPTIONS", ":path: *", ":scheme: https", "user-agent: bot"},
		{":authority: u1.test", ":method: POST", ":path: /", ":scheme: https", "content-length: 0"},
		{":authority: u1.test", ":method: HEAD", ":path: /", ":scheme: https"},
		{":authority: u1.test", ":method: GET", ":path: /", ":scheme: https"},
	}
	sorted := cmp.Transformer("sorted", func(in []string) map[string]int {
		out := map[string]int{}
		for _, line := range in {
			out[line]++
		}
		return out
	})
	if diff := cmp.Diff(want, log.headers, sorted); diff != "" {
		t.Errorf("HEADERS (-want +got):\n%s", diff)
	}
	if n := s.conns(); n != 1 {
		t.Errorf("connections = %d, want 1", n)
	}
	if open, idle := c.Stats(); open != 1 || idle != 1 {
		t.Errorf("Stats = %d, %d, want 1, 1", open, idle)
	}
}

// Announced trailers need chunks on the way to an HTTP/1.1 client, so the length
// is not passed on.
func TestH2TrailersAndLength(t *testing.T) {
	var log h2log
	for _, tt := range []struct {
		method, announced, body string
		want                    int64
	}{
		{"GET", "x-check", "hello", -1},
		{"GET", "", "hello", 5},
		{"GET", "x-check", "", -1},
		{"HEAD", "x-check", "", 0},
	} {
		s := newH2Script(t, talk(&log, func(h *h2peer, r h2request) {
			fields := []string{":status", "200", "content-length", fmt.Sprint(len(tt.body))}
			if tt.announced != "" {
				fields = append(fields, "trailer", tt.announced)
			}
			h.fields(r.id, tt.method == "HEAD", fields...)
			if tt.method != "HEAD" {
				_ = h.fr.WriteData(r.id, false, []byte(tt.body))
				h.fields(r.id, true, "x-check", "ok")
			}
		}))
		r, body := mustFetch(t, client(t, trusting()), attempt(s.tlsTarget(), tt.method, "/", nil))
		if r.Response.Length != tt.want || body != tt.body {
			t.Errorf("%s, Trailer %q: Length = %d, body %q, want %d, %q", tt.method, tt.announced, r.Response.Length, body, tt.want, tt.body)
		}
		if got := r.Response.Trailers().Get("X-Check"); tt.want < 0 && got != "ok" {
			t.Errorf("%s, Trailer %q: X-Check = %q, want ok", tt.method, tt.announced, got)
		}
	}
}

func TestH2RequestTrailers(t *testing.T) {
	var log h2log
	got := make(chan h2request, 1)
	s := newH2Script(t, talk(&log, func(h *h2peer, r h2request) {
		got <- r
		h.answer(r.id, "")
	}))
	body := flow{r: strings.NewReader(big), trailers: message.Fields{{Name: "X-Sum", Value: "abc"}}}
	mustFetch(t, client(t, trusting()), attempt(s.tlsTarget(), "POST", "/", body, "Trailer", "X-Sum"))
	if diff := cmp.Diff(h2request{id: 1, body: big, trailers: []string{"x-sum: abc"}}, <-got, cmp.AllowUnexported(h2request{})); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

// What the frames say decides. HEADERS on the wire equal Sends.
func TestCase_H2_Faults(t *testing.T) {
	reset := func(code http2.ErrCode) func(*h2peer, h2request) {
		return func(h *h2peer, r h2request) { _ = h.fr.WriteRSTStream(r.id, code) }
	}
	goaway := func(last uint32, code http2.ErrCode) func(*h2peer, h2request) {
		return func(h *h2peer, r h2request) {
			_ = h.fr.WriteGoAway(last, code, nil)
			h.fin()
		}
	}
	for _, tt := range []struct {
		name  string
		each  func(*h2peer, h2request)
		phase classify.Phase
		fault classify.Fault
	}{
		{"refused", reset(http2.ErrCodeRefusedStream), classify.PhaseSent, classify.FaultRefusedStream},
		{"H2-01 goaway below", goaway(0, http2.ErrCodeNo), classify.PhaseSent, classify.FaultGoaway},
		{"H2-04 enhance your calm", goaway(0, http2.ErrCodeEnhanceYourCalm), classify.PhaseSent, classify.FaultGoaway},
		{"H2-03 internal error", reset(http2.ErrCodeInternal), classify.PhaseSent, classify.FaultReset},
		{"H2-03 cancel", reset(http2.ErrCodeCancel), classify.PhaseSent, classify.FaultReset},
		{"H2-03 goaway with the stream below", goaway(1, http2.ErrCodeNo), classify.PhaseSent, classify.FaultReset},
		{"connection lost", func(h *h2peer, _ h2request) { h.fin() }, classify.PhaseSent, classify.FaultReset},
		{"silence", func(*h2peer, h2request) {}, classify.PhaseSent, classify.FaultTimeout},
		{"no status", func(h *h2peer, r h2request) { h.fields(r.id, true, "x-a", "1") }, classify.PhaseHeader, classify.FaultMalformed},
		{"header over the limit", func(h *h2peer, r h2request) {
			h.fields(r.id, true, ":status", "200", "x-a", strings.Repeat("a", 14<<10), "x-b", strings.Repeat("b", 1<<10))
		}, classify.PhaseHeader, classify.FaultMalformed},
		{"only interim answers", func(h *h2peer, r h2request) {
			h.fields(r.id, false, ":status", "103")
			h.fin()
		}, classify.PhaseHeader, classify.FaultReset},
	} {
		for _, body := range []message.Body{nil, text("keyless"), text(strings.Repeat("b", 32<<10))} {
			t.Run(fmt.Sprintf("%s, content=%v", tt.name, body != nil), func(t *testing.T) {
				var log h2log
				s := newH2Script(t, talk(&log, tt.each))
				cfg := trusting()
				cfg.HeaderBytes = 8 << 10
				c := client(t, cfg)
				a := attempt(s.tlsTarget(), "POST", "/", body, "X-Idempotency-Key", "k")
				if tt.fault == classify.FaultTimeout {
					a.HeaderTimeout = 200 * time.Millisecond
				}
				r := c.Send(t.Context(), a)
				check(t, r, tt.phase, tt.fault)
				if r.Sent == 0 || r.Remote.String() != s.l.Addr().String() {
					t.Errorf("Sent = %d, Remote = %v", r.Sent, r.Remote)
				}
				if n := log.count(); n != 1 {
					t.Errorf("HEADERS on the wire = %d, want 1", n)
				}
			})
		}
	}
}

// The next attempt after a GOAWAY carries the whole body on a new connection.
func TestCase_H2_01_GoawayThenAgain(t *testing.T) {
	var log h2log
	bodies := make(chan string, 2)
	s := newH2Script(t, talk(&log, func(h *h2peer, r h2request) {
		bodies <- r.body
		_ = h.fr.WriteGoAway(0, http2.ErrCodeNo, nil)
		h.fin()
	}), talk(&log, func(h *h2peer, r h2request) {
		bodies <- r.body
		h.answer(r.id, "ok")
	}))
	c := client(t, trusting())
	a := attempt(s.tlsTarget(), "POST", "/", text(big+big+big))
	a.Unsafe = true
	check(t, c.Send(t.Context(), a), classify.PhaseSent, classify.FaultGoaway)
	mustFetch(t, c, a)
	for i := range 2 {
		if b := <-bodies; b != big+big+big {
			t.Errorf("attempt %d carried %d bytes, want %d", i+1, len(b), 3*len(big))
		}
	}
	if n := log.count(); n != 2 {
		t.Errorf("HEADERS on the wire = %d, want 2", n)
	}
}

// A kept session that ended meanwhile is dropped without a word.
func TestH2IdleSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log h2log
		c, target := memH2(t, talk(&log, func(h *h2peer, r h2request) {
			h.answer(r.id, "ok")
			time.Sleep(10 * time.Millisecond)
			_ = h.fr.WriteGoAway(r.id, http2.ErrCodeNo, nil)
			h.fin()
		}))
		for range 3 {
			a := attempt(target, "POST", "/", text("b"))
			a.Unsafe = true
			if r, _ := mustFetch(t, c, a); r.Reused {
				t.Errorf("an ended session was used")
			}
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
		}
		if n := log.count(); n != 3 {
			t.Errorf("HEADERS on the wire = %d, want 3", n)
		}
	})
}

// A session that was idle for a second is too old for an unsafe attempt, and one
// that was idle for the timeout is closed.
func TestH2IdleTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log h2log
		c, target := memH2(t, talk(&log, func(h *h2peer, r h2request) { h.answer(r.id, "ok") }))
		a := attempt(target, "POST", "/", text("b"))
		for _, step := range []struct {
			idle   time.Duration
			unsafe bool
			reused bool
		}{{0, true, false}, {time.Second - 1, true, true}, {time.Second, true, false}, {59 * time.Second, false, true}, {time.Minute, false, false}} {
			time.Sleep(step.idle)
			synctest.Wait()
			a.Unsafe = step.unsafe
			if r, _ := mustFetch(t, c, a); r.Reused != step.reused {
				t.Errorf("idle %v, unsafe %v: reused = %v, want %v", step.idle, step.unsafe, r.Reused, step.reused)
			}
			synctest.Wait()
			if open, idle := c.Stats(); open != 1 || idle != 1 {
				t.Errorf("Stats = %d, %d, want the newest session only", open, idle)
			}
		}
		c.CloseIdle()
		synctest.Wait()
		if open, idle := c.Stats(); open != 0 || idle != 0 || len(c.pool.hosts) != 0 {
			t.Errorf("after CloseIdle: Stats = %d, %d, hosts %d, want none", open, idle, len(c.pool.hosts))
		}
	})
}

// memH2 starts an HTTP/2 host in an in-memory network.
func memH2(t *testing.T, plays ...func(*peer)) (*Client, Target) {
	net := memnet.New()
	l, err := net.Listen("127.0.0.1:443")
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := identity()
	s := newScriptOn(t, tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}}), plays...)
	cfg := trusting()
	cfg.Dial = memDial(net)
	return client(t, cfg), s.tlsTarget()
}

// H2-04: a host that says GOAWAY at once gets one connection per Send.
func TestCase_H2_04_NoConnectionStorm(t *testing.T) {
	s := newH2Script(t, func(p *peer) {
		if h := open(p); h != nil {
			_ = h.fr.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, nil)
			h.fin()
		}
	})
	c := client(t, trusting())
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			r := c.Send(t.Context(), attempt(s.tlsTarget(), "GET", "/", nil))
			if r.Response != nil || r.Outcome.Fault != classify.FaultGoaway && r.Outcome.Fault != classify.FaultReset {
				t.Errorf("Send = %+v, want goaway or reset", r.Outcome)
			}
		})
	}
	wg.Wait()
	if n := s.conns(); n > 10*mostSessions {
		t.Errorf("connections = %d, want at most %d", n, 10*mostSessions)
	}
}

func TestH2Bodies(t *testing.T) {
	for _, tt := range []struct {
		name  string
		end   func(*h2peer, uint32)
		fault classify.Fault
		took  time.Duration
	}{
		{"reset", func(h *h2peer, id uint32) { _ = h.fr.WriteRSTStream(id, http2.ErrCodeInternal) }, classify.FaultReset, time.Second},
		{"lost", func(h *h2peer, _ uint32) { h.fin() }, classify.FaultReset, time.Second},
		{"short", func(h *h2peer, id uint32) { _ = h.fr.WriteData(id, true, nil) }, classify.FaultEOF, time.Second},
		{"stall", func(*h2peer, uint32) {}, classify.FaultTimeout, 10 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log h2log
				c, target := memH2(t, talk(&log, func(h *h2peer, r h2request) {
					h.fields(r.id, false, ":status", "200", "content-length", "100")
					_ = h.fr.WriteData(r.id, false, []byte("part"))
					time.Sleep(time.Second)
					tt.end(h, r.id)
				}))
				a := attempt(target, "GET", "/", nil)
				a.HeaderTimeout, a.BodyIdle = 500*time.Millisecond, 10*time.Second
				began := time.Now()
				r, body, err := fetch(c, a)
				if r.Response == nil || body != "part" || BodyFault(err) != tt.fault || time.Since(began) != tt.took {
					t.Errorf("body = %q, %v (fault %v) after %v, want fault %v after %v", body, err, BodyFault(err), time.Since(began), tt.fault, tt.took)
				}
			})
		})
	}
}

// A deadline pauses the reading; nothing is lost by it.
func TestH2BodyPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log h2log
		c, target := memH2(t, talk(&log, func(h *h2peer, r h2request) {
			h.fields(r.id, false, ":status", "200")
			for _, part := range []string{"one", "two", "three"} {
				_ = h.fr.WriteData(r.id, false, []byte(part))
				time.Sleep(3 * time.Second)
			}
			_ = h.fr.WriteData(r.id, true, nil)
		}))
		began, text := time.Now(), ""
		r := c.Send(t.Context(), attempt(target, "GET", "/", nil))
		body := r.Response.Body.(interface {
			io.ReadCloser
			SetReadDeadline(time.Time) error
		})
		read := func(until time.Duration) error {
			_ = body.SetReadDeadline(began.Add(until))
			b, err := io.ReadAll(body)
			text += string(b)
			return err
		}
		for _, tt := range []struct {
			until time.Duration
			text  string
		}{{time.Second, "one"}, {2 * time.Second, "one"}, {5 * time.Second, "onetwo"}} {
			if err := read(tt.until); !errors.Is(err, os.ErrDeadlineExceeded) || text != tt.text || time.Since(began) != tt.until {
				t.Errorf("read until %v = %q, %v after %v, want %q and a pause", tt.until, text, err, time.Since(began), tt.text)
			}
		}
		_ = body.SetReadDeadline(time.Time{})
		rest, err := io.ReadAll(body)
		if text+string(rest) != "onetwothree" || err != nil || time.Since(began) != 9*time.Second {
			t.Errorf("the whole = %q, %v after %v, want onetwothree after 9s", text+string(rest), err, time.Since(began))
		}
		_ = body.Close()

		r = c.Send(t.Context(), attempt(target, "GET", "/", nil))
		body = r.Response.Body.(interface {
			io.ReadCloser
			SetReadDeadline(time.Time) error
		})
		_ = body.SetReadDeadline(time.Now().Add(time.Second))
		if b, err := io.ReadAll(body); string(b) != "one" || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read = %q, %v, want one and a pause", b, err)
		}
		_ = body.Close() // ends the read that is still waiting
		if _, err := body.Read(make([]byte, 1)); !errors.Is(err, ErrClosed) {
			t.Errorf("Read after Close = %v, want ErrClosed", err)
		}
	})
}

func TestH2Cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log h2log
		c, target := memH2(t, talk(&log, func(h *h2peer, r h2request) {
			if r.id == 3 {
				h.fields(r.id, false, ":status", "200")
			}
		}))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		check(t, c.Send(ctx, attempt(target, "GET", "/", nil)), classify.PhaseSent, classify.FaultCancelled)
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		r := c.Send(ctx, attempt(target, "GET", "/", nil))
		if r.Response == nil || !r.Reused {
			t.Fatalf("Send = %+v, reused %v", r.Outcome, r.Reused)
		}
		time.AfterFunc(time.Second, cancel)
		if _, err := r.Response.Body.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("Read = %v, want context.Canceled", err)
		}
		_ = r.Response.Body.Close()
	})
}

func TestH2Uploads(t *testing.T) {
	var log h2log
	stuck := func(p *peer) {
		h := open(p)
		for h != nil {
			if f, err := h.fr.ReadFrame(); err != nil {
				return
			} else if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
				_ = h.fr.WriteSettingsAck()
			}
		}
	}
	refuse := func(p *peer) {
		if h := open(p); h != nil {
			for {
				f, err := h.fr.ReadFrame()
				if err != nil {
					return
				}
				if f, ok := f.(*http2.MetaHeadersFrame); ok {
					h.fields(f.StreamID, true, ":status", "413")
				}
			}
		}
	}
	broken := flow{r: io.MultiReader(strings.NewReader("x"), iotest.ErrReader(errors.New("client left")))}
	t.Run("stall", func(t *testing.T) {
		a := attempt(newH2Script(t, stuck).tlsTarget(), "POST", "/", endless())
		a.BodyIdle = 50 * time.Millisecond
		check(t, client(t, trusting()).Send(t.Context(), a), classify.PhaseSent, classify.FaultTimeout)
	})
	t.Run("early 413", func(t *testing.T) {
		r, _ := mustFetch(t, client(t, trusting()), attempt(newH2Script(t, refuse).tlsTarget(), "POST", "/", endless()))
		if r.Response.Status != 413 {
			t.Errorf("Status = %d, want 413", r.Response.Status)
		}
	})
	t.Run("content breaks", func(t *testing.T) {
		s := newH2Script(t, talk(&log, func(h *h2peer, r h2request) { h.answer(r.id, "") }))
		check(t, client(t, trusting()).Send(t.Context(), attempt(s.tlsTarget(), "POST", "/", broken)), classify.PhaseSent, classify.FaultBody)
	})
	t.Run("content was used", func(t *testing.T) {
		s := newH2Script(t, talk(&log, func(h *h2peer, r h2request) { h.answer(r.id, "") }))
		c := client(t, trusting())
		check(t, c.Send(t.Context(), attempt(s.tlsTarget(), "POST", "/", flow{err: message.ErrBodyUsed})), classify.PhaseReady, classify.FaultBody)
		mustFetch(t, c, attempt(s.tlsTarget(), "POST", "/", text("b")))
		if n := s.conns(); n != 1 {
			t.Errorf("connections = %d, want 1", n)
		}
	})
}

// Many attempts share a session; its limit of streams opens one more, not one
// for each that waits.
func TestH2Sharing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log h2log
		release := make(chan struct{})
		c, target := memH2(t, func(p *peer) {
			h := open(p)
			_ = h.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 4})
			var ids []uint32
			for len(ids) < 4 {
				r, ok := h.next(&log)
				if !ok {
					return
				}
				if r.body == "warm" {
					h.answer(r.id, "")
					continue
				}
				ids = append(ids, r.id)
			}
			<-release
			for _, id := range ids {
				h.answer(id, "ok")
			}
			h.hold()
		})
		mustFetch(t, c, attempt(target, "POST", "/", text("warm")))
		synctest.Wait()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { mustFetch(t, c, attempt(target, "POST", "/", text("b"))) })
		}
		synctest.Wait()
		if open, idle := c.Stats(); log.count() != 9 || open != 2 || idle != 0 {
			t.Errorf("HEADERS = %d, Stats = %d, %d; want 9, 2, 0", log.count(), open, idle)
		}
		close(release)
		wg.Wait()
		if open, idle := c.Stats(); open != 2 || idle != 2 {
			t.Errorf("Stats = %d, %d, want 2, 2", open, idle)
		}
	})
}

// Attempts that wait for another's dial share its failure, but not that it was
// given up.
func TestH2SharedDial(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cancel bool
		dials  int
	}{{"failed", false, 1}, {"given up", true, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dials atomic.Int64
				c := client(t, Config{Dial: func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
					dials.Add(1)
					select {
					case <-time.After(time.Second):
						return nil, syscall.ECONNREFUSED
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}})
				a := attempt(Target{Scheme: "https", Host: "192.0.2.1", Port: 443}, "GET", "/", nil)
				c.speaksH2.Add(a.Target, struct{}{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var wg sync.WaitGroup
				wg.Go(func() { c.Send(ctx, a) })
				synctest.Wait()
				for range 5 {
					wg.Go(func() { check(t, c.Send(t.Context(), a), classify.PhaseConnect, classify.FaultRefused) })
				}
				short := *a
				short.ConnectTimeout = 100 * time.Millisecond
				wg.Go(func() { check(t, c.Send(t.Context(), &short), classify.PhaseConnect, classify.FaultTimeout) })
				synctest.Wait()
				time.Sleep(200 * time.Millisecond)
				if tt.cancel {
					cancel()
				}
				wg.Wait()
				if n := int(dials.Load()); n != tt.dials {
					t.Errorf("dials = %d, want %d", n, tt.dials)
				}
			})
		})
	}
}

// An upgrade to a host that speaks HTTP/2 gets an HTTP/1.1 connection.
func TestH2HostUpgrade(t *testing.T) {
	var log h2log
	s := newH2Script(t, talk(&log, func(h *h2peer, r h2request) { h.answer(r.id, "ok") }), func(p *peer) {
		p.request()
		p.say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")
		p.hold()
	})
	c := client(t, trusting())
	mustFetch(t, c, attempt(s.tlsTarget(), "GET", "/", nil))
	r := c.Send(t.Context(), attempt(s.tlsTarget(), "GET", "/", nil, "Connection", "Upgrade", "Upgrade", "x"))
	if r.Response == nil || r.Response.Upgrade == nil {
		t.Fatalf("Send = %+v, want an upgrade", r.Outcome)
	}
	_ = r.Response.Upgrade.Close()
	if r, _ := mustFetch(t, c, attempt(s.tlsTarget(), "GET", "/", nil)); !r.Reused || r.Response.Version != "2.0" {
		t.Errorf("afterwards: reused %v, version %s, want the session", r.Reused, r.Response.Version)
	}
}

// The tap finds frames however the bytes are cut.
func TestTapFrames(t *testing.T) {
	var buf bytes.Buffer
	fr := http2.NewFramer(&buf, nil)
	_ = fr.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 15})
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("block")})
	_ = fr.WriteData(1, false, []byte("data data data"))
	_ = fr.WriteSettingsAck()
	_ = fr.WriteRSTStream(3, http2.ErrCodeRefusedStream)
	_ = fr.WriteGoAway(5, http2.ErrCodeNo, []byte("bye"))
	want := []string{"4 0 6", "1 1 5", "0 1 14", "4 0 0", "3 3 4 00000007", "7 0 11 00000005"}
	for size := 1; size <= buf.Len(); size++ {
		var f frames
		var got []string
		for b := buf.Bytes(); len(b) > 0; b = b[min(size, len(b)):] {
			f.pass(b[:min(size, len(b))], func(f frame) {
				line := fmt.Sprint(f.kind, f.stream, f.length)
				if f.kind == frameRSTStream || f.kind == frameGoaway {
					line += fmt.Sprintf(" %x", f.payload)
				}
				got = append(got, line)
			})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("frames in pieces of %d (-want +got):\n%s", size, diff)
		}
	}
}
