package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"retryproxy/idempotency"
	"retryproxy/store/codec"
)

// read reads a record, expired or not. Errors: ErrNotFound, ErrUnavailable.
func (s *Store) read(ctx context.Context, id idempotency.ID) (*found, error) {
	out, err := s.list(ctx, getScript, nameOf(id))
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, idempotency.ErrNotFound
	}
	return s.parseFound(out[0])
}

// Get implements idempotency.Store.
func (s *Store) Get(ctx context.Context, id idempotency.ID, now time.Time) (idempotency.Record, error) {
	shift := s.shift()
	f, err := s.read(ctx, id)
	if err == nil && f.rec.Expired(moved(now, shift)) {
		err = idempotency.ErrNotFound
	}
	if err != nil {
		return idempotency.Record{}, err
	}
	return local(&f.rec, shift), nil
}

// Load implements idempotency.Store.
func (s *Store) Load(ctx context.Context, id idempotency.ID) (*idempotency.Request, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	for try := 1; ; try++ {
		f, err := s.db.HGetAll(ctx, s.prefix+"req:"+nameOf(id)).Result()
		switch {
		case err != nil && lost(err) && try < tries && ctx.Err() == nil:
			continue
		case err != nil:
			return nil, s.explained(err)
		case len(f) == 0:
			return nil, idempotency.ErrNotFound
		}
		q, err := parseRequest(f, s.opener(id, f["sealed"]))
		switch {
		case errors.Is(err, codec.ErrSealed):
			s.unreadable("a request", id, err)
			return nil, idempotency.ErrNotFound // nobody can send it
		case err != nil:
			return nil, garbled(err)
		}
		return q, nil
	}
}

// Pending implements idempotency.Store: what runs under the name of this process,
// which no process before it had. What others left behind is due.
func (s *Store) Pending(ctx context.Context) ([]idempotency.Record, error) {
	out, err := s.call(ctx, heldScript, s.replica)
	if err != nil {
		return nil, err
	}
	all, err := s.parseAll(out)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *found) int {
		return cmp.Or(a.rec.NextAt.Compare(b.rec.NextAt), a.rec.Updated.Compare(b.rec.Updated), cmp.Compare(a.rec.Key, b.rec.Key))
	})
	return s.locals(all), nil
}

// locals are records as callers get them, without their answers.
func (s *Store) locals(all []*found) []idempotency.Record {
	shift := s.shift()
	var out []idempotency.Record
	for _, f := range all {
		f.rec.Answer = nil
		out = append(out, local(&f.rec, shift))
	}
	return out
}

// Due implements idempotency.Store.
func (s *Store) Due(ctx context.Context, now time.Time, limit int) (due []idempotency.Record, next time.Time, err error) {
	shift := s.shift()
	now = moved(now, shift)
	out, err := s.list(ctx, dueScript, s.replica, now.UnixMicro(), limit, flag(s.lease.lapsed()))
	if err != nil {
		return nil, next, err
	}
	all, err := s.parseAll(out[0])
	if err != nil {
		return nil, next, err
	}
	later, err := s.parseAll(out[1])
	if err != nil {
		return nil, next, err
	}
	// The index has microseconds, and may be a part of one early.
	all = slices.DeleteFunc(all, func(f *found) bool {
		if running(f.rec.State) || !f.rec.NextAt.After(now) {
			return false
		}
		later = append(later, f)
		return true
	})
	for _, f := range later {
		if next.IsZero() || f.rec.NextAt.Before(next) {
			next = f.rec.NextAt
		}
	}
	slices.SortStableFunc(all, func(a, b *found) int { return a.rec.NextAt.Compare(b.rec.NextAt) })
	return s.locals(fair(all, limit)), moved(next, -shift), nil
}

// Parked implements idempotency.Store.
func (s *Store) Parked(ctx context.Context, edges []time.Time) ([]int, error) {
	shift, args := s.shift(), make([]any, len(edges))
	for i, at := range edges {
		args[i] = moved(at, shift).UnixMicro()
	}
	out, err := s.list(ctx, goesScript, args...)
	if err != nil {
		return nil, err
	}
	counts := make([]int, len(edges)+1)
	for i := range counts {
		n, ok := out[i].(int64)
		if !ok {
			return nil, garbled(fmt.Errorf("a count that is %T", out[i]))
		}
		counts[i] = int(n)
	}
	return counts, nil
}

// fair takes so many of what is due that neither what was left behind nor what is
// parked hides the other.
func fair(all []*found, limit int) []*found {
	if len(all) <= limit {
		return all
	}
	left := 0
	for _, f := range all {
		if running(f.rec.State) {
			left++
		}
	}
	left = min(left, max(limit/2, limit-(len(all)-left))) // so many of them
	timed := limit - left
	return slices.DeleteFunc(all, func(f *found) bool {
		of := &timed
		if running(f.rec.State) {
			of = &left
		}
		*of--
		return *of < 0
	})
}

const (
	usualLimit = 100 // records of a list that nobody limits
	pageSize   = 200 // records that are read together
)

