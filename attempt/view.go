package attempt

import "time"

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

// FullView is a View, and what an operator wants to know beyond it.
type FullView struct {
	View
	Cause        string `json:"cause,omitempty"` // of the wait before it
	Host         string `json:"host"`
	Supplier     string `json:"supplier,omitempty"` // the backup supplier it went to
	Egress       string `json:"egress,omitempty"`   // the proxy it went through
	RetryCount   int    `json:"retry_count"`
	Basis        string `json:"basis,omitempty"` // why a repeat is safe
	Executed     string `json:"executed"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
	Reused       bool   `json:"reused,omitempty"`
	UpstreamID   string `json:"upstream_request_id,omitempty"`
}

// FullViews returns all attempts as operators see them; never nil, so that JSON has
// a list.
func (h History) FullViews() []FullView {
	views := make([]FullView, len(h))
	for i := range h {
		a := &h[i]
		views[i] = FullView{
			View: a.View(), Cause: a.Cause, Host: a.Host, Supplier: a.Supplier, Egress: a.Egress, RetryCount: a.Count, Basis: string(a.Verdict.Basis),
			Executed: a.Verdict.Executed.String(), RetryAfterMS: a.Verdict.RetryAfter.Milliseconds(),
			Reused: a.Reused, UpstreamID: a.UpstreamID,
		}
	}
	return views
}

// Views returns all attempts as they are shown; never nil, so that JSON has a list.
func (h History) Views() []View {
	views := make([]View, len(h))
	for i := range h {
		views[i] = h[i].View()
	}
	return views
}
