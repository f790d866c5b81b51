package idempotency

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"retryproxy/attempt"
)

// maxDetail bounds the text for people that an attempt may carry, in bytes.
const maxDetail = 512

// Apply computes the record after a change: the rule behind Advance of every
// store. It is pure: slices of rec are never written to. Errors: ErrTransition
// when the table has no such move, ErrConflict when rec is in another state or
// has another owner.
func Apply(rec Record, from, to State, ch Change) (Record, error) {
	if ch.OnlyReceipt() && from == to && rec.State == from {
		rec.Version++
		rec.Receipt = cmp.Or(rec.Receipt, rec.Owner)
		return rec, nil
	}
	if !from.CanBecome(to) {
		return Record{}, fmt.Errorf("%w: from %s to %s", ErrTransition, from, to)
	}
	if rec.State != from {
		return Record{}, fmt.Errorf("%w: it is %s, not %s", ErrConflict, rec.State, from)
	}
	if ch.Version != 0 && rec.Version != ch.Version {
		return Record{}, fmt.Errorf("%w: it was moved since it was read", ErrConflict)
	}
	if owned.has(from) && rec.Owner != ch.Owner && !ch.Adopt {
		return Record{}, fmt.Errorf("%w: another call owns it", ErrConflict)
	}
	rec.Version++
	rec.Updated = later(ch.Now, rec.Updated)
	rec.NextAt = ch.NextAt
	if ch.Reason != "" {
		rec.Reason = ch.Reason
	}
	if ch.Host != "" {
		rec.Host = ch.Host
	}
	rec.handOn(ch.Supplier)
	if !ch.Deadline.IsZero() {
		rec.Deadline = ch.Deadline
	}
	rec.note(ch)
	rec.enter(from, to, ch)
	return rec, nil
}

// OnlyReceipt says that a change asks for a receipt and nothing else, which anybody
// may at any time.
func (ch *Change) OnlyReceipt() bool {
	return ch.Receipt && ch.Owner == "" && ch.Append == nil && ch.NextAt.IsZero() && ch.Reason == "" && ch.Note == nil && ch.Answer == nil
}

// note adds what was learnt: attempts, and whether something was executed.
func (r *Record) note(ch Change) {
	r.Executed = max(r.Executed, ch.Executed)
	if len(ch.Append) > 0 {
		r.add(ch.Append)
	}
	if ch.Settle {
		r.Executed = ch.Executed
	}
	if ch.Note != nil {
		note := *ch.Note
		note.Text = shortened(note.Text)
		r.Notes = bounded(slices.Concat(r.Notes, []Note{note}), 0, NotesKept)
	}
}

// add numbers the attempts in the order of the record and appends them.
func (r *Record) add(made []attempt.Attempt) {
	h := slices.Concat(r.History, made)
	for i := len(r.History); i < len(h); i++ {
		r.Attempts++
		h[i].N = r.Attempts
		h[i].Detail = shortened(h[i].Detail)
		r.Executed = max(r.Executed, h[i].Verdict.Executed)
	}
	r.History = bounded(h, HistoryFirst, HistoryLast)
}

// enter puts the record into its next state.
func (r *Record) enter(from, to State, ch Change) {
	last := r.Answer
	r.State, r.Answer, r.Expires = to, nil, time.Time{}
	if (from == StateParked && owned.has(to) || ch.Adopt) && ch.Owner != "" {
		r.Owner = ch.Owner
	}
	switch {
	case to == StateDone || to.Letter() && ch.Answer != nil:
		r.Answer = answered(ch.Answer, r.Updated)
	case to.Letter() && from.Letter():
		r.Answer = last
	}
	if r.Receipt == "" && (ch.Receipt || to == StateParked || to.Letter()) {
		r.Receipt = r.Owner
	}
	switch {
	case to == StateParked && r.Parked.IsZero():
		r.Parked = r.Updated
	case to.Ended():
		r.Parked = time.Time{}
	}
	if to.Ended() {
		ttl := ch.TTL
		if ttl == 0 {
			ttl = r.TTL
		}
		r.Expires = r.Updated.Add(ttl)
	}
	if to == StateInDoubt && r.NextAt.IsZero() {
		r.NextAt = r.Expires // however late it is written down
	}
	if to.Ended() || ch.EndRun {
		r.endRun(ch.Reason)
	}
}

// answered is what a record keeps of an answer: a marker when none is known.
func answered(a *Answer, now time.Time) *Answer {
	switch {
	case a == nil:
		return &Answer{Stored: now}
	case a.Kept && !a.Stored.IsZero():
		return a
	}
	kept := *a
	if !kept.Kept {
		kept.Fields, kept.Body = nil, nil
	}
	if kept.Stored.IsZero() {
		kept.Stored = now
	}
	return &kept
}

// endRun ends the current run, once.
func (r *Record) endRun(reason string) {
	last := len(r.Runs) - 1
	if last < 0 || !r.Runs[last].Ended.IsZero() {
		return
	}
	r.Runs = slices.Clone(r.Runs)
	r.Runs[last].Ended, r.Runs[last].Reason = r.Updated, reason
}

// shortened cuts a text to maxDetail bytes without splitting a character.
func shortened(s string) string {
	if len(s) <= maxDetail {
		return s
	}
	return strings.ToValidUTF8(s[:maxDetail-3], "") + "..."
}
