package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"retryproxy/idempotency"
	"retryproxy/store/codec"
)

// reads are the statements of the readers.
type reads struct{ one, request, due, next *sql.Stmt }

// How many reads go on at a time: of records, which calls wait for, and of the
// history, which may take long.
const (
	mostReaders = 4
	mostFinders = 2
)

func (s *Store) openReader(ctx context.Context) (err error) {
	if s.reader, err = s.connect(looking); err != nil {
		return err
	}
	s.reader.SetMaxOpenConns(mostReaders)
	s.reader.SetMaxIdleConns(mostReaders)
	if s.finder, err = s.connect(looking); err != nil {
		return err
	}
	s.finder.SetMaxOpenConns(mostFinders)
	s.finder.SetMaxIdleConns(mostFinders)
	for _, x := range []struct {
		to    **sql.Stmt
		query string
	}{{&s.read.one, selectOne}, {&s.read.request, selectRequest}, {&s.read.due, selectDue}, {&s.read.next, selectNext}} {
		if *x.to, err = s.reader.PrepareContext(ctx, x.query); err != nil {
			return s.explained(err)
		}
	}
	var noted int64
	if err := s.finder.QueryRowContext(ctx, newestBlock).Scan(&noted); err != nil {
		return s.explained(err)
	}
	s.noted.Store(noted)
	return nil
}

func (r *reads) close() {
	for _, st := range []*sql.Stmt{r.one, r.request, r.due, r.next} {
		if st != nil {
			st.Close()
		}
	}
}

// Get implements idempotency.Store.
func (s *Store) Get(ctx context.Context, id idempotency.ID, now time.Time) (_ idempotency.Record, err error) {
	r := s.overlay.get(id)
	if r != nil {
		r = &row{rec: r.rec.Clone()}
	} else {
		r, err = s.scanRow(s.read.one.QueryRowContext(ctx, id.Tenant, id.Key))
	}
	if err == nil && r.rec.Expired(now) {
		err = idempotency.ErrNotFound
	}
	if err != nil {
		return idempotency.Record{}, readError(err)
	}
	return r.rec, nil
}

// Load implements idempotency.Store.
func (s *Store) Load(ctx context.Context, id idempotency.ID) (*idempotency.Request, error) {
	switch r := s.overlay.get(id); {
	case r == nil:
	case r.request != nil:
		return parseRequest(bytes.Clone(r.request)) // what comes of it is the caller's own
	case r.drops || r.id == 0:
		return nil, idempotency.ErrNotFound
	}
	q, err := s.scanRequest(s.read.request.QueryRowContext(ctx, id.Tenant, id.Key), id)
	if errors.Is(err, codec.ErrSealed) {
		s.unreadable("a request", id, err)
		err = idempotency.ErrNotFound // nobody can send it
	}
	if err != nil {
		return nil, readError(err)
	}
	return q, nil
}

// Pending implements idempotency.Store.
func (s *Store) Pending(ctx context.Context) ([]idempotency.Record, error) {
	if err := s.settled(ctx); err != nil {
		return nil, err
	}
	rows, err := s.reader.QueryContext(ctx, selectPending)
	if err != nil {
		return nil, readError(err)
	}
	return s.scanAll(rows)
}

// scanAll gives the records of a query, without their answers.
func (s *Store) scanAll(rows *sql.Rows) ([]idempotency.Record, error) {
	defer rows.Close()
	var out []idempotency.Record
	for rows.Next() {
		r, err := s.scanRow(rows)
		if err != nil {
			return nil, readError(err)
		}
		r.rec.Answer = nil
		out = append(out, r.rec)
	}
	if err := rows.Err(); err != nil {
		return nil, readError(err)
	}
	return out, nil
}

// Due implements idempotency.Store.
func (s *Store) Due(ctx context.Context, now time.Time, limit int) (due []idempotency.Record, next time.Time, err error) {
	if err := s.settled(ctx); err != nil {
		return nil, next, err
	}
	var text string
	if err := s.read.next.QueryRowContext(ctx, timeText(now)).Scan(&text); err != nil {
		return nil, next, readError(err)
	}
	if next, err = parseTime(text); err != nil {
		return nil, next, readError(err)
	}
	rows, err := s.read.due.QueryContext(ctx, timeText(now), limit)
	if err != nil {
		return nil, next, readError(err)
	}
	due, err = s.scanAll(rows)
	return due, next, err
}

// Parked implements idempotency.Store.
func (s *Store) Parked(ctx context.Context, edges []time.Time) ([]int, error) {
	if err := s.settled(ctx); err != nil {
		return nil, err
	}
	counts, last := make([]int, len(edges)+1), edges[len(edges)-1]
	rows, err := s.reader.QueryContext(ctx, selectGoes, timeText(last))
	if err != nil {
		return nil, readError(err)
	}
	defer rows.Close()
	soon, all := 0, 0
	for ; rows.Next(); soon++ {
		var text string
		if err = rows.Scan(&text); err != nil {
			break
		}
		var at time.Time
		if at, err = parseTime(text); err != nil {
			break
		}
		counts[idempotency.Interval(edges, at)]++
	}
	if err = cmp.Or(err, rows.Err()); err == nil {
		err = s.reader.QueryRowContext(ctx, countParked).Scan(&all)
	}
	if err != nil {
		return nil, readError(err)
	}
	counts[len(edges)] = max(all-soon, 0)
	return counts, nil
}

func readError(err error) error {
	switch {
	case errors.Is(err, idempotency.ErrNotFound), errors.Is(err, sql.ErrNoRows):
		return idempotency.ErrNotFound
	}
	return fmt.Errorf("%w: %w", idempotency.ErrUnavailable, err)
}
