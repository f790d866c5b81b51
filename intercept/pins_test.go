package intercept

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPins(t *testing.T) {
	start := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	type step struct {
		after time.Duration // since the start
		do    string        // refused, accepted, or look
		want  bool          // of refused: now passes; else: passes through
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"three in a row", []step{
			{0, "refused", false}, {1, "look", false}, {2, "refused", false}, {3, "look", false}, {4, "refused", true}, {5, "look", true},
		}},
		{"for an hour", []step{
			{0, "refused", false}, {0, "refused", false}, {0, "refused", true}, {time.Hour - 1, "look", true}, {time.Hour, "look", false},
		}},
		{"one more is enough afterwards", []step{
			{0, "refused", false}, {0, "refused", false}, {0, "refused", true}, {time.Hour, "refused", true}, {2*time.Hour - 1, "look", true}, {2 * time.Hour, "look", false},
		}},
		{"one that comes late does not make it longer", []step{
			{0, "refused", false}, {0, "refused", false}, {0, "refused", true}, {time.Minute, "refused", false}, {time.Hour, "look", false},
		}},
		{"a success ends the row", []step{
			{0, "refused", false}, {0, "refused", false}, {0, "accepted", false}, {0, "refused", false}, {0, "refused", false}, {0, "look", false}, {0, "refused", true},
		}},
		{"a success after the hour begins anew", []step{
			{0, "refused", false}, {0, "refused", false}, {0, "refused", true}, {time.Hour, "accepted", false}, {time.Hour, "refused", false},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := NewPins()
			for i, s := range test.steps {
				now, got := start.Add(s.after), false
				switch s.do {
				case "refused":
					got = p.Refused("bot", "a.test", now)
				case "accepted":
					p.Accepted("bot", "a.test", now)
				default:
					got = p.PassThrough("bot", "a.test", now)
				}
				if got != s.want {
					t.Errorf("step %d: %s after %v = %v, want %v", i, s.do, s.after, got, s.want)
				}
				if p.PassThrough("bot", "b.test", now) || p.PassThrough("other", "a.test", now) {
					t.Errorf("step %d: another pair passes through", i)
				}
			}
		})
	}
}

func TestPinsList(t *testing.T) {
	start := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	p := NewPins()
	refuse := func(client, host string, times int, at time.Time) {
		for range times {
			p.Refused(client, host, at)
		}
	}
	later := start.Add(time.Minute)
	refuse("b", "x", 3, start)
	refuse("a", "y", 3, later)
	refuse("a", "x", 3, later)
	refuse("a", "z", 2, later)
	hour := time.Hour
	want := []Pin{{"a", "x", later, later.Add(hour)}, {"a", "y", later, later.Add(hour)}, {"b", "x", start, start.Add(hour)}}
	if diff := cmp.Diff(want, p.List(later)); diff != "" {
		t.Errorf("List: %s", diff)
	}
	if diff := cmp.Diff(want[:2], p.List(start.Add(hour))); diff != "" {
		t.Errorf("List when the hour of one is over: %s", diff)
	}
}

func TestPinsAreBounded(t *testing.T) {
	now := time.Now()
	p := NewPins()
	for i := range maxPins + 10 {
		p.Refused("bot", fmt.Sprint(i), now)
	}
	if n := p.pairs.Len(); n != maxPins {
		t.Errorf("%d pairs are kept, want %d", n, maxPins)
	}
}

func TestPinsAtOnce(t *testing.T) {
	now := time.Now()
	p := NewPins()
	var wg sync.WaitGroup
	passed := make(chan bool, 64)
	for range cap(passed) {
		wg.Go(func() {
			passed <- p.Refused("bot", "a.test", now)
			p.PassThrough("bot", "a.test", now)
			p.List(now)
		})
	}
	wg.Wait()
	close(passed)
	n := 0
	for ok := range passed {
		if ok {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d refusals made the pair pass, want 1", n)
	}
}
