package proxy

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strconv"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/deadletter"
	"retryproxy/message"
)

// outcome is what a call came to.
type outcome struct {
	decision Decision
	refusal  *refusal
	result   string // set when it is none of success, recovered, failed, cancelled
	detail   string // of what no attempt tells
	status   int
	bytes    int64
	cut      bool // the answer broke off after its first byte
	suspect  bool // a 2xx whose body says failure
}

// own are our own answers: the status by reason. Anything else is the end of a
// transport failure, 502 or 504.
var own = map[string]int{
	"bad_request": 400, "header_too_large": 431, "client_denied": 403, "destination_denied": 403,
	"body_too_large": 413, "key_busy": 409, "in_doubt": 409, "result_not_kept": 409, "key_mismatch": 422,
	"loop": 508, "local_resource": 503, "store_unavailable": 503, "store_full": 503,
	"risk_control": 503, "quota_exhausted": 503, "auth_expired": 503, "signature_expired": 503,
	"breaker_open": 503, "no_slot": 503, "shutting_down": 503, "parked": 503,
	deadletter.ReasonCancelled: 503,
}

// titles are the constant titles of our problem documents.
var titles = map[string]string{
	"bad_request": "The request is not valid", "header_too_large": "The request header is too large",
	"auth_required": "Proxy credentials are needed", "client_denied": "This client may not do that",
	"destination_denied": "This destination is not allowed", "body_too_large": "The body is too large to be repeated",
	"key_busy": "The same key is still being worked on", "in_doubt": "The call may have been executed",
	"result_not_kept": "The call was done, but its answer was not kept", "key_mismatch": "The key was used for another request",
	"loop": "The request came back to this proxy", "local_resource": "This proxy is out of resources",
	"store_unavailable": "The record store is not available", "store_full": "The record store is full",
	"breaker_open": "The upstream is cut off for now", "no_slot": "No slot became free in time",
	"shutting_down": "This proxy is shutting down", "parked": "The call goes on later", "manual_review": "The call may have been executed",
	"fail_permanent": "A repeat cannot mend this", "attempts_exhausted": "All attempts failed",
	"risk_control": "The platform stopped the shop", "quota_exhausted": "The platform's quota is used up",
	"auth_expired": "The platform does not take the shop's token any more", "signature_expired": "The signature would be too old",
	"deadline_exceeded": "The time for this call ran out", "retry_limited": "Retries are limited for now",
	deadletter.ReasonCancelled: "An operator ended this call",
}

// refuse answers a call that never got as far as an attempt.
func (x *exchange) refuse(r *refusal) {
	x.outcome.refusal = r
	x.outcome.decision = Decision{Do: Stop, Reason: r.reason, At: r.at}
	if r.reason != "client_gone" {
		x.outcome.result = "rejected"
	}
	x.denied(r.reason)
	x.answerOwn(&problem{status: x.refusalStatus(r), reason: r.reason, detail: r.detail, at: x.outcome.decision.At})
}

// denied counts a call that the access rules refuse.
func (x *exchange) denied(reason string) {
	switch reason {
	case "auth_required", "client_denied", "destination_denied":
		if h := x.p.Hooks.Denied; h != nil {
			h(reason)
		}
	}
}

// refusalStatus is the status of a refusal.
func (x *exchange) refusalStatus(r *refusal) int {
	switch {
	case r.reason == "auth_required":
		return x.authStatus()
	case x.call.Bad != nil:
		return x.call.Bad.Status
	case r.reason == "client_gone":
		return 400 // one that closed only its sending side reads it
	}
	if s := own[r.reason]; s != 0 {
		return s
	}
	return 502
}

// authStatus is 407 for a proxy, 401 where we are the server (RFC 9110 section 15.5.8).
func (x *exchange) authStatus() int {
	if x.reverseForm() {
		return 401
	}
	return 407
}

// problem is an answer of our own before it is written.
type problem struct {
	status   int
	reason   string
	detail   string
	at       time.Time // when a later try makes sense
	received int       // status of an upstream answer that is not passed on
}

// failure is our own answer for a call whose attempts brought none.
func (x *exchange) failure(d Decision) *problem {
	last := x.past.Last()
	p := &problem{reason: d.Reason, at: d.At, detail: last.Detail}
	if text := x.hindrance(&d); text != "" {
		p.detail = text
	}
	status, fixed := own[d.Reason]
	switch {
	case fixed:
		p.status = status
	case len(x.past) == 0 && d.Reason == "retry_limited":
		p.status = 503
	case len(x.past) == 0:
		p.status = 504
	default:
		p.status, p.reason = x.transportStatus(&last.Verdict, d.Reason)
	}
	return p
}

