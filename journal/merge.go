package journal

import (
	"context"
	"slices"
	"time"

	"retryproxy/attempt"
)

// past is the Query.After of Look for all that the Journal has.
const past = "past"

// Look finds calls among those that the process knows and those of the Journal (nil:
// there is none): those in progress first, then those that ended, each part the
// newest first, every call once. At most q.Most of them; next, when it is not empty,
// is where Query.After goes on: among those of the Journal. Errors: those of Find.
func Look(ctx context.Context, j Journal, q Query, known []*attempt.Summary, now time.Time) (calls []*attempt.Summary, next string, err error) {
	ours := q
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
	calls, next = merged(&q, known, found, more, now)
	if j == nil {
		next = ""
	}
	return calls, next, nil
}

// merged puts what is known before what was found. Of more than the limit, what was
// known only comes again with the next page.
func merged(q *Query, known []*attempt.Summary, found []Entry, more bool, now time.Time) (calls []*attempt.Summary, next string) {
	var over []Entry
	for _, c := range known {
		switch {
		case !q.Wants(c, now) || among(found, c) || more && behind(found, c):
		case c.Ended.IsZero():
			calls = append(calls, c)
		default:
			over = append(over, Entry{Summary: c})
		}
	}
	slices.SortStableFunc(calls, func(a, b *attempt.Summary) int { return b.Started.Compare(a.Started) })
	slices.Reverse(over) // the newest is known last
	over = append(over, found...)
	slices.SortStableFunc(over, func(a, b Entry) int { return b.Ended.Compare(a.Ended) })
	for i := range over {
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
