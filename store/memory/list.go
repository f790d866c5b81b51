package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"retryproxy/idempotency"
)

// usualLimit is how many records a list has that nobody limits.
const usualLimit = 100

// all gives a copy of each record that is wanted.
func (s *Store) all(wanted func(*idempotency.Record) bool) ([]idempotency.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	var out []idempotency.Record
	for _, e := range s.held {
		if wanted(&e.rec) {
			out = append(out, e.rec.Clone())
		}
	}
	for _, e := range s.ended.Values() {
		if wanted(&e.rec) {
			out = append(out, e.rec.Clone())
		}
	}
	for i := range out {
		out[i].Answer = nil
	}
	return out, nil
}

// List implements idempotency.Store. It looks at every record.
func (s *Store) List(_ context.Context, q idempotency.Query) ([]idempotency.Record, string, error) {
	if q.Limit == 0 {
		q.Limit = usualLimit
	}
	from, err := parsePlace(q.After)
	if err != nil {
		return nil, "", err
	}
	order := latestFirst
	if q.Oldest {
		order = func(a, b listPlace) int { return latestFirst(b, a) }
	}
	found, err := s.all(func(r *idempotency.Record) bool {
		return q.Wants(r) && (q.After == "" || order(from, place(r)) < 0)
	})
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(found, func(a, b idempotency.Record) int { return order(place(&a), place(&b)) })
	if len(found) <= q.Limit {
		return found, "", nil
	}
	return found[:q.Limit], place(&found[q.Limit-1]).String(), nil
}

// listPlace is where a record stands in a list.
type listPlace struct {
	at time.Time
	id idempotency.ID
}

func place(r *idempotency.Record) listPlace { return listPlace{r.Updated, r.ID} }

const placeLayout = "2006-01-02T15:04:05.000000000Z"

func (p listPlace) String() string {
	return p.at.UTC().Format(placeLayout) + " " + p.id.Tenant + "\x00" + p.id.Key
}

func parsePlace(text string) (p listPlace, err error) {
	if text == "" {
		return p, nil
	}
	at, name, _ := strings.Cut(text, " ")
	tenant, key, ok := strings.Cut(name, "\x00")
	if p.at, err = time.Parse(placeLayout, at); err != nil || !ok {
		return p, fmt.Errorf("%w: %q", idempotency.ErrCursor, text)
	}
	p.id = idempotency.ID{Tenant: tenant, Key: key}
	return p, nil
}

func latestFirst(a, b listPlace) int {
	return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.id.Tenant, b.id.Tenant), cmp.Compare(a.id.Key, b.id.Key))
}

// Due implements idempotency.Store. It looks at every record.
func (s *Store) Due(_ context.Context, now time.Time, limit int) (due []idempotency.Record, next time.Time, err error) {
	found, err := s.all(func(r *idempotency.Record) bool {
		timed := r.State == idempotency.StateParked || r.State.Letter()
		if timed && r.NextAt.After(now) && (next.IsZero() || r.NextAt.Before(next)) {
			next = r.NextAt
		}
		return timed && !r.NextAt.IsZero() && !r.NextAt.After(now)
	})
	slices.SortFunc(found, func(a, b idempotency.Record) int {
		return cmp.Or(a.NextAt.Compare(b.NextAt), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Key, b.Key))
	})
	return found[:min(len(found), limit)], next, err
}

// Parked implements idempotency.Store.
func (s *Store) Parked(_ context.Context, edges []time.Time) ([]int, error) {
	counts := make([]int, len(edges)+1)
	_, err := s.all(func(r *idempotency.Record) bool {
		if r.State == idempotency.StateParked {
			counts[idempotency.Interval(edges, r.NextAt)]++
		}
		return false
	})
	return counts, err
}

func (s *Store) oldestParkedLocked() (oldest time.Time) {
	for _, e := range s.held {
		if e.rec.State == idempotency.StateParked && (oldest.IsZero() || e.rec.Parked.Before(oldest)) {
			oldest = e.rec.Parked
		}
	}
	return oldest
}
