package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"retryproxy/idempotency"
)

// Bounds of the writer.
const (
	mostTogether = 512  // changes in one transaction
	mostCached   = 4096 // rows of calls that are not over
	sweepEvery   = time.Second
	sweepLast    = 30 * time.Second // while nobody changes anything
)

// unending is the context of the writer: its transactions belong to many callers.
var unending = context.Background()

var errClosed = fmt.Errorf("%w: it is closed", idempotency.ErrUnavailable)

// change is what a caller wants from the writer.
type change struct {
	apply func(*writer) error // in the transaction; may be tried once only
	err   error
	done  chan struct{}
}

// submit has a change applied and waits for its commit. ctx ends the wait for a
// place in the queue only: what was written must not be unknown to the only one
// who goes on with it, and what apply uses stays its own until submit returns.
func (s *Store) submit(ctx context.Context, apply func(*writer) error) error {
	return s.send(ctx, s.queue, apply)
}

// send is submit by one of the queues.
func (s *Store) send(ctx context.Context, queue chan<- *change, apply func(*writer) error) error {
	if ctx.Err() != nil {
		return gaveUp(ctx)
	}
	c := &change{apply: apply, done: make(chan struct{})}
	select {
	case <-s.stop:
		return errClosed
	default:
	}
	select {
	case queue <- c:
	case <-s.ended:
		return errClosed
	case <-ctx.Done():
		return gaveUp(ctx)
	}
	return s.outcome(c)
}

// outcome waits for the end of a change that is queued.
func (s *Store) outcome(c *change) error {
	select {
	case <-c.done:
		return c.err
	case <-s.ended:
	}
	select {
	case <-c.done: // it was among the last
		return c.err
	default:
		return errClosed
	}
}

func gaveUp(ctx context.Context) error {
	return fmt.Errorf("%w: nobody waits: %w", idempotency.ErrUnavailable, context.Cause(ctx))
}

// writer is the only one that changes the file. All of it belongs to its
// goroutine.
type writer struct {
	store  *Store
	db     *sql.DB   // nil: to be opened again
	conn   *sql.Conn // its only connection
	stmts  map[string]*sql.Stmt
	tally  *tally
	cache  *simplelru.LRU[idempotency.ID, *row] // of calls that are not over
	broken error                                // what failed in this transaction
	ill    bool                                 // the last one failed
}

func newWriter(ctx context.Context, s *Store) (*writer, error) {
	cache, err := simplelru.NewLRU[idempotency.ID, *row](mostCached, nil)
	if err != nil {
		panic("bug: a cache without room")
	}
	w := &writer{store: s, cache: cache}
	if err := w.reconnect(ctx); err != nil {
		return nil, s.explained(err)
	}
	if w.tally, err = countAll(ctx, w.conn, s.bounds().Entries > 0); err != nil {
		w.disconnect()
		return nil, s.explained(err)
	}
	return w, nil
}

// run applies changes until the store is closed, and sweeps.
func (w *writer) run() {
	defer close(w.store.ended)
	round := time.NewTimer(sweepEvery)
	defer round.Stop()
	pause := sweepEvery
	soon := func() { // after a change
		if pause > sweepEvery {
			pause = sweepEvery
			round.Reset(pause)
		}
	}
	var due sweep
	for {
		select {
		case c := <-w.store.queue:
			w.together(c)
			soon()
		case c := <-w.store.notes:
			w.alone(c)
			soon()
		case now := <-round.C:
			due = sweep{now: now, rest: true}
			if pause = min(2*pause, sweepLast); w.ill {
				pause = sweepEvery // somebody waits for its recovery
			}
			round.Reset(pause)
		case <-due.more():
		case <-w.store.stop:
			w.last()
			return
		}
		if due.rest {
			due.rest = w.sweep(due.now)
		}
	}
}

// last applies what waits when the store is closed.
func (w *writer) last() {
	for {
		select {
		case c := <-w.store.queue:
			w.together(c)
		case c := <-w.store.notes:
			w.alone(c)
		default:
			return
		}
	}
}

// alone applies a change in a transaction that fails for nobody else.
func (w *writer) alone(c *change) {
	if err := w.transaction(func() { c.err = c.apply(w) }); err != nil {
		c.err = err
	}
	close(c.done)
}

// together applies a change and all that wait behind it in one transaction.
func (w *writer) together(first *change) {
	batch := append(make([]*change, 0, 64), first)
	err := w.transaction(func() {
		first.err = first.apply(w)
		for idle := 0; len(batch) < mostTogether && w.broken == nil; {
			select {
			case c := <-w.store.queue:
				batch = append(batch, c)
				c.err = c.apply(w)
			default:
				if idle++; idle > 1 {
					return
				}
				runtime.Gosched() // those who were just answered come back
			}
		}
	})
	for _, c := range batch {
		if err != nil {
			c.err = err
		}
		close(c.done)
	}
}

