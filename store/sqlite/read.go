package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"retryproxy/idempotency"
)

// reads are the statements of the readers.
type reads struct{ one, request *sql.Stmt }

// mostReaders is how many reads go on at a time.
const mostReaders = 4

func (s *Store) openReader(ctx context.Context) (err error) {
	if s.reader, err = s.connect(looking); err != nil {
		return err
	}
	s.reader.SetMaxOpenConns(mostReaders)
	s.reader.SetMaxIdleConns(mostReaders)
	if s.read.one, err = s.reader.PrepareContext(ctx, selectOne); err != nil {
		return s.explained(err)
	}
	if s.read.request, err = s.reader.PrepareContext(ctx, selectRequest); err != nil {
		return s.explained(err)
	}
	return nil
}

func (r *reads) close() {
	for _, st := range []*sql.Stmt{r.one, r.request} {
		if st != nil {
			st.Close()
		}
	}
}

// Get implements idempotency.Store.
func (s *Store) Get(ctx context.Context, id idempotency.ID, now time.Time) (idempotency.Record, error) {
	r, err := scanRow(s.read.one.QueryRowContext(ctx, id.Tenant, id.Key))
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
	q, err := scanRequest(s.read.request.QueryRowContext(ctx, id.Tenant, id.Key))
	if err != nil {
		return nil, readError(err)
	}
	return q, nil
}

// Pending implements idempotency.Store.
func (s *Store) Pending(ctx context.Context) ([]idempotency.Record, error) {
	rows, err := s.reader.QueryContext(ctx, selectPending)
	if err != nil {
		return nil, readError(err)
	}
	defer rows.Close()
	var out []idempotency.Record
	for rows.Next() {
		r, err := scanRow(rows)
		if err != nil {
			return nil, readError(err)
		}
		out = append(out, r.rec)
	}
	if err := rows.Err(); err != nil {
		return nil, readError(err)
	}
	return out, nil
}

func readError(err error) error {
	switch {
	case errors.Is(err, idempotency.ErrNotFound), errors.Is(err, sql.ErrNoRows):
		return idempotency.ErrNotFound
	}
	return fmt.Errorf("%w: %w", idempotency.ErrUnavailable, err)
}
