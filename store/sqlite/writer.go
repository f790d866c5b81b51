package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
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
	apply  func(*writer) error // tried again, in a transaction, when it says errDirect
	direct bool                // it needs the database, and that has to be where the log is
	err    error
	done   chan struct{}
}

// errDirect says that a change cannot be made in the redo log alone. Nothing of it
// was made.
var errDirect = errors.New("bug: a change that was not made in a transaction")

// submit has a change applied and waits until it is kept. ctx ends the wait for a
// place in the queue only: what was written must not be unknown to the only one
// who goes on with it, and what apply uses stays its own until submit returns.
func (s *Store) submit(ctx context.Context, apply func(*writer) error) error {
	return s.enqueue(ctx, s.queue, &change{apply: apply})
}

// direct is submit for what reads or writes the database itself.
func (s *Store) direct(ctx context.Context, apply func(*writer) error) error {
	return s.enqueue(ctx, s.queue, &change{apply: apply, direct: true})
}

// settled brings the database to where the redo log is now.
func (s *Store) settled(ctx context.Context) error {
	if s.overlay.size() == 0 {
		return nil
	}
	return s.direct(ctx, func(*writer) error { return nil })
}

// send is submit by one of the queues.
func (s *Store) send(ctx context.Context, queue chan<- *change, apply func(*writer) error) error {
	return s.enqueue(ctx, queue, &change{apply: apply})
}

