package memory

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/message"
)

// BenchmarkKeyedCall is what the store costs a keyed POST that succeeds at once:
// a new record and its answer of 1 KiB, in a full store that has to evict.
func BenchmarkKeyedCall(b *testing.B) {
	s := New(Config{Entries: 10_000, Bytes: 8 << 20, MaxResponse: 1 << 20, TTL: 24 * time.Hour})
	var calls atomic.Int64
	for range 20_000 {
		keyedCall(b, s, "order-"+strconv.FormatInt(calls.Add(1), 10), make([]byte, 1024))
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		body := make([]byte, 1024)
		for pb.Next() {
			keyedCall(b, s, "order-"+strconv.FormatInt(calls.Add(1), 10), body)
		}
	})
}

func keyedCall(b *testing.B, s *Store, key string, body []byte) {
	id := idempotency.ID{Tenant: "s" + key[len(key)-1:], Key: key}
	begun, err := s.Begin(context.Background(), idempotency.Claim{
		ID: id, Owner: "call", Policy: "order_ship", Method: "POST", Host: "u1.test:443", Path: "/order", Deadline: start,
	}, start)
	if err != nil || begun.Result != idempotency.Fresh {
		b.Fatal(begun.Result, err)
	}
	_, err = s.Advance(context.Background(), id, idempotency.StateRunning, idempotency.StateDone, idempotency.Change{
		Now: start, Owner: "call", Reason: "ok",
		Append: []attempt.Attempt{{Started: start, Host: "u1.test:443", Status: 201, Verdict: classify.Verdict{Class: classify.Success, Executed: classify.ExecutedYes}}},
		Answer: &idempotency.Answer{Status: 201, Body: body, Kept: true, Stored: start, Fields: message.Fields{
			{Name: "Date", Value: "Wed, 04 Mar 2026 05:06:07 GMT"}, {Name: "Content-Type", Value: "application/json"}, {Name: "Location", Value: "/order/1"},
		}},
	})
	if err != nil {
		b.Fatal(err)
	}
}

func BenchmarkReplay(b *testing.B) {
	s := New(Config{Entries: 100_000, Bytes: 64 << 20, MaxResponse: 1 << 20, TTL: 24 * time.Hour})
	keyedCall(b, s, "order-1", make([]byte, 1024))
	c := idempotency.Claim{ID: idempotency.ID{Tenant: "s1", Key: "order-1"}, Owner: "call"}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if begun, err := s.Begin(context.Background(), c, start); err != nil || begun.Result != idempotency.Replay {
				b.Fatal(begun.Result, err)
			}
		}
	})
}
