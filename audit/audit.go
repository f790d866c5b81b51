// Package audit answers one question: who changed what, and why?
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"
)

// Entry is one thing that somebody did, or was refused.
type Entry struct {
	At     time.Time `json:"at"`
	Name   string    `json:"name"` // -: nobody said
	Role   string    `json:"role"`
	Client string    `json:"client"` // address
	Action string    `json:"action"`
	Target string    `json:"target,omitempty"`
	Note   string    `json:"note,omitempty"`
	Result string    `json:"result"` // ok, or the reason why it did not work
}

// Bounds of a log.
const (
	kept      = 1000     // entries that are shown
	fileBytes = 8 << 20  // of a file, then the next one begins
	oldFiles  = 3        // that are kept beside it: .1 is the newest
	longest   = 64 << 10 // line that is read
)

// Log keeps entries: the latest in memory, all of them as lines of JSON in a file where
// there is one, and as lines of the process's own log. It is safe for concurrent use.
type Log struct {
	path string // of the file; empty: none
	out  *slog.Logger

	mu    sync.Mutex
	ring  []Entry // oldest first
	first int     // number of ring[0], counted from the start of the process
	file  *os.File
	size  int64
}

// Open opens a log. With a path its entries are read from that file and added to it.
// out gets a line for each.
func Open(path string, out *slog.Logger) (*Log, error) {
	l := &Log{path: path, out: out}
	if path == "" {
		return l, nil
	}
	for _, name := range []string{path + ".1", path} {
		if err := l.load(name); err != nil {
			return nil, err
		}
	}
	return l, l.begin()
}

// load reads the entries of a file. What a crash left of a last line is passed over.
func (l *Log) load(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		var e Entry
		if json.Unmarshal(lines.Bytes(), &e) == nil && !e.At.IsZero() {
			l.keepLocked(e)
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("audit log: %w", err)
	}
	return nil
}

// begin opens the file to be added to, on a line of its own.
func (l *Log) begin() error {
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("audit log: %w", err), f.Close())
	}
	l.file, l.size = f, info.Size()
	last := make([]byte, 1)
	if l.size > 0 {
		if _, err := f.ReadAt(last, l.size-1); err == nil && last[0] != '\n' {
			n, _ := f.Write([]byte{'\n'}) // else the next entry is lost with what the crash left
			l.size += int64(n)
		}
	}
	return nil
}

func (l *Log) keepLocked(e Entry) {
	l.ring = append(l.ring, e)
	if over := len(l.ring) - kept; over > 0 {
		l.ring = append(l.ring[:0], l.ring[over:]...)
		l.first += over
	}
}

// Add keeps an entry. A file that cannot be written is told in the log of the process.
func (l *Log) Add(e Entry) {
	l.out.Info("audit", "by", e.Name, "role", e.Role, "client", e.Client, "action", e.Action, "target", e.Target, "note", e.Note, "result", e.Result)
	line, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keepLocked(e)
	if l.file == nil || err != nil {
		return
	}
	if err := l.writeLocked(append(line, '\n')); err != nil {
		l.out.Error("the audit log cannot be written", "error", err.Error())
	}
}

// writeLocked adds a line, to the next file where this one is full.
func (l *Log) writeLocked(line []byte) error {
	if l.size+int64(len(line)) > fileBytes {
		if err := l.rotateLocked(); err != nil {
			return err
		}
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	return nil
}

// rotateLocked moves each file one place on, the oldest away, and begins a new one.
func (l *Log) rotateLocked() error {
	err := l.file.Close()
	for i := oldFiles; i > 0; i-- {
		from := l.path
		if i > 1 {
			from += "." + strconv.Itoa(i-1)
		}
		if e := os.Rename(from, l.path+"."+strconv.Itoa(i)); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, l.begin())
}

// ErrPlace is a place that is none.
var ErrPlace = errors.New("no place of this list")

// List gives the latest entries, the newest first, from a place on; next is where it goes
// on, empty: nowhere. Errors: ErrPlace.
func (l *Log) List(after string, limit int) (entries []Entry, next string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to := len(l.ring)
	if after != "" {
		n, err := strconv.Atoi(after)
		if err != nil || n < 0 {
			return nil, "", ErrPlace
		}
		to = min(max(n-l.first, 0), to)
	}
	from := max(to-limit, 0)
	entries = make([]Entry, 0, to-from)
	for i := to - 1; i >= from; i-- {
		entries = append(entries, l.ring[i])
	}
	if from > 0 {
		next = strconv.Itoa(l.first + from)
	}
	return entries, next, nil
}

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

var _ io.Closer = (*Log)(nil)
