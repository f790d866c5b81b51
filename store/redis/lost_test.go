package redis

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"retryproxy/idempotency"
	"retryproxy/internal/redistest"
)

// relay stands between a store and its server, and can lose answers.
type relay struct {
	to     string
	addr   string
	first  atomic.Int64 // so many answers come through
	losing atomic.Int64 // and then so many are lost, with their connection
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{to: to, addr: l.Addr().String()}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { r.carry(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		open.Wait()
	})
	return r
}

// carry copies both ways until one side ends.
func (r *relay) carry(c net.Conn) {
	defer c.Close()
	up, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer up.Close()
	go func() { // ends with up
		io.Copy(up, c)
		up.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := up.Read(buf)
		if err != nil {
			return
		}
		switch {
		case r.first.Load() > 0:
			r.first.Add(-1)
		case r.losing.Load() > 0:
			r.losing.Add(-1)
			return // the server has done it
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

// relayed is a store whose answers can be lost, without anything in the background.
func relayed(t *testing.T) (*rig, *relay) {
	t.Helper()
	at := redistest.Start(t)
	link := newRelay(t, at.Addr())
	c := config(at)
	c.URL = "redis://" + link.addr
	s := opened(t, c)
	s.halt()
	r := &rig{t, s}
	r.fresh(key("warm", 0), start) // the scripts are known to the server
	r.reach(key("warm", 1), idempotency.StateDone, 1, start)
	r.want(key("warm", 1), "done")
	return r, link
}

func TestLostAnswerOfBegin(t *testing.T) {
	r, link := relayed(t)
	link.losing.Store(1)
	r.fresh(key("a", 0), start)
	rec, err := r.Get(context.Background(), key("a", 0), start)
	if err != nil || rec.Version != 1 || len(rec.Runs) != 1 {
		t.Errorf("the record is %+v, %v, want one run", rec, err)
	}
	// The same call may ask again; another one may not.
	r.fresh(key("a", 0), start)
	if begun, err := r.Begin(context.Background(), idempotency.Claim{ID: key("a", 0), Owner: "other"}, start); begun.Result != idempotency.Busy || err != nil {
		t.Errorf("Begin by another call = %v, %v, want busy", begun.Result, err)
	}
	r.move2(key("a", 0), idempotency.StateRunning, idempotency.StateFailed)
	link.losing.Store(1)
	r.fresh(key("a", 0), start)
	if rec, _ := r.Get(context.Background(), key("a", 0), start); rec.Version != 3 || len(rec.Runs) != 2 {
		t.Errorf("the record is version %d with %d runs, want 3 and 2", rec.Version, len(rec.Runs))
	}
}

// move2 moves a record of claim.
func (r *rig) move2(id idempotency.ID, from, to idempotency.State) {
	r.Helper()
	if _, err := r.Advance(context.Background(), id, from, to, idempotency.Change{Now: start, Owner: "o " + id.Key}); err != nil {
		r.Fatalf("Advance(%v to %s) = %v", id, to, err)
	}
}

// overdue makes as if nothing that was sent for so many disowned runs could come any more.
func (r *rig) overdue(want int) {
	r.Helper()
	r.disowned.mu.Lock()
	defer r.disowned.mu.Unlock()
	if n := len(r.disowned.runs); n != want {
		r.Fatalf("%d runs are disowned, want %d", n, want)
	}
	for i := range r.disowned.runs {
		r.disowned.runs[i].after = time.Time{}
	}
}

// A run that was refused to its caller, and begun all the same, does not hold its
// key for ever.
func TestRunThatNobodyKnowsOf(t *testing.T) {
	r, link := relayed(t)
	link.losing.Store(tries)
	if got, err := r.claim(key("a", 0), start); !errors.Is(err, idempotency.ErrUnavailable) {
		t.Fatalf("Begin = %v, %v, want %v", got, err, idempotency.ErrUnavailable)
	}
	r.want(key("a", 0), "running")
	r.endDisowned(context.Background())
	r.want(key("a", 0), "running") // what is under way may still come
	r.overdue(1)
	r.endDisowned(context.Background())
	r.want(key("a", 0), "failed")
	if n := len(r.disowned.runs); n != 0 {
		t.Errorf("%d runs are still to be ended", n)
	}
	r.fresh(key("a", 0), start)
	r.endDisowned(context.Background())
	r.want(key("a", 0), "running")
}

func TestLostAnswerOfAdvance(t *testing.T) {
	r, link := relayed(t)
	r.fresh(key("a", 0), start)
	link.losing.Store(1)
	ch := idempotency.Change{Now: start, Owner: "o k0", NextAt: start.Add(time.Second)}
	rec, err := r.Advance(context.Background(), key("a", 0), idempotency.StateRunning, idempotency.StateWaiting, ch)
	if err != nil || rec.Version != 2 {
		t.Fatalf("Advance = version %d, %v, want 2", rec.Version, err)
	}
	if rec, err := r.Get(context.Background(), key("a", 0), start); err != nil || rec.Version != 2 {
		t.Errorf("Get = version %d, %v, want 2: the change was made once", rec.Version, err)
	}
	r.move2(key("a", 0), idempotency.StateWaiting, idempotency.StateRunning)
}

// ask asks for a receipt of a record, as anybody may at any time.
func (r *rig) ask(s *Store, id idempotency.ID, in idempotency.State) {
	r.Helper()
	if _, err := s.Advance(context.Background(), id, in, in, idempotency.Change{Now: start, Receipt: true}); err != nil {
		r.Fatalf("Advance for a receipt = %v", err)
	}
}

// Who was told that a change failed, though it was made, goes on from before it.
func TestChangeOfUnknownOutcome(t *testing.T) {
	r, link := relayed(t)
	for i, x := range []struct {
		to, then idempotency.State
	}{
		{idempotency.StateWaiting, idempotency.StateFailed},
		{idempotency.StateWaiting, idempotency.StateRunning},
		{idempotency.StateDone, idempotency.StateDone},
		{idempotency.StateParked, idempotency.StateParked},
	} {
		id := key("a", i)
		r.fresh(id, start)
		link.losing.Store(tries)
		ch := idempotency.Change{Now: start, Owner: "o " + id.Key}
		if _, err := r.Advance(context.Background(), id, idempotency.StateRunning, x.to, ch); !errors.Is(err, idempotency.ErrUnavailable) {
			t.Fatalf("Advance = %v, want %v", err, idempotency.ErrUnavailable)
		}
		r.want(id, map[bool]string{true: "marker", false: x.to.String()}[x.to == idempotency.StateDone])
		link.first.Store(1) // it is read first
		link.losing.Store(tries)
		if _, err := r.Advance(context.Background(), id, x.to, x.to, idempotency.Change{Now: start, Receipt: true}); !errors.Is(err, idempotency.ErrUnavailable) {
			t.Fatalf("Advance for a receipt = %v, want %v", err, idempotency.ErrUnavailable)
		}
		r.ask(r.Store, id, x.to) // which is no change of the run
		// A stranger is no better off for it.
		if _, err := r.Advance(context.Background(), id, idempotency.StateRunning, x.then, idempotency.Change{Now: start, Owner: "other"}); !errors.Is(err, idempotency.ErrConflict) {
			t.Errorf("%s: Advance by another call = %v, want %v", x.to, err, idempotency.ErrConflict)
		}
		r.move2(id, idempotency.StateRunning, x.then)
		r.want(id, map[bool]string{true: "marker", false: x.then.String()}[x.then == idempotency.StateDone])
	}
}

// What was taken over, though its taker was told that it was not, is left to others.
func TestTakenOverUnbeknown(t *testing.T) {
	r, link := relayed(t)
	other := longRunning(opened(t, *r.bounds()))
	parked := func(id idempotency.ID) { r.reach(id, idempotency.StateParked, 0, start) }
	orphaned := func(id idempotency.ID) {
		gone := opened(t, *r.bounds())
		(&rig{t, gone}).fresh(id, start)
		die(t, gone)
	}
	for i, x := range []struct {
		make     func(idempotency.ID)
		from, to idempotency.State
		ch       idempotency.Change
	}{
		{parked, idempotency.StateParked, idempotency.StateWaiting, idempotency.Change{Now: start, Owner: "waker"}},
		{orphaned, idempotency.StateRunning, idempotency.StateRunning, idempotency.Change{Now: start, Owner: "waker", Adopt: true}},
	} {
		id := key("a", i)
		x.make(id)
		link.first.Store(1) // it is read first
		link.losing.Store(tries)
		if _, err := r.Advance(context.Background(), id, x.from, x.to, x.ch); !errors.Is(err, idempotency.ErrUnavailable) {
			t.Fatalf("Advance = %v, want %v", err, idempotency.ErrUnavailable)
		}
		r.want(id, x.to.String())
		if due, _, err := other.Due(context.Background(), start, 10); len(due) != 0 || err != nil {
			t.Errorf("Due while it is ours = %d records, %v, want none", len(due), err)
		}
		r.ask(other, id, x.to)
		r.overdue(1)
		r.endDisowned(context.Background())
		due, _, err := other.Due(context.Background(), start, 10)
		if err != nil || len(due) != 1 || due[0].Key != id.Key {
			t.Fatalf("Due once it was let go = %v, %v, want it", due, err)
		}
		again := idempotency.Change{Now: start, Owner: "another", Adopt: true}
		if _, err := other.Advance(context.Background(), id, x.to, x.to, again); err != nil {
			t.Errorf("Advance of what was let go = %v", err)
		}
	}
}

// What was sent too long ago does nothing, even if it gets there at last.
func TestLateChange(t *testing.T) {
	r, _ := relayed(t)
	c := idempotency.Claim{ID: key("a", 0), Owner: "o"}
	p := &put{rec: idempotency.Admit(nil, c, start).Record, answer: drop, request: drop, mark: r.mark()}
	args := r.arguments(p)
	args[6] = r.serverTime().Add(-time.Second).UnixMicro()
	out, err := r.list(context.Background(), claimScript, args...)
	if err != nil || out[0] != putLate {
		t.Errorf("a late claim = %v, %v, want %s", out, err, putLate)
	}
	r.want(key("a", 0), "")
}

func TestWhileRedisIsAway(t *testing.T) {
	at := redistest.Start(t, "appendonly", "yes", "appendfsync", "always")
	c := config(at)
	var mu sync.Mutex
	var told []string
	c.Log = func(msg string, _ ...any) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, msg)
	}
	r := &rig{t, opened(t, c)}
	health := make(chan bool, 2)
	r.OnHealth(func(up bool) { health <- up })
	r.reach(key("a", 0), idempotency.StateDone, 10, start)
	r.fresh(key("a", 1), start)
	before := r.Stats()
	at.Kill()
	if got, err := r.claim(key("a", 2), start); !errors.Is(err, idempotency.ErrUnavailable) {
		t.Errorf("Begin = %v, %v, want %v", got, err, idempotency.ErrUnavailable)
	}
	if err := r.Lease(context.Background(), key("a", 1), "o k1", time.Second); err != nil {
		t.Errorf("Lease that still holds = %v", err)
	}
	if err := r.Lease(context.Background(), key("a", 1), "o k1", time.Hour); !errors.Is(err, idempotency.ErrUnavailable) {
		t.Errorf("Lease for longer = %v, want %v", err, idempotency.ErrUnavailable)
	}
	if up := <-health; up {
		t.Error("it is said to be there")
	}
	began := time.Now()
	for range 100 {
		if _, err := r.claim(key("a", 2), start); !errors.Is(err, idempotency.ErrUnavailable) {
			t.Errorf("Begin = %v, want %v", err, idempotency.ErrUnavailable)
		}
	}
	if d := time.Since(began); d > time.Second {
		t.Errorf("100 refusals took %v: nobody is to wait for what is known", d)
	}
	if st := r.Stats(); st.Records != before.Records {
		t.Errorf("Stats() = %+v, want what was last seen: %+v", st, before)
	}
	at.Restart()
	if up := <-health; !up {
		t.Error("it is said to be away")
	}
	r.want(key("a", 0), "done")
	r.move2(key("a", 1), idempotency.StateRunning, idempotency.StateWaiting)
	r.fresh(key("a", 2), start)
	mu.Lock()
	defer mu.Unlock()
	if all := strings.Join(told, "|"); all != "unavailable|available again" {
		t.Errorf("the operator was told %q", all)
	}
}

// Redis that comes back empty is told of: keys are new again.
func TestRedisComesBackEmpty(t *testing.T) {
	at := redistest.Start(t)
	c := config(at)
	told := make(chan string, 16)
	c.Log = func(msg string, _ ...any) { told <- msg }
	r := &rig{t, opened(t, c)}
	r.fresh(key("a", 0), start)
	at.Kill()
	at.Restart()
	for msg := range told {
		if strings.HasPrefix(msg, "Redis came back without the records") {
			break
		}
	}
	if _, err := r.Advance(context.Background(), key("a", 0), idempotency.StateRunning, idempotency.StateWaiting, idempotency.Change{Now: start, Owner: "o k0"}); !errors.Is(err, idempotency.ErrNotFound) {
		t.Errorf("Advance of what is lost = %v, want %v", err, idempotency.ErrNotFound)
	}
}
