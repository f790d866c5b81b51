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

// Views returns all attempts as they are shown; never nil, so that JSON has a list.
func (h History) Views() []View {
	views := make([]View, len(h))
	for i := range h {
		views[i] = h[i].View()
	}
	return views
}
