package cli

import (
	"io"
	"strings"
	"unicode"
)

// plain writes text without control characters: what clients and upstreams
// sent must not steer the terminal.
type plain struct{ io.Writer }

// Write replaces all but tabs and line breaks.
func (w plain) Write(p []byte) (int, error) {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '?'
		}
		return r
	}, string(p))
	if _, err := io.WriteString(w.Writer, clean); err != nil {
		return 0, err
	}
	return len(p), nil
}

// reasons tell in words why a call ended as it did.
var reasons = map[string]string{
	"ok":                    "all is well",
	"manual_review":         "the outcome is unknown and a repeat would not be safe, so a person has to look",
	"fail_permanent":        "a repeat cannot mend it",
	"client_gone":           "the client left",
	"body_not_replayable":   "the body was streamed and cannot be sent again",
	"attempts_exhausted":    "all attempts that the policy allows failed",
	"retry_after_too_long":  "the upstream asked for more time than the call has",
	"retry_limited":         "no retry token would be there in time",
	"breaker_open":          "the host is cut off because it only failed",
	"shop_breaker_open":     "this shop's calls there all failed alike, which needs a person",
	"no_slot":               "no slot to the host became free in time",
	"deadline_exceeded":     "the time for the call ran out",
	"retries_off":           "retries are switched off",
	"shutting_down":         "the proxy was shutting down",
	"parked":                "the call goes on without its client",
	"cancelled_by_operator": "an operator ended it while it waited",
	"resolved":              "a person settled it",
	"dropped":               "it was dropped",
	"retention":             "it was kept for as long as letters are",
	"bad_request":           "the request was not valid",
	"header_too_large":      "the request header was too large",
	"auth_required":         "credentials were missing or wrong",
	"client_denied":         "the client is not allowed to do that",
	"destination_denied":    "the destination is not allowed",
	"body_too_large":        "the body was too large to be repeated",
	"key_busy":              "the same key was still being worked on",
	"in_doubt":              "an earlier call with this key may have been executed",
	"result_not_kept":       "the call was done, but its answer was not kept",
	"key_mismatch":          "the key was used before for another request",
	"loop":                  "the request came back to the proxy",
	"local_resource":        "the proxy itself was out of resources",
	"store_unavailable":     "the store of records was not available",
	"store_full":            "the store of records was full",
}

// origins tell in words what made a call go on without its client.
var origins = map[string]string{
	"restart": "It went on without its client: the proxy had ended in the middle of it.",
	"parked":  "It went on without its client: it had been parked, and its time came.",
	"requeue": "It was sent again without its client: a person requeued it.",
	"redrive": "It was sent again without its client: the policy has what was given up tried again (redrive).",
}

// deeds tell in words what a person or a rule did.
var deeds = map[string]string{
	"requeued":                  "had it sent again",
	"requeued_executed_unknown": "had it sent again, though it may have been executed",
	"executed":                  "settled it as executed",
	"not_executed":              "settled it as not executed",
	"later":                     "had it sent again later",
	"later_executed_unknown":    "had it sent again later, though it may have been executed",
	"not_run":                   "did not send it again when its time came",
	"dropped":                   "dropped it",
	"expedited":                 "had it go on at once",
	"cancelled":                 "ended it while it waited",
	"key_free":                  "made its key free",
}

func reasonText(reason string) string {
	if text := reasons[reason]; text != "" {
		return text + " (" + reason + ")"
	}
	return orDash(reason)
}

// basisText tells why a repeat is safe.
func basisText(basis string) string {
	switch basis {
	case "method":
		return "because its method is one that may be repeated"
	case "key":
		return "because its key goes along, by which a host that honours keys knows it"
	case "not_sent":
		return "because nothing had reached the upstream"
	case "refused":
		return "because the upstream said that it had not acted"
	case "query":
		return "because the supplier, when asked, said that it had not acted"
	case "rule":
		return "because the policy says so"
	}
	return "by " + orDash(basis)
}

// waitingFor tells what a wait was for.
func waitingFor(cause string) string {
	switch cause {
	case "":
		return ""
	case "backoff":
		return " of backoff"
	case "retry_after":
		return " that the upstream had asked for"
	case "pause":
		return " while the host had this shop pause"
	case "tokens":
		return " of waiting for a retry token"
	case "gate":
		return " of waiting for a slot"
	case "breaker":
		return " while the host was cut off"
	}
	return " of waiting for " + cause
}
