package sqlite

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"retryproxy/attempt"
	"retryproxy/journal"
	"retryproxy/store/codec"
)

const callColumns = `c.id, c.call_id, coalesce(c.tenant, ''), coalesce(c.key, ''), c.key_hash, c.started, c.ended, c.duration_ns, c.overhead_ns, c.result, c.reason, coalesce(c.detail, ''),
  c.status, c.executed, c.mode, coalesce(c.policy, ''), coalesce(c.shop, ''), coalesce(c.shop_tier, ''), coalesce(c.task_type, ''), coalesce(c.user, ''), c.client, c.method, c.scheme, c.host, c.path,
  coalesce(c.client_id, ''), coalesce(c.trace, ''), c.bytes, c.previous, coalesce(c.attempts, '[]'), coalesce(c.waits, '[]'), coalesce(c.origin, '')`

// Find implements journal.Journal.
func (s *Store) Find(ctx context.Context, q journal.Query) (found []journal.Entry, more bool, err error) {
	if q.State != "" && q.State != "done" {
		return nil, false, nil
	}
	query, args, err := findQuery(&q)
	if err != nil {
		return nil, false, err
	}
	rows, err := s.finder.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, false, findError(err)
	}
	defer rows.Close()
	for rows.Next() {
		if len(found) == q.Most() {
			return found, true, nil
		}
		c, place, err := scanCall(rows)
		if err != nil {
			return nil, false, findError(err)
		}
		found = append(found, journal.Entry{Summary: c, Place: place.text()})
	}
	if err := rows.Err(); err != nil {
		return nil, false, findError(err)
	}
	return found, false, nil
}

func findError(err error) error { return fmt.Errorf("%w: %w", journal.ErrUnavailable, err) }

// text is the place as Query.After has it.
func (p callPlace) text() string { return fmt.Sprintf("%d.%d", p.ended.UnixNano(), p.id) }

func parseCallPlace(text string) (p callPlace, err error) {
	at, id, ok := strings.Cut(text, ".")
	ns, err1 := strconv.ParseInt(at, 10, 64)
	n, err2 := strconv.ParseInt(id, 10, 64)
	if err := errors.Join(err1, err2); !ok || err != nil {
		return p, fmt.Errorf("%w: %q", journal.ErrCursor, text)
	}
	return callPlace{time.Unix(0, ns), n}, nil
}

// findConditions are those of a query.
type findConditions struct {
	where []string
	args  []any
}

func (f *findConditions) add(condition string, args ...any) {
	f.where = append(f.where, condition)
	f.args = append(f.args, args...)
}

// findQuery is the statement for a query. By which way the rows are found is said
// here and not left to the planner, which knows nothing of what is in them.
func findQuery(q *journal.Query) (query string, args []any, err error) {
	var f findConditions
	from, ended, id := "calls c INDEXED BY calls_ended", "c.ended", "c.id"
	stamp := func(t time.Time) any { return timeText(t) }
	switch {
	case len(q.Words) > 0:
		from, ended, id = "call_terms t CROSS JOIN calls c ON c.id = t.call", "t.ended", "t.call"
		stamp = func(t time.Time) any { return t.UnixNano() }
	case q.CallID != "":
		from = "calls c INDEXED BY calls_call"
	case q.KeyHash != "":
		from = "calls c INDEXED BY calls_key"
	}
	f.said(q.Words)
	if !q.Since.IsZero() {
		f.add(ended+" >= ?", stamp(q.Since))
	}
	if !q.Until.IsZero() {
		f.add(ended+" < ?", stamp(q.Until))
	}
	if q.After != "" {
		p, err := parseCallPlace(q.After)
		if err != nil {
			return "", nil, err
		}
		f.add("("+ended+", "+id+") < (?, ?)", stamp(p.ended), p.id)
	}
	f.about(q)
	query = "SELECT " + callColumns + " FROM " + from
	if len(f.where) > 0 {
		query += " WHERE " + strings.Join(f.where, " AND ")
	}
	return query + fmt.Sprintf(" ORDER BY %s DESC, %s DESC LIMIT %d", ended, id, q.Most()+1), f.args, nil
}

// said wants all words to be among the terms: the bytes of one of their hashes.
// That these stand across two terms by chance is less likely than that two words
// have the same hash.
func (f *findConditions) said(words [][]uint64) {
	for _, word := range words {
		found := make([]string, len(word))
		for i, h := range word {
			found[i] = "instr(t.terms, ?)"
			f.args = append(f.args, binary.BigEndian.AppendUint64(nil, h))
		}
		f.where = append(f.where, "("+strings.Join(found, " OR ")+")")
	}
}

// about are the conditions on columns of calls.
func (f *findConditions) about(q *journal.Query) {
	for _, c := range [...]struct{ column, value string }{
		{"call_id", q.CallID}, {"shop", q.Shop}, {"task_type", q.TaskType}, {"result", q.Result},
	} {
		if c.value != "" {
			f.add("c."+c.column+" = ?", c.value)
		}
	}
	if q.CallID != "" {
		f.add("c.call_hash = ?", hashOf(q.CallID))
	}
	if q.KeyHash != "" {
		f.add("c.key_hash = ?", keyHashOrNull(q.KeyHash)) // NULL, which nothing is equal to, when it is no hash
	}
	if q.Host != "" { // ; comes after :
		f.add("(c.host = ? OR c.host > ? AND c.host < ? AND instr(substr(c.host, ?), ':') = 0)", q.Host, q.Host+":", q.Host+";", len(q.Host)+2)
	}
	if q.Reason != "" {
		f.add("(c.reason = ? OR instr(c.attempts, ?))", q.Reason, string(object("{").text("reason", q.Reason)[1:]))
	}
}

// scanCall reads a row.
func scanCall(from scanner) (*attempt.Summary, callPlace, error) {
	c := &attempt.Summary{State: "done"}
	var p callPlace
	var started, ended, executed, history, waits string
	var keyHash sql.NullInt64
	err := from.Scan(&p.id, &c.ID, &c.Record.Tenant, &c.Record.Key, &keyHash, &started, &ended, &c.Duration, &c.Overhead, &c.Result, &c.Reason, &c.Detail, &c.Status, &executed, &c.Mode, &c.Policy,
		&c.Labels.Shop, &c.Labels.ShopTier, &c.Labels.TaskType, &c.User, &c.Client, &c.Method, &c.Scheme, &c.Host, &c.Path, &c.ClientID, &c.Trace,
		&c.Bytes, &c.Previous, &history, &waits, &c.Origin)
	if err != nil {
		return nil, p, err
	}
	c.KeyHash = keyHashText(keyHash)
	if c.Started, err = parseTime(started); err != nil {
		return nil, p, err
	}
	if c.Ended, err = parseTime(ended); err != nil {
		return nil, p, err
	}
	if c.Executed, err = codec.Executed(executed); err != nil {
		return nil, p, err
	}
	if c.Attempts, err = parseHistory(history); err != nil {
		return nil, p, err
	}
	c.Waits, err = parseWaits(waits)
	p.ended = c.Ended
	return c, p, err
}
