// Package spool answers one question: where do the bytes of a body wait?
//
// Small bodies stay in memory, larger ones go to a temporary file. Two totals
// bound what all bodies together may hold.
package spool

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
)

// Errors of Fill. Any other error is the reader's own.
var (
	// ErrTooLarge: the body is longer than the limit. What was read is kept.
	ErrTooLarge = errors.New("spool: the body is over the limit")
	// ErrFull: the total on disk is used up, or the file system failed; which
	// of them is wrapped and in the text.
	ErrFull = errors.New("no room to keep the body")
)

var errDiskTotal = fmt.Errorf("%w: all of the total on disk is in use", ErrFull)

// Config bounds a Pool; sizes are in bytes.
type Config struct {
	Memory      int64  // of one body, above it goes to a file
	MemoryTotal int64  // of all bodies in memory; above it bodies go to files
	DiskTotal   int64  // of all bodies in files; above it Fill fails with ErrFull
	Dir         string // of the files; empty: the system's
}

// Pool keeps bodies. It is safe for concurrent use.
type Pool struct {
	cfg          *atomic.Pointer[Config] // shared, as the budgets are
	own          int64                   // bytes of one body in memory, over cfg's; 0: as cfg says
	memory, disk *budget
}

// New returns an empty pool.
func New(cfg Config) *Pool {
	p := &Pool{cfg: new(atomic.Pointer[Config]), memory: new(budget), disk: new(budget)}
	p.Configure(cfg)
	return p
}

// Configure changes the bounds for what comes from now on; bodies that are
// there stay, also those beyond a smaller total.
func (p *Pool) Configure(cfg Config) {
	p.memory.total.Store(cfg.MemoryTotal)
	p.disk.total.Store(cfg.DiskTotal)
	p.cfg.Store(&cfg)
}

// Sharing returns a pool that draws on the same totals but keeps at most memory
// bytes of one body in memory.
func (p *Pool) Sharing(memory int64) *Pool {
	return &Pool{cfg: p.cfg, own: memory, memory: p.memory, disk: p.disk}
}

// inMemory is how much of one body may be kept in memory.
func (p *Pool) inMemory() int64 {
	if p.own > 0 {
		return p.own
	}
	return p.cfg.Load().Memory
}

// Usage is how many bytes all bodies hold at the moment.
func (p *Pool) Usage() (memory, disk int64) { return p.memory.used.Load(), p.disk.used.Load() }

// Fill reads a body to its end. With declared >= 0 it reads exactly so many
// bytes, fewer are io.ErrUnexpectedEOF; -1 reads to io.EOF.
//
// On ErrTooLarge the buffer holds what was read so far, which is nothing when
// the declared length alone was too much, so that the caller can send it and
// the rest of r. The caller closes the buffer; on other errors there is none.
func (p *Pool) Fill(r io.Reader, declared, limit int64) (*Buffer, error) {
	limit = min(max(limit, 0), math.MaxInt64-1)
	b := &Buffer{pool: p}
	if declared > limit {
		return b, ErrTooLarge
	}
	most := declared
	if declared < 0 {
		most = limit + 1 // one more tells that it is too much
	}
	if err := b.fill(r, declared, most); err != nil {
		b.Close()
		return nil, err
	}
	if b.size > limit {
		return b, ErrTooLarge
	}
	return b, nil
}

// Holds says whether an empty pool would take a body of this size. One that it
// would not waits for room in vain.
func (p *Pool) Holds(size int64) bool {
	return size <= p.disk.total.Load() || size <= min(p.inMemory(), p.memory.total.Load())
}

// budget is a bounded counter.
type budget struct {
	total, used atomic.Int64
}

// take reserves n bytes, all or none.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.total.Load() {
		b.used.Add(-n)
		return false
	}
	return true
}

// free is how much take would give at most.
func (b *budget) free() int64 { return b.total.Load() - b.used.Load() }

func (b *budget) give(n int64) { b.used.Add(-n) }
