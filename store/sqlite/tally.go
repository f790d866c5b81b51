package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"time"

	"retryproxy/idempotency"
)

// tally counts rows as the open transaction leaves them. What a transaction
// changed is undone when it fails.
type tally struct {
	rows    int                       // past ones included
	states  map[idempotency.State]int // those that are not past
	bytes   int64
	tenants map[string]int // rows of each; nil: not counted
	early   int64          // rows or answers that went before their time
	parked  time.Time      // since when the longest parked call waits, as of the last sweep
	calls   int            // of the history
	noted   int            // calls as of the last commit
	journal []entry
}

// entry is one step of the open transaction.
type entry struct {
	tenant string
	state  idempotency.State // 0: past
	n      int
	bytes  int64
	early  int64
}

// add counts n rows more, or less, like r.
func (t *tally) add(r *row, n int) {
	e := entry{tenant: r.rec.Tenant, state: r.rec.State, n: n, bytes: int64(n) * r.bytes}
	if r.past {
		e.state = 0
	}
	t.note(e)
}

func (t *tally) note(e entry) {
	t.journal = append(t.journal, e)
	t.count(e)
}

func (t *tally) count(e entry) {
	t.rows += e.n
	t.bytes += e.bytes
	t.early += e.early
	if e.state != 0 {
		t.states[e.state] += e.n
	}
	if t.tenants == nil || e.n == 0 {
		return
	}
	if t.tenants[e.tenant] += e.n; t.tenants[e.tenant] == 0 {
		delete(t.tenants, e.tenant)
	}
}

func (t *tally) keep() { t.journal, t.noted = t.journal[:0], t.calls }

func (t *tally) undo() {
	for _, e := range t.journal {
		t.count(entry{tenant: e.tenant, state: e.state, n: -e.n, bytes: -e.bytes, early: -e.early})
	}
	t.calls = t.noted
	t.keep()
}

func (t *tally) stats() idempotency.Stats {
	st := idempotency.Stats{ByState: maps.Clone(t.states), Bytes: t.bytes, EvictedEarly: t.early, OldestParked: t.parked}
	maps.DeleteFunc(st.ByState, func(_ idempotency.State, n int) bool { return n == 0 })
	for _, n := range st.ByState {
		st.Records += n
	}
	return st
}

// countAll counts what the file holds, from its indexes alone.
func countAll(ctx context.Context, db *sql.Conn, tenants bool) (*tally, error) {
	t := &tally{states: make(map[idempotency.State]int)}
	query := "SELECT count(*), coalesce(sum(bytes), 0)"
	states := idempotency.States()
	counts := make([]int, len(states))
	to := []any{&t.rows, &t.bytes}
	for i, s := range states {
		query += fmt.Sprintf(", coalesce(sum(past = 0 AND state = '%s'), 0)", s)
		to = append(to, &counts[i])
	}
	if err := db.QueryRowContext(ctx, query+" FROM records INDEXED BY records_life").Scan(to...); err != nil {
		return nil, err
	}
	for i, s := range states {
		t.states[s] = counts[i]
	}
	if err := db.QueryRowContext(ctx, countCalls).Scan(&t.calls); err != nil {
		return nil, err
	}
	t.noted = t.calls
	if !tenants {
		return t, nil
	}
	return t, t.countTenants(ctx, db)
}

func (t *tally) countTenants(ctx context.Context, db *sql.Conn) error {
	rows, err := db.QueryContext(ctx, "SELECT tenant, count(*) FROM records GROUP BY tenant")
	if err != nil {
		return err
	}
	defer rows.Close()
	tenants := make(map[string]int)
	for rows.Next() {
		var tenant string
		var n int
		if err := rows.Scan(&tenant, &n); err != nil {
			return err
		}
		tenants[tenant] = n
	}
	t.tenants = tenants
	return rows.Err()
}
