package storetest

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"retryproxy/classify"
	"retryproxy/idempotency"
)

// Fleet are processes that share one store.
type Fleet interface {
	// Join starts a process whose clock is ahead of the others' by that much.
	Join(t *testing.T, ahead time.Duration) idempotency.Store
	// Die ends a process as a crash would, and sees to it that all know.
	Die(t *testing.T, s idempotency.Store)
}

// ExerciseFleet runs what a store promises that several processes share, beside
// Exercise and ExerciseDurable. make starts with no record and no process.
func ExerciseFleet(t *testing.T, make func(t *testing.T) Fleet) {
	for _, x := range fleetTests {
		t.Run(x.name, func(t *testing.T) { x.run(&fleet{T: t, Fleet: make(t)}) })
	}
}

// fleet is a Fleet under test.
type fleet struct {
	*testing.T
	Fleet
}

func (f *fleet) join(ahead time.Duration) *bench {
	return &bench{T: f.T, store: f.Join(f.T, ahead)}
}

var fleetTests = []struct {
	name string
	run  func(f *fleet)
}{
	{"of many claims in all processes one is fresh", oneFreshInFleet},
	{"what one has done, all replay", replayedElsewhere},
	{"what a living process runs, nobody adopts", livingKeepsItsCalls},
	{"of many that adopt a call one succeeds, and the process before is out", adoptedOnce},
	{"a process that ends in order hands over at once", handedOver},
	{"what many processes wake is woken once", wokenOnceInFleet},
	{"a call may be woken by another process, and is its own then", wokenElsewhere},
	{"a process whose clock is ahead adopts nothing, wakes nothing, and forgets nothing early", clockAhead},
	{"a process whose clock is behind neither", clockBehind},
	{"times are those of who reads them", timesTranslated},
	{"runs on one key alternate between processes", runsAlternate},
}

func oneFreshInFleet(f *fleet) {
	all := []*bench{f.join(0), f.join(0), f.join(0)}
	for round, state := range []idempotency.State{0, idempotency.StateFailed, idempotency.StateDead} {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(round)}
		if state != 0 {
			all[0].reach(claim(id, "before"), state, classify.ExecutedNo)
		}
		var fresh, busy atomic.Int32
		var group sync.WaitGroup
		for i := range 30 {
			group.Go(func() {
				begun, err := all[i%3].store.Begin(f.Context(), requested(difficult(), claim(id, named(i))), start)
				switch {
				case err != nil:
					f.Errorf("Begin = %v", err)
				case begun.Result == idempotency.Fresh:
					fresh.Add(1)
				case begun.Result == idempotency.Busy:
					busy.Add(1)
				}
			})
		}
		group.Wait()
		if fresh.Load() != 1 || busy.Load() != 29 {
			f.Errorf("30 claims in 3 processes = %d fresh, %d busy, want 1 and 29", fresh.Load(), busy.Load())
		}
	}
}

func replayedElsewhere(f *fleet) {
	a, b := f.join(0), f.join(0)
	a.reach(claim(order, "call-1"), idempotency.StateDone, classify.ExecutedYes)
	b.same("replay", b.begin(claim(order, "call-2"), start, idempotency.Replay).Answer, created())
	b.same("stats", b.store.Stats(), a.store.Stats())
}

func livingKeepsItsCalls(f *fleet) {
	a, b := f.join(0), f.join(0)
	for i, state := range []idempotency.State{idempotency.StateRunning, idempotency.StateWaiting} {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		before := a.reach(claim(id, "call-1"), state, classify.ExecutedNo)
		for _, owner := range []string{"call-1", "call-2"} {
			ch := idempotency.Change{Now: start, Owner: owner, Adopt: true}
			b.refuse(id, state, state, ch, idempotency.ErrConflict)
			a.refuse(id, state, state, ch, idempotency.ErrConflict)
			b.refuse(id, state, idempotency.StateFailed, change(owner, start), idempotency.ErrConflict)
		}
		b.same("record that others wanted", b.get(id, start), before)
	}
	a.left(named(0), named(1))
	b.left()
	a.lease(idempotency.ID{Tenant: order.Tenant, Key: named(0)}, "call-1", nil)
	a.lease(idempotency.ID{Tenant: order.Tenant, Key: named(0)}, "call-2", idempotency.ErrConflict)
	b.lease(idempotency.ID{Tenant: order.Tenant, Key: named(0)}, "call-1", idempotency.ErrConflict)
}

// lease asks for one and requires what comes of it.
func (b *bench) lease(id idempotency.ID, owner string, want error) {
	b.Helper()
	if err := b.store.Lease(b.Context(), id, owner, time.Minute); !errors.Is(err, want) {
		b.Errorf("Lease = %v, want %v", err, want)
	}
}

