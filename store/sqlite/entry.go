package sqlite

import (
	"errors"
	"fmt"

	"retryproxy/idempotency"
)

// What the redo log says of a row: what it became, and what became of its request and
// its answer. With store.key these two are sealed.

// Places of sealed parts of an entry.
const (
	redoRequest = "redo.request"
	redoAnswer  = "redo.answer"
)

// redoEntry is one that was read.
type redoEntry struct {
	rec             idempotency.Record
	request, answer part
	body            []byte // of a new request, as codedRequest gives it
}

// appendEntry appends what became of a row.
func (s *Store) appendEntry(buf []byte, r *row, request, answer part) []byte {
	c := coder{buf: buf}
	seal := s.closer(r.rec.ID)
	sealed := seal.Keys != nil
	c.flag(&sealed)
	c.record(&r.rec)
	number(&c, &request)
	if request == partNew {
		body := seal.Seal(redoRequest, r.request)
		c.blob(&body)
	}
	number(&c, &answer)
	switch {
	case answer != partNew:
	case sealed:
		plain := coder{}
		plain.answer(r.rec.Answer)
		body := seal.Seal(redoAnswer, plain.buf)
		c.blob(&body)
	default:
		c.answer(r.rec.Answer)
	}
	return c.buf
}

var errEntry = errors.New("an entry does not say what entries say")

// parseEntry reads the entry that comes next. Errors: errEntry, codec.ErrSealed.
func (s *Store) parseEntry(c *coder) (*redoEntry, error) {
	var e redoEntry
	var sealed bool
	c.flag(&sealed)
	c.record(&e.rec)
	open := s.opener(e.rec.ID)
	number(c, &e.request)
	if e.request == partNew {
		c.blob(&e.body)
		if sealed {
			open.bytes(redoRequest, &e.body)
		}
	}
	number(c, &e.answer)
	switch {
	case c.bad || e.answer != partNew:
	case e.rec.Answer == nil:
		c.fail()
	case sealed:
		var body []byte
		c.blob(&body)
		open.bytes(redoAnswer, &body)
		plain := coder{buf: body, reading: true}
		plain.answer(e.rec.Answer)
		c.bad = c.bad || open.Err == nil && plain.bad
	default:
		c.answer(e.rec.Answer)
	}
	if c.bad {
		return nil, errEntry
	}
	return &e, open.Err
}

// codedRequest is a request as the log has it.
func codedRequest(q *idempotency.Request) []byte {
	c := coder{buf: make([]byte, 0, 512+len(q.Body))}
	c.request(q)
	return c.buf
}

// parseRequest is the way back from codedRequest.
func parseRequest(text []byte) (*idempotency.Request, error) {
	c, q := coder{buf: text, reading: true}, &idempotency.Request{}
	if c.request(q); c.bad {
		return nil, errEntry
	}
	return q, nil
}

// replay brings the database to where the redo log is.
func (w *writer) replay() error {
	frames, fault := w.redo.read()
	lost := errors.Is(fault, errUnsynced) && w.store.bounds().Durability == Process
	if fault != nil && !lost {
		return fault
	}
	for i := range frames {
		c := coder{buf: frames[i].payload, reading: true, format: frames[i].format}
		for len(c.buf) > 0 {
			e, err := w.store.parseEntry(&c)
			if err != nil {
				return fmt.Errorf("%w: change %d: %w", errRedo, frames[i].number, err)
			}
			if err := w.again(e); err != nil {
				return err
			}
		}
	}
	if len(w.ahead) > 0 {
		if err := w.settleAll(); err != nil {
			return err
		}
	}
	if !lost {
		return nil
	}
	// The machine lost power: what was not written back may be missing anywhere.
	w.store.bounds().Log("the last changes before a loss of power are not all there; what cannot be used was set aside", "error", fault)
	return w.redo.setAside()
}

// again puts what an entry says into the overlay.
func (w *writer) again(e *redoEntry) error {
	old, err := w.find(e.rec.ID)
	if err != nil {
		return err
	}
	r := &row{rec: e.rec, request: e.body}
	switch {
	case e.answer == partNew:
		r.bytes = e.rec.Answer.Size()
	case e.answer == partSame && old != nil && old.rec.Answer != nil:
		r.rec.Answer = old.rec.Answer
	case e.rec.Answer != nil:
		r.rec.Answer.Kept = false
	}
	r.follow(old, e.request, e.answer)
	w.store.overlay.put([]*row{r})
	w.ahead = append(w.ahead, r)
	return nil
}
