package deadletter

import (
	"encoding/base64"
	"time"
	"unicode"
	"unicode/utf8"

	"retryproxy/attempt"
	"retryproxy/idempotency"
	"retryproxy/message"
	"retryproxy/redact"
)

// View is a letter as people and programs see it. What may be secret (the key,
// query, fields and bodies) is in it only when it was asked for.
type View struct {
	ID       string    `json:"id"`
	State    string    `json:"state"`
	Since    time.Time `json:"since"` // when it was given up; of a call that is on its way, when that began
	Reason   string    `json:"reason"`
	Executed string    `json:"executed"` // may the upstream have acted: no, maybe, yes
	Todo     string    `json:"todo"`     // requeue, ask, check, resolve, wait, later, none
	Advice   string    `json:"advice"`

	Labels   attempt.Labels `json:"labels"`
	Policy   string         `json:"policy"`
	Tenant   string         `json:"tenant"`
	KeyHash  string         `json:"key_hash,omitempty"` // empty: the call had no key
	Key      string         `json:"key,omitempty"`      // revealed
	Keyless  bool           `json:"keyless"`
	Honoured bool           `json:"honoured"` // the key goes to the upstream, which is not known to ignore it
	Method   string         `json:"method"`
	Host     string         `json:"host"`
	Path     string         `json:"path"`

	NextAt  *time.Time `json:"next_at"`         // when it is tried again by itself, in doubt when its key is new; null: never
	Later   *LaterView `json:"later,omitempty"` // a person had it run again then
	Expires *time.Time `json:"expires"`         // when it is removed; null: it is on its way

	Made     int                `json:"attempts_made"` // in all; Attempts holds the first and the last ones
	Attempts []attempt.FullView `json:"attempts"`
	Runs     []RunView          `json:"runs"`
	Notes    []NoteView         `json:"notes"`

	Status  int          `json:"last_status"` // of the last answer; 0: none came
	Request *RequestView `json:"request,omitempty"`
	Answer  *AnswerView  `json:"answer,omitempty"`
}

// RunView is what one request, requeue or redrive bought.
type RunView struct {
	CallID   string     `json:"call_id"`
	ClientID string     `json:"client_request_id,omitempty"`
	Kind     string     `json:"kind"` // client, requeue, redrive
	Started  time.Time  `json:"started"`
	Ended    *time.Time `json:"ended"` // null: it is on its way
	First    int        `json:"first_attempt"`
	Reason   string     `json:"reason"`
}

// LaterView is the wish of a person that a letter is run again at a time.
type LaterView struct {
	At              time.Time `json:"at"`
	By              string    `json:"by,omitempty"`
	Note            string    `json:"note,omitempty"`
	ExecutedUnknown bool      `json:"executed_unknown"`
}

// NoteView is what a person or a rule decided.
type NoteView struct {
	At   time.Time `json:"at"`
	By   string    `json:"by"`
	Did  string    `json:"did"`
	Text string    `json:"text"`
}

// RequestView is the request as it would be sent again.
type RequestView struct {
	Bytes   int       `json:"bytes"` // of its body
	URL     string    `json:"url,omitempty"`
	Headers []Header  `json:"headers,omitempty"`
	Body    *Contents `json:"body,omitempty"`
}

