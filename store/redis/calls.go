package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"retryproxy/attempt"
	"retryproxy/journal"
	"retryproxy/store/codec"
)

// The history of calls of all replicas.

var _ journal.Journal = (*Store)(nil)

// callText is a call as JSON, in the time of the server.
func callText(c *attempt.Summary, shift time.Duration) []byte {
	t := codec.CallOf(c)
	t.Started, t.Ended = moved(t.Started, shift), moved(t.Ended, shift)
	for i := range t.Attempts {
		t.Attempts[i].Started = moved(t.Attempts[i].Started, shift)
	}
	return encoded(t)
}

func parseCall(text string, shift time.Duration) (*attempt.Summary, error) {
	var t codec.Call
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return nil, err
	}
	c, err := t.Summary()
	if err != nil {
		return nil, err
	}
	c.Started, c.Ended = moved(c.Started, -shift), moved(c.Ended, -shift)
	moveAttempts(c.Attempts, -shift)
	return c, nil
}

// Note implements journal.Journal.
func (s *Store) Note(ctx context.Context, calls []*attempt.Summary) error {
	if err := ctx.Err(); err != nil {
		return callsError(err)
	}
	if len(calls) == 0 {
		return nil
	}
	shift := s.shift()
	args := make([]any, 0, 2+2*len(calls))
	args = append(args, s.mark(), s.bounds().Calls)
	for _, c := range calls {
		args = append(args, score(moved(c.Ended, shift)), callText(c, shift))
	}
	if _, err := s.call(ctx, noteScript, args...); err != nil {
		return callsError(err)
	}
	return nil
}

func callsError(err error) error { return fmt.Errorf("%w: %w", journal.ErrUnavailable, err) }

// Find implements journal.Journal. It goes through the history from the newest call
// on until it has found enough.
func (s *Store) Find(ctx context.Context, q journal.Query) (found []journal.Entry, more bool, err error) {
	from, after, err := parseCallPlace(q.After)
	if err != nil || q.State != "" && q.State != "done" {
		return nil, false, err
	}
	shift := s.shift()
	if !q.Until.IsZero() && after == "" {
		from = score(moved(q.Until, shift))
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, false, callsError(err)
		}
		page, err := s.list(ctx, callsScript, from, after, pageSize)
		if err != nil {
			return nil, false, callsError(err)
		}
		for _, one := range page {
			var c *attempt.Summary
			if c, from, after, err = readCall(one, &q, shift); err != nil {
				return nil, false, callsError(err)
			}
			switch {
			case c == nil:
				continue
			case c.Ended.Before(q.Since):
				return found, false, nil
			case !q.Wants(c, c.Ended):
				continue
			case len(found) == q.Most():
				return found, true, nil
			}
			c.Terms = nil
			found = append(found, journal.Entry{Summary: c, Place: from + "." + after})
		}
		if len(page) < pageSize {
			return found, false, nil
		}
	}
}

// readCall reads what calls.lua gives of one; nil: it is none of those that are
// asked for, which is seen without reading it.
func readCall(reply any, q *journal.Query, shift time.Duration) (c *attempt.Summary, score, id string, err error) {
	all, _ := reply.([]any)
	if len(all) != 3 {
		return nil, "", "", errForeign
	}
	score, _ = all[0].(string)
	id, _ = all[1].(string)
	text, _ := all[2].(string)
	for _, x := range []string{q.CallID, q.KeyHash, q.Shop, q.TaskType} {
		if x != "" && !strings.Contains(text, string(encoded(codec.Text(x)))) {
			return nil, score, id, nil
		}
	}
	c, err = parseCall(text, shift)
	return c, score, id, err
}

// parseCallPlace reads where a list goes on: score and number of the call before.
func parseCallPlace(text string) (from, after string, err error) {
	if text == "" {
		return "+inf", "", nil
	}
	from, after, _ = strings.Cut(text, ".")
	_, err1 := strconv.ParseInt(from, 10, 64)
	_, err2 := strconv.ParseUint(after, 10, 64)
	if err := errors.Join(err1, err2); err != nil || len(after) != 16 {
		return "", "", fmt.Errorf("%w: %q", journal.ErrCursor, text)
	}
	return from, after, nil
}
