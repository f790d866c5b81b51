package upstream

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"

	"retryproxy/classify"
	"retryproxy/message"
)

// What befalls one of three streams in flight, or all of them: each gets the
// verdict that the frames prove, and nothing is sent again behind our back.
func TestH2Neighbours(t *testing.T) {
	type ids = []uint32
	const okay, reset, refused, goaway, malformed = "ok", "reset", "refused", "goaway", "malformed"
	ends := map[string]classify.Outcome{
		okay:      {Phase: classify.PhaseBody, Status: 200},
		reset:     {Phase: classify.PhaseSent, Fault: classify.FaultReset},
		refused:   {Phase: classify.PhaseSent, Fault: classify.FaultRefusedStream},
		goaway:    {Phase: classify.PhaseSent, Fault: classify.FaultGoaway},
		malformed: {Phase: classify.PhaseHeader, Fault: classify.FaultMalformed},
	}
	answer := func(h *h2peer, ids ...uint32) {
		for _, id := range ids {
			h.answer(id, "ok")
		}
	}
	second := func(code http2.ErrCode) func(*h2peer, ids) {
		return func(h *h2peer, id ids) {
			_ = h.fr.WriteRSTStream(id[1], code)
			answer(h, id[0], id[2])
		}
	}
	breaks := func(frame string) func(*h2peer, ids) {
		return func(h *h2peer, id ids) {
			answer(h, id[0])
			h.say(frame)
		}
	}
	for _, tt := range []struct {
		name string
		do   func(*h2peer, ids)
		want []string
	}{
		{"all answered", func(h *h2peer, id ids) { answer(h, id[2], id[0], id[1]) }, []string{okay, okay, okay}},
		{"one refused", second(http2.ErrCodeRefusedStream), []string{okay, refused, okay}},
		{"all refused", func(h *h2peer, id ids) {
			for _, id := range id {
				_ = h.fr.WriteRSTStream(id, http2.ErrCodeRefusedStream)
			}
		}, []string{refused, refused, refused}},
		{"H2-03 one INTERNAL_ERROR", second(http2.ErrCodeInternal), []string{okay, reset, okay}},
		{"H2-03 one CANCEL", second(http2.ErrCodeCancel), []string{okay, reset, okay}},
		{"H2-04 one ENHANCE_YOUR_CALM", second(http2.ErrCodeEnhanceYourCalm), []string{okay, reset, okay}},
		{"one PROTOCOL_ERROR", second(http2.ErrCodeProtocol), []string{okay, reset, okay}},
		{"one NO_ERROR without an answer", second(http2.ErrCodeNo), []string{okay, reset, okay}},
		{"one without a status", func(h *h2peer, id ids) {
			h.fields(id[1], true, "x-a", "1")
			answer(h, id[0], id[2])
		}, []string{okay, malformed, okay}},
		{"H2-01 GOAWAY of all", func(h *h2peer, _ ids) { _ = h.fr.WriteGoAway(1, http2.ErrCodeNo, nil) }, []string{goaway, goaway, goaway}},
		{"GOAWAY in between", func(h *h2peer, id ids) {
			_ = h.fr.WriteGoAway(id[1], http2.ErrCodeNo, nil)
			answer(h, id[0], id[1])
		}, []string{okay, okay, goaway}},
		{"GOAWAY in between, then the end", func(h *h2peer, id ids) {
			_ = h.fr.WriteGoAway(id[1], http2.ErrCodeNo, nil)
			answer(h, id[0])
			h.finLater()
		}, []string{okay, reset, goaway}},
		{"GOAWAY with an error in between", func(h *h2peer, id ids) {
			answer(h, id[0])
			_ = h.fr.WriteGoAway(id[1], http2.ErrCodeInternal, nil)
			h.finLater()
		}, []string{okay, reset, goaway}},
		{"GOAWAY in two steps", func(h *h2peer, id ids) {
			_ = h.fr.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)
			_ = h.fr.WriteGoAway(id[0], http2.ErrCodeNo, nil)
			answer(h, id[0])
		}, []string{okay, goaway, goaway}},
		{"GOAWAY and a reset", func(h *h2peer, id ids) {
			_ = h.fr.WriteRSTStream(id[0], http2.ErrCodeCancel)
			_ = h.fr.WriteGoAway(id[1], http2.ErrCodeNo, nil)
			answer(h, id[1])
		}, []string{reset, okay, goaway}},
		{"connection lost", func(h *h2peer, id ids) { answer(h, id[0]); h.finLater() }, []string{okay, reset, reset}},
		{"PUSH_PROMISE", func(h *h2peer, id ids) {
			answer(h, id[0])
			_ = h.fr.WritePushPromise(http2.PushPromiseParam{StreamID: id[1], PromiseID: 2, EndHeaders: true})
		}, []string{okay, reset, reset}},
		{"DATA on stream 0", breaks("\x00\x00\x01\x00\x00\x00\x00\x00\x00x"), []string{okay, reset, reset}},
		{"frame over the limit", breaks("\xff\xff\xff\x00\x00\x00\x00\x00\x05"), []string{okay, reset, reset}},
		{"SETTINGS of a wrong length", breaks("\x00\x00\x01\x04\x00\x00\x00\x00\x00x"), []string{okay, reset, reset}},
		{"field block that is none", breaks("\x00\x00\x01\x01\x05\x00\x00\x00\x07\xff"), []string{okay, reset, malformed}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log h2log
				order := map[uint32]string{}
				c, target := memH2(t, func(p *peer) {
					h := open(p)
					var all ids
					for len(all) < 3 {
						r, ok := h.next(&log)
						if !ok {
							return
						}
						if r.body == "warm" {
							h.answer(r.id, "ok")
							continue
						}
						all = append(all, r.id)
						order[r.id] = r.body
					}
					slices.Sort(all)
					tt.do(h, all)
					h.hold()
				})
				mustFetch(t, c, attempt(target, "POST", "/", text("warm")))
				got := map[string]classify.Outcome{}
				var mu sync.Mutex
				var wg sync.WaitGroup
				for i := range 3 {
					body := fmt.Sprint("order ", i)
					wg.Go(func() {
						r, _, err := fetch(c, attempt(target, "POST", "/", text(body)))
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							t.Errorf("%s: body ended with %v", body, err)
						}
						r.Outcome.Detail = ""
						got[body] = r.Outcome
					})
				}
				wg.Wait()
				for i, want := range tt.want {
					if o := got[order[uint32(3+2*i)]]; o != ends[want] {
						t.Errorf("stream %d = %+v, want %s: %+v", 3+2*i, o, want, ends[want])
					}
				}
				if n := log.count(); n != 4 {
					t.Errorf("HEADERS on the wire = %d, want 4", n)
				}
			})
		})
	}
}

