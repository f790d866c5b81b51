package main

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// trusting is the patch that makes a rig trust a test's authority.
func trusting(ca *authority) []string {
	return []string{"\nlisten:", "\ntls: {ca_files: ['" + ca.file() + "']}\nlisten:"}
}

func TestCase_H2_01_GoawayTakesTheBodyAlong(t *testing.T) {
	ca := newCA(t)
	for _, key := range []string{"k", ""} {
		t.Run("key "+key, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstreamH2("u1.test:443", ca.certificate("u1.test"), nil, func(c *h2conn, n int, s h2stream) {
					if n == 1 {
						c.goaway(0, http2.ErrCodeNo)
						return
					}
					sum := sha256.Sum256(s.Body)
					c.answer(s.ID, 200, hex.EncodeToString(sum[:]))
				})
				body := strings.Repeat("0123456789abcdef", 2<<10)
				headers := []string{"X-A: 1"}
				if key != "" {
					headers = append(headers, "X-Idempotency-Key: "+key)
				}
				got := r.post("https://u1.test/x", body, headers...)
				r.want(got, 200, nil, 0)
				u.want(2)
				if sum := sha256.Sum256([]byte(body)); got.Body != hex.EncodeToString(sum[:]) {
					t.Errorf("the second attempt carried another body: sum %s", got.Body)
				}
				first, second := u.seen()[0], u.seen()[1]
				if second.Conn == first.Conn || second.Key != key || first.Key != key {
					t.Errorf("attempts = %+v, %+v, want the key on both, on two connections", first.Conn, second.Conn)
				}
				r.wantEnd("recovered", "ok", 2)
				r.wantVerdict(1, "transient", "goaway")
				if v := r.last().Attempts[0].Verdict; v.Basis != "refused" || v.Executed.String() != "no" {
					t.Errorf("verdict = %+v, want that nothing was done", v)
				}
			}, trusting(ca)...)
		})
	}
}

func TestCase_H2_03_OtherResetsAreNoRefusals(t *testing.T) {
	ca := newCA(t)
	for name, end := range map[string]func(*h2conn, h2stream){
		"internal error":              func(c *h2conn, s h2stream) { _ = c.WriteRSTStream(s.ID, http2.ErrCodeInternal) },
		"cancel":                      func(c *h2conn, s h2stream) { _ = c.WriteRSTStream(s.ID, http2.ErrCodeCancel) },
		"goaway with the stream done": func(c *h2conn, s h2stream) { c.goaway(s.ID, http2.ErrCodeNo); _ = c.Conn.Close() },
		"connection lost":             func(c *h2conn, _ h2stream) { _ = c.Conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstreamH2("u1.test:443", ca.certificate("u1.test"), nil, func(c *h2conn, _ int, s h2stream) { end(c, s) })
				got := r.post("https://u1.test/x", "keyless")
				r.want(got, 502, nil, 0)
				u.want(1)
				r.wantHeader(got, "X-Retry-Reason", "manual_review")
				r.wantHeader(got, "X-Retry-Executed", "maybe")
				r.wantHeader(got, "X-Retry-Advice", "check")
				if v := r.last().Attempts[0].Verdict; v.Class.String() != "unknown" {
					t.Errorf("verdict = %+v, want unknown", v)
				}
			}, trusting(ca)...)
		})
	}
	bubble(t, func(r *rig) { // a refusal is one
		u := r.upstreamH2("u1.test:443", ca.certificate("u1.test"), nil, func(c *h2conn, n int, s h2stream) {
			if n == 1 {
				_ = c.WriteRSTStream(s.ID, http2.ErrCodeRefusedStream)
				return
			}
			c.answer(s.ID, 200, "ok")
		})
		r.want(r.post("https://u1.test/x", "keyless"), 200, nil, 0)
		u.want(2)
		r.wantVerdict(1, "transient", "refused_stream")
	}, trusting(ca)...)
}

// The contract: there is no upstream answer, so it is a 502 of our own.
func TestCase_H2_04_EnhanceYourCalm(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamH2("u1.test:443", ca.certificate("u1.test"), nil, func(c *h2conn, _ int, _ h2stream) {
			c.goaway(0, http2.ErrCodeEnhanceYourCalm)
		})
		all := r.together(10, func(int) reply { return r.get("https://u1.test/x") })
		for i := range all {
			r.want(all[i], 502, nil, 0)
			r.wantHeader(all[i], "X-Retry-Reason", "attempts_exhausted")
			r.wantHeader(all[i], "X-Retry-Executed", "no")
			// 100 ms, 200 ms and 400 ms, each by 20 % less or more
			r.between("a call", all[i].Took, 560*time.Millisecond, 840*time.Millisecond)
		}
		for _, c := range r.ended() {
			if len(c.Attempts) != 4 {
				t.Errorf("attempts of a call = %d, want 4", len(c.Attempts))
			}
			for i := 1; i < len(c.Attempts); i++ {
				low := 80 * time.Millisecond << (i - 1)
				if gap := c.Attempts[i].Started.Sub(c.Attempts[i-1].Started); gap < low {
					t.Errorf("gap before attempt %d = %v, want at least %v", i+1, gap, low)
				}
			}
		}
		if n := len(u.seen()); n > 40 {
			t.Errorf("requests at the upstream = %d, want at most 40", n)
		}
		if n := r.dials.Load(); n > 40 {
			t.Errorf("connections = %d, want at most one for each attempt", n)
		}
	}, trusting(ca)...)
}
