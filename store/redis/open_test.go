package redis

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"retryproxy/idempotency"
	"retryproxy/internal/redistest"
)

// Why it does not start is a line that says what to do, and no password.
func TestDoesNotStart(t *testing.T) {
	evicts := redistest.Start(t, "maxmemory-policy", "allkeys-lru")
	guarded := redistest.Start(t, "requirepass", "hunter2")
	primary := redistest.Start(t)
	host, port, _ := net.SplitHostPort(primary.Addr())
	secondary := redistest.Start(t, "replicaof", host+" "+port)
	gone := redistest.Start(t)
	gone.Kill()
	for _, tt := range []struct{ name, url, want string }{
		{"evicts", evicts.URL(), "maxmemory-policy allkeys-lru: it would forget keys, and orders would be made twice; set maxmemory-policy noeviction"},
		{"copy", secondary.URL(), "read-only copy (role slave); store.url must name the primary"},
		{"gone", gone.URL(), "does not answer"},
		{"no password", guarded.URL(), "NOAUTH"},
		{"wrong password", "redis://:hunter3@" + guarded.Addr(), "WRONGPASS"},
		{"no address", "redis://:hunter2@x:y:z", "store.url: want redis://"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config(primary)
			c.URL = tt.url
			s, err := Open(context.Background(), c)
			if err == nil {
				s.Close()
				t.Fatal("it opens")
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "store") || strings.Contains(err.Error(), "hunter") {
				t.Errorf("Open = %v, want a line with %q and no password", err, tt.want)
			}
		})
	}
	newer := opened(t, config(primary))
	if err := newer.db.HSet(context.Background(), newer.prefix+"count", "layout", "2").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), *newer.bounds()); err == nil || !strings.Contains(err.Error(), "have layout 2, written by another retryproxy") {
		t.Errorf("Open over a newer layout = %v", err)
	}
	c := config(guarded)
	c.URL = "redis://:hunter2@" + guarded.Addr() + "/3"
	opened(t, c)
}

func TestTellsThatNothingIsWritten(t *testing.T) {
	for setting, want := range map[string]string{"no": "appendonly is off in Redis: a restart of it forgets the keys of the last minutes, or all", "yes": ""} {
		c := config(redistest.Start(t, "appendonly", setting))
		var told []string
		c.Log = func(msg string, _ ...any) { told = append(told, msg) }
		opened(t, c)
		if got := strings.Join(told, "|"); got != want {
			t.Errorf("appendonly %s: the operator is told %q, want %q", setting, got, want)
		}
	}
}

// lease is how long the lease of a replica lasts, by the server.
func (r *rig) leaseOf(replica string) time.Duration {
	r.Helper()
	score, err := r.db.ZScore(context.Background(), r.prefix+"leases", replica).Result()
	if err != nil {
		return 0
	}
	return time.UnixMicro(int64(score)).Sub(r.serverTime())
}