// finLater closes once the other side has read all: what a closed socket still had
// to read resets the connection, and that takes back what was sent.
func (h *h2peer) finLater() {
	time.Sleep(time.Millisecond)
	h.fin()
}

// A stream whose window is closed waits alone.
func TestH2StallOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, target := memH2(t, func(p *peer) {
			h := open(p)
			_ = h.fr.WriteWindowUpdate(0, 1<<20) // of the session: large enough for all
			var got int
			var stalled uint32
			for {
				f, err := h.fr.ReadFrame()
				if err != nil {
					return
				}
				switch f := f.(type) {
				case *http2.SettingsFrame:
					if !f.IsAck() {
						_ = h.fr.WriteSettingsAck()
					}
				case *http2.MetaHeadersFrame:
					if f.PseudoValue("path") == "/upload" {
						stalled = f.StreamID
						break
					}
					h.answer(f.StreamID, "ok")
					if f.PseudoValue("path") == "/last" {
						_ = h.fr.WriteWindowUpdate(stalled, 1<<20)
					}
				case *http2.DataFrame:
					if got += len(f.Data()); f.StreamEnded() {
						h.answer(f.StreamID, fmt.Sprint(got))
					}
				}
			}
		})
		mustFetch(t, c, attempt(target, "GET", "/warm", nil))
		var wg sync.WaitGroup
		wg.Go(func() {
			a := attempt(target, "POST", "/upload", text(strings.Repeat("b", 200<<10)))
			a.BodyIdle = time.Hour
			if _, body := mustFetch(t, c, a); body != fmt.Sprint(200<<10) {
				t.Errorf("the upload arrived with %s bytes", body)
			}
		})
		synctest.Wait() // its window is used up
		began := time.Now()
		for range 5 {
			if r, _ := mustFetch(t, c, attempt(target, "GET", "/", nil)); !r.Reused {
				t.Error("a neighbour of the stalled stream got another connection")
			}
		}
		mustFetch(t, c, attempt(target, "GET", "/last", nil))
		wg.Wait()
		if took := time.Since(began); took != 0 {
			t.Errorf("the stalled stream held its neighbours up for %v", took)
		}
	})
}

// An answer that nobody reads holds up only itself.
func TestH2UnreadAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log h2log
		c, target := memH2(t, talk(&log, func(h *h2peer, r h2request) {
			if r.id != 1 {
				h.answer(r.id, "ok")
				return
			}
			h.fields(r.id, false, ":status", "200")
			for range 64 { // 1 MiB, well within the client's window of a stream
				_ = h.fr.WriteData(r.id, false, make([]byte, 16<<10))
			}
		}))
		r := c.Send(t.Context(), attempt(target, "GET", "/", nil))
		if r.Response == nil {
			t.Fatal(r.Outcome)
		}
		defer r.Response.Body.Close()
		for range 5 {
			mustFetch(t, c, attempt(target, "GET", "/", nil))
		}
		if n := log.count(); n != 6 {
			t.Errorf("HEADERS on the wire = %d, want 6", n)
		}
	})
}

