package upstream

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"retryproxy/classify"
)

func h2cTarget(s *script) Target {
	t := s.target()
	t.Scheme = "h2c"
	return t
}

func TestH2CRequests(t *testing.T) {
	var log h2log
	s := newScript(t, talk(&log, func(h *h2peer, r h2request) { h.answer(r.id, "ok") }))
	c := client(t, Config{})
	a := attempt(h2cTarget(s), "GET", "/a?b", nil, "Connection", "Upgrade", "Upgrade", "websocket")
	a.Request.Authority = ""
	for i := range 2 {
		r, body := mustFetch(t, c, a)
		if body != "ok" || r.Response.Version != "2.0" || r.Reused != (i > 0) {
			t.Errorf("answer %d = %q, HTTP/%s, reused %v", i, body, r.Response.Version, r.Reused)
		}
	}
	want := []string{fmt.Sprint(":authority: ", s.l.Addr()), ":method: GET", ":path: /a?b", ":scheme: http"}
	for _, got := range log.headers {
		if diff := cmp.Diff(want, got, cmpopts.SortSlices(strings.Compare)); diff != "" {
			t.Errorf("HEADERS (-want +got):\n%s", diff)
		}
	}
	if open, idle := c.Stats(); log.count() != 2 || open != 1 || idle != 1 {
		t.Errorf("HEADERS = %d, Stats = %d, %d, want 2, 1, 1", log.count(), open, idle)
	}
}

// Attempts that come at once share the first dial.
func TestH2CSharesItsDial(t *testing.T) {
	var log h2log
	s := newScript(t, talk(&log, func(h *h2peer, r h2request) { h.answer(r.id, "ok") }))
	c := client(t, Config{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { mustFetch(t, c, attempt(h2cTarget(s), "POST", "/", text("b"))) })
	}
	wg.Wait()
	if n := s.conns(); n != 1 || log.count() != 20 {
		t.Errorf("connections = %d, HEADERS = %d, want 1 and 20", n, log.count())
	}
}

// A peer that does not begin with SETTINGS never gets to see a request.
func TestH2CNotSpoken(t *testing.T) {
	const none = "HTTP/2 without TLS is not spoken there"
	for _, tt := range []struct {
		name   string
		play   func(*peer)
		phase  classify.Phase
		fault  classify.Fault
		detail string
	}{
		{"HTTP/1.1", func(p *peer) { p.request(); p.say("HTTP/1.1 400 Bad Request\r\n\r\n"); p.hold() }, classify.PhaseReady, classify.FaultReset, none},
		{"another protocol", func(p *peer) { p.say("SSH-2.0-OpenSSH\r\n"); p.hold() }, classify.PhaseReady, classify.FaultReset, none},
		{"too short to be a frame", func(p *peer) { p.request(); p.say("no") }, classify.PhaseReady, classify.FaultReset, none},
		{"another frame", func(p *peer) { p.say("\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"); p.hold() }, classify.PhaseReady, classify.FaultReset, none},
		{"closed", func(p *peer) { p.request() }, classify.PhaseReady, classify.FaultReset, none},
		{"reset", func(p *peer) { p.request(); p.reset() }, classify.PhaseReady, classify.FaultReset, none},
		{"silence", (*peer).hold, classify.PhaseConnect, classify.FaultTimeout, "no answer from"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t, tt.play)
			a := attempt(h2cTarget(s), "POST", "/secret", text("secret"))
			if tt.fault == classify.FaultTimeout {
				a.ConnectTimeout = 100 * time.Millisecond
			}
			c := client(t, Config{})
			r := c.Send(t.Context(), a)
			check(t, r, tt.phase, tt.fault)
			if !strings.Contains(r.Outcome.Detail, tt.detail) || r.Sent != 0 {
				t.Errorf("Detail = %q, Sent = %d, want %q in it and none", r.Outcome.Detail, r.Sent, tt.detail)
			}
			through := to(newExit(t, "shop-1", "http", s.l.Addr(), nil), a)
			r = c.Send(t.Context(), through)
			if tt.fault == classify.FaultTimeout {
				check(t, r, tt.phase, classify.FaultEgressTimeout)
			} else {
				check(t, r, tt.phase, classify.FaultEgressFailed)
			}
			if !strings.Contains(r.Outcome.Detail, "through shop-1") {
				t.Errorf("Detail = %q, want the exit in it", r.Outcome.Detail)
			}
			s.stop()
			var got []byte
			(&frames{}).pass([]byte(strings.ReplaceAll(s.wire(), clientPreface, "")), func(f frame) { got = append(got, f.kind) })
			if strings.ContainsAny(string(got), "\x00\x01") {
				t.Errorf("frames on the wire = %v, want neither DATA nor HEADERS", got)
			}
			if open, idle := c.Stats(); open != 0 || idle != 0 {
				t.Errorf("Stats = %d, %d, want none", open, idle)
			}
		})
	}
}

// to is a through e.
func to(e Exit, a *Attempt) *Attempt {
	b := *a
	b.Target.Exit = e
	return &b
}