// transaction runs changes and commits them, or none of them.
func (w *writer) transaction(run func()) error {
	if w.db == nil {
		if err := w.reconnect(unending); err != nil {
			err = fmt.Errorf("%w: %w", idempotency.ErrUnavailable, err)
			w.health(err)
			return err
		}
	}
	w.broken = nil
	if w.exec("BEGIN IMMEDIATE") == nil {
		run()
	}
	if w.broken == nil {
		_ = w.exec("COMMIT") // broken says how it went
	}
	if w.broken != nil {
		w.undo()
		return w.broken
	}
	w.tally.keep()
	w.store.publish(w.tally.stats())
	w.health(nil)
	return nil
}

// undo leaves the file as the last commit did. After an error that is more than
// a want of room or a busy file nothing about the connection is sure.
func (w *writer) undo() {
	w.tally.undo()
	w.cache.Purge()
	if e, ok := errors.AsType[*sqlite.Error](w.broken); ok && (e.Code()&0xff == sqlite3.SQLITE_FULL || e.Code()&0xff == sqlite3.SQLITE_BUSY) {
		// SQLite may have rolled back itself, then this says that there is nothing.
		_, _ = w.conn.ExecContext(unending, "ROLLBACK")
	} else {
		w.disconnect()
	}
	w.health(w.broken)
}

// health tells the operator when the file can no longer be written, and when it
// can again.
func (w *writer) health(err error) {
	if ill := err != nil; ill != w.ill {
		w.ill = ill
		w.store.bounds().Log(map[bool]string{true: "store unavailable", false: "store available again"}[ill], "file", w.store.path, "error", err)
	}
}

// exec runs a statement of the transaction. Its first error ends all.
func (w *writer) exec(query string, args ...any) error {
	_, err := w.result(query, args...)
	return err
}

func (w *writer) result(query string, args ...any) (sql.Result, error) {
	st, err := w.prepared(query)
	if err != nil {
		return nil, w.fail(err)
	}
	res, err := st.ExecContext(unending, args...)
	if err != nil {
		return nil, w.fail(err)
	}
	return res, nil
}

// inserted runs an INSERT and gives the id of the new row; 0: there is none.
func (w *writer) inserted(query string, args ...any) (int64, error) {
	res, err := w.result(query, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	if err != nil || n == 0 {
		return 0, w.fail(err)
	}
	id, err := res.LastInsertId()
	return id, w.fail(err)
}

// fail ends the transaction with its first error.
func (w *writer) fail(err error) error {
	if err == nil {
		return nil
	}
	if w.broken == nil {
		w.broken = fmt.Errorf("%w: %w", idempotency.ErrUnavailable, err)
	}
	return w.broken
}

func (w *writer) prepared(query string) (*sql.Stmt, error) {
	if st := w.stmts[query]; st != nil {
		return st, nil
	}
	st, err := w.conn.PrepareContext(unending, query)
	if err == nil {
		w.stmts[query] = st
	}
	return st, err
}

func (w *writer) reconnect(ctx context.Context) error {
	db, err := w.store.connect(writing)
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		db.Close()
		return err
	}
	w.db, w.conn, w.stmts = db, conn, make(map[string]*sql.Stmt)
	return nil
}

// settle moves the log into the file and empties it: what was deleted is then in
// neither.
func (w *writer) settle() error {
	if w.db == nil {
		return nil
	}
	_, err := w.conn.ExecContext(unending, "PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}

// disconnect gives the connection back, and with it an open transaction.
func (w *writer) disconnect() {
	if w.db == nil {
		return
	}
	for _, st := range w.stmts {
		st.Close()
	}
	_ = w.conn.Close() // it may be gone already
	if err := w.db.Close(); err != nil {
		w.store.bounds().Log("store: a connection did not close", "error", err)
	}
	w.db, w.conn, w.stmts = nil, nil, nil
}

// find reads a row; nil when there is none.
func (w *writer) find(id idempotency.ID) (*row, error) {
	if r, ok := w.cache.Get(id); ok {
		return r, nil
	}
	st, err := w.prepared(selectOne)
	if err != nil {
		return nil, w.fail(err)
	}
	r, err := w.store.scanRow(st.QueryRowContext(unending, id.Tenant, id.Key))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, w.fail(err)
	}
	return r, nil
}
