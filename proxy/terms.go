package proxy

import (
	"io"
	"strings"
	"unicode/utf8"

	"retryproxy/attempt"
	"retryproxy/idempotency"
	"retryproxy/inspect"
	"retryproxy/journal"
	"retryproxy/message"
)

// mostIDs is how many terms of a call may be request ids of upstreams, beyond
// those of the request.
const mostIDs = 8

// index notes what the call can be found by, where a history is kept.
func (x *exchange) index() {
	if x.p.Terms == nil {
		return
	}
	r := &x.call.Request
	target := r.Target
	if len(x.hops) > 0 {
		target = x.hops[0].path
	}
	trace := traceID(x.traceparent())
	terms := x.p.Terms(x.legible(), x.key, target, r.Fields.Get("X-Request-Id"), trace)
	x.mu.Lock()
	x.sum.Terms = terms
	x.mu.Unlock()
}

// traceID is the part of a traceparent that names the trace.
func traceID(traceparent string) string {
	if parts := strings.Split(traceparent, "-"); len(parts) == 4 {
		return parts[1]
	}
	return traceparent
}

// legible is the start of the request body as text; nil: it is none.
func (x *exchange) legible() []byte {
	f := x.call.Request.Fields
	kind, _, _ := strings.Cut(strings.ToLower(f.Get("Content-Type")), ";")
	if kind != "" && !textual(kind) {
		return nil
	}
	head := x.body.start(journal.MostBody)
	if f.Has("Content-Encoding") {
		head = inspect.Plain(f, head, journal.MostBody)
	}
	if kind == "" && !looksLikeText(head[:min(len(head), 512)]) {
		return nil
	}
	return head
}

// looksLikeText allows for a last character that is cut off.
func looksLikeText(b []byte) bool {
	for i := range utf8.UTFMax {
		if len(b) >= i && utf8.Valid(b[:len(b)-i]) {
			return true
		}
	}
	return false
}

// textual says whether content of a media type is read by people.
func textual(kind string) bool {
	for _, part := range [...]string{"json", "xml", "text", "form", "javascript", "csv"} {
		if strings.Contains(kind, part) {
			return true
		}
	}
	return false
}

// start is the first part of the content, as far as it was read. It is not to be
// written to.
func (b *requestBody) start(most int) []byte {
	kept := b.kept
	if kept == nil && b.stream != nil {
		kept = b.stream.prefix
	}
	if kept == nil {
		return nil
	}
	if all, ok := kept.Bytes(); ok {
		return all[:min(len(all), most)]
	}
	r, err := kept.Open()
	if err != nil {
		return nil
	}
	defer r.Close()
	head := make([]byte, min(kept.Len(), int64(most)))
	n, _ := io.ReadFull(r, head) // what there is
	return head[:n]
}

// indexAnswersLocked adds the request ids that upstreams gave. mu is held.
func (x *exchange) indexAnswersLocked() {
	if x.p.Terms == nil {
		return
	}
	var ids []string
	for i := range x.past {
		if id := x.past[i].UpstreamID; id != "" && len(ids) < mostIDs {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		x.sum.Terms = append(x.sum.Terms[:len(x.sum.Terms):len(x.sum.Terms)], x.p.Terms(nil, ids...)...)
	}
}

// longestID is how much is kept of a request id.
const longestID = 128

// requestIDs are the names under which servers say how they call a request, the
// usual ones first.
var requestIDs = [...]string{
	"X-Request-Id", "Request-Id", "X-Correlation-Id", "X-Trace-Id", "X-Tt-Logid", "Eagleeye-Traceid",
	"X-Amzn-Requestid", "X-Amz-Request-Id", "X-Ms-Request-Id", "Cf-Ray",
}

// upstreamID is the upstream's own name for the request; empty: it gave none.
func upstreamID(f message.Fields) string {
	for _, name := range requestIDs {
		if id := f.Get(name); id != "" {
			return strings.ToValidUTF8(id[:min(len(id), longestID)], "")
		}
	}
	return ""
}

// note tells operators which record the call has.
func (x *exchange) note(id idempotency.ID) {
	x.mu.Lock()
	x.sum.Record = attempt.RecordID(id)
	x.mu.Unlock()
}
