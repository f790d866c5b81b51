package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"
	"strings"
	"time"

	"retryproxy/backoff"
	"retryproxy/inbound"
	"retryproxy/message"
)

// answersItself answers OPTIONS * about this server, and OPTIONS and TRACE whose
// Max-Forwards ran out here; otherwise it counts that down (RFC 9110 section 7.6.2).
func (x *exchange) answersItself() bool {
	r := &x.call.Request
	if x.asksUs() {
		x.answerHere()
		return true
	}
	if r.Method != "OPTIONS" && r.Method != "TRACE" || !r.Fields.Has("Max-Forwards") {
		return false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(r.Fields.Get("Max-Forwards")), 10, 32)
	if err != nil {
		return false
	}
	if n > 0 {
		r.Fields.Set("Max-Forwards", strconv.FormatUint(n-1, 10))
		return false
	}
	x.answerHere()
	return true
}

// answerHere is the answer to a request that goes no further: empty, or the echo
// of a TRACE.
func (x *exchange) answerHere() {
	x.outcome.result = "rejected"
	x.outcome.decision = Decision{Do: Deliver, Reason: "ok"}
	out := &message.Response{Status: 200, Body: io.NopCloser(strings.NewReader(""))}
	out.Fields.Add(hCallID, x.id)
	if r := &x.call.Request; r.Method == "TRACE" {
		text := traceText(r)
		out.Fields.Add("Content-Type", "message/http")
		out.Length, out.Body = int64(len(text)), io.NopCloser(strings.NewReader(text))
	}
	_ = x.write(out, 30*time.Second)
}

// traceText echoes the request without what must not be shown (RFC 9110 section 9.3.8).
func traceText(r *message.Request) string {
	var b strings.Builder
	b.WriteString(r.Method + " " + r.Target + " HTTP/" + r.Version + "\r\nHost: " + r.Authority + "\r\n")
	for _, f := range r.Fields {
		switch strings.ToLower(f.Name) {
		case "authorization", "proxy-authorization", "cookie":
		default:
			b.WriteString(f.Name + ": " + f.Value + "\r\n")
		}
	}
	return b.String() + "\r\n"
}

// retryAfter reads the server's wish; a bad one is counted and ignored.
func (x *exchange) retryAfter(r *message.Response) time.Duration {
	if !x.policy.RetryStatuses.Has(r.Status) {
		return 0
	}
	v := r.Fields.Get("Retry-After")
	if v == "" {
		return 0
	}
	d, ok := backoff.RetryAfter(v, r.Fields.Get("Date"), time.Now())
	if !ok {
		x.p.ignored("retry_after")
	}
	return d
}

// reverseForm: the client speaks to us as to a server, not as to a proxy.
func (x *exchange) reverseForm() bool {
	return x.call.Form == inbound.Origin && x.call.Tunnel == nil
}

// releaseIfOff ends the wait of a retry that the switch no longer allows.
func (x *exchange) releaseIfOff(s *Switch) {
	x.mu.Lock()
	ticket, retry := x.live.ticket, len(x.past) > 0
	x.mu.Unlock()
	if ticket != nil && retry && s.Value(&x.attrs, time.Now()) != "on" {
		x.p.Limiter.Refuse(ticket, "retries_off", time.Now())
	}
}

func (p *Proxy) ignored(field string) {
	if h := p.Hooks.Ignored; h != nil {
		h(field)
	}
}

// hashKey is what logs and operators see of a key.
func hashKey(key string) string {
	h := sha256.Sum256([]byte(key))
	return hex.EncodeToString(h[:8])
}
