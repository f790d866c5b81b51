package admin

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"retryproxy/attempt"
	"retryproxy/deadletter"
	"retryproxy/idempotency"
)

func TestHistogramOf(t *testing.T) {
	for query, want := range map[string]string{
		"":                     "10s 60 <nil>",
		"minutes=1&step=1s":    "1s 60 <nil>",
		"minutes=60&step=6s":   "6s 600 <nil>",
		"minutes=10&step=7m0s": "7m0s 2 <nil>",
		"minutes=0":            "0s 0 minutes: want a number from 1 to 60",
		"minutes=61":           "0s 0 minutes: want a number from 1 to 60",
		"minutes=x":            "0s 0 minutes: want a number from 1 to 60",
		"step=0s":              "0s 0 step: want whole seconds such as 10s, 1s at least and no more than minutes",
		"step=-5s":             "0s 0 step: want whole seconds such as 10s, 1s at least and no more than minutes",
		"step=1500ms":          "0s 0 step: want whole seconds such as 10s, 1s at least and no more than minutes",
		"step=10":              "0s 0 step: want whole seconds such as 10s, 1s at least and no more than minutes",
		"step=11m":             "0s 0 step: want whole seconds such as 10s, 1s at least and no more than minutes",
		"minutes=60&step=5s":   "0s 0 step: want at most 600 steps in minutes; make it longer",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		step, steps, err := histogramOf(q)
		if err != nil {
			step, steps = 0, 0
		}
		if got := fmt.Sprint(step, steps, err); got != want {
			t.Errorf("histogramOf(%s) = %s, want %s", query, got, want)
		}
	}
}

// What goes wrong with an order has a status by which a program can tell it.
func TestOrdersThatFail(t *testing.T) {
	d := newFake().deps()
	for _, x := range []struct {
		err    error
		status int
		reason string
	}{
		{nil, 200, `"detail"`},
		{attempt.ErrNoCall, 404, "not_found"},
		{fmt.Errorf("%w: attempt 2 is on the wire", attempt.ErrNotWaiting), 409, "not_waiting"},
		{fmt.Errorf("%w: breaker_open", attempt.ErrNotNow), 409, "not_now"},
		{deadletter.ErrBusy, 409, "busy"},
		{deadletter.ErrDraining, 503, "shutting_down"},
		{idempotency.ErrUnavailable, 503, "store_unavailable"},
	} {
		order := func(_ context.Context, id string, s deadletter.Signed) (any, error) {
			if id != "c1" || s.By != "li" || s.Note != "" {
				t.Errorf("order about %q by %+v", id, s)
			}
			return map[string]string{"detail": "well"}, x.err
		}
		d.Line = Line{
			Expedite: order, Cancel: order,
			Wakeups: func(context.Context, time.Time, time.Duration, int) (any, error) {
				return map[string]string{"detail": "well"}, x.err
			},
		}
		h := New(d)
		for _, path := range []string{"POST c1/expedite", "POST c1/cancel", "GET waiting/histogram"} {
			method, path, _ := strings.Cut(path, " ")
			w := httptest.NewRecorder()
			r := httptest.NewRequest(method, "http://127.0.0.1:9090/api/v1/calls/"+path, strings.NewReader(`{"by":"li"}`))
			h.ServeHTTP(w, r)
			if w.Code != x.status || !strings.Contains(w.Body.String(), x.reason) {
				t.Errorf("%s with %v = %d %s, want %d %s", path, x.err, w.Code, w.Body, x.status, x.reason)
			}
		}
	}
}
