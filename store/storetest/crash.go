package storetest

import (
	"retryproxy/classify"
	"retryproxy/idempotency"
)

// crash ends the store with a record in a state. What was acknowledged before
// is there afterwards, and a call that was not over goes on under its owner.
func crash(b *bench, state idempotency.State, reopen Reopen) {
	before := b.reach(claim(order, "call-1"), state, classify.ExecutedMaybe)
	b.store = reopen(b.T, b.store)
	b.same("record after the crash", b.get(order, start), before)
	if !state.Ended() {
		b.begin(claim(order, "call-2"), start, idempotency.Busy)
		b.advance(order, state, idempotency.StateFree, change("call-1", start))
	}
}
