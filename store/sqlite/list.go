package sqlite

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"retryproxy/idempotency"
)

const (
	usualLimit = 100  // records of a list that nobody limits
	mostLooked = 1000 // rows that are looked at together
)

// List implements idempotency.Store. The file finds what it can; what it cannot
// (terms, a host without its port) is looked for among the rest.
func (s *Store) List(ctx context.Context, q idempotency.Query) (found []idempotency.Record, next string, err error) {
	if q.Limit == 0 {
		q.Limit = usualLimit
	}
	where, args := conditions(&q)
	for at := q.After; ; {
		rows, ended, err := s.page(ctx, where, args, at)
		if err != nil {
			return nil, "", err
		}
		for i := range rows {
			at = placeText(rows[i])
			if !q.Wants(&rows[i].rec) {
				continue
			}
			if len(found) == q.Limit {
				return found, next, nil
			}
			rows[i].rec.Answer = nil
			found, next = append(found, rows[i].rec), at
		}
		if ended {
			return found, "", nil
		}
	}
}

// conditions are what the file can look for.
func conditions(q *idempotency.Query) (where string, args []any) {
	where = "r.past = 0"
	switch len(q.States) {
	case 0:
	case 1:
		where += " AND r.state = '" + q.States[0].String() + "'" // so that partial indexes are found
	default:
		where += " AND (r.state = '" + strings.Join(names(q.States), "' OR r.state = '") + "')"
	}
	add := func(condition string, value any) {
		where += " AND " + condition
		args = append(args, value)
	}
	for column, value := range map[string]string{"key_hash": q.KeyHash, "receipt": q.Receipt, "shop": q.Shop, "task_type": q.TaskType, "reason": q.Reason} {
		if value != "" {
			add("r."+column+" = ?", value)
		}
	}
	if _, _, err := net.SplitHostPort(q.Host); err == nil {
		add("r.host = ?", q.Host)
	}
	if !q.Since.IsZero() {
		add("r.updated >= ?", timeText(q.Since))
	}
	if !q.Until.IsZero() {
		add("r.updated < ?", timeText(q.Until))
	}
	return where, args
}

func names(states []idempotency.State) []string {
	out := make([]string, len(states))
	for i, s := range states {
		out[i] = s.String()
	}
	return out
}

// page gives some rows after a place.
func (s *Store) page(ctx context.Context, where string, args []any, after string) (out []*row, ended bool, err error) {
	if after != "" {
		at, id, err := parsePlace(after)
		if err != nil {
			return nil, false, err
		}
		where += " AND (r.updated, r.id) < (?, ?)"
		args = append(args[:len(args):len(args)], at, id)
	}
	rows, err := s.reader.QueryContext(ctx, "SELECT "+columns+", '', NULL, NULL FROM records r WHERE "+where+
		" ORDER BY r.updated DESC, r.id DESC LIMIT "+strconv.Itoa(mostLooked), args...)
	if err != nil {
		return nil, false, readError(err)
	}
	defer rows.Close()
	for rows.Next() {
		r, err := s.scanRow(rows)
		if err != nil {
			return nil, false, readError(err)
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, false, readError(err)
	}
	return out, len(out) < mostLooked, nil
}

// placeText is where a row stands in a list.
func placeText(r *row) string { return timeText(r.rec.Updated) + "." + strconv.FormatInt(r.id, 10) }

func parsePlace(text string) (at string, id int64, err error) {
	i := strings.LastIndexByte(text, '.')
	if i < 0 {
		return "", 0, fmt.Errorf("%w: %q", idempotency.ErrCursor, text)
	}
	if id, err = strconv.ParseInt(text[i+1:], 10, 64); err == nil {
		_, err = parseTime(text[:i])
	}
	if err != nil {
		return "", 0, fmt.Errorf("%w: %q", idempotency.ErrCursor, text)
	}
	return text[:i], id, nil
}
