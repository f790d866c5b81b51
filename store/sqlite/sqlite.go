// Package sqlite answers one question: what is known about a call after this process is gone?
//
// It is the idempotency.Store in one SQLite file. One goroutine writes: it takes
// all changes that wait, decides them, writes what they make of records to a redo
// log, and answers, so that many callers share one sync of the disk. The database
// follows soon after, with the last state of each record.
// docs/store.md describes the files for people.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite" // and the driver

	"retryproxy/idempotency"
	"retryproxy/internal/seal"
)

// File is the name of the database in its directory.
const File = "retryproxy.db"

// What Durability may be.
const (
	Full    = "full"    // what was acknowledged survives a loss of power
	Process = "process" // it survives the end of the process, at any instant, but the last moments not a loss of power
)

// Config says where a store is and what bounds it. config checks the values.
type Config struct {
	Path        string        // directory; made when it does not exist
	Durability  string        // Full or Process; empty is Full
	Entries     int           // rows at most, no tenant more than half; 0: no bound
	Bytes       int64         // of all stored answers: fields and bodies; 0: no bound
	MaxResponse int           // of one stored body; a larger one leaves a marker
	TTL         time.Duration // for claims that come without one
	Keep        time.Duration // how long after its last change a record stays to be read, expired or not; and a call after its end
	Calls       int           // of the history at most, the newest; 0: no bound
	Keys        *seal.Keys    // seal what was sent and answered; nil: it is kept in the clear
	// Log is told what an operator should know; nil: nobody is.
	Log func(msg string, args ...any)
}

// Store keeps records in a file. The context of Begin and Advance bounds the wait
// for a place in the writer's queue: when it ends there, nothing was changed and
// the error is ErrUnavailable with the context's. From then on both wait until it is
// kept and report what came of it, whatever becomes of the context.
type Store struct {
	path    string // of the file
	config  atomic.Pointer[Config]
	lock    *os.File
	reader  *sql.DB
	read    reads
	queue   chan *change
	notes   chan *change // of the history
	noted   atomic.Int64 // number of the call that was noted last
	blocks  sync.Pool    // of *block, to be filled again
	finder  *sql.DB      // looks into it
	writer  *writer
	overlay overlay
	stop    chan struct{} // closed: the writer is to end
	ended   chan struct{} // closed: it has
	closing sync.Once
	closed  error // of Close

	mu    sync.Mutex
	stats idempotency.Stats // as of the last commit
}

var _ idempotency.Store = (*Store)(nil)

// mostQueued is how many changes may wait for the writer.
const mostQueued = 4096

// Open opens the store in a directory, or makes one. It fails, with a line for
// the operator, when another process has it, when the file is damaged, and when
// it was written by a newer version; in none of these cases is it changed.
func Open(ctx context.Context, c Config) (*Store, error) {
	return open(ctx, c, migrations)
}

func open(ctx context.Context, c Config, steps []migration) (_ *Store, err error) {
	if err := os.MkdirAll(c.Path, 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s := &Store{
		path:    filepath.Join(c.Path, File),
		overlay: overlay{rows: make(map[idempotency.ID]*row)},
		queue:   make(chan *change, mostQueued), notes: make(chan *change), stop: make(chan struct{}), ended: make(chan struct{}),
		blocks: sync.Pool{New: func() any { return new(block) }},
	}
	s.setConfig(c)
	// fdatasync is enough: it covers the size of a file. Where there is none,
	// SQLite does what the system offers.
	_, _ = sqlite.Fdatasync(true)
	if s.lock, err = lock(s.path + ".lock"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.release()
		}
	}()
	if err := s.prepareFile(ctx, steps); err != nil {
		return nil, err
	}
	if err := s.with(writing, func(db *sql.DB) error { return s.acceptKeys(ctx, db) }); err != nil {
		return nil, s.explained(err)
	}
	if err := s.openReader(ctx); err != nil {
		return nil, err
	}
	if s.writer, err = newWriter(ctx, s); err != nil {
		return nil, err
	}
	s.publish(s.writer.tally.stats())
	go s.writer.run()
	return s, nil
}

// Configure changes the bounds; path, durability and keys stay. What no longer fits
// is evicted by the next changes and sweeps, the oldest first.
func (s *Store) Configure(c Config, _ time.Time) {
	old := s.bounds()
	c.Path, c.Durability, c.Keys, c.Log = old.Path, old.Durability, old.Keys, old.Log
	s.setConfig(c)
}

func (s *Store) setConfig(c Config) {
	if c.Durability == "" {
		c.Durability = Full
	}
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	s.config.Store(&c)
}

func (s *Store) bounds() *Config { return s.config.Load() }

// Close implements idempotency.Store. What waits for the writer is done first.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.stop)
		<-s.ended
		s.closed = errors.Join(s.writer.end(), s.release())
	})
	return s.closed
}

// release closes the files and gives the lock to others.
func (s *Store) release() error {
	var err error
	if s.reader != nil {
		s.read.close()
		err = s.reader.Close()
	}
	if s.finder != nil {
		err = errors.Join(err, s.finder.Close())
	}
	if s.writer != nil {
		s.writer.disconnect()
		s.writer.redo.close()
	}
	s.lock.Close()
	if err != nil {
		return fmt.Errorf("store: close: %w", err)
	}
	return nil
}

// Durable implements idempotency.Store.
func (s *Store) Durable() bool { return true }

// Stats implements idempotency.Store. Expired records count until they are swept.
func (s *Store) Stats() idempotency.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// publish keeps what Stats shows; the map in it is not written to again.
func (s *Store) publish(st idempotency.Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats = st
}
