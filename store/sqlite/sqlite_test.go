package sqlite

import (
	"context"
	"testing"
	"time"

	"retryproxy/idempotency"
	"retryproxy/store/storetest"
)

func config(dir string) Config {
	return Config{Path: dir, Durability: Process, Entries: 4000, Bytes: 1 << 20, MaxResponse: 1 << 16, TTL: time.Hour}
}

func opened(t testing.TB, c Config) *Store {
	t.Helper()
	s, err := Open(context.Background(), c)
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return s
}

// kill ends a store as a crash would: the lock is free, nothing is moved from
// the log into the file. The connections stay open until the test ends.
func (s *Store) kill(t testing.TB) {
	s.closing.Do(func() {
		close(s.stop)
		<-s.ended
		s.lock.Close()
		t.Cleanup(func() { s.release() })
	})
}

func TestConformance(t *testing.T) {
	open := func(t *testing.T) idempotency.Store { return opened(t, config(t.TempDir())) }
	storetest.Exercise(t, open)
	storetest.ExerciseDurable(t, open, func(t *testing.T, old idempotency.Store) idempotency.Store {
		s := old.(*Store)
		s.kill(t)
		return opened(t, *s.bounds())
	})
}
