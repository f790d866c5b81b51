package classify

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"retryproxy/backoff"
	"retryproxy/document"
)

// Hint is one way to find out how long a platform wants to be left alone. One of its
// parts is set.
type Hint struct {
	Path    document.Path
	Header  string         // instead of Path
	Message *regexp.Regexp // its first group is the number
	Unit    Unit           // of the number
	Daily   *Daily
	Cost    *Cost
	Base    time.Duration
}

// Unit is what a number of a Hint counts.
type Unit uint8

// Units of a number: lengths of time, or dates since 1970.
const (
	Seconds Unit = iota
	Milliseconds
	EpochSeconds
	EpochMilliseconds
)

// Daily is a time of day somewhere.
type Daily struct {
	After time.Duration // since midnight, whole seconds
	Zone  *time.Location
}

// Cost is a bucket of points that fills: the call needs more than there is.
type Cost struct{ Need, Have, Rate document.Path }

// longestWait bounds what is believed.
const longestWait = 31 * 24 * time.Hour

// wait is the time that the first hint with one gives; 0: none does.
func (r *Rule) wait(a *Answer, s *Said, now time.Time) time.Duration {
	for i := range r.Wait {
		if d := r.Wait[i].wait(a, s, now); d > 0 {
			return min(d, longestWait)
		}
	}
	return 0
}

func (h *Hint) wait(a *Answer, s *Said, now time.Time) time.Duration {
	switch {
	case h.Base > 0:
		return h.Base
	case h.Daily != nil:
		return h.Daily.next(now).Sub(now)
	case h.Cost != nil:
		return h.Cost.wait(a)
	case h.Message != nil:
		if m := h.Message.FindStringSubmatch(s.Message); len(m) > 1 {
			return h.Unit.wait(m[1], now)
		}
	case h.Header != "":
		return h.header(a, now)
	case a.Doc != "":
		if v, ok := h.Path.First(a.Doc); ok {
			return h.Unit.wait(v.Text, now)
		}
	}
	return 0
}

// header reads a number, or a date as Retry-After has it.
func (h *Hint) header(a *Answer, now time.Time) time.Duration {
	text := a.Fields.Get(h.Header)
	if _, isDate := backoff.Date(strings.TrimSpace(text), now); isDate {
		d, _ := backoff.RetryAfter(text, a.Fields.Get("Date"), now)
		return d
	}
	return h.Unit.wait(text, now)
}

// wait reads a number; what is none, or is in the past, gives 0.
func (u Unit) wait(text string, now time.Time) time.Duration {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || n <= 0 {
		return 0
	}
	switch u {
	case Milliseconds:
		return span(n, time.Millisecond)
	case EpochSeconds:
		return max(time.Unix(0, int64(span(n, time.Second))).Sub(now), 0)
	case EpochMilliseconds:
		return max(time.Unix(0, int64(span(n, time.Millisecond))).Sub(now), 0)
	}
	return span(n, time.Second)
}

// span is n units without an overflow.
func span(n float64, unit time.Duration) time.Duration {
	return time.Duration(min(n*float64(unit), math.MaxInt64/2))
}

// next is the next time after now that it is that late there.
func (d *Daily) next(now time.Time) time.Time {
	y, m, day := now.In(d.Zone).Date()
	at := time.Date(y, m, day, 0, 0, int(d.After/time.Second), 0, d.Zone)
	if !at.After(now) {
		at = time.Date(y, m, day+1, 0, 0, int(d.After/time.Second), 0, d.Zone)
	}
	return at
}

// wait is how long until the bucket has what the call needs.
func (c *Cost) wait(a *Answer) time.Duration {
	need, have, rate := number(a, c.Need), number(a, c.Have), number(a, c.Rate)
	if rate <= 0 || need <= have {
		return 0
	}
	return span((need-have)/rate, time.Second)
}

// number is the one at a path; 0: there is none.
func number(a *Answer, p document.Path) float64 {
	if a.Doc == "" {
		return 0
	}
	v, _ := p.First(a.Doc)
	n, err := strconv.ParseFloat(v.Text, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0
	}
	return n
}
