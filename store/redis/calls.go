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

// told is a call of the history as JSON.
type told struct {
	ID       codec.Text      `json:"call_id"`
	KeyHash  string          `json:"key_hash,omitempty"`
	Tenant   codec.Text      `json:"tenant,omitempty"`
	Key      codec.Text      `json:"key,omitempty"`
	Mode     string          `json:"mode,omitempty"`
	Policy   string          `json:"policy,omitempty"`
	User     codec.Text      `json:"user,omitempty"`
	Client   codec.Text      `json:"client,omitempty"`
	Shop     codec.Text      `json:"shop,omitempty"`
	ShopTier codec.Text      `json:"shop_tier,omitempty"`
	TaskType codec.Text      `json:"task_type,omitempty"`
	Method   codec.Text      `json:"method,omitempty"`
	Scheme   string          `json:"scheme,omitempty"`
	Host     codec.Text      `json:"host,omitempty"`
	Path     codec.Text      `json:"path,omitempty"`
	ClientID codec.Text      `json:"client_id,omitempty"`
	Trace    codec.Text      `json:"trace,omitempty"`
	Origin   string          `json:"origin,omitempty"`
	Result   string          `json:"result,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Detail   codec.Text      `json:"detail,omitempty"`
	Status   int             `json:"status,omitempty"`
	Executed string          `json:"executed"`
	Attempts []codec.Attempt `json:"attempts,omitempty"`
	Previous int             `json:"previous,omitempty"`
	Started  time.Time       `json:"started,omitzero"`
	Ended    time.Time       `json:"ended,omitzero"`
	Duration time.Duration   `json:"duration_ns,omitempty"`
	Overhead time.Duration   `json:"overhead_ns,omitempty"`
	Bytes    int64           `json:"bytes,omitempty"`
	Waits    []codec.Wait    `json:"waits,omitempty"`
	Terms    []uint64        `json:"terms,omitempty"`
}

func callText(c *attempt.Summary, shift time.Duration) []byte {
	t := told{
		ID: codec.Text(c.ID), KeyHash: c.KeyHash, Tenant: codec.Text(c.Record.Tenant), Key: codec.Text(c.Record.Key), Mode: c.Mode, Policy: c.Policy,
		User: codec.Text(c.User), Client: codec.Text(c.Client), Shop: codec.Text(c.Labels.Shop), ShopTier: codec.Text(c.Labels.ShopTier), TaskType: codec.Text(c.Labels.TaskType),
		Method: codec.Text(c.Method), Scheme: c.Scheme, Host: codec.Text(c.Host), Path: codec.Text(journal.Clip(c.Path)), ClientID: codec.Text(journal.Clip(c.ClientID)), Trace: codec.Text(journal.Clip(c.Trace)),
		Origin: c.Origin, Result: c.Result, Reason: c.Reason, Detail: codec.Text(journal.Clip(c.Detail)), Status: c.Status, Executed: c.Executed.String(), Previous: c.Previous,
		Started: moved(c.Started, shift).UTC(), Ended: moved(c.Ended, shift).UTC(), Duration: c.Duration, Overhead: c.Overhead, Bytes: c.Bytes, Terms: c.Terms,
		Attempts: codec.HistoryOf(c.Attempts), Waits: codec.WaitsOf(c.Waits),
	}
	for i := range t.Attempts {
		t.Attempts[i].Started = moved(t.Attempts[i].Started, shift)
	}
	return encoded(&t)
}

func parseCall(text string, shift time.Duration) (*attempt.Summary, error) {
	var t told
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return nil, err
	}
	executed, err := codec.Executed(t.Executed)
	if err != nil {
		return nil, err
	}
	attempts, err := codec.History(t.Attempts)
	if err != nil {
		return nil, err
	}
	moveAttempts(attempts, -shift)
	return &attempt.Summary{
		ID: string(t.ID), KeyHash: t.KeyHash, Record: attempt.RecordID{Tenant: string(t.Tenant), Key: string(t.Key)}, Mode: t.Mode, Policy: t.Policy,
		User: string(t.User), Client: string(t.Client), Labels: attempt.Labels{Shop: string(t.Shop), ShopTier: string(t.ShopTier), TaskType: string(t.TaskType)},
		Method: string(t.Method), Scheme: t.Scheme, Host: string(t.Host), Path: string(t.Path), ClientID: string(t.ClientID), Trace: string(t.Trace),
		State: "done", Origin: t.Origin, Result: t.Result, Reason: t.Reason, Detail: string(t.Detail), Status: t.Status, Executed: executed, Previous: t.Previous,
		Started: moved(t.Started, -shift), Ended: moved(t.Ended, -shift), Duration: t.Duration, Overhead: t.Overhead, Bytes: t.Bytes, Terms: t.Terms,
		Attempts: attempts, Waits: codec.Waits(t.Waits),
	}, nil
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
