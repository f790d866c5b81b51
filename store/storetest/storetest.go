// Package storetest answers one question: does this store keep the promises of idempotency.Store?
//
// Exercise is run for every implementation. What only one store promises, such
// as its limits, is tested beside that store.
package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/message"
)

// Open returns an empty store with room for at least 1000 records of one tenant
// and for answers of 64 KiB. It closes the store in t.Cleanup.
type Open func(t *testing.T) idempotency.Store

// Reopen takes a store that is in use, ends it as a crash would (without
// Close), and returns one over what it left behind.
type Reopen func(t *testing.T, old idempotency.Store) idempotency.Store

// Exercise runs the conformance suite.
func Exercise(t *testing.T, open func(t *testing.T) idempotency.Store) {
	run(t, open, slices.Concat(beginTests, advanceTests, answerTests, lifeTests, pendingTests, listTests))
}

// ExerciseDurable runs what a store promises that outlives its process, beside
// Exercise.
func ExerciseDurable(t *testing.T, open Open, reopen Reopen) {
	for _, state := range idempotency.States() {
		t.Run("crash in "+state.String(), func(t *testing.T) {
			crash(&bench{T: t, store: open(t)}, state, reopen)
		})
	}
	for _, x := range crashTests {
		t.Run(x.name, func(t *testing.T) { x.run(&bench{T: t, store: open(t)}, reopen) })
	}
}

// test is one promise.
type test struct {
	name string
	run  func(b *bench)
}

func run(t *testing.T, open Open, tests []test) {
	for _, x := range tests {
		t.Run(x.name, func(t *testing.T) { x.run(&bench{T: t, store: open(t)}) })
	}
}

// bench is a store under test with the steps the tests are made of.
type bench struct {
	*testing.T
	store idempotency.Store
}

// The world of the tests. Times are whole nanoseconds in UTC, and far ahead: a
// store that sweeps by the clock finds nothing that has expired.
var (
	start = time.Date(2126, 3, 4, 5, 6, 7, 89, time.UTC)
	ttl   = time.Hour
	order = idempotency.ID{Tenant: "bot1/s17", Key: "order-1"}
	loose = idempotency.ID{Tenant: idempotency.NoTenant, Key: "order-1"}
)

// claim is a call for id by owner.
func claim(id idempotency.ID, owner string) idempotency.Claim {
	return idempotency.Claim{
		ID: id, Owner: owner, Fingerprint: [32]byte{1}, Policy: "order_ship",
		Labels: attempt.Labels{Shop: "s17", ShopTier: "vip", TaskType: "order_ship"},
		Method: "POST", Host: "u1.test:443", Path: "/order",
		Deadline: start.Add(5 * time.Minute), TTL: ttl,
	}
}

// begin claims and requires a result.
func (b *bench) begin(c idempotency.Claim, now time.Time, want idempotency.Result) idempotency.Record {
	b.Helper()
	begun, err := b.store.Begin(b.Context(), c, now)
	if err != nil || begun.Result != want {
		b.Fatalf("Begin(%s, owner %s) = %v, %v, want %v", c.Key, c.Owner, begun.Result, err, want)
	}
	return begun.Record
}

// advance moves and requires that it works.
func (b *bench) advance(id idempotency.ID, from, to idempotency.State, ch idempotency.Change) idempotency.Record {
	b.Helper()
	rec, err := b.store.Advance(b.Context(), id, from, to, ch)
	if err != nil || rec.State != to {
		b.Fatalf("Advance(%s to %s) = state %s, %v", from, to, rec.State, err)
	}
	return rec
}

// refuse moves and requires an error.
func (b *bench) refuse(id idempotency.ID, from, to idempotency.State, ch idempotency.Change, want error) {
	b.Helper()
	if _, err := b.store.Advance(b.Context(), id, from, to, ch); !errors.Is(err, want) {
		b.Errorf("Advance(%s to %s) = %v, want %v", from, to, err, want)
	}
}

func (b *bench) get(id idempotency.ID, now time.Time) idempotency.Record {
	b.Helper()
	rec, err := b.store.Get(b.Context(), id, now)
	if err != nil {
		b.Fatalf("Get(%s) = %v", id.Key, err)
	}
	return rec
}

// reach begins the claim and brings the record into a state.
func (b *bench) reach(c idempotency.Claim, to idempotency.State, executed classify.Executed) idempotency.Record {
	b.Helper()
	rec := b.begin(c, start, idempotency.Fresh)
	if to == idempotency.StateRunning {
		return rec
	}
	ch := change(c.Owner, start)
	ch.Append = tries(1, executed)
	if to == idempotency.StateDone {
		ch.Answer = created()
	}
	return b.advance(c.ID, idempotency.StateRunning, to, ch)
}

func change(owner string, now time.Time) idempotency.Change {
	return idempotency.Change{Owner: owner, Now: now, Reason: "because"}
}

// tries are n attempts that failed with 503.
func tries(n int, executed classify.Executed) []attempt.Attempt {
	out := make([]attempt.Attempt, n)
	for i := range out {
		out[i] = attempt.Attempt{
			Count: i, Started: start.Add(time.Duration(i) * time.Second), Duration: 1234567 * time.Nanosecond,
			Host: "u1.test:443", Status: 503, Detail: "é\x00", Delay: time.Second, Cause: "backoff", Reused: true, UpstreamID: "u-1",
			Verdict: classify.Verdict{
				Class: classify.Transient, Reason: "status_503", Basis: classify.BasisKey, Executed: executed,
				HostFault: true, Alive: true, RetryAfter: 3 * time.Second,
			},
		}
	}
	return out
}

// allBytes is a body with every byte, NUL and broken UTF-8 included.
func allBytes() []byte {
	b := []byte(strings.Repeat("ü€\x00\r\n", 100))
	for i := range 256 {
		b = append(b, byte(i))
	}
	return b
}

// created is an answer that is hard to keep.
func created() *idempotency.Answer {
	return &idempotency.Answer{
		Status: 201, Reason: "Created", Body: allBytes(), Kept: true, Stored: start,
		Fields: message.Fields{
			{Name: "Location", Value: "/o/1"},
			{Name: "Link", Value: "</a,b>; rel=next"},
			{Name: "eTag", Value: `"a,b"`},
			{Name: "Link", Value: "</c>; rel=prev"},
			{Name: "Content-Disposition", Value: `attachment; filename="a,b.txt"`},
			{Name: "X-Empty", Value: ""},
			{Name: "X-Latin", Value: "\xfc\xff"},
		},
	}
}

// same compares records, nil and empty lists alike.
func (b *bench) same(what string, got, want any) {
	b.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		b.Errorf("%s differs (-want +got):\n%s", what, diff)
	}
}

func other(fingerprint byte, c idempotency.Claim) idempotency.Claim {
	c.Fingerprint = [32]byte{fingerprint}
	return c
}

func named(i int) string { return fmt.Sprintf("call-%d", i) }
