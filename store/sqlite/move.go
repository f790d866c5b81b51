package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"retryproxy/attempt"
	"retryproxy/store/codec"
)

// What version 4 kept of the history: a row for each call, and one for its terms.
const (
	selectCalls4 = `SELECT c.id, c.call_id, coalesce(c.tenant, ''), coalesce(c.key, ''), c.key_hash, c.started, c.ended, c.duration_ns, c.overhead_ns, c.result, c.reason, coalesce(c.detail, ''),
  c.status, c.executed, c.mode, coalesce(c.policy, ''), coalesce(c.shop, ''), coalesce(c.shop_tier, ''), coalesce(c.task_type, ''), coalesce(c.user, ''), c.client, c.method, c.scheme, c.host, c.path,
  coalesce(c.client_id, ''), coalesce(c.trace, ''), c.bytes, c.previous, coalesce(c.attempts, '[]'), coalesce(c.waits, '[]'), coalesce(c.origin, '')
  FROM calls4 c WHERE c.id > ? ORDER BY c.id LIMIT ?`
	selectTerms4 = "SELECT terms FROM call_terms WHERE ended = ? AND call = ?"
	dropCalls4   = "DROP TABLE calls4; DROP TABLE call_terms"
)

// moveCalls makes blocks of the calls of version 4.
func moveCalls(ctx context.Context, tx *sql.Tx) error {
	insert, err := tx.PrepareContext(ctx, insertBlock)
	if err != nil {
		return err
	}
	defer insert.Close()
	terms, err := tx.PrepareContext(ctx, selectTerms4)
	if err != nil {
		return err
	}
	defer terms.Close()
	for last := int64(0); ; {
		b, err := nextBlock4(ctx, tx, terms, last)
		if err != nil || b.calls == 0 {
			return err
		}
		if _, err := insert.ExecContext(ctx, b.columns()...); err != nil {
			return err
		}
		last = b.id
	}
}

// nextBlock4 makes a block of the calls behind the one named.
func nextBlock4(ctx context.Context, tx *sql.Tx, terms *sql.Stmt, last int64) (*block, error) {
	rows, err := tx.QueryContext(ctx, selectCalls4, last, 2*fewCalls)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	b := &block{}
	for !b.full() && rows.Next() {
		id, c, err := scanCall4(rows)
		if err != nil {
			return nil, err
		}
		var blob []byte
		if err := terms.QueryRowContext(ctx, c.Ended.UnixNano(), id).Scan(&blob); err != nil && err != sql.ErrNoRows {
			return nil, err
		}
		c.Terms = parseTerms(blob)
		b.note(id, c)
	}
	return b, rows.Err()
}

func scanCall4(from scanner) (id int64, c *attempt.Summary, err error) {
	c = &attempt.Summary{State: "done"}
	var started, ended, executed, history, waits string
	var keyHash sql.NullInt64
	err = from.Scan(&id, &c.ID, &c.Record.Tenant, &c.Record.Key, &keyHash, &started, &ended, &c.Duration, &c.Overhead, &c.Result, &c.Reason, &c.Detail, &c.Status, &executed, &c.Mode, &c.Policy,
		&c.Labels.Shop, &c.Labels.ShopTier, &c.Labels.TaskType, &c.User, &c.Client, &c.Method, &c.Scheme, &c.Host, &c.Path, &c.ClientID, &c.Trace,
		&c.Bytes, &c.Previous, &history, &waits, &c.Origin)
	if err != nil {
		return 0, nil, err
	}
	if keyHash.Valid {
		c.KeyHash = fmt.Sprintf("%016x", uint64(keyHash.Int64))
	}
	if c.Started, err = parseTime(started); err != nil {
		return 0, nil, err
	}
	if c.Ended, err = parseTime(ended); err != nil {
		return 0, nil, err
	}
	if c.Executed, err = codec.Executed(executed); err != nil {
		return 0, nil, err
	}
	if c.Attempts, err = parseHistory(history); err != nil {
		return 0, nil, err
	}
	in, err := parseList[codec.Wait](waits)
	c.Waits = codec.Waits(in)
	return id, c, err
}
