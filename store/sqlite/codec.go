package sqlite

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/message"
)

// layout is how times look in the file: UTC, of fixed width, so that their
// order as text is their order.
const layout = "2006-01-02T15:04:05.000000000Z"

func timeText(t time.Time) string { return t.UTC().Format(layout) }

// timeOrNull is a time as a column; the zero time is NULL.
func timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return timeText(t)
}

// parseTime reads a column; NULL came as the empty text.
func parseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	return time.Parse(layout, s)
}

// run and try are idempotency.Run and attempt.Attempt in the file.
type run struct {
	CallID  string `json:"call_id"`
	Started string `json:"started"`
	Ended   string `json:"ended,omitempty"`
	First   int    `json:"first"`
	Reason  string `json:"reason,omitempty"`
}

type try struct {
	N           int           `json:"n"`
	Count       int           `json:"count,omitempty"`
	Started     string        `json:"started"`
	Duration    time.Duration `json:"duration_ns"`
	Host        string        `json:"host"`
	Status      int           `json:"status,omitempty"`
	Class       string        `json:"class"`
	Reason      string        `json:"reason"`
	Basis       string        `json:"basis,omitempty"`
	Executed    string        `json:"executed"`
	Detail      string        `json:"detail,omitempty"`
	Delay       time.Duration `json:"delay_ns,omitempty"`
	Cause       string        `json:"cause,omitempty"`
	RetryAfter  time.Duration `json:"retry_after_ns,omitempty"`
	HostFault   bool          `json:"host_fault,omitempty"`
	Alive       bool          `json:"alive,omitempty"`
	EgressFault bool          `json:"egress_fault,omitempty"`
	Egress      string        `json:"egress,omitempty"`
	Reused      bool          `json:"reused,omitempty"`
	UpstreamID  string        `json:"upstream_id,omitempty"`
}

func runsText(runs []idempotency.Run) string {
	out := make([]run, len(runs))
	for i, r := range runs {
		out[i] = run{CallID: r.CallID, Started: timeText(r.Started), First: r.First, Reason: r.Reason}
		if !r.Ended.IsZero() {
			out[i].Ended = timeText(r.Ended)
		}
	}
	return jsonText(out)
}

func parseRuns(text string) ([]idempotency.Run, error) {
	var in []run
	if err := json.Unmarshal([]byte(text), &in); err != nil || len(in) == 0 {
		return nil, err
	}
	out := make([]idempotency.Run, len(in))
	for i, r := range in {
		out[i] = idempotency.Run{CallID: r.CallID, First: r.First, Reason: r.Reason}
		var err error
		if out[i].Started, err = parseTime(r.Started); err != nil {
			return nil, err
		}
		if out[i].Ended, err = parseTime(r.Ended); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func historyText(h attempt.History) string {
	if len(h) == 0 {
		return "[]"
	}
	out := make([]try, len(h))
	for i := range h {
		a, v := &h[i], &h[i].Verdict
		out[i] = try{
			N: a.N, Count: a.Count, Started: timeText(a.Started), Duration: a.Duration, Host: a.Host, Status: a.Status,
			Class: v.Class.String(), Reason: v.Reason, Basis: string(v.Basis), Executed: v.Executed.String(),
			Detail: a.Detail, Delay: a.Delay, Cause: a.Cause, RetryAfter: v.RetryAfter,
			HostFault: v.HostFault, Alive: v.Alive, EgressFault: v.EgressFault,
			Egress: a.Egress, Reused: a.Reused, UpstreamID: a.UpstreamID,
		}
	}
	return jsonText(out)
}

func parseHistory(text string) (attempt.History, error) {
	if text == "[]" {
		return nil, nil
	}
	var in []try
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return nil, err
	}
	out := make(attempt.History, len(in))
	for i := range in {
		var err error
		if out[i], err = in[i].attempt(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (t *try) attempt() (attempt.Attempt, error) {
	started, err := parseTime(t.Started)
	if err != nil {
		return attempt.Attempt{}, err
	}
	class, err := token(t.Class, classes)
	if err != nil {
		return attempt.Attempt{}, err
	}
	executed, err := token(t.Executed, executions)
	return attempt.Attempt{
		N: t.N, Count: t.Count, Started: started, Duration: t.Duration, Host: t.Host, Status: t.Status,
		Detail: t.Detail, Delay: t.Delay, Cause: t.Cause, Egress: t.Egress, Reused: t.Reused, UpstreamID: t.UpstreamID,
		Verdict: classify.Verdict{
			Class: class, Reason: t.Reason, Basis: classify.Basis(t.Basis), Executed: executed,
			HostFault: t.HostFault, Alive: t.Alive, EgressFault: t.EgressFault, RetryAfter: t.RetryAfter,
		},
	}, err
}

func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("bug: plain data that is no JSON: " + err.Error())
	}
	return string(text)
}

// What the tokens of the file may be.
var (
	states     = idempotency.States()
	classes    = []classify.Class{0, classify.Success, classify.Transient, classify.Permanent, classify.Unknown}
	executions = []classify.Executed{classify.ExecutedNo, classify.ExecutedMaybe, classify.ExecutedYes}
)

// token finds the value that has this name.
func token[T fmt.Stringer](name string, all []T) (T, error) {
	for _, v := range all {
		if v.String() == name {
			return v, nil
		}
	}
	var none T
	return none, fmt.Errorf("unknown token %q", name)
}

// fieldsText is a list of lines, [name, value] each. One that is not UTF-8 has
// its bytes in base64 behind what a person can read.
func fieldsText(f message.Fields) string {
	if len(f) == 0 {
		return "[]"
	}
	out := make([]byte, 0, 48*len(f))
	for i := range f {
		out = append(out, ",["...)
		out = appendString(out, f[i].Name)
		out = append(out, ',')
		out = appendString(out, f[i].Value)
		if !utf8.ValidString(f[i].Name) || !utf8.ValidString(f[i].Value) {
			out = fmt.Appendf(out, `,"%s","%s"`, base64.StdEncoding.EncodeToString([]byte(f[i].Name)), base64.StdEncoding.EncodeToString([]byte(f[i].Value)))
		}
		out = append(out, ']')
	}
	out[0] = '['
	return string(append(out, ']'))
}

// appendString appends a JSON string. Nearly all need no escape.
func appendString(out []byte, s string) []byte {
	special := func(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r >= utf8.RuneSelf }
	if strings.IndexFunc(s, special) < 0 {
		return append(append(append(out, '"'), s...), '"')
	}
	return append(out, jsonText(s)...)
}

func parseFields(text string) (message.Fields, error) {
	if text == "[]" || text == "" {
		return nil, nil
	}
	var in [][]string
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return nil, err
	}
	out := make(message.Fields, len(in))
	for i, line := range in {
		switch len(line) {
		case 2:
			out[i] = message.Field{Name: line[0], Value: line[1]}
		case 4:
			name, err1 := base64.StdEncoding.DecodeString(line[2])
			value, err2 := base64.StdEncoding.DecodeString(line[3])
			if err1 != nil || err2 != nil {
				return nil, fmt.Errorf("field %q is no base64", line[0])
			}
			out[i] = message.Field{Name: string(name), Value: string(value)}
		default:
			return nil, fmt.Errorf("a field of %d parts", len(line))
		}
	}
	return out, nil
}