// hindrance tells people what of ours stood in the way of an attempt, and until
// when; empty: nothing did.
func (x *exchange) hindrance(d *Decision) string {
	switch d.Reason {
	case "retry_limited":
		if d.At.IsZero() {
			return "no retry token in time: " + d.Dimension + " (never)"
		}
		return "no retry token in time: " + d.Dimension + dated(", next at ", d.At)
	case "breaker_open":
		if d.Dimension == causeEgress {
			return "the egress proxy " + x.hops[x.hop].exitName() + " is cut off after too many failures" + dated(", next probe at ", d.At)
		}
		return x.hops[x.hop].host + " is cut off after too many failures" + dated(", next probe at ", d.At)
	case "risk_control", "auth_expired", "quota_exhausted":
		return x.pausedBy
	case reasonSignature:
		return "the signature would be too old for " + x.preset.Name
	case deadletter.ReasonCancelled:
		return "an operator ended its wait; ask them before it is made again"
	case "no_slot":
		return "no slot of " + x.hops[x.hop].host + " became free in time (slots)" + dated(", next at ", d.At)
	}
	return ""
}

// dated is a text and its date; nothing when there is none.
func dated(text string, at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return text + at.UTC().Format(time.RFC3339)
}

// transportStatus is the answer for a failure without an upstream answer.
func (x *exchange) transportStatus(v *classify.Verdict, reason string) (int, string) {
	switch v.Reason {
	case "destination_denied", "loop", "local_resource", "bad_target", "store_unavailable":
		if s := own[v.Reason]; s != 0 {
			return s, v.Reason
		}
		return 400, "bad_request"
	case "connect_timeout", "header_timeout", "egress_timeout":
		return 504, reason
	}
	return 502, reason
}

// answerOwn writes a problem document (RFC 9457) and settles the record.
func (x *exchange) answerOwn(p *problem) {
	body := x.problemBody(p)
	out := &message.Response{Status: p.status, Length: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body))}
	out.Fields = append(make(message.Fields, 0, 10), message.Field{Name: "Content-Type", Value: "application/problem+json"})
	switch p.status {
	case 407:
		out.Fields.Add("Proxy-Authenticate", `Basic realm="retryproxy"`)
	case 401:
		out.Fields.Add("WWW-Authenticate", `Basic realm="retryproxy"`)
	}
	x.mark(&out.Fields, p.reason, x.after(p))
	out.Fields.Add(hStatus, x.proxyStatus(p))
	x.settleOwn(out, body) // first: a client that has its answer may use the key again
	_ = x.write(out, x.idleOr(30*time.Second))
}

func (x *exchange) idleOr(d time.Duration) time.Duration {
	if x.policy != nil {
		return x.policy.BodyIdleTimeout
	}
	return d
}

// after is the time for Retry-After: never while the call may have been executed.
func (x *exchange) after(p *problem) time.Time {
	if x.executed() != classify.ExecutedNo && p.reason != "key_busy" && p.reason != "parked" && p.reason != "in_doubt" {
		return time.Time{}
	}
	if p.at.IsZero() && p.status == 503 {
		return time.Now().Add(time.Second)
	}
	return p.at
}

// executed is the worst over all attempts on the record.
func (x *exchange) executed() classify.Executed {
	return max(x.past.Executed(), x.rec.Executed, x.rec.History.Executed())
}

// mark adds what every answer of ours carries; reason empty: a success.
func (x *exchange) mark(f *message.Fields, reason string, at time.Time) {
	f.Add(hCallID, x.id)
	if n := len(x.past); n > 0 {
		f.Add(hCount, strconv.Itoa(x.past[n-1].Count))
	}
	if reason == "" {
		return
	}
	executed := x.executed()
	what := advice(reason, executed)
	f.Add(hReason, reason)
	f.Add(hExecuted, executed.String())
	f.Add(hAdvice, what)
	if x.handsBack(reason) {
		f.Add(hAction, "resign")
	}
	if !at.IsZero() && what != "stop" && !f.Has("Retry-After") {
		f.Add("Retry-After", strconv.Itoa(wholeSeconds(time.Until(at))))
	}
}

// advice tells the caller what to do with a failure.
func advice(reason string, e classify.Executed) string {
	switch reason {
	case "fail_permanent", "bad_request", "header_too_large", "auth_required", "client_denied",
		"destination_denied", "body_too_large", "key_mismatch", "loop", "risk_control", "auth_expired":
		return "stop"
	case "in_doubt", "result_not_kept", "manual_review", "parked":
		return "check"
	case "key_busy":
		return "repeat" // with the same key, which makes it safe
	}
	switch {
	case e != classify.ExecutedNo:
		return "check"
	case reason == deadletter.ReasonCancelled:
		return "stop" // a person decided that it is not to be
	}
	return "repeat"
}

// wholeSeconds rounds up, at least 1.
func wholeSeconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }

