package limiter

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/breaker"
)

// hurried requires what comes of hurrying a ticket.
func (d *desk) hurried(t *Ticket, reason string, until time.Time) {
	d.Helper()
	if refused, at := d.l.Hurry(t, time.Time{}, d.now); refused != reason || !at.Equal(until) {
		d.Fatalf("Hurry = %q until %v, want %q until %v", refused, at, reason, until)
	}
}

func TestHurryStartsWhoWaitsForADate(t *testing.T) {
	for _, cause := range []string{"backoff", "retry_after"} {
		d := newDesk(t, slots(1))
		ticket := d.wait(Claim{Retry: true, NotBefore: at(time.Minute), Cause: cause}, cause, at(time.Minute))
		d.until(at(time.Second))
		d.hurried(ticket, "", time.Time{})
		if a := d.granted(cause, ticket); a.Cause != cause || a.AtGate != 0 {
			t.Errorf("answer = %+v, want a wait for %s only", a, cause)
		}
		d.hurried(ticket, NotItsDate, time.Time{}) // it is over
		late := d.wait(Claim{}, "gate", time.Time{})
		d.hurried(late, NotItsDate, time.Time{})
	}
}

// The pause of a shop is what a Retry-After made of it: it is skipped for one call and
// holds for the others.
func TestHurrySkipsAPauseForOne(t *testing.T) {
	d := newDesk(t, slots(9))
	d.l.Pause(host, "s", at(time.Minute), d.now)
	one := d.wait(Claim{Retry: true, Shop: "s"}, causePause, at(time.Minute))
	two := d.wait(Claim{Retry: true, Shop: "s"}, causePause, at(time.Minute))
	d.hurried(one, "", time.Time{})
	d.granted("the one", one)
	if !d.waits(two) {
		t.Error("the other one does not wait any more")
	}
}

// Who is hurried gets in line as its turn is: tokens and slots are for all.
func TestHurryKeepsTheOrder(t *testing.T) {
	d := newDesk(t, slots(1))
	busy := d.start(Claim{})
	first := d.wait(Claim{Retry: true}, "gate", time.Time{})
	late := d.wait(Claim{Retry: true, Arrived: at(time.Second), NotBefore: at(time.Minute), Cause: "backoff"}, "backoff", at(time.Minute))
	d.until(at(2 * time.Second))
	d.hurried(late, "", time.Time{})
	if v := d.l.View(late, d.now); v.Cause != causeGate || v.Place != 2 {
		t.Fatalf("View = %+v, want the second place at the gate", v)
	}
	d.end(busy, breaker.Served)
	d.end(d.granted("the first", first).Grant, breaker.Served)
	d.granted("the hurried", late)

	d = newDesk(t, tokens(off, off, Limit{Rate: 1. / 12, Burst: 1}))
	d.start(Claim{Retry: true, Shop: "s"})
	ticket := d.wait(Claim{Retry: true, Shop: "s", NotBefore: at(time.Minute), Cause: "backoff"}, "backoff", at(time.Minute))
	d.hurried(ticket, "", time.Time{})
	if v := d.l.View(ticket, d.now); v.Cause != causeTokens || !v.At.Equal(at(12*time.Second)) {
		t.Errorf("View = %+v, want tokens until 12 s", v)
	}
	d.until(at(12 * time.Second))
	d.granted("with its token", ticket)
}

// Where a hurried call would be turned away, nothing changes: it waits for its date and
// starts then.
func TestHurryInVain(t *testing.T) {
	claim := Claim{Retry: true, Shop: "s", NotBefore: at(time.Minute), Cause: "backoff", Deadline: at(2 * time.Minute)}
	for _, tt := range []struct {
		name, reason string
		config       Config
		before       func(d *desk)
		until        time.Time
	}{
		{"breaker", RefusedBreaker, slots(9), func(d *desk) { d.fail(host) }, at(2 * time.Second)},
		{"no room in line", RefusedSlot, func() Config { c := slots(1); c.MaxWaiting = 1; return c }(), func(d *desk) {
			d.start(Claim{})
			d.wait(Claim{MaxWait: time.Second}, "gate", time.Time{})
		}, time.Time{}},
		{"no token in time", RefusedTokens, tokens(off, off, Limit{Burst: 1}), func(d *desk) { d.start(Claim{Retry: true, Shop: "s"}) }, time.Time{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDesk(t, tt.config)
			ticket := d.wait(claim, "backoff", at(time.Minute))
			tt.before(d)
			d.hurried(ticket, tt.reason, tt.until)
			if v := d.l.View(ticket, d.now); v.Cause != "backoff" || !v.At.Equal(at(time.Minute)) {
				t.Errorf("View = %+v, want the wait as before", v)
			}
		})
	}
}

// A call that has its place among those that the platform takes does not come before it.
func TestHurryIsNotSoonerThanItsPlace(t *testing.T) {
	d := newDesk(t, slots(1))
	ticket := d.wait(Claim{Retry: true, NotBefore: at(time.Minute), Cause: "backoff"}, "backoff", at(time.Minute))
	if refused, _ := d.l.Hurry(ticket, at(20*time.Second), d.now); refused != "" {
		t.Fatalf("Hurry = %q", refused)
	}
	if v := d.l.View(ticket, d.now); v.Cause != causeRate || !v.At.Equal(at(20*time.Second)) {
		t.Errorf("View = %+v, want its place in 20 s", v)
	}
	d.hurried(ticket, NotItsDate, time.Time{})
	d.until(at(20 * time.Second))
	d.granted("at its place", ticket)
}

func TestStarts(t *testing.T) {
	d := newDesk(t, slots(1))
	d.start(Claim{})
	d.wait(Claim{}, "gate", time.Time{})
	d.wait(Claim{Retry: true, NotBefore: at(time.Minute), Cause: "backoff"}, "backoff", at(time.Minute))
	d.wait(Claim{Retry: true, NotBefore: at(time.Second), Cause: "backoff"}, "backoff", at(time.Second))
	d.wait(Claim{Host: "u2.test:80", Retry: true, NotBefore: at(2 * time.Second), Cause: "retry_after"}, "retry_after", at(2*time.Second))
	dates, inLine := d.l.Starts(d.now)
	want := map[string][]time.Time{"backoff": {at(time.Second), at(time.Minute)}, "retry_after": {at(2 * time.Second)}}
	if diff := cmp.Diff(want, dates); diff != "" || inLine != 1 {
		t.Errorf("Starts (-want +got), %d in line, want 1:\n%s", inLine, diff)
	}
}

// An operator's histogram must not hold the calls up.
func BenchmarkStarts(b *testing.B) {
	l := New(slots(1), nil)
	for i := range 10_000 {
		c := Claim{Host: fmt.Sprint("u", i%50), MaxWait: time.Minute, NotBefore: at(time.Duration(i) * time.Millisecond), Cause: "backoff"}
		l.Ask(&c, t0.Add(-time.Second))
	}
	b.ReportAllocs()
	for b.Loop() {
		if dates, _ := l.Starts(t0.Add(-time.Second)); len(dates["backoff"]) != 10_000 {
			b.Fatal("not all wait")
		}
	}
}
