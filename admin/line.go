package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"retryproxy/deadletter"
)

// Line are the calls that wait: when they go on, and orders about one of them. All are
// required.
type Line struct {
	// Wakeups counts from start on when calls go on, as JSON shows it.
	Wakeups func(ctx context.Context, start time.Time, step time.Duration, steps int) (any, error)
	// Expedite ends a call's wait, Cancel the call. They give what it does now. Errors:
	// those of attempt, deadletter.ErrInput, ErrBusy, ErrDraining, of the store.
	Expedite, Cancel func(ctx context.Context, id string, s deadletter.Signed) (any, error)
}

// Bounds of a histogram.
const (
	usualMinutes = "10"
	usualStep    = "10s"
	mostMinutes  = 60
	mostSteps    = 600
)

// histogramOf reads how far a histogram reaches, and in what steps. The error names what
// is wrong.
func histogramOf(q url.Values) (step time.Duration, steps int, err error) {
	minutes, err := strconv.Atoi(cmp.Or(q.Get("minutes"), usualMinutes))
	if err != nil || minutes < 1 || minutes > mostMinutes {
		return 0, 0, errors.New("minutes: want a number from 1 to 60")
	}
	step, err = time.ParseDuration(cmp.Or(q.Get("step"), usualStep))
	window := time.Duration(minutes) * time.Minute
	switch {
	case err != nil || step < time.Second || step > window || step%time.Second != 0:
		return 0, 0, errors.New("step: want whole seconds such as 10s, 1s at least and no more than minutes")
	case window/step > mostSteps:
		return 0, 0, errors.New("step: want at most 600 steps in minutes; make it longer")
	}
	return step, int((window + step - 1) / step), nil
}

func (s *server) showWakeups(w http.ResponseWriter, r *http.Request) {
	step, steps, err := histogramOf(r.URL.Query())
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	v, err := s.Line.Wakeups(r.Context(), s.now(), step, steps)
	if err != nil {
		failLetter(w, err)
		return
	}
	show(w, v)
}

func (s *server) expediteCall(w http.ResponseWriter, r *http.Request) {
	s.orderCall(w, r, s.Line.Expedite)
}

func (s *server) cancelCall(w http.ResponseWriter, r *http.Request) { s.orderCall(w, r, s.Line.Cancel) }

// orderCall hands an order about a call that waits on.
func (s *server) orderCall(w http.ResponseWriter, r *http.Request, do func(context.Context, string, deadletter.Signed) (any, error)) {
	var t deadletter.Signed
	if !read(w, r, &t) {
		return
	}
	told, err := do(r.Context(), chi.URLParam(r, "id"), t)
	if err != nil {
		failLetter(w, err)
		return
	}
	show(w, told)
}
