package sqlite

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"retryproxy/idempotency"
)

// TestMillion measures a store of a million records, made with
// RETRYPROXY_MILLION=1: how long it takes to start and to find one.
func TestMillion(t *testing.T) {
	if os.Getenv("RETRYPROXY_MILLION") == "" {
		t.Skip("takes minutes; RETRYPROXY_MILLION=1 runs it")
	}
	const records = 1_000_000
	c := config(t.TempDir())
	c.Entries, c.Bytes = 2*records, 4<<30
	s := opened(t, c)
	fill(t, s, records)
	began := time.Now()
	s.Close()
	t.Logf("%d records, file of %d MiB, close %v", records, size(t, s.path)>>20, time.Since(began))
	for _, how := range []string{"after Close", "after a kill"} {
		began := time.Now()
		s = opened(t, c)
		took := time.Since(began)
		if pending, err := s.Pending(t.Context()); err != nil || len(pending) != records/1000 {
			t.Errorf("%d pending, %v, want %d", len(pending), err, records/1000)
		}
		t.Logf("start %s: %v, with Pending %v", how, took, time.Since(began))
		if st := s.Stats(); st.Records != records || took > 2*time.Second {
			t.Errorf("start with %d records took %v, want %d in 2s", st.Records, took, records)
		}
		lookUp(t, s, records)
		s.kill(t)
	}
}

// fill makes records with answers; one of a thousand stays parked.
func fill(t *testing.T, s *Store, records int) {
	const together = 5000
	for from := 0; from < records; from += together {
		err := s.submit(context.Background(), func(w *writer) error {
			for n := from; n < from+together; n++ {
				c := benchClaim(int64(n))
				if _, err := w.begin(c, time.Now()); err != nil {
					return err
				}
				to, ch := idempotency.StateDone, benchDone(c.Owner, time.Now())
				if n%1000 == 0 {
					to, ch.Answer = idempotency.StateParked, nil
				}
				if _, err := w.advance(c.ID, idempotency.StateRunning, to, ch); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func lookUp(t *testing.T, s *Store, records int) {
	var gets, begins []time.Duration
	for i := range 2000 {
		c := benchClaim(int64(i * 7919 % records))
		began := time.Now()
		if _, err := s.Get(t.Context(), c.ID, began); err != nil {
			t.Fatalf("Get = %v", err)
		}
		gets = append(gets, time.Since(began))
		began = time.Now()
		if begun, err := s.Begin(t.Context(), c, began); err != nil || begun.Result == idempotency.Fresh {
			t.Fatalf("Begin = %v, %v", begun.Result, err)
		}
		begins = append(begins, time.Since(began))
	}
	for name, all := range map[string][]time.Duration{"Get": gets, "Begin": begins} {
		slices.Sort(all)
		t.Logf("%s: p50 %v, p99 %v", name, all[len(all)/2], all[len(all)*99/100])
		if all[len(all)/2] > time.Millisecond {
			t.Errorf("%s takes %v, want 1ms", name, all[len(all)/2])
		}
	}
}

func size(t *testing.T, path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
