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

	"github.com/go-chi/chi/v5"

	"retryproxy/audit"
)

// Bounds of what the audit log takes from a request.
const (
	longestTarget = 500
	longestSigned = 200
	usualEntries  = 100
	mostEntries   = 1000
)

// told is what a body says of who and why, and of what.
type told struct {
	By   string `json:"by"`
	Note string `json:"note"`
	rest string // what else it says
}

// audited hands a request on and notes what came of it.
func (s *server) audited(w http.ResponseWriter, r *http.Request, o duty, next http.Handler) {
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
	q := r.URL.Query()
	out := &outcome{ResponseWriter: w}
	// A handler that panics has changed something all the same, as far as anybody knows.
	result := "panic"
	defer func() {
		s.note(r, o, cmp.Or(t.By, q.Get("by")), cmp.Or(t.Note, q.Get("note")), targetOf(r, t.rest), result)
	}()
	next.ServeHTTP(out, r)
	result = out.result()
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
	for _, text := range []string{q.Encode(), rest} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	return strings.ToValidUTF8(cut(strings.Join(parts, " "), longestTarget), "?")
}

func cut(text string, most int) string { return text[:min(len(text), most)] }

// note writes an entry of the audit log.
func (s *server) note(r *http.Request, o duty, by, note, target, result string) {
	if o.does == "" {
		return
	}
	a := who(r)
	name := strings.TrimSpace(strings.ToValidUTF8(cut(by, longestSigned), "?"))
	switch {
	case a.name != "" && name != "" && name != a.name:
		name += " (" + a.name + ")"
	case name == "":
		name = cmp.Or(a.name, "-")
	}
	s.Audit.Add(audit.Entry{
		At: time.Now(), Name: name, Role: a.role.String(), Client: addressOf(r.RemoteAddr), Action: o.does, Target: target,
		Note: strings.ToValidUTF8(cut(note, longestTarget), "?"), Result: result,
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
