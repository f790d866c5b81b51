package sqlite

import (
	"fmt"
	"sync"
	"time"

	"retryproxy/idempotency"
)

// Bounds of what is in the redo log alone.
const (
	settleEvery = 250 * time.Millisecond // so old a row in the database may be
	mostAhead   = 2048                   // changes
	mostPending = 4 << 20                // bytes of their requests and answers
	largeBody   = 64 << 10               // a change with more goes straight to the database
)

// overlay has the rows that are newer than the database. They were acknowledged, so
// the redo log has them. Only the writer changes it.
type overlay struct {
	mu   sync.RWMutex
	rows map[idempotency.ID]*row
}

func (o *overlay) get(id idempotency.ID) *row {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.rows[id]
}

// size is how many rows there are.
func (o *overlay) size() int {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return len(o.rows)
}

// part says what a change does to the request or the answer of a row.
type part uint8

const (
	partSame part = iota
	partNone
	partNew
)

// follow makes r what comes after old; nil: there was none.
func (r *row) follow(old *row, request, answer part) {
	if old == nil {
		return
	}
	r.id, r.drop, r.drops, r.carried = old.id, old.drop, old.drops, old.carried
	if old.answer != 0 {
		r.drop = old.answer
	}
	if answer == partSame {
		r.answer, r.bytes, r.drop = old.answer, old.bytes, old.drop
	}
	switch request {
	case partSame:
		r.request = old.request
	case partNone:
		r.drops = old.id != 0
	}
}

// held says that a call is not over and somebody is at it.
func (r *row) held() bool {
	return r.rec.State == idempotency.StateRunning || r.rec.State == idempotency.StateWaiting
}

// pending is how many bytes of a row wait for the database.
func (r *row) pending() int {
	n := len(r.request)
	if r.answer == 0 {
		n += int(r.bytes)
	}
	return n
}

// stage is how a change takes effect: with the others of its batch, once the log
// has them, or in the open transaction.
func (w *writer) stage(old, r *row, request, answer part) error {
	if old != nil {
		w.tally.add(old, -1)
	} else {
		w.know(r.rec.ID)
	}
	w.tally.add(r, 1)
	if w.within {
		filed, err := w.file(r)
		if err != nil {
			return err
		}
		w.remember(filed)
		return nil
	}
	w.frame = w.store.appendEntry(w.frame, r, request, answer)
	w.staged = append(w.staged, r)
	w.stagedAs[r.rec.ID] = r
	return nil
}

// remember keeps a row that is as in the database while its call is not over.
func (w *writer) remember(r *row) {
	if r.held() {
		w.cache.Add(r.rec.ID, r)
		return
	}
	w.cache.Remove(r.rec.ID)
}

// publish writes what was staged to the redo log. Where that cannot be written, the
// database takes it.
func (w *writer) publish() error {
	if len(w.staged) == 0 {
		return nil
	}
	defer w.unstage()
	err := w.redo.write(w.frame)
	if ill := err != nil; ill != w.logless {
		w.logless = ill
		w.store.bounds().Log(map[bool]string{true: "the redo log cannot be written, changes go to the database at once", false: "the redo log is written again"}[ill], "file", w.redo.name(w.redo.at), "error", err)
	}
	if err != nil {
		return w.settle(w.redo.number, nil)
	}
	w.tally.keep()
	w.store.publish(w.tally.stats())
	if len(w.ahead) == 0 {
		w.settling.Reset(settleEvery)
	}
	w.ahead = append(w.ahead, w.staged...)
	w.pending += w.store.overlay.put(w.staged)
	return nil
}

// unstage ends a batch.
func (w *writer) unstage() {
	clear(w.staged)
	w.staged, w.frame = w.staged[:0], newFrame(w.frame)
	clear(w.stagedAs)
}

// put adds rows, and says how many bytes wait for the database with them.
func (o *overlay) put(rows []*row) (bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range rows {
		o.rows[r.rec.ID] = r
		bytes += r.pending()
	}
	return bytes
}

// replace leaves no rows but these.
func (o *overlay) replace(rows []*row) {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.rows)
	for _, r := range rows {
		o.rows[r.rec.ID] = r
	}
}

// current says that a row has no successor.
func (w *writer) current(r *row) bool {
	if s := w.stagedAs[r.rec.ID]; s != nil {
		return s == r
	}
	return w.store.overlay.rows[r.rec.ID] == r
}

// settleAll brings the database to where the redo log is.
func (w *writer) settleAll() error {
	if len(w.ahead) == 0 && !w.ill {
		return nil
	}
	return w.settle(w.redo.number, nil)
}

// settleMost does it for all but the calls that began lately and are not over: most
// of these end soon, and then only their end has to be written.
func (w *writer) settleMost() error {
	if w.behind {
		return w.settleAll()
	}
	number := w.redo.number
	kept := w.carryOver()
	if len(kept) == 0 {
		number = w.redo.number // also of a frame that could not be written
	}
	return w.settle(number, kept)
}

