package journal

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"retryproxy/attempt"
)

// past is the Query.After of Look for all that the Journal has.
const past = "past"

// Look finds calls among those that the process knows, parked ones included, and those
// of the Journal (nil: there is none): those in progress first, then the parked ones,
// then those that ended, each part the newest first (where only those that wait are
// wanted, in the order of their turns), every call once: one that is
// parked did not end when its client was told so. At most q.Most of them; next, when it is not empty,
// is where Query.After goes on: among those of the Journal. Errors: those of Find.
func Look(ctx context.Context, j Journal, q Query, known []*attempt.Summary, now time.Time) (calls []*attempt.Summary, next string, err error) {
	ours := q
	parked := parkedAmong(known)
	if q.After != "" {
		known = nil
	}
	if q.After == past {
		ours.After = ""
	}
	var found []Entry
	var more bool
	if j != nil {
		if found, more, err = j.Find(ctx, ours); err != nil {
			return nil, "", err
		}
	}
	calls, next = merged(&q, known, found, parked, more, now)
	if j == nil {
		next = ""
	}
	return calls, next, nil
}

// merged puts what is known before what was found. Of more than the limit, what was
// known only comes again with the next page.
func merged(q *Query, known []*attempt.Summary, found []Entry, parked parkedCalls, more bool, now time.Time) (calls []*attempt.Summary, next string) {
	var over []Entry
	for _, c := range known {
		switch {
		case c.State == stateParked && parked[c.Record] != c: // woken meanwhile
		case !q.Wants(c, now) || among(found, c) || more && behind(found, c):
		case c.Ended.IsZero():
			calls = append(calls, c)
		default:
			over = append(over, Entry{Summary: c})
		}
	}
	if q.State == stateWaiting {
		slices.SortStableFunc(calls, inLine)
	} else {
		slices.SortStableFunc(calls, func(a, b *attempt.Summary) int {
			return cmp.Or(cmp.Compare(rank(a), rank(b)), b.Started.Compare(a.Started))
		})
	}
	slices.Reverse(over) // the newest is known last
	over = append(over, found...)
	slices.SortStableFunc(over, func(a, b Entry) int { return b.Ended.Compare(a.Ended) })
	for i := range over {
		if parked.has(over[i].Summary) {
			continue
		}
		if len(calls) >= q.Most() {
			return calls[:q.Most()], lastPlace(over[:i])
		}
		calls = append(calls, over[i].Summary)
	}
	if more {
		next = lastPlace(over)
	}
	return calls[:min(len(calls), q.Most())], next
}

// stateWaiting is Summary.State of what waits for its turn.
const stateWaiting = "waiting"

// stateParked is Summary.State of what is parked, and Summary.Reason of what became so.
const stateParked = "parked"

// parkedCalls are calls that are parked now, by their records.
type parkedCalls map[attempt.RecordID]*attempt.Summary

// parkedAmong are those of the calls that the process knows. One that runs again is not.
func parkedAmong(known []*attempt.Summary) parkedCalls {
	p := parkedCalls{}
	for _, c := range known {
		if c.State == stateParked {
			p[c.Record] = c
		}
	}
	for _, c := range known {
		if now := p[c.Record]; now != nil && c.Ended.IsZero() && c.State != stateParked && (c.ID == now.ID || c.Origin != "") {
			delete(p, c.Record)
		}
	}
	return p
}

// has says that what ended so is a part of a call that is parked now.
func (p parkedCalls) has(c *attempt.Summary) bool {
	now := p[c.Record]
	return now != nil && c.Reason == stateParked && (c.ID == now.ID || c.Origin != "" && c.Ended.After(now.Started))
}

// inLine is the order of calls that wait: by host and lane, in a lane by place, and behind
// the lanes those that wait for a date, by date.
func inLine(a, b *attempt.Summary) int {
	return cmp.Or(
		strings.Compare(a.Host, b.Host), cmp.Compare(laneOf(a), laneOf(b)), cmp.Compare(a.Place, b.Place),
		a.NextAt.Compare(b.NextAt), a.Started.Compare(b.Started),
	)
}

// laneOf numbers the lanes.
func laneOf(c *attempt.Summary) int { return slices.Index([]string{"fresh", "backlog", ""}, c.Lane) }

// rank puts what is parked behind what is in progress.
func rank(c *attempt.Summary) int {
	if c.State == stateParked {
		return 1
	}
	return 0
}

// among says whether a call that ended was found as well. One that goes on ends
// again under the same id.
func among(found []Entry, c *attempt.Summary) bool {
	return slices.ContainsFunc(found, func(e Entry) bool { return e.ID == c.ID && e.Ended.Equal(c.Ended) })
}

// behind says that a call that ended stands among what is still to be found.
func behind(found []Entry, c *attempt.Summary) bool {
	return !c.Ended.IsZero() && c.Ended.Before(found[len(found)-1].Ended)
}

// lastPlace is where the list goes on behind what is shown.
func lastPlace(shown []Entry) string {
	for _, e := range slices.Backward(shown) {
		if e.Place != "" {
			return e.Place
		}
	}
	return past
}
