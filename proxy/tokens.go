package proxy

import (
	"context"
	"time"

	"retryproxy/limiter"
)

const causeTokens = "tokens"

// takeTokens takes the tokens of a retry that has its turn from those that all
// processes share; false: the turn is given back, and the call has to wait on. What
// it needs must not be on the stack of await, which those that wait keep.
//
//go:noinline
func (x *exchange) takeTokens() bool {
	if x.p.Tokens == nil || !x.retrying() {
		return true
	}
	now := time.Now()
	c := x.claimOf(x.next)
	ok, at, dimension, err := x.p.Tokens.Take(context.WithoutCancel(x.call.Context()), x.p.Limiter.Needs(&c, now))
	if ok || err != nil {
		return true
	}
	x.giveBack(now)
	if !at.Before(x.end) {
		x.turn = limiter.Answer{Refused: limiter.RefusedTokens, Dimension: dimension, At: at, Cause: causeTokens, AtGate: x.turn.AtGate}
		return true
	}
	x.atGate += x.turn.AtGate
	x.next.At, x.next.Cause = at, causeTokens
	return false
}
