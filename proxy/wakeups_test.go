package proxy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWakeupsByStep(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	type one struct {
		cause string
		in    time.Duration
		n     int
	}
	for _, tt := range []struct {
		name string
		add  []one
		want Wakeups
	}{
		{"none", nil, Wakeups{ByCause: map[string][]int{}}},
		{"none of a cause", []one{{"parked", 0, 0}}, Wakeups{ByCause: map[string][]int{}}},
		{"overdue", []one{{"backoff", -time.Hour, 1}, {"backoff", -1, 1}}, Wakeups{ByCause: map[string][]int{"backoff": {2, 0, 0}}}},
		{"edges", []one{{"backoff", 0, 1}, {"backoff", 10*time.Second - 1, 1}, {"backoff", 10 * time.Second, 1}}, Wakeups{ByCause: map[string][]int{"backoff": {2, 1, 0}}}},
		{"the last step, and later", []one{{"pause", 30*time.Second - 1, 1}, {"pause", 30 * time.Second, 2}, {"x", time.Hour, 3}}, Wakeups{ByCause: map[string][]int{"pause": {0, 0, 1}}, Later: 5}},
		{"causes apart", []one{{"backoff", 15 * time.Second, 1}, {"parked", 15 * time.Second, 700}}, Wakeups{ByCause: map[string][]int{"backoff": {0, 1, 0}, "parked": {0, 700, 0}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := NewWakeups(start, 10*time.Second)
			for _, x := range tt.add {
				got.Add(x.cause, start.Add(x.in), x.n, 3)
			}
			tt.want.Start, tt.want.Step = start, 10
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("Wakeups (-want +got):\n%s", diff)
			}
		})
	}
}
