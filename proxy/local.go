package proxy

import (
	"io"
	"strconv"
	"strings"
	"time"

	"retryproxy/backoff"
	"retryproxy/inbound"
	"retryproxy/message"
)

// internalHost is a name that only our own clients know: what they ask of it is
// answered here.
const internalHost = "retryproxy.internal"

// forUs says whether the request, or the tunnel, is for that name, and whether it can
// be answered: as plain HTTP at port 80. In a tunnel to somebody else it is as wrong
// as any other name, and no tunnel goes inside one.
func (x *exchange) forUs() (named, answered bool) {
	r, t, scheme := &x.call.Request, x.call.Tunnel, x.call.Request.Scheme
	switch {
	case !hasPrefixFold(r.Authority, internalHost), t == nil && x.call.Form == inbound.Origin:
		return false, false
	case t != nil && !hasPrefixFold(t.Authority, internalHost):
		return false, false
	case t != nil:
		scheme = insideScheme(t)
	}
	host, port, err := splitAuthority(scheme, r.Authority)
	named = err == nil && host == internalHost
	fits := t == nil || x.call.Form != inbound.Authority && sameAuthority(scheme, t.Authority, r.Authority)
	return named, named && port == 80 && fits
}

// answerInternal gives out what our clients may have of us: the certificate of
// our CA.
func (x *exchange) answerInternal() {
	if x.call.Form == inbound.Authority {
		x.openInternal()
		return
	}
	path, _, _ := strings.Cut(x.call.Request.Target, "?")
	method := x.call.Request.Method
	if id, ok := x.receiptAsked(); ok {
		x.answerReceipt(id)
		return
	}
	switch i := x.set.Intercept; {
	case path != "/ca.pem":
		x.answerText(404, "text/plain; charset=utf-8", "retryproxy answers here: /ca.pem, /calls/{id} of a receipt\n")
	case method != "GET" && method != "HEAD":
		x.answerText(405, "text/plain; charset=utf-8", "GET only\n", message.Field{Name: "Allow", Value: "GET, HEAD"})
	case i == nil:
		x.answerText(404, "text/plain; charset=utf-8", "no tunnels are opened here (intercept.hosts), so there is no CA to trust\n")
	default:
		x.answerText(200, "application/x-pem-file", string(i.CA.PEM()))
	}
}

// openInternal serves the plain HTTP in a tunnel to the name that is ours.
func (x *exchange) openInternal() {
	if !x.acceptConnect() {
		return
	}
	x.outcome.decision = Decision{Do: Deliver, Reason: "ok"}
	x.serveInside(x.accepted, "http", nil)
}

// answersItself answers what goes no further than here; Max-Forwards of what does is
// counted down (RFC 9110 section 7.6.2).
func (x *exchange) answersItself() bool {
	r := &x.call.Request
	if x.mode == "local" {
		x.answerInternal()
		return true
	}
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
	if r := &x.call.Request; r.Method == "TRACE" {
		x.answerText(200, "message/http", traceText(r))
		return
	}
	x.answerText(200, "", "")
}

// answerText is an answer from here.
func (x *exchange) answerText(status int, contentType, text string, more ...message.Field) {
	x.outcome.result = "rejected"
	if x.mode == "local" {
		x.outcome.result = "success"
	}
	x.outcome.decision = Decision{Do: Deliver, Reason: "ok"}
	out := &message.Response{Status: status, Length: int64(len(text)), Body: io.NopCloser(strings.NewReader(text))}
	out.Fields.Add(hCallID, x.id)
	out.Fields = append(out.Fields, more...)
	if contentType != "" {
		out.Fields.Add("Content-Type", contentType)
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
	ticket, retry := x.live.ticket, x.retrying()
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