func (s *Store) enqueue(ctx context.Context, queue chan<- *change, c *change) error {
	if ctx.Err() != nil {
		return gaveUp(ctx)
	}
	c.done = make(chan struct{})
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

// writer is the only one that changes the files. All of it belongs to its
// goroutine.
type writer struct {
	store           *Store
	db              *sql.DB   // nil: to be opened again
	conn            *sql.Conn // its only connection
	stmts           map[string]*sql.Stmt
	raws            map[string]driver.StmtExecContext // of the same connection
	values, answers values                            // room for those of statements
	waiting         []*row                            // new ones that are inserted together
	tally           *tally
	cache           *simplelru.LRU[idempotency.ID, *row] // of calls that are not over, as the database has them
	within          bool                                 // a transaction for changes is open
	broken          error                                // what failed in this transaction
	ill             bool                                 // the last one failed
	behind          bool                                 // it could not be brought to where the log is

	known      *known // keys of rows; nil: not read yet
	learning   *known // what is to take its place; nil: nothing
	redo       *redoLog
	logless    bool                    // it cannot be written
	frame      []byte                  // of the changes that are staged
	staged     []*row                  // what they make of rows
	stagedAs   map[idempotency.ID]*row // the last of each
	ahead      []*row                  // what the overlay has, and what came before it, in the order of changes
	pending    int                     // bytes of them
	settling   *time.Timer             // when the database is brought to where the log is
	lastRecord int64                   // id of a row
	lastAnswer int64
}

func newWriter(ctx context.Context, s *Store) (*writer, error) {
	cache, err := simplelru.NewLRU[idempotency.ID, *row](mostCached, nil)
	if err != nil {
		panic("bug: a cache without room")
	}
	w := &writer{store: s, cache: cache, values: make(values, 0, severalRows*40), answers: make(values, 0, severalRows*5), stagedAs: make(map[idempotency.ID]*row), frame: newFrame(nil)}
	w.settling = time.NewTimer(settleEvery)
	w.tally = &tally{states: make(map[idempotency.State]int)} // until all are counted
	if err := w.reconnect(ctx); err != nil {
		return nil, s.explained(err)
	}
	if err := w.recover(ctx); err != nil {
		w.disconnect()
		return nil, s.explained(err)
	}
	return w, nil
}

// recover brings the database to where an earlier process left the redo log, and
// counts what is there.
func (w *writer) recover(ctx context.Context) error {
	var text string
	if err := w.conn.QueryRowContext(ctx, selectRedo).Scan(&text); err != nil {
		return fmt.Errorf("the row redo of meta: %w", err)
	}
	mark, err := parseRedoMark(text)
	if err != nil {
		return fmt.Errorf("the row redo of meta says %q: %w", text, err)
	}
	if err := w.conn.QueryRowContext(ctx, lastIDs).Scan(&w.lastRecord, &w.lastAnswer); err != nil {
		return err
	}
	w.redo = newRedoLog(w.store.path, mark, w.store.bounds().Durability)
	if err := w.replay(); err != nil {
		return err
	}
	if w.tally, err = countAll(ctx, w.conn, w.store.bounds().Entries > 0); err == nil {
		w.learn()
	}
	return err
}

// run applies changes until the store is closed, and sweeps.
func (w *writer) run() {
	defer close(w.store.ended)
	round := time.NewTimer(sweepEvery)
	defer round.Stop()
	defer w.settling.Stop()
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
		case <-w.settling.C:
			if len(w.ahead) > 0 {
				_ = w.settleMost() // health says how it went, and the next sweep tries again
			}
		case <-w.learnt():
			w.learnSome()
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

// together applies a change and all that wait behind it, and answers when the redo
// log has them.
func (w *writer) together(first *change) {
	if w.ill && w.failing(first) {
		return
	}
	batch := make([]*change, 0, 64)
	next := first
	for ; next != nil && w.apply(next); next = w.next(len(batch)) {
		batch = append(batch, next)
	}
	answer(batch, w.publish())
	if w.broken != nil {
		w.undo()
	}
	if next != nil {
		w.directly(next)
	}
	if len(w.ahead) >= mostAhead || w.pending >= mostPending {
		_ = w.settleMost() // health says how it went
	}
}

// apply applies a change where the redo log is enough for it.
func (w *writer) apply(c *change) bool {
	if c.direct {
		return false
	}
	c.err = c.apply(w)
	return !errors.Is(c.err, errDirect)
}

// next is one more change for a batch of n; nil: that is all.
func (w *writer) next(n int) *change {
	for idle := 0; n < mostTogether && len(w.frame) < mostPending && w.broken == nil; idle++ {
		select {
		case c := <-w.store.queue:
			return c
		default:
			if idle > 0 {
				return nil
			}
			runtime.Gosched() // those who were just answered come back
		}
	}
	return nil
}

// answer tells callers how it went; err: nothing of it was kept.
func answer(batch []*change, err error) {
	for _, c := range batch {
		if err != nil {
			c.err = err
		}
		close(c.done)
	}
}

// failing tries whether the database can be written again. If not, nobody who waits
// is kept waiting.
func (w *writer) failing(first *change) bool {
	err := w.settleAll()
	if err == nil {
		return false
	}
	batch := []*change{first}
	for len(batch) < mostTogether {
		select {
		case c := <-w.store.queue:
			batch = append(batch, c)
			continue
		default:
		}
		break
	}
	answer(batch, err)
	return true
}

// directly applies a change, and all that wait behind it, in one transaction.
func (w *writer) directly(first *change) {
	if err := w.settleAll(); err != nil {
		answer([]*change{first}, err)
		return
	}
	batch := append(make([]*change, 0, 64), first) // it is answered also when nothing can be begun
	err := w.transaction(func() {
		w.within = true
		defer func() { w.within = false }()
		first.err = first.apply(w)
		for c := w.next(len(batch)); c != nil; c = w.next(len(batch)) {
			batch = append(batch, c)
			c.err = c.apply(w)
		}
	})
	answer(batch, err)
}

// transaction runs changes and commits them, or none of them.
func (w *writer) transaction(run func()) error {
	if err := w.connected(); err != nil {
		err = fmt.Errorf("%w: %w", idempotency.ErrUnavailable, err)
		w.health(err)
		return err
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
	if !w.behind { // else a small one that succeeds says little
		w.health(nil)
	}
	return nil
}

// undo leaves the file as the last commit did. After an error that is more than
// a want of room or a busy file nothing about the connection is sure.
func (w *writer) undo() {
	w.tally.undo()
	w.waiting = w.waiting[:0]
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

// raw is exec without what database/sql does for each value, and says how many rows
// were changed.
func (w *writer) raw(query string, args values) (rows int64, err error) {
	if w.broken != nil {
		return 0, w.broken
	}
	err = w.conn.Raw(func(c any) error {
		st := w.raws[query]
		if st == nil {
			made, err := c.(driver.Conn).Prepare(query)
			if err != nil {
				return err
			}
			st = made.(driver.StmtExecContext)
			w.raws[query] = st
		}
		res, err := st.ExecContext(unending, args)
		if err != nil {
			return err
		}
		rows, err = res.RowsAffected()
		return err
	})
	return rows, w.fail(err)
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

// connected sees to it that there is a connection.
func (w *writer) connected() error {
	if w.db != nil {
		return nil
	}
	return w.reconnect(unending)
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
	w.db, w.conn, w.stmts, w.raws = db, conn, make(map[string]*sql.Stmt), make(map[string]driver.StmtExecContext)
	return nil
}

// end moves all logs into the database and removes them: what was deleted is then in
// none.
func (w *writer) end() error {
	if err := w.settleAll(); err != nil {
		w.redo.close()
		return err
	}
	err := w.redo.remove()
	if w.db == nil {
		return err
	}
	_, e := w.conn.ExecContext(unending, "PRAGMA wal_checkpoint(TRUNCATE)")
	return errors.Join(err, e)
}

// disconnect gives the connection back, and with it an open transaction.
func (w *writer) disconnect() {
	if w.db == nil {
		return
	}
	for _, st := range w.stmts {
		st.Close()
	}
	for _, st := range w.raws { // one that is left would keep the connection, and its locks
		_ = st.(driver.Stmt).Close()
	}
	_ = w.conn.Close() // it may be gone already
	if err := w.db.Close(); err != nil {
		w.store.bounds().Log("store: a connection did not close", "error", err)
	}
	w.db, w.conn, w.stmts, w.raws = nil, nil, nil, nil
}

// find reads a row; nil when there is none.
func (w *writer) find(id idempotency.ID) (*row, error) {
	if r, ok := w.stagedAs[id]; ok {
		return r, nil
	}
	if r, ok := w.store.overlay.rows[id]; ok {
		return r, nil
	}
	if r, ok := w.cache.Get(id); ok {
		return r, nil
	}
	if w.isNew(id) {
		return nil, nil
	}
	if err := w.connected(); err != nil {
		return nil, w.fail(err)
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
