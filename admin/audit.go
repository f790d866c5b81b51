package admin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-chi/chi/v5"
	"golang.org/x/time/rate"

	"retryproxy/audit"
	"retryproxy/deadletter"
)

// Bounds of what the audit log takes from a request.
const (
	longestTarget = 500
	longestSigned = 200
	usualEntries  = 100
	mostEntries   = 1000
	mostRefusals  = 20 // at once, then one each refillRefusals: a flood would push out all else
)

var refillRefusals = rate.Every(time.Minute)

// told is what a body says of who and why, and of what.
type told struct {
	By   string `json:"by"`
	Note string `json:"note"`
	Dry  bool   `json:"dry_run"`
	rest string // what else it says
}

// audited hands a request on and notes what came of it.
func (s *server) audited(w http.ResponseWriter, r *http.Request, o duty, next http.HandlerFunc) {
	sign := signed(r)
	if err := sign.CheckOptional(); err != nil {
		failLetter(w, err)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", "the body: "+err.Error())
		return
	}
	length := r.ContentLength
	r.Body = io.NopCloser(bytes.NewReader(body))
	if length >= 0 {
		r.ContentLength = int64(len(body))
	}
	t := tellOf(body)
	if t.By = oneLine(t.By, longestSigned); t.By != "" {
		sign.By = t.By
		sign.As(who(r).name)
	}
	out := &outcome{ResponseWriter: w}
	// A handler that breaks off has done something all the same, as far as anybody knows.
	result := "broken_off"
	defer func() {
		if t.Dry && o.does == "letters.requeue" && result == "ok" { // other orders do not know the word
			return // it only looked
		}
		s.note(r, o, sign.By, cmp.Or(t.Note, sign.Note), targetOf(r, t.rest), result)
	}()
	next(out, r)
	result = out.result()
}

// signed is who asks and why, by the query: of orders that have no body.
func signed(r *http.Request) deadletter.Signed {
	q := r.URL.Query()
	sign := deadletter.Signed{By: q.Get("by"), Note: q.Get("note")}
	sign.As(who(r).name)
	return sign
}

// refused notes what somebody was not allowed to do.
func (s *server) refused(r *http.Request, o duty, why string) {
	if s.refusals.Allow() {
		s.note(r, o, who(r).name, "", targetOf(r, ""), why)
	}
}

// tellOf reads a body as far as it can be read; handlers are strict.
func tellOf(body []byte) (t told) {
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(body, &fields) != nil {
		return t
	}
	_ = json.Unmarshal(body, &t) // of other types: not given
	delete(fields, "by")
	delete(fields, "note")
	if filter := (conditions{}); json.Unmarshal(fields["filter"], &filter) == nil && filter["key"] != "" {
		filter["key_hash"] = keyHash(filter["key"], filter["key_hash"]) // no key stands in a log
		delete(filter, "key")
		fields["filter"], _ = json.Marshal(filter) //nolint:errchkjson // a map of texts
	}
	if len(fields) > 0 {
		rest, _ := json.Marshal(fields) //nolint:errchkjson // it was JSON just now
		t.rest = string(rest)
	}
	return t
}

// targetOf is what was acted on: the thing in the path, and what query and body add.
func targetOf(r *http.Request, rest string) string {
	var parts []string
	if at := chi.RouteContext(r.Context()); at != nil {
		for i, name := range at.URLParams.Keys {
			if name != "*" && at.URLParams.Values[i] != "" {
				parts = append(parts, at.URLParams.Values[i])
			}
		}
	}
	q := r.URL.Query()
	q.Del("by")
	q.Del("note")
	if key := q.Get("key"); key != "" {
		q.Set("key_hash", keyHash(key, q.Get("key_hash")))
		q.Del("key")
	}
	for _, text := range []string{q.Encode(), rest} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	return oneLine(strings.Join(parts, " "), longestTarget)
}

// oneLine is the beginning of a text, readable.
func oneLine(text string, most int) string {
	text = strings.ToValidUTF8(text[:min(len(text), most)], "?")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text))
}

// note writes an entry of the audit log; by is signed.
func (s *server) note(r *http.Request, o duty, by, note, target, result string) {
	s.Audit.Add(audit.Entry{
		At: time.Now(), Name: cmp.Or(by, "-"), Role: who(r).role.String(), Client: addressOf(r.RemoteAddr), Action: o.does,
		Target: target, Note: oneLine(note, longestTarget), Result: result,
	})
}

// outcome sees what a handler answers.
type outcome struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer // of a failure
}

// WriteHeader implements http.ResponseWriter.
func (o *outcome) WriteHeader(status int) {
	if o.status == 0 {
		o.status = status
	}
	o.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (o *outcome) Write(p []byte) (int, error) {
	if o.status >= http.StatusBadRequest && o.body.Len() < maxRequest {
		o.body.Write(p)
	}
	return o.ResponseWriter.Write(p)
}

// Unwrap gives the writer to http.ResponseController.
func (o *outcome) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// result is ok, or the reason of a failure.
func (o *outcome) result() string {
	if o.status < http.StatusBadRequest {
		return "ok"
	}
	var p problem
	if json.Unmarshal(o.body.Bytes(), &p) != nil || p.Reason == "" {
		return strconv.Itoa(o.status)
	}
	return p.Reason
}

// showAudit lists what was done, the newest first.
func (s *server) showAudit(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, err := strconv.Atoi(cmp.Or(q.Get("limit"), strconv.Itoa(usualEntries)))
	if err != nil || limit < 1 {
		fail(w, http.StatusBadRequest, "bad_request", "limit: want a number from 1 on")
		return
	}
	entries, next, err := s.Audit.List(q.Get("after"), min(limit, mostEntries))
	if errors.Is(err, audit.ErrPlace) {
		fail(w, http.StatusBadRequest, "bad_request", "after: "+err.Error())
		return
	}
	show(w, struct {
		Entries []audit.Entry `json:"entries"`
		Next    string        `json:"next"` // for after=; empty: that was all
	}{entries, next})
}
