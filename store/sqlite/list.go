package sqlite

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"retryproxy/idempotency"
)

const (
	usualLimit = 100  // records of a list that nobody limits
	mostLooked = 1000 // rows that are looked at together
)

// List implements idempotency.Store. The file finds what it can; what it cannot
// (a hash, terms, a host without its port) is looked for among the rest.
func (s *Store) List(ctx context.Context, q idempotency.Query) (found []idempotency.Record, next string, err error) {
	if q.Limit == 0 {
		q.Limit = usualLimit
	}
	if err := s.settled(ctx); err != nil {
		return nil, "", err
	}
	where, args := conditions(&q)
	look := lookup{"records r" + index(&q), where, args, orders[q.Oldest], mostLooked}
	if q.Words == nil && !anyPort(q.Host) { // the file finds it all
		look.limit = min(q.Limit+1, mostLooked)
	}
	for at := q.After; ; {
		rows, ended, err := s.page(ctx, look, at)
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

// index is the one to go by, where the planner cannot know it: it takes all that is
// not past for few.
func index(q *idempotency.Query) string {
	switch letters := lettersOf(q); {
	case q.Receipt != "" || q.KeyHash != "" || len(q.States) == 0:
		return ""
	case len(letters) == len(q.States):
		return " INDEXED BY records_letters"
	case len(q.States) == 1 && q.States[0] == idempotency.StateParked && q.Host != "" && !anyPort(q.Host):
		return " INDEXED BY records_of_host"
	}
	return ""
}

// lettersOf are the states of the query that letters have.
func lettersOf(q *idempotency.Query) []idempotency.State {
	return slices.DeleteFunc(slices.Clone(q.States), func(s idempotency.State) bool { return !s.Letter() })
}

// anyPort says that a host is meant on any port.
func anyPort(host string) bool {
	_, _, err := net.SplitHostPort(host)
	return host != "" && err != nil
}

// conditions are what the file can look for.
func conditions(q *idempotency.Query) (where string, args []any) {
	where = "r.past = 0"
	switch letters := lettersOf(q); {
	case len(q.States) == 0:
	case len(letters) == len(q.States): // in the words of records_letters, or it is not used
		where += " AND (r.state = 'dead' OR r.state = 'in_doubt')"
		if len(letters) == 1 {
			where += " AND r.state = '" + letters[0].String() + "'"
		}
	case len(q.States) == 1:
		where += " AND r.state = '" + q.States[0].String() + "'" // so that partial indexes are found
	default:
		where += " AND (r.state = '" + strings.Join(names(q.States), "' OR r.state = '") + "')"
	}
	add := func(condition string, value any) {
		where += " AND " + condition
		args = append(args, value)
	}
	for column, value := range map[string]string{"receipt": q.Receipt, "shop": q.Shop, "task_type": q.TaskType, "reason": q.Reason} {
		if value != "" {
			add("r."+column+" = ?", value)
		}
	}
	if q.Host != "" && !anyPort(q.Host) {
		add("r.host = ?", q.Host)
	}
	if len(q.Executed) > 0 {
		list := make([]string, len(q.Executed))
		for i, e := range q.Executed {
			list[i] = "r.executed = '" + e.String() + "'"
		}
		where += " AND (" + strings.Join(list, " OR ") + ")"
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

// order is a direction of the list.
type order struct{ beyond, by string }

var orders = map[bool]order{
	false: {"(r.updated, r.id) < (?, ?)", "r.updated DESC, r.id DESC"},
	true:  {"(r.updated, r.id) > (?, ?)", "r.updated, r.id"},
}

// lookup is what a list reads, piece by piece.
type lookup struct {
	from, where string
	args        []any
	order       order
	limit       int
}

// page gives some rows after a place.
func (s *Store) page(ctx context.Context, look lookup, after string) (out []*row, ended bool, err error) {
	where, args := look.where, look.args
	if after != "" {
		at, id, err := parsePlace(after)
		if err != nil {
			return nil, false, err
		}
		where += " AND " + look.order.beyond
		args = append(args[:len(args):len(args)], at, id)
	}
	rows, err := s.reader.QueryContext(ctx, "SELECT "+columns+", '', NULL, NULL FROM "+look.from+" WHERE "+where+
		" ORDER BY "+look.order.by+" LIMIT "+strconv.Itoa(look.limit), args...)
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
	return out, len(out) < look.limit, nil
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
