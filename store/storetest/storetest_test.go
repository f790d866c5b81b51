package storetest

import (
	"testing"
	"time"

	"retryproxy/idempotency"
	"retryproxy/store/memory"
)

// The suite itself is tried on the memory store; one that is carried over a
// "crash" stands for a durable one.
func TestExercise(t *testing.T) {
	open := func(t *testing.T) idempotency.Store {
		s := memory.New(memory.Config{Entries: 4000, Bytes: 1 << 20, MaxResponse: 1 << 16, TTL: time.Hour})
		t.Cleanup(func() { s.Close() })
		return s
	}
	Exercise(t, open)
	ExerciseDurable(t, open, func(_ *testing.T, old idempotency.Store) idempotency.Store { return old })
}
