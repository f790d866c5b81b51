package sqlite

import (
	"errors"
	"strconv"
	"time"

	"retryproxy/idempotency"
)

// What a sweep does in one transaction at most.
const (
	mostSwept    = 256 // rows
	mostVacuumed = 256 // pages
)

// sweep is what is left to do of a round.
type sweep struct {
	now  time.Time
	rest bool
}

// always is ready.
var always = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// more is ready while something is left to do.
func (s sweep) more() <-chan struct{} {
	if s.rest {
		return always
	}
	return nil
}

// sweep deletes some of what is over, and says whether there is more. Callers
// have their turn in between.
func (w *writer) sweep(now time.Time) (more bool) {
	if w.settleAll() != nil {
		return false
	}
	err := w.transaction(func() { more = w.sweepSome(now) })
	return more && err == nil
}

// sweepSome is a sweep in the open transaction.
func (w *writer) sweepSome(now time.Time) (more bool) {
	retired := w.each(expired, now, w.retire)
	removed := w.each(gone, now, func(v *victim, _ time.Time) error { return w.remove(v) })
	w.fit(now)
	_ = w.shrink(now) // an error ends the transaction
	w.lookAtParked()
	older, few := w.forgetCalls(now), w.mergeCalls()
	return w.vacuum() || retired == mostSwept || removed == mostSwept || older || few
}

// lookAtParked finds out since when the longest parked call waits.
func (w *writer) lookAtParked() {
	w.tally.parked = time.Time{}
	if w.tally.states[idempotency.StateParked] == 0 {
		return
	}
	st, err := w.prepared(selectParked)
	var text string
	if err == nil {
		err = st.QueryRowContext(unending).Scan(&text)
	}
	if err == nil {
		w.tally.parked, err = parseTime(text)
	}
	_ = w.fail(err)
}

// each does something to all rows of a query. What fails ends the transaction.
func (w *writer) each(query string, now time.Time, do func(*victim, time.Time) error) int {
	found, err := w.victims(query, timeText(now), mostSwept)
	for i := 0; i < len(found) && err == nil; i++ {
		err = do(&found[i], now)
	}
	return len(found)
}

// retire ends a record whose ttl is over. Its history stays as long as
// Config.Keep says; its request and its answer do not.
func (w *writer) retire(v *victim, now time.Time) error {
	updated, err := parseTime(v.updated)
	if err != nil {
		return w.fail(err)
	}
	until := updated.Add(w.store.bounds().Keep)
	if !until.After(now) {
		return w.remove(v)
	}
	if err := w.forgetAnswer(&v.row); err != nil {
		return err
	}
	if err := w.exec(dropRequest, v.id); err != nil {
		return err
	}
	w.tally.add(&v.row, -1)
	v.past, v.bytes, v.answer = true, 0, 0
	w.tally.add(&v.row, 1)
	return w.exec(stripRecord, timeText(until), v.id)
}

// fit evicts what is too much since Configure.
func (w *writer) fit(now time.Time) {
	limit := w.store.bounds().Entries
	if limit == 0 || w.tally.rows <= limit {
		return
	}
	if err := w.evict(w.tally.rows-limit-1, 0, now); err != nil && !errors.Is(err, idempotency.ErrFull) {
		_ = w.fail(err)
	}
}

// vacuum gives free pages back to the system once they are a quarter of the
// file, and says whether it did.
func (w *writer) vacuum() bool {
	var pages, free int
	for query, to := range map[string]*int{"PRAGMA page_count": &pages, "PRAGMA freelist_count": &free} {
		st, err := w.prepared(query)
		if err == nil {
			err = st.QueryRowContext(unending).Scan(to)
		}
		if err != nil {
			_ = w.fail(err)
			return false
		}
	}
	if free < mostVacuumed || free < pages/4 {
		return false
	}
	return w.exec("PRAGMA incremental_vacuum("+strconv.Itoa(mostVacuumed)+")") == nil
}
