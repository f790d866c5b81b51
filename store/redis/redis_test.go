package redis

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"retryproxy/idempotency"
	"retryproxy/internal/redistest"
	"retryproxy/journal"
	"retryproxy/store/storetest"
)

// instances counts: every test has an instance of its own on a server.
var instances atomic.Int64

func config(s *redistest.Server) Config {
	return Config{
		URL: s.URL(), Instance: fmt.Sprintf("test%d", instances.Add(1)),
		Entries: 4000, Bytes: 1 << 20, MaxResponse: 1 << 16, TTL: time.Hour,
	}
}

func opened(t testing.TB, c Config) *Store { return openedAhead(t, c, 0) }

// openedAhead opens a store whose clock is ahead of the server's.
func openedAhead(t testing.TB, c Config, ahead time.Duration) *Store {
	t.Helper()
	s, err := open(context.Background(), c, func() time.Time { return time.Now().Add(ahead) })
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// die ends the process of a store for all others: its lease is over and is not
// renewed. The store itself can still be used, as by a process that was only
// paused.
func die(t testing.TB, s *Store) {
	t.Helper()
	s.halt()
	s.lease.until.Store(int64(s.lease.now() - time.Second))
	for end := time.Now().Add(10 * time.Second); ; {
		err := s.db.ZAdd(context.Background(), s.prefix+"leases", over(s.replica)).Err()
		if err == nil {
			return
		}
		if time.Now().After(end) { // the client looks for a server that was away once a second
			t.Fatal(err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func TestConformance(t *testing.T) {
	at := redistest.Start(t)
	open := func(t *testing.T) idempotency.Store { return opened(t, config(at)) }
	storetest.Exercise(t, open)
	t.Run("a process dies", func(t *testing.T) {
		storetest.ExerciseDurable(t, open, func(t *testing.T, old idempotency.Store) idempotency.Store {
			s := old.(*Store)
			die(t, s)
			return longRunning(opened(t, *s.bounds()))
		})
	})
	t.Run("fleet", func(t *testing.T) {
		storetest.ExerciseFleet(t, func(*testing.T) storetest.Fleet { return fleet{config(at)} })
	})
}

func TestHistoryOfCalls(t *testing.T) {
	at := redistest.Start(t)
	storetest.RunJournal(t, func(t *testing.T) journal.Journal { return opened(t, config(at)) })
}

// Redis dies as well, and starts again on what it had written.
func TestRedisDies(t *testing.T) {
	at := redistest.Start(t, "appendonly", "yes", "appendfsync", "always")
	open := func(t *testing.T) idempotency.Store { return opened(t, config(at)) }
	storetest.ExerciseDurable(t, open, func(t *testing.T, old idempotency.Store) idempotency.Store {
		at.Kill()
		at.Restart()
		s := old.(*Store)
		die(t, s)
		return longRunning(opened(t, *s.bounds()))
	})
}

// fleet are stores of one instance.
type fleet struct{ config Config }

func (f fleet) Join(t *testing.T, ahead time.Duration) idempotency.Store {
	return longRunning(openedAhead(t, f.config, ahead))
}

func (f fleet) Die(t *testing.T, s idempotency.Store) { die(t, s.(*Store)) }

// longRunning makes as if the store had its lease for long: it takes others without
// one to be gone.
func longRunning(s *Store) *Store {
	s.lease.mu.Lock()
	defer s.lease.mu.Unlock()
	s.lease.since = -2 * grace
	return s
}

// over is a lease that ended long ago, without being given up.
func over(replica string) goredis.Z { return goredis.Z{Score: 1, Member: replica} }
