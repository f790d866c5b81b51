package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// begin sends a header and the start of a content of unknown length.
func (h *h2conn) begin(id uint32, status int, part string) {
	h.buf.Reset()
	_ = h.enc.WriteField(hpack.HeaderField{Name: ":status", Value: strconv.Itoa(status)})
	_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.buf.Bytes(), EndHeaders: true})
	_ = h.WriteData(id, false, []byte(part))
}

// What holds for HTTP/1.1 holds for HTTP/2: a small answer that breaks is an
// outcome, a slow one is held for a second, and one that is retried is read for
// five.
func TestAnswersOverHTTP2(t *testing.T) {
	ca := newCA(t)
	for _, tt := range []struct {
		name       string
		first      func(*h2conn, uint32)
		requests   int
		body       string
		begun, end time.Duration
	}{
		{"503", func(c *h2conn, id uint32) { c.answer(id, 503, "busy") }, 2, "ok", 100 * time.Millisecond, 100 * time.Millisecond},
		{"broken", func(c *h2conn, id uint32) {
			c.begin(id, 200, "part")
			_ = c.WriteRSTStream(id, http2.ErrCodeInternal)
		}, 2, "ok", 100 * time.Millisecond, 100 * time.Millisecond},
		{"slow", func(c *h2conn, id uint32) {
			c.begin(id, 200, "part")
			time.Sleep(3 * time.Second)
			_ = c.WriteData(id, true, []byte("rest"))
		}, 1, "partrest", time.Second, 3 * time.Second},
		{"slow failure", func(c *h2conn, id uint32) { c.begin(id, 503, "busy") }, 2, "ok", 6 * time.Second, 6 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstreamH2("u1.test:443", ca.certificate("u1.test"), nil, func(c *h2conn, n int, s h2stream) {
					if n > 1 {
						c.answer(s.ID, 200, "ok")
						return
					}
					tt.first(c, s.ID)
				})
				first, got := r.firstByte(rawRequest("GET", "https://u1.test/x", ""))
				r.want(got, 200, nil, 0)
				u.want(tt.requests)
				r.wantBody(got, tt.body)
				r.between("first byte", first, tt.begun, tt.begun)
				r.between("end", got.Took, tt.end, tt.end)
				if v := got.Header.Get("Via"); !strings.HasPrefix(v, "2.0 retryproxy-") {
					t.Errorf("Via = %q, want the version that the answer came by", v)
				}
			}, patches(plain, trusting(ca), []string{"deadline: 6s", "deadline: 30s"})...)
		})
	}
}

// Trailers pass, so a client that says it takes them is believed by an HTTP/2
// upstream, on which gRPC insists; nothing else of TE means anything there, and
// HTTP/1.1 gets none of it (RFC 9110 section 7.6.1).
func TestTrailersAreAskedFor(t *testing.T) {
	ca := newCA(t)
	for _, tt := range []struct{ sent, want string }{{"trailers", "trailers"}, {"trailers, deflate;q=0.5", "trailers"}, {"deflate", ""}, {"", ""}} {
		t.Run(tt.sent, func(t *testing.T) {
			bubble(t, func(r *rig) {
				h2 := r.upstreamH2("u1.test:443", ca.certificate("u1.test"), nil, func(c *h2conn, _ int, s h2stream) { c.answer(s.ID, 200, "ok") })
				h1 := r.upstream("u2.test:80", answer(200, "ok"))
				r.want(r.get("https://u1.test/", "TE: "+tt.sent), 200, nil, 0)
				if got := h2.seen()[0].TE; got != tt.want {
					t.Errorf("te over HTTP/2 = %q, want %q", got, tt.want)
				}
				r.want(r.get("http://u2.test/", "TE: "+tt.sent), 200, h1, 1)
				r.wantSent(h1, 1, "TE", "")
			}, patches(plain, trusting(ca))...)
		})
	}
}
