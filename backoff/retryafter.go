package backoff

import (
	"math"
	"strings"
	"time"
)

// RetryAfter reads a Retry-After value (RFC 9110 section 10.2.3): whole seconds
// or one of the three date forms. A date counts from the answer's own Date, so
// that a server whose clock is wrong still means what it says, or from now when
// it gave none. Values too large for a duration become the largest one.
//
// ok is false when the value means nothing: negative, signed, fractional, past,
// malformed.
func RetryAfter(value, date string, now time.Time) (wait time.Duration, ok bool) {
	value = strings.Trim(value, " \t")
	if seconds, digits := parseSeconds(value); digits {
		return seconds, true
	}
	at, ok := Date(value, now)
	if !ok {
		return 0, false
	}
	if said, ok := Date(strings.Trim(date, " \t"), now); ok {
		now = said
	}
	wait = at.Sub(now)
	return max(wait, 0), wait >= 0
}

// parseSeconds reads 1*DIGIT; what does not fit becomes the longest duration.
func parseSeconds(s string) (time.Duration, bool) {
	const most = math.MaxInt64 / int64(time.Second)
	var n int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = min(n*10+int64(s[i]-'0'), most+1)
	}
	if n > most {
		return math.MaxInt64, true
	}
	return time.Duration(n) * time.Second, s != ""
}

// The date forms of RFC 9110 section 5.6.7.
const (
	fixDate    = "Mon, 02 Jan 2006 15:04:05 GMT"
	rfc850Date = "Monday, 02-Jan-06 15:04:05 GMT"
	ascDate    = "Mon Jan _2 15:04:05 2006"
)

// Date reads an HTTP date (RFC 9110 section 5.6.7); now settles the century of the
// oldest form. Lengths are checked because time.Parse also
// takes fractions of a second and hours of one digit.
func Date(s string, now time.Time) (time.Time, bool) {
	comma := strings.IndexByte(s, ',')
	switch {
	case len(s) == len(fixDate) && comma == len("Mon"):
		return parseLayout(fixDate, s)
	case comma > 0 && len(s)-comma == len(", 02-Jan-06 15:04:05 GMT"):
		at, ok := parseLayout(rfc850Date, s)
		return thisCentury(at, now), ok
	case len(s) == len(ascDate) && !strings.ContainsAny(s, ".,"):
		return parseLayout(ascDate, s)
	}
	return time.Time{}, false
}

func parseLayout(layout, s string) (time.Time, bool) {
	at, err := time.Parse(layout, s)
	return at, err == nil
}

// thisCentury reads a year of two digits as the one nearest to now that is not
// more than 50 years ahead.
func thisCentury(at, now time.Time) time.Time {
	at = at.AddDate(now.Year()-now.Year()%100-(at.Year()-at.Year()%100), 0, 0)
	if at.After(now.AddDate(50, 0, 0)) {
		return at.AddDate(-100, 0, 0)
	}
	return at
}
