// Package codec answers one question: how does a store that outlives the process write down what a record holds?
//
// It has what SQLite and Redis have in common: the lists of a record as JSON, the
// names of states and verdicts, and the sealing of what bots sent and got. Names of
// members are for people and stay. Each store lays out the rest as it needs it.
package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
)

// Text is a text that a client or an upstream chose: in JSON it is a string, or
// [base64] when it is not UTF-8.
type Text string

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal([][]byte{[]byte(t)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return t.parseString(text)
	}
	var parts [][]byte
	if err := json.Unmarshal(text, &parts); err != nil || len(parts) != 1 {
		return fmt.Errorf("no text: %s", text)
	}
	*t = Text(parts[0])
	return nil
}

// parseString reads a JSON string. Nearly all are as they stand between the quotes.
func (t *Text) parseString(text []byte) error {
	if inner := string(text[1 : len(text)-1]); !strings.Contains(inner, `\`) && utf8.ValidString(inner) {
		*t = Text(inner)
		return nil
	}
	var s string
	err := json.Unmarshal(text, &s)
	*t = Text(s)
	return err
}

// Run is idempotency.Run as JSON.
type Run struct {
	CallID   Text      `json:"call_id"`
	ClientID Text      `json:"client_id,omitempty"`
	Kind     string    `json:"kind,omitempty"`
	Started  time.Time `json:"started,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	First    int       `json:"first"`
	Reason   string    `json:"reason,omitempty"`
	Supplier Text      `json:"supplier,omitempty"`
	OrderNo  Text      `json:"order_no,omitempty"`
	Trace    string    `json:"trace,omitempty"`
}

// Note is idempotency.Note as JSON.
type Note struct {
	At   time.Time `json:"at,omitzero"`
	By   Text      `json:"by,omitempty"`
	Did  string    `json:"did,omitempty"`
	Text Text      `json:"text,omitempty"`
}

// Attempt is attempt.Attempt as JSON.
type Attempt struct {
	N           int           `json:"n"`
	Count       int           `json:"count,omitempty"`
	Started     time.Time     `json:"started,omitzero"`
	Duration    time.Duration `json:"duration_ns,omitempty"`
	Host        Text          `json:"host,omitempty"`
	Status      int           `json:"status,omitempty"`
	Class       string        `json:"class"`
	Reason      string        `json:"reason,omitempty"`
	Basis       string        `json:"basis,omitempty"`
	Executed    string        `json:"executed"`
	Detail      Text          `json:"detail,omitempty"`
	Delay       time.Duration `json:"delay_ns,omitempty"`
	Cause       string        `json:"cause,omitempty"`
	RetryAfter  time.Duration `json:"retry_after_ns,omitempty"`
	HostFault   bool          `json:"host_fault,omitempty"`
	Alive       bool          `json:"alive,omitempty"`
	EgressFault bool          `json:"egress_fault,omitempty"`
	Egress      Text          `json:"egress,omitempty"`
	Reused      bool          `json:"reused,omitempty"`
	UpstreamID  Text          `json:"upstream_id,omitempty"`
	Supplier    Text          `json:"supplier,omitempty"`
}

// Wait is attempt.Wait as JSON.
type Wait struct {
	Cause string        `json:"cause"`
	For   time.Duration `json:"for_ns"`
}

// RunsOf makes JSON of runs.
func RunsOf(list []idempotency.Run) (out []Run) {
	for i := range list {
		r := &list[i]
		out = append(out, Run{Text(r.CallID), Text(r.ClientID), string(r.Kind), r.Started.UTC(), r.Ended.UTC(), r.First, r.Reason, Text(r.Supplier.Name), Text(r.Supplier.OrderNo), r.Trace})
	}
	return out
}

// Runs is the way back from RunsOf.
func Runs(list []Run) (out []idempotency.Run) {
	for i := range list {
		r := &list[i]
		out = append(out, idempotency.Run{
			CallID: string(r.CallID), ClientID: string(r.ClientID), Kind: idempotency.Kind(r.Kind), Started: r.Started, Ended: r.Ended, First: r.First, Reason: r.Reason,
			Supplier: idempotency.Supplier{Name: string(r.Supplier), OrderNo: string(r.OrderNo)}, Trace: r.Trace,
		})
	}
	return out
}

// NotesOf makes JSON of notes.
func NotesOf(list []idempotency.Note) (out []Note) {
	for i := range list {
		n := &list[i]
		out = append(out, Note{n.At.UTC(), Text(n.By), n.Did, Text(n.Text)})
	}
	return out
}

// Notes is the way back from NotesOf.
func Notes(list []Note) (out []idempotency.Note) {
	for i := range list {
		n := &list[i]
		out = append(out, idempotency.Note{At: n.At, By: string(n.By), Did: n.Did, Text: string(n.Text)})
	}
	return out
}

// WaitsOf makes JSON of waits.
func WaitsOf(list []attempt.Wait) (out []Wait) {
	for _, w := range list {
		out = append(out, Wait{w.Cause, w.For})
	}
	return out
}

// Waits is the way back from WaitsOf.
func Waits(list []Wait) (out []attempt.Wait) {
	for _, w := range list {
		out = append(out, attempt.Wait{Cause: w.Cause, For: w.For})
	}
	return out
}

// HistoryOf makes JSON of attempts.
func HistoryOf(list attempt.History) (out []Attempt) {
	for i := range list {
		a, v := &list[i], &list[i].Verdict
		out = append(out, Attempt{
			N: a.N, Count: a.Count, Started: a.Started.UTC(), Duration: a.Duration, Host: Text(a.Host), Status: a.Status,
			Class: v.Class.String(), Reason: v.Reason, Basis: string(v.Basis), Executed: v.Executed.String(),
			Detail: Text(a.Detail), Delay: a.Delay, Cause: a.Cause, RetryAfter: v.RetryAfter,
			HostFault: v.HostFault, Alive: v.Alive, EgressFault: v.EgressFault,
			Egress: Text(a.Egress), Reused: a.Reused, UpstreamID: Text(a.UpstreamID), Supplier: Text(a.Supplier),
		})
	}
	return out
}

// History is the way back from HistoryOf. It fails for verdicts that nobody knows.
func History(list []Attempt) (out attempt.History, err error) {
	for i := range list {
		a := &list[i]
		class, err1 := token(a.Class, classes)
		executed, err2 := Executed(a.Executed)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		out = append(out, attempt.Attempt{
			N: a.N, Count: a.Count, Started: a.Started, Duration: a.Duration, Host: string(a.Host), Status: a.Status,
			Detail: string(a.Detail), Delay: a.Delay, Cause: a.Cause, Egress: string(a.Egress), Reused: a.Reused, UpstreamID: string(a.UpstreamID), Supplier: string(a.Supplier),
			Verdict: classify.Verdict{
				Class: class, Reason: a.Reason, Basis: classify.Basis(a.Basis), Executed: executed,
				HostFault: a.HostFault, Alive: a.Alive, EgressFault: a.EgressFault, RetryAfter: a.RetryAfter,
			},
		})
	}
	return out, nil
}

// What names may be.
var (
	states     = idempotency.States()
	classes    = []classify.Class{0, classify.Success, classify.Transient, classify.Permanent, classify.Unknown}
	executions = []classify.Executed{classify.ExecutedNo, classify.ExecutedMaybe, classify.ExecutedYes}
)

// State is the state that has this name.
func State(name string) (idempotency.State, error) { return token(name, states) }

// Executed is what has this name.
func Executed(name string) (classify.Executed, error) { return token(name, executions) }

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
