package sqlite

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/journal"
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

// fill makes records with answers; one of a thousand waits.
func fill(t *testing.T, s *Store, records int) {
	const together = 5000
	for from := 0; from < records; from += together {
		err := s.direct(context.Background(), func(w *writer) error {
			for n := from; n < from+together; n++ {
				c := benchClaim(int64(n))
				if _, err := w.begin(c, time.Now()); err != nil {
					return err
				}
				to, ch := idempotency.StateDone, benchDone(c.Owner, time.Now())
				if n%1000 == 0 {
					to, ch.Answer = idempotency.StateWaiting, nil
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

// TestMillionCalls measures a history of a million calls, made with
// RETRYPROXY_MILLION=1: how long it takes to find one, by key, by id, by what it
// said, and what the rest of the list costs.
func TestMillionCalls(t *testing.T) {
	if os.Getenv("RETRYPROXY_MILLION") == "" {
		t.Skip("takes minutes; RETRYPROXY_MILLION=1 runs it")
	}
	const calls = 1_000_000
	c := config(t.TempDir())
	c.Keep = 1000 * time.Hour
	s := opened(t, c)
	began := time.Now()
	for from := 0; from < calls; from += 1000 {
		batch := make([]*attempt.Summary, 1000)
		for i := range batch {
			batch[i] = benchCall(from+i, began)
		}
		if err := s.Note(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(began)
	s.Close()
	t.Logf("%d calls, file of %d MiB, %v for each", calls, size(t, s.path)>>20, took/calls)
	began = time.Now()
	s = opened(t, c)
	t.Logf("start %v", time.Since(began))
	old := benchCall(calls/10, began)
	for _, x := range []struct {
		name  string
		q     journal.Query
		least int // calls that are found
		most  time.Duration
	}{
		{"by call id", journal.Query{CallID: old.ID}, 1, 100 * time.Millisecond},
		{"by key", journal.Query{KeyHash: old.KeyHash}, 1, 100 * time.Millisecond},
		{"the newest 100", journal.Query{}, 100, 50 * time.Millisecond},
		{"100 of a shop, three days ago", journal.Query{Shop: "s7", Until: old.Ended}, 100, 100 * time.Millisecond},
		{"by a text that is there once", journal.Query{Words: benchSalts.Words(old.ClientID)}, 1, 100 * time.Millisecond},
		{"by a text that is nowhere", journal.Query{Words: benchSalts.Words("no-such-order")}, 0, 100 * time.Millisecond},
		{"by two words and a shop that has none", journal.Query{Words: benchSalts.Words("sku-88412001 order_sn"), Shop: "none"}, 0, 100 * time.Millisecond},
		{"of a shop that has none", journal.Query{Shop: "none"}, 0, 100 * time.Millisecond},
		{"by a reason that no attempt has", journal.Query{Reason: "none"}, 0, 100 * time.Millisecond},
	} {
		var all []time.Duration
		for range 5 {
			began := time.Now()
			found, _, err := s.Find(t.Context(), x.q)
			all = append(all, time.Since(began))
			if err != nil || len(found) < x.least {
				t.Errorf("%s: %d calls, %v", x.name, len(found), err)
			}
		}
		t.Logf("%s: first %v", x.name, all[0])
		slices.Sort(all)
		t.Logf("%s: median %v", x.name, all[2])
		if all[2] > x.most {
			t.Errorf("%s takes %v, want %v", x.name, all[2], x.most)
		}
	}
}

var benchSalts = journal.SaltsOf(nil)

// benchCall is a call as a bot makes it: an order with a key of its own, which is
// tried twice.
func benchCall(n int, now time.Time) *attempt.Summary {
	id := strconv.Itoa(n)
	key := "3f1c9a52-7a3e-4d55-9b1e-" + id
	at := now.Add(time.Duration(n-1_000_000) * 2592 * time.Millisecond) // within 30 days
	body := `{"order_sn":"260304-` + id + `","shop_id":"s17","sku_id":"SKU-88412001","quantity":2,"tracking_no":"SF` + id + `","timestamp":1772600767}`
	try := attempt.Attempt{
		N: 1, Started: at, Duration: time.Millisecond, Host: "gw-api.pinduoduo.com:443", Status: 503,
		Verdict: classify.Verdict{Class: classify.Transient, Reason: "status_503", Basis: classify.BasisRefused},
	}
	good := attempt.Attempt{
		N: 2, Count: 1, Started: at.Add(time.Second), Duration: time.Millisecond, Host: "gw-api.pinduoduo.com:443", Status: 200, Delay: time.Second, Cause: "backoff", UpstreamID: "up-" + id,
		Verdict: classify.Verdict{Class: classify.Success, Reason: "status_200", Executed: classify.ExecutedYes, Alive: true},
	}
	return &attempt.Summary{
		ID: "01jh8k2m4n6p8q0r2s4t" + id, Mode: "forward", Policy: "order_ship", Client: "10.0.0.7:51234", State: "done", Result: "recovered", Reason: "ok",
		Labels: attempt.Labels{Shop: "s" + strconv.Itoa(n%200), TaskType: "order_ship"}, Method: "POST", Scheme: "https", Host: "gw-api.pinduoduo.com:443", Path: "/api/router",
		KeyHash: idempotency.KeyHash(key), ClientID: "rpa-" + id, Status: 200, Executed: classify.ExecutedYes, Attempts: attempt.History{try, good},
		Started: at, Ended: at.Add(time.Second), Duration: time.Second, Bytes: 120, Waits: []attempt.Wait{{Cause: "backoff", For: time.Second}},
		Terms: benchSalts.Terms([]byte(body), key, "/api/router", "type=pdd.order.ship", "rpa-"+id, "up-"+id),
	}
}

// BenchmarkNote is what a call costs in the history: one that is tried twice, one
// with a record that succeeds at once, and that one where others have to go for it.
func BenchmarkNote(b *testing.B) {
	for _, x := range []struct {
		name string
		call func(n int, now time.Time) *attempt.Summary
		most int
	}{{"retried", benchCall, 0}, {"keyed", benchKeyed, 0}, {"full", benchKeyed, 20_000}} {
		b.Run(x.name, func(b *testing.B) {
			c := config(b.TempDir())
			c.Keep, c.Durability, c.Calls = 1000*time.Hour, Process, x.most
			s := opened(b, c)
			calls := make([]*attempt.Summary, 8192)
			for i := range calls {
				calls[i] = x.call(i, time.Now())
			}
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				from := n % len(calls)
				if err := s.Note(b.Context(), calls[from:from+256]); err != nil {
					b.Fatal(err)
				}
				n += 256
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/call")
		})
	}
}

func benchKeyed(n int, now time.Time) *attempt.Summary {
	c := benchCall(n, now)
	c.Record = attempt.RecordID{Tenant: "-", Key: "3f1c9a52-7a3e-4d55-9b1e-" + strconv.Itoa(n)}
	c.Attempts, c.Waits = c.Attempts[1:], nil
	return c
}
