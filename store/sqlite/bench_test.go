package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/message"
)

// BenchmarkKeyedCall is what the store costs a keyed POST that succeeds at once:
// a new record with its request of 1 KiB, and its answer of 1 KiB.
func BenchmarkKeyedCall(b *testing.B) {
	for _, durability := range []string{Full, Process} {
		for _, callers := range []int{1, 64} {
			b.Run(durability+"-"+strconv.Itoa(callers), func(b *testing.B) {
				benchmarkCalls(b, durability, callers)
			})
		}
	}
}

// BenchmarkSteady is a load of 500 keyed calls a second, of which every one is
// waited for, beside bare syncs of the same disk in the same run.
func BenchmarkSteady(b *testing.B) {
	for _, durability := range []string{Full, Process} {
		b.Run(durability, func(b *testing.B) {
			c := config(b.TempDir())
			c.Durability, c.Entries, c.Bytes = durability, 0, 0
			s := opened(b, c)
			disk := syncing(b)
			defer disk.stop(b)
			var took times
			done := make(chan error, b.N)
			b.ResetTimer()
			ticker := time.NewTicker(2 * time.Millisecond)
			defer ticker.Stop()
			for n := range b.N {
				<-ticker.C
				go func() {
					began := time.Now()
					err := keyedCall(s, int64(n))
					took.add(time.Since(began))
					done <- err
				}()
			}
			for range b.N {
				if err := <-done; err != nil {
					b.Error(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			took.report(b, "call")
		})
	}
}

// disk is a goroutine that writes and syncs 4 KiB fifty times a second.
type disk struct {
	quit, gone chan struct{}
	took       times
}

func syncing(b *testing.B) *disk {
	f, err := os.Create(filepath.Join(b.TempDir(), "file"))
	if err != nil {
		b.Fatal(err)
	}
	d := &disk{quit: make(chan struct{}), gone: make(chan struct{})}
	go func() {
		defer close(d.gone)
		defer f.Close()
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-d.quit:
				return
			case <-ticker.C:
			}
			began := time.Now()
			f.WriteAt(make([]byte, 4096), int64(i%1024)*4096)
			if err := f.Sync(); err != nil {
				b.Error(err)
				return
			}
			d.took.add(time.Since(began))
		}
	}()
	return d
}

func (d *disk) stop(b *testing.B) {
	close(d.quit)
	<-d.gone
	d.took.report(b, "sync")
}

func benchmarkCalls(b *testing.B, durability string, callers int) {
	c := config(b.TempDir())
	c.Durability, c.Entries, c.Bytes = durability, 0, 0
	s := opened(b, c)
	var calls atomic.Int64
	var took times
	var group sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range callers {
		group.Go(func() {
			for n := calls.Add(1); n <= int64(b.N); n = calls.Add(1) {
				began := time.Now()
				if err := keyedCall(s, n); err != nil {
					b.Error(err)
					return
				}
				took.add(time.Since(began))
			}
		})
	}
	group.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	took.report(b, "call")
}

func benchClaim(n int64) idempotency.Claim {
	key := strconv.FormatInt(n, 10)
	return idempotency.Claim{
		ID: idempotency.ID{Tenant: "bot1/s" + key[len(key)-1:], Key: "3f1c9a52-7a3e-4d55-9b1e-" + key}, Owner: "01JH" + key, Policy: "order_ship",
		Labels: attempt.Labels{Shop: "s1", TaskType: "order_ship"}, Method: "POST", Host: "gw-api.pinduoduo.com:443", Path: "/api/router",
		Deadline: time.Now().Add(time.Minute), TTL: 24 * time.Hour,
		Request: &idempotency.Request{
			Mode: "forward", Place: idempotency.Place{Scheme: "https", Authority: "gw-api.pinduoduo.com", Target: "/api/router?type=pdd.order.ship", Exempt: true}, Version: "HTTP/1.1", Body: make([]byte, 1024),
			Fields: message.Fields{
				{Name: "Host", Value: "gw-api.pinduoduo.com"},
				{Name: "User-Agent", Value: "python-requests/2.31"},
				{Name: "Accept", Value: "*/*"},
				{Name: "Content-Type", Value: "application/json"},
				{Name: "X-Idempotency-Key", Value: key},
				{Name: "Authorization", Value: "Bearer 0123456789abcdef0123456789abcdef"},
			},
		},
	}
}

func keyedCall(s *Store, n int64) error {
	c := benchClaim(n)
	now := time.Now()
	if _, err := s.Begin(context.Background(), c, now); err != nil {
		return err
	}
	_, err := s.Advance(context.Background(), c.ID, idempotency.StateRunning, idempotency.StateDone, benchDone(c.Owner, now))
	return err
}

func benchDone(owner string, now time.Time) idempotency.Change {
	return idempotency.Change{
		Now: now, Owner: owner, Reason: "ok",
		Append: []attempt.Attempt{{
			Started: now, Duration: time.Millisecond, Host: "gw-api.pinduoduo.com:443", Status: 200,
			Verdict: classify.Verdict{Class: classify.Success, Reason: "status_200", Executed: classify.ExecutedYes, Alive: true},
		}},
		Answer: &idempotency.Answer{
			Status: 200, Reason: "OK", Body: make([]byte, 1024), Kept: true,
			Fields: message.Fields{{Name: "Content-Type", Value: "application/json"}, {Name: "Date", Value: "Mon, 02 Mar 2026 15:04:05 GMT"}, {Name: "Server", Value: "nginx"}},
		},
	}
}

// times are how long something took.
type times struct {
	mu  sync.Mutex
	all []time.Duration
}

func (t *times) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, d)
}

func (t *times) report(b *testing.B, what string) {
	if len(t.all) == 0 {
		return
	}
	slices.Sort(t.all)
	for _, p := range []int{50, 99} {
		d := t.all[len(t.all)*p/100]
		b.ReportMetric(float64(d.Microseconds()), "p"+strconv.Itoa(p)+"-"+what+"-µs")
	}
}
