package proxy

import (
	"crypto/sha256"
	"time"

	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/limiter"
	"retryproxy/pause"
)

// quotaAgain is when a quota is tried again whose reset is not known.
const quotaAgain = time.Hour

// stopped says whether the platform stopped the calls of this shop: then nothing is sent.
func (x *exchange) stopped(now time.Time) bool {
	if x.preset == nil {
		return false
	}
	p := x.p.Pauses.Check(x.pauseKey(), x.token(), now)
	if p == nil {
		return false
	}
	x.turn = limiter.Answer{Refused: p.Reason, At: p.Until}
	x.pausedBy = p.Platform + " said so at " + p.Since.UTC().Format(time.RFC3339) + ": " + p.Message
	return true
}

func (x *exchange) pauseKey() pause.Key {
	return pause.Key{Platform: x.preset.Name, Shop: x.labels.Shop, Operation: x.known.Operation}
}

// token is the hash of the access token that the next attempt carries: the client's, or
// the one that we sign with.
func (x *exchange) token() pause.Token {
	if (x.retrying() || x.sum.Origin != "") && x.replayMode() == replayResign {
		if t := x.signature.secret["access_token"]; t != "" {
			return sha256.Sum256([]byte(t))
		}
	}
	return x.known.Token
}

// heed tells the board what the answer says about more than this call.
func (x *exchange) heed(t *tried, token pause.Token, now time.Time) {
	p := pause.Pause{
		Key: x.pauseKey(), Token: token, Host: x.past.Last().Host, Code: t.said.Code, Message: worded(&t.said),
		Unlabelled: x.labels.Shop == "",
	}
	switch t.verdict.Kind {
	case classify.Done, classify.AlreadyDone, classify.Processing:
		x.p.Pauses.Served(x.pauseKey(), token, now)
		return
	case classify.QuotaExhausted:
		p.Reason, p.Until = pause.QuotaExhausted, now.Add(t.verdict.RetryAfter)
		switch t.said.Scope {
		case "all":
			p.Shop, p.Operation, p.Unlabelled = "", "", false
		case "shop":
			p.Operation = ""
		}
	case classify.AuthExpired, classify.RiskControl:
		p.Reason, p.Operation = t.verdict.Kind.String(), ""
	default:
		return
	}
	x.p.Pauses.Stop(p, now)
}

// WakeShop wakes what is parked for a quota of a shop, empty: of all, that a person lets go
// on. What does not fit now wakes at its date.
func (p *Proxy) WakeShop(shop string) {
	if !p.durable {
		return
	}
	p.crew.goes(p.Log, func() {
		q := idempotency.Query{States: []idempotency.State{idempotency.StateParked}, Shop: shop, Reason: pause.QuotaExhausted, Oldest: true}
		for {
			parked, next, err := p.Store.List(p.base, q)
			if err != nil {
				p.Log.Error("parked calls of a shop wake at their dates only", "shop", shop, "error", err)
				return
			}
			for i := range parked {
				if _, err := p.wake(p.base, &parked[i], time.Now()); err != nil {
					return
				}
			}
			if q.After = next; next == "" {
				return
			}
		}
	})
}
