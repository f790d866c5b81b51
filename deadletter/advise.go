package deadletter

import (
	"retryproxy/classify"
	"retryproxy/idempotency"
)

// What there is to do about a letter.
const (
	TodoRequeue = "requeue" // run it again
	TodoAsk     = "ask"     // nothing was executed, but its bot may have repeated it: ask
	TodoCheck   = "check"   // look at the upstream first
	TodoResolve = "resolve" // it was executed: say so
	TodoWait    = "wait"    // it is on its way again
	TodoLater   = "later"   // a person had it run again at a time
	TodoNone    = "none"    // it is no letter any more
)

// mend is what has to be done before a repeat can help, by reason.
var mend = map[string]string{
	"auth_expired":         "Renew the shop's login first, then requeue it.",
	"signature_expired":    "See to the clock and the signature first, then requeue it; where the signature is part of the request, let the bot send it anew.",
	"risk_control":         "The platform suspects this shop: have a person look at the shop first, then requeue it.",
	"quota_exhausted":      "The shop's quota there is used up: requeue it when there is some again.",
	"shop_breaker_open":    "All calls of this shop there failed alike, often by its login: mend that first, then requeue it.",
	"retries_off":          "Retries were switched off: requeue it when that is over.",
	"retry_after_too_long": "The upstream asked for more time than the call had: requeue it after that.",
	ReasonCancelled:        "An operator ended it while it waited. Requeue it only if it is to be done after all, else drop it.",
	"client_gone":          "Its client left. Requeue it if the result is still wanted, else drop it.",
}

// again names what else may have been done about a call without a key.
func again(rec *idempotency.Record) string {
	if rec.Keyless {
		return ", for this call or for a repeat that its bot sent since"
	}
	return ""
}

// Advise says what to do about a record, as a token and in words.
func Advise(rec *idempotency.Record) (todo, words string) {
	_, later := LaterOf(rec)
	switch {
	case later:
		return TodoLater, "It is run again by itself at its time, as a person wanted. Nothing to do; until then it can be run at once, given another time, resolved or dropped."
	case !rec.State.Ended():
		return TodoWait, "It is on its way again; nothing to do but to wait for its end."
	case !rec.State.Letter():
		return TodoNone, "It is closed; nothing to do."
	case rec.Executed == classify.ExecutedYes:
		return TodoResolve, "The upstream acted; only its answer did not come whole. Fetch the result there, then resolve it as executed."
	case doubtful(rec):
		return TodoCheck, "The upstream may have acted, and nothing would keep it from acting twice. Look there whether it did" + again(rec) + ", then resolve it as executed or as not executed."
	case rec.Keyless:
		return TodoAsk, "Nothing was executed, but it had no key, so its bot may have repeated it since, and nothing here would tell. Ask whether it has; the upstream knows. If it was done there, resolve it as executed."
	case rec.Executed != classify.ExecutedNo:
		return TodoRequeue, "The upstream may have acted. A repeat has the same key: a host that honours keys sees that it is the same call, one that ignores them acts twice. Where you do not know which it is, look there first."
	}
	if words := mend[rec.Reason]; words != "" {
		return TodoRequeue, "Nothing was executed. " + words
	}
	return TodoRequeue, "Nothing was executed: to run it again is safe. Requeue it when the upstream is well."
}
