package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"retryproxy/idempotency"
	"retryproxy/internal/seal"
)

// resealedTogether is how many rows are sealed anew in one transaction.
const resealedTogether = 256

// Reseal seals all of a store that is not in use by the first of Config.Keys, and
// says how many requests and answers were changed. Afterwards the other keys are
// not needed any more. When it ends early, what was done is kept.
func Reseal(ctx context.Context, c Config) (rows int, err error) {
	if c.Keys == nil {
		return 0, errors.New("store: there is no key to seal by (store.key)")
	}
	s, err := Open(ctx, c)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, table := range resealed {
		n, err := s.reseal(ctx, table)
		rows += n
		if err != nil {
			return rows, err
		}
	}
	return rows, s.direct(ctx, func(w *writer) error {
		return w.exec("DELETE FROM meta WHERE name LIKE ? AND name <> ?", seal.NotePrefix+"%", seal.NotePrefix+c.Keys.ID())
	})
}

// sealedTable is a table with sealed columns.
type sealedTable struct {
	name, id, record string
	columns          []string
}

var resealed = []sealedTable{
	{"requests", "record", "record", []string{"target", "others", "fields", "trailers", "body"}},
	{"answers", "id", "record", []string{"fields", "body"}},
}

// reseal seals the rows of a table anew, some at a time.
func (s *Store) reseal(ctx context.Context, t sealedTable) (rows int, err error) {
	for last := int64(-1); ; {
		var found []sealedRow
		err := s.direct(ctx, func(w *writer) (err error) {
			if found, err = w.sealedRows(&t, last); err != nil {
				return err
			}
			for i := range found {
				if err := w.resealRow(&t, &found[i]); err != nil {
					return err
				}
			}
			return nil
		})
		rows += len(found)
		if err != nil || len(found) == 0 {
			return rows, err
		}
		last = found[len(found)-1].row
	}
}

// sealedRow is a row as it is in the file.
type sealedRow struct {
	row    int64
	id     idempotency.ID
	sealed sql.NullString
	values [][]byte // nil: NULL
}

// sealedRows are some rows behind the one named that the first key has not sealed.
func (w *writer) sealedRows(t *sealedTable, last int64) ([]sealedRow, error) {
	query := "SELECT t." + t.id + ", r.tenant, r.key, t.sealed"
	for _, column := range t.columns {
		query += ", t." + column
	}
	query += fmt.Sprintf(" FROM %s t JOIN records r ON r.id = t.%s WHERE t.%s > ? AND t.sealed IS NOT ? ORDER BY t.%s LIMIT %d", t.name, t.record, t.id, t.id, resealedTogether)
	st, err := w.prepared(query)
	if err != nil {
		return nil, w.fail(err)
	}
	rows, err := st.QueryContext(unending, last, w.store.bounds().Keys.ID())
	if err != nil {
		return nil, w.fail(err)
	}
	defer rows.Close()
	var out []sealedRow
	for rows.Next() {
		r := sealedRow{values: make([][]byte, len(t.columns))}
		to := []any{&r.row, &r.id.Tenant, &r.id.Key, &r.sealed}
		for i := range r.values {
			to = append(to, &r.values[i])
		}
		if err := rows.Scan(to...); err != nil {
			return nil, w.fail(err)
		}
		out = append(out, r)
	}
	return out, w.fail(rows.Err())
}

// resealRow seals a row by the first key. One that does not open stays as it is.
func (w *writer) resealRow(t *sealedTable, r *sealedRow) error {
	o, c := w.store.opener(r.id), w.store.closer(r.id)
	set, args := "sealed = ?", []any{c.key()}
	for i, column := range t.columns {
		value := r.values[i]
		if value == nil {
			continue
		}
		name := t.name + "." + column
		if r.sealed.Valid {
			o.bytes(name, &value)
		}
		set += ", " + column + " = ?"
		args = append(args, c.Seal(name, value))
	}
	if o.Err != nil {
		w.store.unreadable("a row of "+t.name, r.id, o.Err)
		return nil
	}
	return w.exec("UPDATE "+t.name+" SET "+set+" WHERE "+t.id+" = ?", append(args, r.row)...)
}
