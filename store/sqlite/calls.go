package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"retryproxy/attempt"
	"retryproxy/journal"
)

// The history of calls. It is written by the same writer, in transactions of its
// own between those of records: what happens to it is no business of theirs.

var _ journal.Journal = (*Store)(nil)

const (
	insertCall = `INSERT INTO calls (call_id, call_hash, tenant, key, key_hash, started, ended, duration_ns, overhead_ns, result, reason, detail, status, executed, mode, policy,
  shop, shop_tier, task_type, user, client, method, scheme, host, path, client_id, trace, bytes, previous, attempts, waits, origin)
  VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	insertTerms = "INSERT INTO call_terms (ended, call, terms) VALUES (?,?,?)"

	oldCalls     = "SELECT id, ended FROM calls INDEXED BY calls_ended WHERE ended < ? ORDER BY ended LIMIT ?"
	surplusCalls = "SELECT id, ended FROM calls WHERE id <= (SELECT max(id) FROM calls) - ? ORDER BY id LIMIT ?"
	dropCall     = "DELETE FROM calls WHERE id = ?"
	dropTerms    = "DELETE FROM call_terms WHERE ended = ? AND call = ?"
)

// Note implements journal.Journal.
func (s *Store) Note(ctx context.Context, calls []*attempt.Summary) error {
	err := s.send(ctx, s.notes, func(w *writer) error {
		for _, c := range calls {
			if err := w.noteCall(c); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", journal.ErrUnavailable, err)
	}
	return nil
}

// noteCall adds a row.
func (w *writer) noteCall(c *attempt.Summary) error {
	id, err := w.inserted(insertCall, c.ID, hashOf(c.ID), textOrNull(c.Record.Tenant), textOrNull(c.Record.Key), keyHashOrNull(c.KeyHash),
		timeText(c.Started), timeText(c.Ended), int64(c.Duration), int64(c.Overhead),
		c.Result, c.Reason, textOrNull(journal.Clip(c.Detail)), c.Status, c.Executed.String(), c.Mode, textOrNull(c.Policy),
		textOrNull(c.Labels.Shop), textOrNull(c.Labels.ShopTier), textOrNull(c.Labels.TaskType), textOrNull(c.User), c.Client, c.Method, c.Scheme, c.Host, journal.Clip(c.Path),
		textOrNull(journal.Clip(c.ClientID)), textOrNull(journal.Clip(c.Trace)), c.Bytes, c.Previous, listOrNull(historyText(c.Attempts)), listOrNull(waitsText(c.Waits)), textOrNull(c.Origin))
	if err != nil || len(c.Terms) == 0 {
		return err
	}
	return w.exec(insertTerms, c.Ended.UnixNano(), id, termsBlob(c.Terms))
}

// forgetCalls deletes some of the calls that are too old or too many, and says how
// many. What fails ends the transaction. Ids are dense, but where calls went before
// others: then some go that might have stayed.
func (w *writer) forgetCalls(now time.Time) int {
	bounds := w.store.bounds()
	n := w.forget(oldCalls, timeText(now.Add(-bounds.Keep)), mostSwept)
	if bounds.Calls > 0 && n < mostSwept {
		n += w.forget(surplusCalls, bounds.Calls, mostSwept-n)
	}
	return n
}

// forget deletes the calls of a query.
func (w *writer) forget(query string, args ...any) int {
	found, err := w.oldCalls(query, args...)
	for i := 0; i < len(found) && err == nil; i++ {
		if err = w.exec(dropTerms, found[i].ended.UnixNano(), found[i].id); err == nil {
			err = w.exec(dropCall, found[i].id)
		}
	}
	return len(found)
}

// callPlace is where a call stands in the history.
type callPlace struct {
	ended time.Time
	id    int64
}

func (w *writer) oldCalls(query string, args ...any) (out []callPlace, err error) {
	st, err := w.prepared(query)
	if err != nil {
		return nil, w.fail(err)
	}
	rows, err := st.QueryContext(unending, args...)
	if err != nil {
		return nil, w.fail(err)
	}
	defer rows.Close()
	for rows.Next() {
		var p callPlace
		var ended string
		err := rows.Scan(&p.id, &ended)
		if err == nil {
			p.ended, err = parseTime(ended)
		}
		if err != nil {
			return nil, w.fail(err)
		}
		out = append(out, p)
	}
	return out, w.fail(rows.Err())
}

// hashOf is what a call is looked for by: 8 bytes of a SHA-256. An index of such
// numbers takes a third of the room that one of the ids takes.
func hashOf(id string) int64 {
	h := sha256.Sum256([]byte(id))
	return int64(binary.BigEndian.Uint64(h[:8]))
}

// keyHashOrNull is a hash of a key as a column.
func keyHashOrNull(hash string) any {
	n, err := strconv.ParseUint(hash, 16, 64)
	if err != nil {
		return nil
	}
	return int64(n)
}

// keyHashText is what keyHashOrNull was given.
func keyHashText(n sql.NullInt64) string {
	if !n.Valid {
		return ""
	}
	return fmt.Sprintf("%016x", uint64(n.Int64))
}

// listOrNull is a list in JSON; the empty one is NULL.
func listOrNull(text string) any {
	if text == "[]" {
		return nil
	}
	return text
}
