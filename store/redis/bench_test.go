package redis

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/internal/redistest"
	"retryproxy/message"
)

// BenchmarkKeyedCall is what the store costs a keyed POST that succeeds at once:
// a new record with its request of 1 KiB, and its answer of 1 KiB; Redis on
// loopback, which writes everything or nothing.
func BenchmarkKeyedCall(b *testing.B) {
	for _, way := range []struct {
		name     string
		settings []string
	}{
		{"memory", nil},
		{"everysec", []string{"appendonly", "yes", "appendfsync", "everysec"}},
		{"always", []string{"appendonly", "yes", "appendfsync", "always"}},
	} {
		at := redistest.Start(b, way.settings...)
		for _, callers := range []int{1, 64} {
			b.Run(way.name+"-"+strconv.Itoa(callers), func(b *testing.B) {
				c := config(at)
				c.Entries, c.Bytes = 100_000, 64<<20
				s := opened(b, c)
				var calls atomic.Int64
				b.SetParallelism(max(1, callers/2))
				b.ReportAllocs()
				b.ResetTimer()
				run := func(next func() bool) {
					for next() {
						if err := keyedCall(s, calls.Add(1)); err != nil {
							b.Error(err)
							return
						}
					}
				}
				if callers == 1 {
					run(b.Loop)
				} else {
					b.RunParallel(func(pb *testing.PB) { run(pb.Next) })
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			})
		}
	}
}

var (
	kilobyte = make([]byte, 1024)
	asked    = &idempotency.Request{
		Mode: "forward", Place: idempotency.Place{Scheme: "https", Authority: "u1.test", Target: "/order"}, Version: "HTTP/1.1", Honoured: true,
		Fields: message.Fields{{Name: "Content-Type", Value: "application/json"}, {Name: "User-Agent", Value: "bot/1"}, {Name: "Accept", Value: "*/*"}}, Body: kilobyte,
		Listener: "127.0.0.1:8080", Client: "127.0.0.1:50000",
	}
	answered = &idempotency.Answer{Status: 201, Body: kilobyte, Kept: true, Stored: start, Fields: message.Fields{
		{Name: "Date", Value: "Wed, 04 Mar 2026 05:06:07 GMT"}, {Name: "Content-Type", Value: "application/json"}, {Name: "Location", Value: "/order/1"},
	}}
)

func keyedCall(s *Store, n int64) error {
	ctx, text := context.Background(), strconv.FormatInt(n, 10)
	id := idempotency.ID{Tenant: "s" + text[len(text)-1:], Key: "order-" + text}
	_, err := s.Begin(ctx, idempotency.Claim{
		ID: id, Owner: "call-" + text, Policy: "order_ship", Method: "POST", Host: "u1.test:443", Path: "/order", Deadline: start, Request: asked,
	}, start)
	if err != nil {
		return err
	}
	_, err = s.Advance(ctx, id, idempotency.StateRunning, idempotency.StateDone, idempotency.Change{
		Now: start, Owner: "call-" + text, Reason: "ok", Answer: answered,
		Append: []attempt.Attempt{{Started: start, Host: "u1.test:443", Status: 201, Verdict: classify.Verdict{Class: classify.Success, Executed: classify.ExecutedYes}}},
	})
	return err
}
