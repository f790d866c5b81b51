package admin

import (
	"net/http"
	"time"

	"retryproxy/deadletter"
	"retryproxy/idempotency"
)

const (
	usualHours = 48
	mostHours  = 30 * 24
)

// letterHours are the dead letters by the hour in which they were made.
type letterHours struct {
	Start   time.Time        `json:"start"`
	Step    int              `json:"step_s"`
	Reasons map[string][]int `json:"reasons"`
}

// hourLetters counts the letters that are still ones, by reason and by when they were
// made. The last hour is not over yet.
func (s *server) hourLetters(w http.ResponseWriter, r *http.Request) {
	hours, ok := wholeNumber(w, r, "hours", usualHours, mostHours)
	if !ok {
		return
	}
	v := letterHours{s.now().Truncate(time.Hour).Add(-time.Duration(hours-1) * time.Hour), 3600, map[string][]int{}}
	err := s.Letters.Each(r.Context(), deadletter.Filter{Since: v.Start}, func(rec *idempotency.Record) error {
		v.add(deadletter.Since(rec), rec.Reason, hours)
		return nil
	})
	if err != nil {
		failLetter(w, err)
		return
	}
	show(w, v)
}

func (v *letterHours) add(made time.Time, reason string, hours int) {
	if made.Before(v.Start) {
		return // it was only changed since
	}
	if v.Reasons[reason] == nil {
		v.Reasons[reason] = make([]int, hours)
	}
	v.Reasons[reason][min(int(made.Sub(v.Start)/time.Hour), hours-1)]++
}