// final turns an upstream's answer into the client's: cleaned, marked; only a
// final 408 becomes 504, because browsers re-send any method on a 408.
func (x *exchange) final(r *message.Response) *message.Response {
	out := *r
	out.Fields = fromUpstream(r.Fields, r.Status)
	out.Trailers = r.Trailers
	d := x.outcome.decision
	reason := d.Reason
	if reason == "ok" {
		reason = ""
	}
	at := d.At
	if x.executed() != classify.ExecutedNo {
		at = time.Time{}
	}
	x.mark(&out.Fields, reason, at)
	if r.Status == 408 {
		out.Status, out.Reason = 504, ""
	}
	if x.backup != nil { // the client has to know whose answer it reads
		out.Fields.Add(hStatus, x.set.Instance+"; next-hop="+x.backup.Name)
	}
	if reason != "" && reason != "fail_permanent" {
		out.Fields.Add(hStatus, x.proxyStatus(&problem{reason: reason, received: r.Status}))
	}
	if x.set.Via {
		out.Fields.Add("Via", x.viaValue(r.Version))
	}
	return &out
}

// problemBody is the document of RFC 9457 with our members.
func (x *exchange) problemBody(p *problem) []byte {
	executed := x.executed()
	title := titles[p.reason]
	if title == "" {
		title = "The call failed"
	}
	return encoded(problemDoc{
		"urn:retryproxy:" + p.reason, title, p.status, p.detail, p.reason, x.id,
		advice(p.reason, executed) == "repeat", executed.String(), advice(p.reason, executed), x.past.Views(),
	})
}

// problemDoc is an answer of ours that is not a success, as JSON.
type problemDoc struct {
	Type      string         `json:"type"`
	Title     string         `json:"title"`
	Status    int            `json:"status"`
	Detail    string         `json:"detail,omitempty"`
	Reason    string         `json:"reason"`
	CallID    string         `json:"call_id"`
	Retryable bool           `json:"retryable"`
	Executed  string         `json:"executed"`
	Advice    string         `json:"advice"`
	Attempts  []attempt.View `json:"attempts"`
}

// encoded is a document of ours.
func encoded(doc any) []byte {
	b, err := json.Marshal(doc)
	if err != nil {
		panic("bug: a document of plain values: " + err.Error())
	}
	return append(b, '\n')
}

// proxyStatus is our member of Proxy-Status (RFC 9209).
func (x *exchange) proxyStatus(p *problem) string {
	s := x.set.Instance
	if e := proxyErrors[x.past.Last().Verdict.Reason]; e != "" && p.received == 0 && len(x.past) > 0 {
		s += "; error=" + e
	} else if e := proxyErrors[p.reason]; e != "" {
		s += "; error=" + e
	}
	if p.received == 0 && len(x.past) > 0 {
		p.received = x.past.Last().Status
	}
	if p.received != 0 {
		s += "; received-status=" + strconv.Itoa(p.received)
	}
	s += `; details="` + p.reason
	if d := x.outcome.decision.Dimension; d != "" {
		s += ": " + d
	}
	return s + `"`
}

// proxyErrors are the registered error types of RFC 9209 section 2.3.
var proxyErrors = map[string]string{
	"connect_refused": "connection_refused", "connect_timeout": "connection_timeout",
	"dns_failed": "dns_error", "dns_no_such_host": "dns_error",
	"tls_handshake": "tls_protocol_error", "tls_verify": "tls_certificate_error",
	"reset_before_send": "connection_terminated", "reset_after_send": "connection_terminated",
	"eof_after_send": "connection_terminated", "header_timeout": "connection_read_timeout",
	"truncated": "http_response_incomplete", "malformed": "http_protocol_error",
	"egress_unreachable": "destination_unavailable", "egress_timeout": "connection_timeout",
	"egress_auth": "proxy_configuration_error", "egress_denied": "http_request_denied", "egress_failed": "destination_unavailable",
	"refused_stream": "http_protocol_error", "goaway": "connection_terminated",
	"local_resource": "proxy_internal_error", "destination_denied": "destination_ip_prohibited",
	"loop": "proxy_loop_detected", "breaker_open": "destination_unavailable",
	"no_slot": "connection_limit_reached", "shutting_down": "proxy_internal_response",
	"deadline_exceeded": "http_response_timeout", "store_unavailable": "proxy_internal_error",
	"store_full": "proxy_internal_error", "bad_request": "http_request_error",
	"header_too_large": "http_request_error", "auth_required": "http_request_denied",
	"client_denied": "http_request_denied", "body_too_large": "http_request_error",
	"key_busy": "http_request_error", "in_doubt": "http_request_error",
	"key_mismatch": "http_request_error", "result_not_kept": "http_request_error",
}
