package admin

import (
	"net/http"
	"strings"

	"retryproxy/message"
)

// Question is a call that is asked about but not made.
type Question struct {
	Method string
	URL    string // absolute, or a path for a route, or host:port for CONNECT
	Fields message.Fields
	Body   []byte
}

// questionText is a Question on the wire.
type questionText struct {
	Method  string   `json:"method"`
	URL     string   `json:"url"`
	Headers []string `json:"headers"` // "Name: value"
	Body    string   `json:"body"`
}

// explain says what would become of a call.
func (s *server) explain(w http.ResponseWriter, r *http.Request) {
	var t questionText
	if r.Method == http.MethodPost {
		if !read(w, r, &t) {
			return
		}
	} else {
		q := r.URL.Query()
		t = questionText{q.Get("method"), q.Get("url"), q["header"], q.Get("body")}
	}
	question, wrong := t.question()
	if wrong != "" {
		fail(w, http.StatusBadRequest, "bad_request", wrong)
		return
	}
	answer, err := s.Explain(question)
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	show(w, answer)
}

// question checks the text; wrong says what is missing.
func (t *questionText) question() (q Question, wrong string) {
	if t.URL == "" {
		return q, "url: missing"
	}
	q = Question{Method: t.Method, URL: t.URL, Body: []byte(t.Body)}
	if q.Method == "" {
		q.Method = "GET"
	}
	q.Fields, wrong = fields(t.Headers)
	return q, wrong
}

// fields reads header lines; wrong says what is wrong with one.
func fields(lines []string) (f message.Fields, wrong string) {
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" {
			return nil, "headers: want \"Name: value\""
		}
		f.Add(name, strings.TrimSpace(value))
	}
	return f, ""
}