// carryOver writes the rows that are not settled yet into the other file of the log.
func (w *writer) carryOver() (kept []*row) {
	frame := newFrame(w.frame)
	for _, r := range w.ahead {
		if !r.held() || r.carried || !w.current(r) {
			continue
		}
		request := partSame
		switch {
		case r.request != nil:
			request = partNew
		case r.drops:
			request = partNone
		}
		frame = w.store.appendEntry(frame, r, request, partNone)
		kept = append(kept, r)
	}
	w.frame = newFrame(frame)
	if len(kept) == 0 {
		return nil
	}
	if done, err := w.redo.carry(frame); err != nil || !done {
		return nil // then all are settled
	}
	for _, r := range kept {
		r.carried = true
	}
	return kept
}

// settle writes the rows of the overlay, and what is staged, to the database, but
// for those that are kept. From then on it has the log up to number. When it fails,
// nothing is written to the log until it does not.
func (w *writer) settle(number uint64, kept []*row) error {
	err := w.transaction(func() {
		for _, rows := range [][]*row{w.ahead, w.staged} {
			w.fileAll(rows, kept)
		}
		_ = w.exec(noteRedo, redoMark{w.redo.id, number}.String())
	})
	w.behind = err != nil
	if err != nil {
		return err
	}
	w.health(nil)
	w.redo.settle(number)
	w.store.overlay.replace(kept)
	clear(w.ahead)
	w.ahead, w.pending = append(w.ahead[:0], kept...), 0
	for _, r := range kept {
		w.pending += r.pending()
	}
	if len(kept) > 0 {
		w.settling.Reset(settleEvery)
	}
	return nil
}

// fileAll writes rows, the last state of each, in the order in which they were
// changed. What fails ends the transaction.
func (w *writer) fileAll(rows, kept []*row) {
	for _, r := range rows {
		if w.broken != nil {
			return
		}
		if len(kept) > 0 && kept[0] == r { // in the same order
			kept = kept[1:]
			continue
		}
		if !w.current(r) {
			continue
		}
		if r.id == 0 && r.request == nil {
			w.fileSoon(w.numbered(r))
		} else if filed, err := w.file(r); err == nil {
			w.remember(filed)
		}
	}
	w.fileWaiting()
}

// numbered is a row as it is to be in the database.
func (w *writer) numbered(r *row) *row {
	filed := &row{id: r.id, answer: r.answer, bytes: r.bytes, rec: r.rec}
	if filed.id == 0 {
		w.lastRecord++
		filed.id = w.lastRecord
	}
	if a := r.rec.Answer; filed.answer == 0 && a != nil && a.Kept {
		w.lastAnswer++
		filed.answer = w.lastAnswer
	}
	return filed
}

// fileSoon writes a new row without a request, together with others.
func (w *writer) fileSoon(r *row) {
	if w.waiting = append(w.waiting, r); len(w.waiting) == severalRows {
		w.fileWaiting()
	}
}

// fileWaiting writes the rows that wait for others.
func (w *writer) fileWaiting() {
	records, answers := w.values[:0], w.answers[:0]
	for _, r := range w.waiting {
		records = r.columns(records)
		if r.answer != 0 {
			answers = w.store.answerColumns(answers, r)
		}
		w.remember(r)
	}
	w.insert(intoRecords, records, len(w.waiting))
	w.insert(intoAnswers, answers, len(answers)/5)
	clear(w.waiting)
	w.waiting = w.waiting[:0]
}

// insert inserts n rows.
func (w *writer) insert(into insert, v values, n int) {
	if n == severalRows {
		_, _ = w.raw(into.several, v) // an error ends the transaction
		return
	}
	for i := range n {
		one := v[i*len(v)/n : (i+1)*len(v)/n]
		for j := range one {
			one[j].Ordinal = j + 1
		}
		_, _ = w.raw(into.one, one)
	}
}

// file writes a row to the database, and gives it as it is there.
func (w *writer) file(r *row) (*row, error) {
	filed := w.numbered(r)
	if err := w.fileRecord(filed, r.id == 0); err != nil {
		return nil, err
	}
	if r.drop != 0 {
		if err := w.exec(dropAnswer, r.drop); err != nil {
			return nil, err
		}
	}
	if filed.answer != r.answer {
		if _, err := w.raw(intoAnswers.one, w.store.answerColumns(w.values[:0], filed)); err != nil {
			return nil, err
		}
	}
	return filed, w.fileRequest(filed.id, r)
}

func (w *writer) fileRecord(r *row, first bool) error {
	if first {
		_, err := w.raw(intoRecords.one, r.columns(w.values[:0]))
		return err
	}
	n, err := w.raw(updateRecord, r.life(r.identity(w.values[:0])).add(r.id))
	if err == nil && n != 1 {
		err = w.fail(fmt.Errorf("row %d of records is not there", r.id))
	}
	return err
}

func (w *writer) fileRequest(record int64, r *row) error {
	q := r.whole
	switch {
	case q != nil:
	case r.request != nil:
		var err error
		if q, err = parseRequest(r.request); err != nil {
			return w.fail(err)
		}
	case r.drops:
		return w.exec(dropRequest, record)
	default:
		return nil
	}
	_, err := w.raw(putRequest, w.store.requestColumns(w.values[:0], record, r.rec.ID, q))
	return err
}
