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
)

// The history of calls of all replicas.

var _ journal.Journal = (*Store)(nil)

// told is a call of the history as JSON.
type told struct {
	ID       loose         `json:"call_id"`
	KeyHash  string        `json:"key_hash,omitempty"`
	Tenant   loose         `json:"tenant,omitempty"`
	Key      loose         `json:"key,omitempty"`
	Mode     string        `json:"mode,omitempty"`
	Policy   string        `json:"policy,omitempty"`
	User     loose         `json:"user,omitempty"`
	Client   loose         `json:"client,omitempty"`
	Shop     loose         `json:"shop,omitempty"`
	ShopTier loose         `json:"shop_tier,omitempty"`
	TaskType loose         `json:"task_type,omitempty"`
	Method   loose         `json:"method,omitempty"`
	Scheme   string        `json:"scheme,omitempty"`
	Host     loose         `json:"host,omitempty"`
	Path     loose         `json:"path,omitempty"`
	ClientID loose         `json:"client_id,omitempty"`
	Trace    loose         `json:"trace,omitempty"`
	Origin   string        `json:"origin,omitempty"`
	Result   string        `json:"result,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Detail   loose         `json:"detail,omitempty"`
	Status   int           `json:"status,omitempty"`
	Executed string        `json:"executed"`
	Attempts []try         `json:"attempts,omitempty"`
	Previous int           `json:"previous,omitempty"`
	Started  time.Time     `json:"started,omitzero"`
	Ended    time.Time     `json:"ended,omitzero"`
	Duration time.Duration `json:"duration_ns,omitempty"`
	Overhead time.Duration `json:"overhead_ns,omitempty"`
	Bytes    int64         `json:"bytes,omitempty"`
	Waits    []wait        `json:"waits,omitempty"`
	Terms    []uint64      `json:"terms,omitempty"`
}

type wait struct {
	Cause string        `json:"cause"`
	For   time.Duration `json:"for_ns"`
}

func callText(c *attempt.Summary, shift time.Duration) []byte {
	t := told{
		ID: loose(c.ID), KeyHash: c.KeyHash, Tenant: loose(c.Record.Tenant), Key: loose(c.Record.Key), Mode: c.Mode, Policy: c.Policy,
		User: loose(c.User), Client: loose(c.Client), Shop: loose(c.Labels.Shop), ShopTier: loose(c.Labels.ShopTier), TaskType: loose(c.Labels.TaskType),
		Method: loose(c.Method), Scheme: c.Scheme, Host: loose(c.Host), Path: loose(journal.Clip(c.Path)), ClientID: loose(journal.Clip(c.ClientID)), Trace: loose(journal.Clip(c.Trace)),
		Origin: c.Origin, Result: c.Result, Reason: c.Reason, Detail: loose(journal.Clip(c.Detail)), Status: c.Status, Executed: c.Executed.String(), Previous: c.Previous,
		Started: moved(c.Started, shift).UTC(), Ended: moved(c.Ended, shift).UTC(), Duration: c.Duration, Overhead: c.Overhead, Bytes: c.Bytes, Terms: c.Terms,
	}
	for i := range c.Attempts {
		a := tryOf(&c.Attempts[i])
		a.Started = moved(a.Started, shift)
		t.Attempts = append(t.Attempts, a)
	}
	for _, w := range c.Waits {
		t.Waits = append(t.Waits, wait(w))
	}
	return encoded(&t)
}

func parseCall(text string, shift time.Duration) (*attempt.Summary, error) {
	var t told
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return nil, err
	}
	executed, err := token(t.Executed, executions)
	if err != nil {
		return nil, err
	}
	c := &attempt.Summary{
		ID: string(t.ID), KeyHash: t.KeyHash, Record: attempt.RecordID{Tenant: string(t.Tenant), Key: string(t.Key)}, Mode: t.Mode, Policy: t.Policy,
		User: string(t.User), Client: string(t.Client), Labels: attempt.Labels{Shop: string(t.Shop), ShopTier: string(t.ShopTier), TaskType: string(t.TaskType)},
		Method: string(t.Method), Scheme: t.Scheme, Host: string(t.Host), Path: string(t.Path), ClientID: string(t.ClientID), Trace: string(t.Trace),
		State: "done", Origin: t.Origin, Result: t.Result, Reason: t.Reason, Detail: string(t.Detail), Status: t.Status, Executed: executed, Previous: t.Previous,
		Started: moved(t.Started, -shift), Ended: moved(t.Ended, -shift), Duration: t.Duration, Overhead: t.Overhead, Bytes: t.Bytes, Terms: t.Terms,
	}
	for i := range t.Attempts {
		a, err := t.Attempts[i].attempt()
		if err != nil {
			return nil, err
		}
		c.Attempts = append(c.Attempts, a)
	}
	moveAttempts(c.Attempts, -shift)
	for _, w := range t.Waits {
		c.Waits = append(c.Waits, attempt.Wait(w))
	}
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
		if x != "" && !strings.Contains(text, string(encoded(loose(x)))) {
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
