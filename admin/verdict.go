package admin

import (
	"fmt"
	"net/http"

	"retryproxy/message"
)

// Answer is an answer of a platform that somebody wants to understand, and of which call.
type Answer struct {
	Platform  string // name of a preset
	Operation string // empty: unknown
	Method    string
	// Of these the policy depends; each may be empty.
	Host, Shop, TaskType string
	Status               int
	Fields               message.Fields
	Body                 []byte
}

// answerText is an Answer on the wire.
type answerText struct {
	Platform  string   `json:"platform"`
	Operation string   `json:"operation"`
	Method    string   `json:"method"` // POST without it
	Host      string   `json:"host"`
	Shop      string   `json:"shop"`
	TaskType  string   `json:"task_type"`
	Status    int      `json:"status"`  // 200 without it
	Headers   []string `json:"headers"` // "Name: value"
	Body      string   `json:"body"`
}

// judgeAnswer says what an answer means, by which rule, and what would follow.
func (s *server) judgeAnswer(w http.ResponseWriter, r *http.Request) {
	var t answerText
	if !read(w, r, &t) {
		return
	}
	a, wrong := t.answer()
	if wrong != "" {
		fail(w, http.StatusBadRequest, "bad_request", wrong)
		return
	}
	verdict, err := s.Verdict(a)
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	show(w, verdict)
}

// answer checks the text; wrong says what is missing.
func (t *answerText) answer() (a Answer, wrong string) {
	a = Answer{t.Platform, t.Operation, t.Method, t.Host, t.Shop, t.TaskType, t.Status, nil, []byte(t.Body)}
	if a.Method == "" {
		a.Method = http.MethodPost
	}
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	switch {
	case a.Platform == "":
		return a, "platform: missing; it is the name of a preset, which retryproxy preset ls lists"
	case a.Status < 200 || a.Status > 599:
		return a, fmt.Sprintf("status: want a number from 200 to 599, not %d", a.Status)
	}
	a.Fields, wrong = fields(t.Headers)
	return a, wrong
}