// List implements idempotency.Store. The index knows states and times, and
// receipts; everything else is looked for among the records.
func (s *Store) List(ctx context.Context, q idempotency.Query) (recs []idempotency.Record, next string, err error) {
	shift, limit := s.shift(), cmp.Or(q.Limit, usualLimit)
	q.Since, q.Until = moved(q.Since, shift), moved(q.Until, shift)
	if q.Receipt != "" {
		recs, err := s.byReceipt(ctx, &q)
		return recs, "", err
	}
	m, err := s.merge(&q)
	if err != nil {
		return nil, "", err
	}
	var all []*found
	for now := s.serverTime(); ; {
		f, err := m.next(ctx)
		switch {
		case err != nil:
			return nil, "", err
		case f == nil, m.beyond(&q, f):
			return s.locals(all), "", nil
		case !q.Wants(&f.rec) || f.rec.Expired(now):
			continue
		case len(all) == limit:
			return s.locals(all), next, nil
		}
		all, next = append(all, f), f.score+"."+nameOf(f.rec.ID)
	}
}

// byReceipt finds the one record that has a receipt, if it is asked for.
func (s *Store) byReceipt(ctx context.Context, q *idempotency.Query) ([]idempotency.Record, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	name, err := s.db.Get(ctx, s.prefix+"receipt:"+q.Receipt).Result()
	switch {
	case errors.Is(err, goredis.Nil):
		return nil, nil
	case err != nil:
		return nil, s.explained(err)
	}
	out, err := s.call(ctx, getScript, name)
	if err != nil {
		return nil, err
	}
	all, err := s.parseAll(out)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(f *found) bool { return !q.Wants(&f.rec) || f.rec.Expired(s.serverTime()) })
	return s.locals(all), nil
}

// merged gives the records of several states in one order.
type merged struct {
	s       *Store
	oldest  bool // first
	streams []*stream
}

// beyond says that nothing comes after f that is asked for.
func (m *merged) beyond(q *idempotency.Query, f *found) bool {
	if m.oldest {
		return !q.Until.IsZero() && !f.rec.Updated.Before(q.Until)
	}
	return !q.Since.IsZero() && f.rec.Updated.Before(q.Since)
}

// stream is the records of one state, the latest changed first.
type stream struct {
	index        string
	score, after string // where its next page begins
	page         []*found
	ended        bool
}

func (s *Store) merge(q *idempotency.Query) (*merged, error) {
	from, after := "+inf", ""
	switch {
	case q.Oldest && q.Since.IsZero():
		from = "-inf"
	case q.Oldest:
		from = score(q.Since)
	case !q.Until.IsZero():
		from = score(q.Until)
	}
	if q.After != "" {
		var ok bool
		if from, after, ok = strings.Cut(q.After, "."); !ok || strings.Trim(from, "0123456789") != "" || from == "" {
			return nil, fmt.Errorf("%w: %q", idempotency.ErrCursor, q.After)
		}
	}
	m := &merged{s: s, oldest: q.Oldest}
	for _, state := range idempotency.States() {
		if len(q.States) == 0 || slices.Contains(q.States, state) {
			m.streams = append(m.streams, &stream{index: indexOf(state, q), score: from, after: after})
		}
	}
	return m, nil
}

// indexOf is where records of a state are found. There may be many parked ones, and
// whoever wakes them asks for a host.
func indexOf(state idempotency.State, q *idempotency.Query) string {
	if _, _, err := net.SplitHostPort(q.Host); err == nil && state == idempotency.StateParked {
		return "parked:" + q.Host
	}
	return "state:" + state.String()
}

// next is the next record; nil: that was all.
func (m *merged) next(ctx context.Context) (*found, error) {
	var first *stream
	for _, st := range m.streams {
		if err := st.fill(ctx, m.s, m.oldest); err != nil {
			return nil, err
		}
		if len(st.page) > 0 && (first == nil || latestFirst(st.page[0], first.page[0]) != m.oldest) {
			first = st
		}
	}
	if first == nil {
		return nil, nil
	}
	f := first.page[0]
	first.page = first.page[1:]
	return f, nil
}

// latestFirst says whether a comes before b where the latest change is first; among
// equals it is as the index has it.
func latestFirst(a, b *found) bool {
	x, y := parseScore(a.score), parseScore(b.score)
	if !x.Equal(y) {
		return x.After(y)
	}
	return nameOf(a.rec.ID) > nameOf(b.rec.ID)
}

// fill reads the next page when there is nothing left of the last one.
func (st *stream) fill(ctx context.Context, s *Store, oldest bool) error {
	if len(st.page) > 0 || st.ended {
		return nil
	}
	out, err := s.call(ctx, pageScript, st.index, st.score, st.after, pageSize, flag(oldest))
	if err != nil {
		return err
	}
	if st.page, err = s.parseAll(out); err != nil {
		return err
	}
	st.ended = len(st.page) < pageSize
	if n := len(st.page); n > 0 {
		st.score, st.after = st.page[n-1].score, nameOf(st.page[n-1].rec.ID)
	}
	return nil
}