// SETTINGS that allow fewer streams than are in flight harm none of them; what
// comes then goes elsewhere.
func TestH2FewerStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log h2log
		release := make(chan struct{})
		c, target := memH2(t, func(p *peer) {
			h := open(p)
			var all []uint32
			for len(all) < 3 {
				r, ok := h.next(&log)
				if !ok {
					return
				}
				all = append(all, r.id)
			}
			_ = h.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
			<-release
			for _, id := range all {
				h.answer(id, "ok")
			}
			h.hold()
		}, talk(&log, func(h *h2peer, r h2request) { h.answer(r.id, "ok") }))
		c.speaksH2.Add(target, struct{}{})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { mustFetch(t, c, attempt(target, "POST", "/", text("b"))) })
		}
		synctest.Wait()
		r, _ := mustFetch(t, c, attempt(target, "POST", "/", text("later")))
		if open, _ := c.Stats(); r.Reused || open != 2 {
			t.Errorf("the fourth: reused %v, connections %d, want one of its own", r.Reused, open)
		}
		close(release)
		wg.Wait()
		if n := log.count(); n != 4 {
			t.Errorf("HEADERS on the wire = %d, want 4", n)
		}
	})
}

// A fresh session that says GOAWAY before it has got a request: nothing was sent.
func TestH2GoawayFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log h2log
		c, target := memH2(t, func(p *peer) {
			h := open(p)
			_ = h.fr.WriteGoAway(0, http2.ErrCodeNo, nil)
			h.next(&log)
		})
		r := c.Send(t.Context(), attempt(target, "POST", "/", text("b")))
		synctest.Wait()
		want, fault := classify.PhaseReady, classify.FaultGoaway
		if log.count() == 1 {
			// A stream that begins while the GOAWAY is being read may hear of the end of the
			// connection first.
			if want = classify.PhaseSent; r.Outcome.Fault == classify.FaultReset {
				fault = classify.FaultReset
			}
		}
		check(t, r, want, fault)
		if (r.Sent > 0) != (log.count() == 1) {
			t.Errorf("Sent = %d with %d HEADERS on the wire", r.Sent, log.count())
		}
	})
}

func TestH2GRPC(t *testing.T) {
	var log h2log
	s := newH2Script(t, talk(&log, func(h *h2peer, r h2request) {
		if r.id == 1 { // trailers only
			h.fields(r.id, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "12")
			return
		}
		h.fields(r.id, false, ":status", "200", "content-type", "application/grpc")
		_ = h.fr.WriteData(r.id, false, []byte(r.body))
		h.fields(r.id, true, "grpc-status", "0", "grpc-message", strings.Join(r.trailers, ","))
	}))
	c := client(t, trusting())
	r, body := mustFetch(t, c, attempt(s.tlsTarget(), "POST", "/a.B/C", text("in"), "TE", "trailers"))
	if got := r.Response.Fields.Get("Grpc-Status"); got != "12" || body != "" || r.Outcome.Phase != classify.PhaseDone {
		t.Errorf("trailers-only answer = %q, %q, phase %v", got, body, r.Outcome.Phase)
	}
	in := flow{r: strings.NewReader("message"), trailers: message.Fields{{Name: "X-Sum", Value: "1"}}}
	r, body = mustFetch(t, c, attempt(s.tlsTarget(), "POST", "/a.B/C", in, "TE", "trailers", "Trailer", "X-Sum"))
	want := message.Fields{{Name: "Grpc-Message", Value: "x-sum: 1"}, {Name: "Grpc-Status", Value: "0"}}
	if diff := cmp.Diff(want, r.Response.Trailers()); diff != "" || body != "message" {
		t.Errorf("body = %q, trailers (-want +got):\n%s", body, diff)
	}
}

// An answer that is complete before the request is stands, and the RST_STREAM
// NO_ERROR that asks for no more of it (RFC 9113 section 8.1) takes nothing back.
func TestH2EarlyAnswer(t *testing.T) {
	for _, body := range []string{"", "too large, thank you"} {
		s := newH2Script(t, func(p *peer) {
			h := open(p)
			for h != nil {
				f, err := h.fr.ReadFrame()
				if err != nil {
					return
				}
				switch f := f.(type) {
				case *http2.SettingsFrame:
					if !f.IsAck() {
						_ = h.fr.WriteSettingsAck()
					}
				case *http2.MetaHeadersFrame:
					if f.StreamEnded() {
						h.answer(f.StreamID, "ok")
						break
					}
					h.fields(f.StreamID, body == "", ":status", "413")
					if body != "" {
						_ = h.fr.WriteData(f.StreamID, true, []byte(body))
					}
					_ = h.fr.WriteRSTStream(f.StreamID, http2.ErrCodeNo)
				}
			}
		})
		c := client(t, trusting())
		r, got := mustFetch(t, c, attempt(s.tlsTarget(), "POST", "/", flow{r: io.LimitReader(zeros{}, 10<<20)}))
		if r.Response.Status != 413 || got != body {
			t.Errorf("answer = %d %q, want 413 %q", r.Response.Status, got, body)
		}
		if r, got := mustFetch(t, c, attempt(s.tlsTarget(), "GET", "/", nil)); !r.Reused || got != "ok" {
			t.Errorf("the next = %q, reused %v, want ok on the same session", got, r.Reused)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