func TestLeaseIsAsLongAsAsked(t *testing.T) {
	r := newRig(t, redistest.Start(t), 0, 0)
	if d := r.leaseOf(r.replica); d > leaseTime || d < leaseTime-2*time.Second {
		t.Errorf("the lease lasts %v, want %v", d, leaseTime)
	}
	if err := r.hold(context.Background(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if d := r.leaseOf(r.replica); d > leaseTime {
		t.Errorf("a lease that is long enough was renewed to %v", d)
	}
	for range 2 {
		if err := r.hold(context.Background(), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if d := r.leaseOf(r.replica); d < time.Minute || d > time.Minute+2*spare {
		t.Errorf("a minute was asked for, and the lease lasts %v", d)
	}
	if d := r.lease.left(); d < time.Minute || d > r.leaseOf(r.replica)+time.Second {
		t.Errorf("the process believes that it lasts %v, the server says %v", d, r.leaseOf(r.replica))
	}
}

// The lease is renewed in the background, and the replicas are counted.
func TestLeaseIsKept(t *testing.T) {
	at := redistest.Start(t)
	r := newRig(t, at, 0, 0)
	other := opened(t, *r.bounds())
	if n := other.Replicas(); n != 2 {
		t.Errorf("%d replicas, want 2", n)
	}
	if err := r.db.Del(context.Background(), r.prefix+"leases").Err(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(3 * renewEvery); r.leaseOf(r.replica) == 0 || r.leaseOf(other.replica) == 0; {
		if time.Now().After(end) {
			t.Fatal("the leases are not renewed")
		}
		<-time.After(50 * time.Millisecond)
	}
}

func TestCloseGivesTheLeaseUp(t *testing.T) {
	at := redistest.Start(t)
	r := newRig(t, at, 0, 0)
	idle, busy := opened(t, *r.bounds()), opened(t, *r.bounds())
	b := &rig{t, busy}
	b.fresh(key("a", 0), start)
	idle.Close()
	busy.Close()
	if _, err := r.db.ZScore(context.Background(), r.prefix+"leases", idle.replica).Result(); err == nil {
		t.Error("an idle replica is remembered")
	}
	due, _, err := r.Due(context.Background(), start, 10)
	if err != nil || len(due) != 1 || due[0].State != idempotency.StateRunning {
		t.Errorf("Due after the other one closed = %v, %v, want its call at once", due, err)
	}
}

// A replica that had no lease itself takes no other one to be gone.
func TestAfterAnOutageOthersAreWaitedFor(t *testing.T) {
	at := redistest.Start(t)
	r := newRig(t, at, 0, 0)
	other := opened(t, *r.bounds())
	(&rig{t, other}).fresh(key("a", 0), start)
	die(t, other)
	if due, _, err := r.Due(context.Background(), start, 10); len(due) != 0 || err != nil {
		t.Errorf("Due just after the start = %d records, %v, want none", len(due), err)
	}
	longRunning(r.Store)
	if due, _, err := r.Due(context.Background(), start, 10); len(due) != 1 || err != nil {
		t.Errorf("Due later = %d records, %v, want 1", len(due), err)
	}
	// As after an outage: the lease had run out before it was renewed.
	r.lease.until.Store(0)
	if err := r.renew(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	if due, _, err := r.Due(context.Background(), start, 10); len(due) != 0 || err != nil {
		t.Errorf("Due after an outage = %d records, %v, want none", len(due), err)
	}
}

// A clock that is set while the process runs does no harm, from the first moment on.
func TestClockIsSet(t *testing.T) {
	at := redistest.Start(t)
	var ahead atomic.Int64
	c := config(at)
	s, err := open(context.Background(), c, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	s.halt() // no renewal tells it
	r := &rig{t, s}
	for _, jump := range []time.Duration{0, time.Hour, -time.Hour, 30 * time.Second} {
		ahead.Store(int64(jump))
		now := time.Now().Add(jump)
		id := key("a", int(jump/time.Second))
		begun, err := r.Begin(context.Background(), idempotency.Claim{ID: id, Owner: "o", TTL: 10 * time.Second}, now)
		if err != nil || begun.Result != idempotency.Fresh || begun.Record.Created.Sub(now).Abs() > time.Second {
			t.Fatalf("Begin = %v, created %v, %v, want it now, %v", begun.Result, begun.Record.Created, err, now)
		}
		ch := idempotency.Change{Now: now, Owner: "o", Answer: &idempotency.Answer{Status: 200, Kept: true, Stored: now}}
		if _, err := r.Advance(context.Background(), id, idempotency.StateRunning, idempotency.StateDone, ch); err != nil {
			t.Fatal(err)
		}
		ahead.Store(0)
		if begun, err := r.Begin(context.Background(), idempotency.Claim{ID: id, Owner: "p"}, time.Now()); err != nil || begun.Result != idempotency.Replay {
			t.Errorf("after the clock was set by %v and back: Begin = %v, %v, want replay", jump, begun.Result, err)
		}
		ahead.Store(int64(jump + time.Hour))
		if begun, err := r.Begin(context.Background(), idempotency.Claim{ID: id, Owner: "p"}, time.Now().Add(jump+time.Hour)); err != nil || begun.Result != idempotency.Replay {
			t.Errorf("after the clock was set an hour on: Begin = %v, %v, want replay", begun.Result, err)
		}
	}
	if d := s.lease.left(); d < leaseTime/2 {
		t.Errorf("the lease holds for %v only", d)
	}
}

// A process that was paused for longer than its lease knows that it may be too late,
// whoever renewed the lease first.
func TestPausedProcess(t *testing.T) {
	at := redistest.Start(t)
	r := newRig(t, at, 0, 0)
	r.halt()
	other := &rig{t, longRunning(opened(t, *r.bounds()))}
	for i := range 3 {
		r.fresh(key("a", i), start)
	}
	least := 20 * time.Second
	lease := func(i int, want error) {
		t.Helper()
		if err := r.Lease(context.Background(), key("a", i), "o "+key("a", i).Key, least); !errors.Is(err, want) {
			t.Errorf("Lease of call %d = %v, want %v", i, err, want)
		}
	}
	lease(0, nil)
	die(t, r.Store)
	adopt := idempotency.Change{Now: start, Owner: "other", Adopt: true}
	if _, err := other.Advance(context.Background(), key("a", 1), idempotency.StateRunning, idempotency.StateRunning, adopt); err != nil {
		t.Fatal(err)
	}
	lease(0, nil) // it is still run here, and from now on again for sure
	lease(1, idempotency.ErrConflict)
	lease(1, idempotency.ErrConflict)
	lease(2, nil)
	adopt.Owner = "another"
	if _, err := other.Advance(context.Background(), key("a", 2), idempotency.StateRunning, idempotency.StateRunning, adopt); !errors.Is(err, idempotency.ErrConflict) {
		t.Errorf("adopting a call that has its lease again = %v, want %v", err, idempotency.ErrConflict)
	}
}

// Neither what was left behind nor what is parked hides the other.
func TestDueIsFair(t *testing.T) {
	at := redistest.Start(t)
	r := newRig(t, at, 0, 0)
	gone := &rig{t, opened(t, *r.bounds())}
	longRunning(r.Store)
	for i := range 8 {
		r.reach(key("parked", i), idempotency.StateParked, 0, start)
		id := key("parked", i)
		if _, err := r.Advance(context.Background(), id, idempotency.StateParked, idempotency.StateParked, idempotency.Change{Now: start, NextAt: start}); err != nil {
			t.Fatal(err)
		}
		gone.fresh(key("left", i), start)
	}
	die(t, gone.Store)
	for limit, want := range map[int]int{4: 2, 10: 5, 13: 6, 16: 8, 20: 8} {
		due, _, err := r.Due(context.Background(), start, limit)
		left := 0
		for i := range due {
			if due[i].State == idempotency.StateRunning {
				left++
			}
		}
		if err != nil || len(due) != min(limit, 16) || left != want {
			t.Errorf("of 8 and 8 Due(%d) gives %d, of them %d left behind, %v, want %d of these", limit, len(due), left, err, want)
		}
	}
}