func adoptedOnce(f *fleet) {
	a, others := f.join(0), []*bench{f.join(0), f.join(0), f.join(0)}
	for i, state := range []idempotency.State{idempotency.StateRunning, idempotency.StateWaiting} {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		a.reach(requested(difficult(), claim(id, "call-1")), state, classify.ExecutedNo)
	}
	f.Die(f.T, a.store)
	for i, state := range []idempotency.State{idempotency.StateRunning, idempotency.StateWaiting} {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		var won, lost atomic.Int32
		var group sync.WaitGroup
		for n := range 12 {
			group.Go(func() {
				ch := idempotency.Change{Now: start, Owner: named(n), Adopt: true}
				switch _, err := others[n%3].store.Advance(f.Context(), id, state, state, ch); {
				case err == nil:
					won.Add(1)
				case errors.Is(err, idempotency.ErrConflict):
					lost.Add(1)
				default:
					f.Errorf("Advance = %v", err)
				}
			})
		}
		group.Wait()
		if won.Load() != 1 || lost.Load() != 11 {
			f.Errorf("12 adopt a %s call: %d won, %d lost, want 1 and 11", state, won.Load(), lost.Load())
		}
		others[0].load(id, difficult())
	}
	// The process was only thought to be dead.
	for i, state := range []idempotency.State{idempotency.StateRunning, idempotency.StateWaiting} {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		a.lease(id, "call-1", idempotency.ErrConflict)
		for _, to := range []idempotency.State{idempotency.StateRunning, idempotency.StateDone} {
			if state.CanBecome(to) {
				a.refuse(id, state, to, change("call-1", start), idempotency.ErrConflict)
			}
		}
	}
}

func handedOver(f *fleet) {
	a, b := f.join(0), f.join(0)
	a.reach(claim(order, "call-1"), idempotency.StateRunning, classify.ExecutedNo)
	if err := a.store.Close(); err != nil {
		f.Fatalf("Close = %v", err)
	}
	b.left(order.Key)
	b.takeOver(order, idempotency.StateRunning, "call-2")
	b.advance(order, idempotency.StateRunning, idempotency.StateFailed, change("call-2", start))
	b.left()
}

func wokenOnceInFleet(f *fleet) {
	all := []*bench{f.join(0), f.join(0), f.join(0)}
	for i := range 20 {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		all[0].begin(claim(id, "call-1"), start, idempotency.Fresh)
		ch := change("call-1", start)
		ch.NextAt = start.Add(time.Second)
		all[0].advance(id, idempotency.StateRunning, idempotency.StateParked, ch)
	}
	var woken sync.Map
	var group sync.WaitGroup
	for n, b := range all {
		group.Go(func() {
			due, _, err := b.store.Due(f.Context(), start.Add(time.Second), 100)
			if err != nil {
				f.Errorf("Due = %v", err)
			}
			for i := range due {
				_, err := b.store.Advance(f.Context(), due[i].ID, idempotency.StateParked, idempotency.StateRunning, change("waker "+strconv.Itoa(n), start.Add(time.Second)))
				if err == nil {
					if _, twice := woken.LoadOrStore(due[i].Key, n); twice {
						f.Errorf("%s was woken twice", due[i].Key)
					}
				}
			}
		})
	}
	group.Wait()
	n := 0
	woken.Range(func(any, any) bool { n++; return true })
	if n != 20 {
		f.Errorf("%d of 20 calls were woken", n)
	}
}

func wokenElsewhere(f *fleet) {
	a, b := f.join(0), f.join(0)
	a.reach(claim(order, "call-1"), idempotency.StateParked, classify.ExecutedNo)
	b.advance(order, idempotency.StateParked, idempotency.StateRunning, change("call-2", start))
	a.refuse(order, idempotency.StateRunning, idempotency.StateFailed, change("call-2", start), idempotency.ErrConflict)
	f.Die(f.T, a.store)
	c := f.join(0)
	c.left()
	f.Die(f.T, b.store)
	c.left(order.Key)
}

func clockAhead(f *fleet)  { clockOff(f, 10*time.Minute) }
func clockBehind(f *fleet) { clockOff(f, -10*time.Minute) }

