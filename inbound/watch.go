package inbound

import (
	"errors"
	"os"
	"sync"
	"time"
)

// watchAfter is how long a call runs before somebody looks whether its client
// is still there. Most calls are over by then and pay next to nothing.
const watchAfter = 25 * time.Millisecond

// watch notices that the client leaves while its call waits. One timer per
// connection goes off at most every watchAfter, however many calls there are;
// its goroutine reads one byte when it finds a call that is old enough.
type watch struct {
	conn *conn

	mu      sync.Mutex
	still   sync.Cond // reading has become false
	timer   *time.Timer
	armed   bool // the timer will go off
	on      bool // a call wants to be watched
	since   time.Time
	reading bool
}

// start watches a call that runs since then.
func (w *watch) start(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on, w.since = true, since
	if w.armed || w.reading {
		return
	}
	w.armed = true
	if w.timer == nil {
		w.still.L = &w.mu
		w.timer = time.AfterFunc(watchAfter, w.look)
		return
	}
	w.timer.Reset(watchAfter)
}

// look runs in the timer's goroutine. While a call is watched the connection's
// goroutine leaves the input alone.
func (w *watch) look() {
	if !w.claim() {
		return
	}
	in := &w.conn.in
	n, err := w.conn.raw.Read(in.late[:])
	w.mu.Lock()
	in.hasLate = n > 0
	gone := n == 0 && err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	w.reading = false
	w.still.Broadcast()
	w.mu.Unlock()
	if gone {
		w.conn.leftAt.Store(time.Now().UnixNano())
		w.conn.cancel()
	}
}

// claim says whether to read now; a call that is too young is looked at again.
func (w *watch) claim() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	in := &w.conn.in
	w.armed = false
	if !w.on || in.hasLate {
		return false
	}
	if wait := watchAfter - time.Since(w.since); wait > 0 {
		w.armed = true
		w.timer.Reset(wait)
		return false
	}
	if !in.pending() {
		in.release()
	}
	if !in.deadline.IsZero() || in.stale {
		in.setDeadline(time.Time{})
	}
	w.reading = true
	return true
}

// stop ends the watching; afterwards the input is the caller's.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = false
	if !w.reading {
		return
	}
	w.conn.in.halt()
	for w.reading {
		w.still.Wait()
	}
	w.conn.in.resume()
}

// end is stop for the last time.
func (w *watch) end() {
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}
