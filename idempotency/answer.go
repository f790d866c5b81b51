package idempotency

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"retryproxy/message"
)

// Storable says whether an answer may become the stored one of its key: 2xx
// except 206, and 303, complete and not suspect.
func Storable(status int, complete, suspect bool) bool {
	good := status >= 200 && status <= 299 && status != 206 || status == 303
	return good && complete && !suspect
}

// notStored are the fields that belong to one connection, one recipient or one
// answer of ours (RFC 9110 section 7.6.1, RFC 9111 sections 3.1 and 7.3).
var notStored = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
	"Content-Length", "Set-Cookie", "Set-Cookie2",
	"Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization",
	"X-Call-Id", "X-Retry-Count", "X-Retry-Reason", "X-Retry-Executed", "X-Retry-Advice",
	"Idempotency-Replayed", "Cache-Status",
}

// StoredFields returns those fields of an answer that a replay may carry: all
// but hop-by-hop fields (those that Connection names included), cookies, and
// the marks of a proxy's own.
func StoredFields(f message.Fields) message.Fields {
	out := make(message.Fields, 0, len(f))
	for i := range f {
		name := f[i].Name
		listed := slices.ContainsFunc(notStored, func(n string) bool { return strings.EqualFold(n, name) })
		if !listed && !f.Listed("Connection", name) {
			out = append(out, f[i])
		}
	}
	return out
}

// ReplayFields returns the fields of a replay at now, a fresh copy: those that
// were stored, with the original Date and an Age that counts from it
// (RFC 9111 section 5.1).
func ReplayFields(a *Answer, now time.Time) message.Fields {
	out := a.Fields.Clone(4) // the caller adds its marks
	if !out.Has("Date") {
		out.Add("Date", a.Stored.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"))
	}
	age := max(0, int64(now.Sub(a.Stored)/time.Second))
	if upstream, err := strconv.ParseUint(strings.TrimSpace(out.Get("Age")), 10, 31); err == nil {
		age += int64(upstream)
	}
	out.Set("Age", strconv.FormatInt(age, 10))
	return out
}

// Bounded is a copy of the answer that shares nothing with it, or a marker when its
// body is longer than body, or all of it takes more than total bytes (0: no bound).
// nil stays nil.
func (a *Answer) Bounded(body int, total int64) *Answer {
	switch {
	case a == nil:
		return nil
	case !a.Kept || len(a.Body) > body || total > 0 && a.Size() > total:
		return &Answer{Status: a.Status, Reason: a.Reason, Stored: a.Stored}
	}
	own := *a
	own.Fields = a.Fields.Clone(0)
	own.Body = bytes.Clone(a.Body)
	return &own
}
