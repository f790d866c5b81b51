package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"retryproxy/classify"
	"retryproxy/deadletter"
	"retryproxy/idempotency"
)

// letterPage is how many letters are read from the store at a time.
const letterPage = 500

// Letters finds dead letters, the latest first, without their answers, and says
// where to go on: empty, that was all. Errors: deadletter.ErrNotKept, ErrInput, those
// of Store.List.
func (p *Proxy) Letters(ctx context.Context, f deadletter.Filter, after string, limit int) ([]idempotency.Record, string, error) {
	q, err := p.letterQuery(&f)
	if err != nil {
		return nil, "", err
	}
	q.After, q.Limit = after, limit
	return p.Store.List(ctx, q)
}

// letterQuery is the filter as the store takes it.
func (p *Proxy) letterQuery(f *deadletter.Filter) (idempotency.Query, error) {
	if !p.durable {
		return idempotency.Query{}, deadletter.ErrNotKept
	}
	var words [][]uint64
	if f.Text != "" {
		if words = p.Words(f.Text); len(words) == 0 {
			return idempotency.Query{}, fmt.Errorf("%w: text: want at least one word of 4 to 64 letters or digits", deadletter.ErrInput)
		}
	}
	return f.Query(words), nil
}

// EachLetter hands over all letters that are meant, the oldest first, each as it was
// when it was read; do ends it with an error, which it returns. Letters that change
// meanwhile come at most once. Errors: as Letters.
func (p *Proxy) EachLetter(ctx context.Context, f deadletter.Filter, do func(*idempotency.Record) error) error {
	q, err := p.letterQuery(&f)
	if err != nil {
		return err
	}
	if end := time.Now().Add(1); q.Until.IsZero() || q.Until.After(end) {
		q.Until = end // what is moved from here on does not come again
	}
	q.Oldest, q.Limit = true, letterPage
	for {
		found, next, err := p.Store.List(ctx, q)
		if err != nil {
			return err
		}
		for i := range found {
			if err := do(&found[i]); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		q.After = next
	}
}

// Letter finds what is known under a receipt, its last answer included, whatever
// became of it, and its request; nil: it was not kept. Errors:
// deadletter.ErrNotKept, ErrNotFound, idempotency.ErrUnavailable.
func (p *Proxy) Letter(ctx context.Context, id string) (idempotency.Record, *idempotency.Request, error) {
	rec, err := p.findLetter(ctx, id)
	if err != nil {
		return rec, nil, err
	}
	request, err := p.Store.Load(ctx, rec.ID)
	if errors.Is(err, idempotency.ErrNotFound) {
		err = nil
	}
	return rec, request, err
}

// findLetter is Letter without the request.
func (p *Proxy) findLetter(ctx context.Context, id string) (rec idempotency.Record, err error) {
	if !p.durable {
		return rec, deadletter.ErrNotKept
	}
	if id == "" {
		return rec, deadletter.ErrNotFound
	}
	found, _, err := p.Store.List(ctx, idempotency.Query{Receipt: id, Limit: 1})
	if err != nil {
		return rec, err
	}
	if len(found) == 0 {
		return rec, deadletter.ErrNotFound
	}
	rec, err = p.Store.Get(ctx, found[0].ID, time.Now())
	if errors.Is(err, idempotency.ErrNotFound) || err == nil && rec.Receipt != id {
		err = deadletter.ErrNotFound // its time is over, just now
	}
	return rec, err
}

// ResolveLetter settles a letter and its key: as executed, then repeats are not sent
// any more, or as not executed, then the key is free. Errors: of findLetter and
// deadletter.MayResolve, ErrInput.
func (p *Proxy) ResolveLetter(ctx context.Context, id string, executed bool, s deadletter.Signed) error {
	if err := s.Check(); err != nil {
		return err
	}
	rec, err := p.findLetter(ctx, id)
	if err != nil {
		return err
	}
	if err := deadletter.MayResolve(&rec); err != nil {
		return err
	}
	to, did := idempotency.StateFailed, deadletter.DidNotExecuted
	c := idempotency.Change{Reason: deadletter.ReasonResolved, Settle: true, TTL: p.Settings().KeyTTL}
	if executed {
		to, did, c.Executed = idempotency.StateDone, deadletter.DidExecuted, classify.ExecutedYes
	}
	return p.close(ctx, &rec, to, c, did, s)
}

// DropLetter gives a letter up for good: its request is deleted, its history stays.
// Errors: of findLetter and deadletter.MayDrop, ErrInput.
func (p *Proxy) DropLetter(ctx context.Context, id string, s deadletter.Signed) error {
	if err := s.Check(); err != nil {
		return err
	}
	rec, err := p.findLetter(ctx, id)
	if err != nil {
		return err
	}
	return p.drop(ctx, &rec, s)
}

// mostDropped is how many letters one order drops, so that it ends in time.
const mostDropped = 500

// errEnough ends a walk through the letters.
var errEnough = errors.New("enough")

// DropLetters drops all letters that are meant, at most some hundreds: then more is
// true and it is to be called again. Those in doubt are passed over. Errors: as
// EachLetter, deadletter.ErrNoFilter, and of the store.
func (p *Proxy) DropLetters(ctx context.Context, f deadletter.Filter, all bool, s deadletter.Signed) (dropped, refused int, more bool, err error) {
	if err := s.Check(); err != nil {
		return 0, 0, false, err
	}
	if f.Empty() && !all {
		return 0, 0, false, deadletter.ErrNoFilter
	}
	err = p.EachLetter(ctx, f, func(rec *idempotency.Record) error {
		if dropped == mostDropped {
			return errEnough
		}
		switch err := p.drop(ctx, rec, s); {
		case err == nil:
			dropped++
		case errors.Is(err, idempotency.ErrUnavailable):
			return err
		default:
			refused++
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return dropped, refused, true, nil
	}
	return dropped, refused, false, err
}

func (p *Proxy) drop(ctx context.Context, rec *idempotency.Record, s deadletter.Signed) error {
	if err := deadletter.MayDrop(rec); err != nil {
		return err
	}
	c := idempotency.Change{Reason: deadletter.ReasonDropped, TTL: p.Settings().KeyTTL}
	return p.close(ctx, rec, idempotency.StateFailed, c, deadletter.DidDrop, s)
}

// close moves a letter to a state that is none, with a note, and writes the log.
func (p *Proxy) close(ctx context.Context, rec *idempotency.Record, to idempotency.State, c idempotency.Change, did string, s deadletter.Signed) error {
	c.Now, c.Version = time.Now(), rec.Version
	c.Note = &idempotency.Note{At: c.Now, By: s.By, Did: did, Text: s.Note}
	if _, err := p.Store.Advance(ctx, rec.ID, rec.State, to, c); err != nil {
		return letterError(err)
	}
	p.logLetter("dead letter closed", rec, did, s)
	return nil
}

// letterError tells in the words of letters that a record was moved meanwhile.
func letterError(err error) error {
	switch {
	case errors.Is(err, idempotency.ErrConflict):
		return deadletter.ErrBusy
	case errors.Is(err, idempotency.ErrNotFound):
		return deadletter.ErrNotFound
	}
	return err
}

// logLetter writes what a person did with a letter.
func (p *Proxy) logLetter(msg string, rec *idempotency.Record, did string, s deadletter.Signed, more ...any) {
	hash := ""
	if !rec.Keyless {
		hash = idempotency.KeyHash(rec.Key)
	}
	p.Log.Warn(msg, append([]any{"letter", rec.Receipt, "did", did, "by", s.By, "note", s.Note, "state", rec.State.String(), "executed", rec.Executed.String(), //nolint:sloglint // msg is a constant of the caller
		"host", rec.Host, "method", rec.Method, "path", rec.Path, "shop", rec.Labels.Shop, "task_type", rec.Labels.TaskType, "key_hash", hash}, more...)...)
}