// clockOff: what is due, what is over and who is alive is not a matter of the
// clock of him who asks.
func clockOff(f *fleet, off time.Duration) {
	a, b := f.join(0), f.join(off)
	there := start.Add(off) // now, by the clock of b
	running := idempotency.ID{Tenant: order.Tenant, Key: "running"}
	a.reach(claim(running, "call-1"), idempotency.StateRunning, classify.ExecutedNo)
	parked := idempotency.ID{Tenant: order.Tenant, Key: "parked"}
	a.begin(claim(parked, "call-1"), start, idempotency.Fresh)
	ch := change("call-1", start)
	ch.NextAt = start.Add(time.Minute)
	a.advance(parked, idempotency.StateRunning, idempotency.StateParked, ch)
	c := claim(order, "call-1")
	c.TTL = 5 * time.Minute
	a.begin(c, start, idempotency.Fresh)
	ch = change("call-1", start)
	ch.Answer = created()
	a.advance(order, idempotency.StateRunning, idempotency.StateDone, ch)

	if due, _, err := b.store.Due(f.Context(), there, 10); len(due) != 0 || err != nil {
		f.Errorf("Due a minute early = %d records, %v", len(due), err)
	}
	due, _, err := b.store.Due(f.Context(), there.Add(time.Minute+time.Second), 10) // clocks are not compared to the millisecond
	if len(due) != 1 || err != nil || due[0].Key != "parked" {
		f.Errorf("Due in time = %d records, %v, want the parked one", len(due), err)
	}
	b.refuse(running, idempotency.StateRunning, idempotency.StateRunning, idempotency.Change{Now: there, Owner: "call-2", Adopt: true}, idempotency.ErrConflict)
	b.begin(claim(order, "call-2"), there.Add(5*time.Minute-time.Second), idempotency.Replay)
	b.begin(claim(order, "call-3"), there.Add(5*time.Minute+time.Second), idempotency.Fresh)
	a.lease(running, "call-1", nil)
	b.lease(order, "call-3", nil)
	a.left("running")
	b.left(order.Key)
}

// timesTranslated: a record has the same times for everybody, each by his own clock.
func timesTranslated(f *fleet) {
	const off = -42 * time.Minute
	a, b := f.join(0), f.join(off)
	c := claim(order, "call-1")
	c.Deadline = start.Add(off + time.Hour)
	b.begin(c, start.Add(off), idempotency.Fresh)
	ch := change("call-1", start.Add(off))
	ch.NextAt, ch.Append = start.Add(off+time.Minute), tries(1, classify.ExecutedNo)
	ch.Append[0].Started = start.Add(off)
	ch.Note = &idempotency.Note{At: start.Add(off), By: "ann"}
	mine := b.advance(order, idempotency.StateRunning, idempotency.StateParked, ch)
	theirs := a.get(order, start)
	close := func(what string, t, want time.Time) {
		f.Helper()
		if d := t.Sub(want).Abs(); d > 5*time.Second {
			f.Errorf("%s is %v, want %v", what, t, want)
		}
	}
	for what, x := range map[string]struct{ b, a, want time.Time }{
		"created":  {mine.Created, theirs.Created, start},
		"updated":  {mine.Updated, theirs.Updated, start},
		"deadline": {mine.Deadline, theirs.Deadline, start.Add(time.Hour)},
		"next":     {mine.NextAt, theirs.NextAt, start.Add(time.Minute)},
		"parked":   {mine.Parked, theirs.Parked, start},
		"attempt":  {mine.History[0].Started, theirs.History[0].Started, start},
		"run":      {mine.Runs[0].Started, theirs.Runs[0].Started, start},
		"note":     {mine.Notes[0].At, theirs.Notes[0].At, start},
	} {
		close(what+" by the clock that is off", x.b, x.want.Add(off))
		close(what, x.a, x.want)
	}
	listed, _, err := b.store.List(f.Context(), idempotency.Query{Since: start.Add(off - time.Minute), Until: start.Add(off + time.Minute)})
	if len(listed) != 1 || err != nil {
		f.Errorf("List of the minutes around = %d records, %v, want 1", len(listed), err)
	}
}

func runsAlternate(f *fleet) {
	all := []*bench{f.join(0), f.join(0)}
	for run := range 10 {
		b := all[run%2]
		q := difficult()
		q.Target = "/" + named(run)
		b.begin(requested(q, claim(order, named(run))), start, idempotency.Fresh)
		ch := change(named(run), start)
		ch.Append = tries(1, classify.ExecutedNo)
		b.advance(order, idempotency.StateRunning, idempotency.StateWaiting, ch)
		got, err := all[(run+1)%2].store.Load(f.Context(), order)
		if err != nil || got.Target != q.Target || !bytes.Equal(got.Body, q.Body) {
			f.Errorf("run %d: another process loads %v, %v", run, got, err)
		}
		b.advance(order, idempotency.StateWaiting, idempotency.StateFailed, change(named(run), start))
	}
	rec := all[0].get(order, start)
	if rec.Attempts != 10 || len(rec.Runs) != 10 || !slices.IsSortedFunc(rec.Runs, func(a, b idempotency.Run) int { return a.First - b.First }) {
		f.Errorf("after 10 runs: %d attempts, %d runs", rec.Attempts, len(rec.Runs))
	}
}
