package redis

import (
	"context"
	"net"
	"strings"
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
	if err := r.Lease(context.Background(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if d := r.leaseOf(r.replica); d > leaseTime {
		t.Errorf("a lease that is long enough was renewed to %v", d)
	}
	for range 2 {
		if err := r.Lease(context.Background(), time.Minute); err != nil {
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
