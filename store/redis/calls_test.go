package redis

import (
	"context"
	"strconv"
	"testing"
	"time"

	"retryproxy/attempt"
	"retryproxy/internal/redistest"
	"retryproxy/journal"
)

// noted notes calls that ended so long ago.
func (r *rig) noted(ago ...time.Duration) {
	r.Helper()
	for i, d := range ago {
		at := time.Now().Add(-d)
		if err := r.Note(context.Background(), []*attempt.Summary{{ID: strconv.Itoa(i), State: "done", Started: at, Ended: at}}); err != nil {
			r.Fatal(err)
		}
	}
}

// told requires the calls that the history has.
func (r *rig) told(want string) {
	r.Helper()
	found, _, err := r.Find(context.Background(), journal.Query{})
	if err != nil {
		r.Fatal(err)
	}
	got := ""
	for _, e := range found {
		got += e.ID
	}
	if got != want {
		r.Errorf("the history has %q, want %q", got, want)
	}
	if n := r.db.HLen(context.Background(), r.prefix+"calls:data").Val(); int(n) != len(want) {
		r.Errorf("it keeps %d calls, want %d", n, len(want))
	}
}

func TestHistoryIsBounded(t *testing.T) {
	at := redistest.Start(t)
	c := config(at)
	c.Calls, c.Keep = 3, time.Hour
	r := &rig{t, opened(t, c)}
	r.noted(50*time.Minute, 40*time.Minute, 30*time.Minute)
	r.told("210")
	r.noted(20 * time.Minute)
	r.told("021") // as many as may be: 0 is the new one
	c.Keep = 25 * time.Minute
	r.Configure(c, time.Now())
	r.sweep(context.Background())
	r.told("0")
}

// An answer of Redis that was lost leaves no call twice.
func TestLostAnswerOfNote(t *testing.T) {
	r, link := relayed(t)
	r.noted(time.Minute)
	link.losing.Store(1)
	r.noted(0)
	r.told("00")
}