// AnswerView is the last answer of the upstream.
type AnswerView struct {
	Status  int       `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Bytes   int       `json:"bytes"`
	Headers []Header  `json:"headers,omitempty"`
	Body    *Contents `json:"body,omitempty"`
}

// Header is one field of a message.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Contents are those of a body: text, or base64 of what is none.
type Contents struct {
	Text   string `json:"text,omitempty"`
	Base64 string `json:"base64,omitempty"`
	Cut    bool   `json:"cut,omitempty"` // there is more
}

// mostShown is how much of a body is shown, in bytes.
const mostShown = 64 << 10

// NewView is a record as it is shown.
func NewView(rec *idempotency.Record) View {
	v := View{
		ID: rec.Receipt, State: rec.State.String(), Since: Since(rec), Reason: rec.Reason, Executed: rec.Executed.String(),
		Labels: rec.Labels, Policy: rec.Policy, Tenant: rec.Tenant, Keyless: rec.Keyless, Honoured: rec.Honoured,
		Method: rec.Method, Host: rec.Host, Path: rec.Path, NextAt: date(rec.NextAt), Expires: date(rec.Expires),
		Made: rec.Attempts, Attempts: rec.History.FullViews(), Runs: make([]RunView, len(rec.Runs)), Notes: make([]NoteView, len(rec.Notes)),
		Status: rec.History.Last().Status,
	}
	v.Todo, v.Advice = Advise(rec)
	if l, ok := LaterOf(rec); ok {
		v.Later = &LaterView{l.At, l.By, l.Note, l.ExecutedUnknown}
	}
	if !rec.Keyless {
		v.KeyHash = idempotency.KeyHash(rec.Key)
	}
	for i, r := range rec.Runs {
		v.Runs[i] = RunView{r.CallID, r.ClientID, kindName(r.Kind), r.Started, date(r.Ended), r.First, r.Reason}
	}
	for i, n := range rec.Notes {
		v.Notes[i] = NoteView(n)
	}
	return v
}

// Whole adds request and answer; request nil: it was not kept. What they say only where it
// is to be revealed, and never the values of what hide names.
func (v *View) Whole(rec *idempotency.Record, request *idempotency.Request, reveal bool, hide *redact.Names) {
	if a := rec.Answer; a != nil && a.Status != 0 {
		v.Answer = &AnswerView{Status: a.Status, Reason: a.Reason, Bytes: len(a.Body)}
		if reveal && a.Kept {
			v.Answer.Headers, v.Answer.Body = headers(a.Fields, hide), contents(a.Body, hide)
		}
	}
	if request != nil {
		v.Request = &RequestView{Bytes: len(request.Body)}
		if reveal {
			v.Request.URL = hide.Target(request.Scheme + "://" + request.Authority + request.Target)
			v.Request.Headers, v.Request.Body = headers(request.Fields, hide), contents(request.Body, hide)
		}
	}
	if reveal && !rec.Keyless {
		v.Key = rec.Key
	}
}

// Since is when the record came to be what it is.
func Since(rec *idempotency.Record) time.Time {
	n := len(rec.Runs)
	switch {
	case n > 0 && rec.State.Letter() && !rec.Runs[n-1].Ended.IsZero():
		return rec.Runs[n-1].Ended
	case n > 0 && !rec.State.Ended():
		return rec.Runs[n-1].Started
	}
	return rec.Updated
}

func date(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

func kindName(k idempotency.Kind) string {
	if k == idempotency.ByClient {
		return "client"
	}
	return string(k)
}

func headers(f message.Fields, hide *redact.Names) []Header {
	out := make([]Header, len(f))
	for i := range f {
		out[i] = Header{f[i].Name, hide.Header(f[i].Name, f[i].Value)}
	}
	return out
}

// contents are at most mostShown bytes of a body; nil: there is none.
func contents(body []byte, hide *redact.Names) *Contents {
	if len(body) == 0 {
		return nil
	}
	c := Contents{Cut: len(body) > mostShown}
	body = body[:min(len(body), mostShown)]
	if text, ok := readableText(body, c.Cut); ok {
		c.Text = hide.Text(text)
	} else {
		c.Base64 = base64.StdEncoding.EncodeToString(body)
	}
	return &c
}

// readableText is the body as a text, if it is one. A character that was cut in
// two at its end is left out.
func readableText(body []byte, cut bool) (string, bool) {
	for n := 0; cut && n < utf8.UTFMax-1 && len(body) > 0 && !utf8.Valid(body); n++ {
		body = body[:len(body)-1]
	}
	if !utf8.Valid(body) {
		return "", false
	}
	for _, r := range string(body) {
		if unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' {
			return "", false
		}
	}
	return string(body), true
}
