package attempt

import (
	"encoding/json"
	"time"
)

// View is an attempt as clients and operators see it in JSON.
type View struct {
	N          int       `json:"n"`
	Started    time.Time `json:"started"`
	DurationMS int64     `json:"duration_ms"`
	Class      string    `json:"class"`
	Reason     string    `json:"reason"`
	Status     int       `json:"status"` // 0: no header came
	Detail     string    `json:"detail"`
	DelayMS    int64     `json:"delay_ms"` // waited before it
}

// View returns a as it is shown.
func (a *Attempt) View() View {
	return View{
		a.N, a.Started, a.Duration.Milliseconds(), a.Verdict.Class.String(), a.Verdict.Reason,
		a.Status, a.Detail, a.Delay.Milliseconds(),
	}
}

// Views returns all attempts as they are shown; never nil, so that JSON has a list.
func (h History) Views() []View {
	views := make([]View, len(h))
	for i := range h {
		views[i] = h[i].View()
	}
	return views
}

// summaryView is a call as operators see it in JSON.
type summaryView struct {
	ID         string     `json:"id"`
	Mode       string     `json:"mode"`
	Policy     string     `json:"policy"`
	State      string     `json:"state"`
	Result     string     `json:"result,omitempty"`
	Reason     string     `json:"reason"`
	Detail     string     `json:"detail,omitempty"`
	NextAt     *time.Time `json:"next_at"` // null: it waits for nothing with a date
	Cause      string     `json:"cause,omitempty"`
	Place      int        `json:"place,omitempty"`
	Method     string     `json:"method"`
	Scheme     string     `json:"scheme"`
	Host       string     `json:"host"`
	Path       string     `json:"path"`
	Client     string     `json:"client"`
	User       string     `json:"user,omitempty"`
	Labels     Labels     `json:"labels"`
	KeyHash    string     `json:"key_hash,omitempty"`
	ClientID   string     `json:"client_request_id,omitempty"`
	Trace      string     `json:"traceparent,omitempty"`
	Status     int        `json:"status"` // 0: the client has no answer yet
	Executed   string     `json:"executed"`
	Started    time.Time  `json:"started"`
	DurationMS int64      `json:"duration_ms"`
	Bytes      int64      `json:"bytes"`
	Previous   int        `json:"previous_attempts"`
	Attempts   []View     `json:"attempts"`
}

// MarshalJSON writes the call as the admin API shows it.
func (s *Summary) MarshalJSON() ([]byte, error) {
	v := summaryView{
		ID: s.ID, Mode: s.Mode, Policy: s.Policy, State: s.State, Result: s.Result, Reason: s.Reason,
		Detail: s.Detail, Cause: s.Cause, Place: s.Place, Method: s.Method, Scheme: s.Scheme,
		Host: s.Host, Path: s.Path, Client: s.Client, User: s.User, Labels: s.Labels, KeyHash: s.KeyHash,
		ClientID: s.ClientID, Trace: s.Trace, Status: s.Status, Executed: s.Executed.String(),
		Started: s.Started, DurationMS: s.Duration.Milliseconds(), Bytes: s.Bytes, Previous: s.Previous,
		Attempts: s.Attempts.Views(),
	}
	if !s.NextAt.IsZero() {
		v.NextAt = &s.NextAt
	}
	return json.Marshal(v)
}
