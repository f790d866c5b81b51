package proxy

import (
	"strconv"
	"strings"
	"time"
)

// longestWait bounds what a client may ask for, so that no date overflows.
const longestWait = 24 * time.Hour

// preference is what Prefer says about waiting (RFC 7240): whether the client
// takes 202 at once, and how long it waits. ok is false when it says nothing of
// either; bad, that a value of wait was no number of seconds and is ignored. Of a
// preference that comes twice the first counts (section 2).
type preference struct {
	async   bool
	wait    time.Duration
	hasWait bool
	bad     bool
}

func parsePrefer(values []string) (p preference) {
	for _, value := range values {
		for _, one := range strings.Split(value, ",") {
			one, _, _ = strings.Cut(one, ";")
			name, text, _ := strings.Cut(one, "=")
			switch name, text = strings.TrimSpace(name), strings.Trim(text, " \t\""); {
			case strings.EqualFold(name, "respond-async"):
				p.async = true
			case !strings.EqualFold(name, "wait") || p.hasWait:
			default:
				n, err := strconv.ParseUint(text, 10, 31)
				if p.bad = err != nil; !p.bad {
					p.wait, p.hasWait = min(time.Duration(n)*time.Second, longestWait), true
				}
			}
		}
	}
	return p
}

// hold is how long a client is held, and what of Prefer that is due to; ok is false
// when it is held to the end. limit is the policy's; 0: none.
func (p preference) hold(limit time.Duration) (d time.Duration, applied string, ok bool) {
	switch {
	case p.hasWait && p.async:
		d, applied = p.wait, "respond-async, wait="+seconds(p.wait)
	case p.hasWait:
		d, applied = p.wait, "wait="+seconds(p.wait)
	case p.async:
		return 0, "respond-async", true
	case limit == 0:
		return 0, "", false
	}
	if applied == "" || limit > 0 && limit < d {
		return limit, "", true
	}
	return d, applied, true
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
