// Package spool answers one question: where do the bytes of a body wait?
//
// Small bodies stay in memory, larger ones go to a temporary file. Two totals
// bound what all bodies together may hold.
package spool

import (
	"errors"
	"io"
	"math"
	"sync/atomic"
)

// Errors of Fill. Any other error is the reader's own.
var (
	// ErrTooLarge: the body is longer than the limit. What was read is kept.
	ErrTooLarge = errors.New("spool: the body is over the limit")
	// ErrFull: there is no room here, or the file system failed (wrapped).
	ErrFull = errors.New("spool: no room to keep the body")
)

// Config bounds a Pool; sizes are in bytes.
type Config struct {
	Memory      int64  // of one body, above it goes to a file
	MemoryTotal int64  // of all bodies in memory; above it bodies go to files
	DiskTotal   int64  // of all bodies in files; above it Fill fails with ErrFull
	Dir         string // of the files; empty: the system's
}

// Pool keeps bodies. It is safe for concurrent use.
type Pool struct {
	cfg          Config
	memory, disk *budget
}

// New returns an empty pool.
func New(cfg Config) *Pool {
	return &Pool{cfg: cfg, memory: &budget{total: cfg.MemoryTotal}, disk: &budget{total: cfg.DiskTotal}}
}

// Sharing returns a pool that draws on the same totals but keeps at most memory
// bytes of one body in memory.
func (p *Pool) Sharing(memory int64) *Pool {
	shared := *p
	shared.cfg.Memory = memory
	return &shared
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

// budget is a bounded counter.
type budget struct {
	total int64
	used  atomic.Int64
}

// take reserves n bytes, all or none.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.total {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.used.Add(-n) }
