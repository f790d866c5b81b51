package admin

import (
	"net/http"
	"time"

	"retryproxy/patience"
)

// patienceView is after how long the clients of a task type hang up.
type patienceView struct {
	Kind       string  `json:"task_type"` // -: calls without one; other: those beyond the first 32
	Calls      int     `json:"calls"`     // that ended
	Left       int     `json:"left"`      // of them: whose client left without an answer
	Share      float64 `json:"left_share"`
	Waited     int     `json:"waited"`      // calls that waited
	WaitedLeft int     `json:"waited_left"` // of them: whose client left
	P50MS      int64   `json:"p50_ms"`      // from the request until clients left; 0: none did
	P90MS      int64   `json:"p90_ms"`
	DeadlineMS int64   `json:"deadline_ms"` // of the newest call; 0: unknown
}

func (s *server) showPatience(w http.ResponseWriter, _ *http.Request) {
	out := []patienceView{}
	for _, v := range s.Patience() {
		out = append(out, viewPatience(&v))
	}
	show(w, out)
}

func viewPatience(v *patience.View) patienceView {
	ms := time.Duration.Milliseconds
	return patienceView{
		v.Kind, v.Calls, v.Left, float64(v.Left) / float64(max(v.Calls, 1)), v.Waited, v.WaitedLeft, ms(v.P50), ms(v.P90), ms(v.Deadline),
	}
}
