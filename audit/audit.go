// Package audit answers one question: who changed what, and why?
package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"retryproxy/internal/logfile"
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
	kept      = 1000    // entries that are shown
	fileBytes = 8 << 20 // of a file, then the next one begins
	oldFiles  = 3       // that are kept beside it: .1 is the newest
	tailBytes = 2 << 20 // of a file that are read at the start
)

// Log keeps entries: the latest in memory, all of them as lines of JSON in a file where
// there is one, and as lines of the process's own log. It is safe for concurrent use.
type Log struct {
	out  *slog.Logger
	file *logfile.File // nil: none

	mu    sync.Mutex // of ring, and that file and ring have the same order
	ring  []Entry    // oldest first
	first int        // number of ring[0], counted from the start of the process
}

// Open opens a log. With a path its entries are read from that file and added to it.
// out gets a line for each.
func Open(path string, out *slog.Logger) (*Log, error) {
	l := &Log{out: out}
	if path == "" {
		return l, nil
	}
	for _, name := range []string{path + ".1", path} {
		if err := l.load(name); err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
	}
	l.ring = slices.Clone(l.ring[max(len(l.ring)-kept, 0):])
	file, err := logfile.Open(logfile.Config{
		Name: "audit log", Path: path, Max: fileBytes, Keep: oldFiles, Mode: 0o600, Spare: unwritten{out},
	})
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	l.file = file
	return l, nil
}

// load reads the latest entries of a file. What a crash left of a line is passed over.
func (l *Log) load(name string) error {
	text, err := tail(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for line := range bytes.Lines(text) {
		var e Entry
		if json.Unmarshal(line, &e) == nil && !e.At.IsZero() {
			l.ring = append(l.ring, e)
		}
	}
	return err
}

// tail is the end of a file.
func tail(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(info.Size()-tailBytes, 0)
	return io.ReadAll(io.NewSectionReader(f, from, tailBytes))
}

// unwritten tells what cannot be written to the file.
type unwritten struct{ out *slog.Logger }

// Write implements io.Writer.
func (u unwritten) Write(line []byte) (int, error) {
	u.out.Error("the audit log cannot be written", "line", strings.TrimSpace(string(line)))
	return len(line), nil
}

func (l *Log) keepLocked(e Entry) {
	l.ring = append(l.ring, e)
	if over := len(l.ring) - kept; over > 0 {
		l.ring = append(l.ring[:0], l.ring[over:]...)
		l.first += over
	}
}

// Add keeps an entry. What cannot be written to the file is told in the log of the process.
func (l *Log) Add(e Entry) {
	l.out.Info("audit", "by", e.Name, "role", e.Role, "client", e.Client, "action", e.Action, "target", e.Target, "note", e.Note, "result", e.Result)
	line, err := json.Marshal(e)
	if err != nil {
		l.out.Error("the audit log cannot be written", "error", err.Error())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keepLocked(e)
	if l.file != nil && err == nil {
		_, _ = l.file.Write(append(line, '\n')) // the spare never fails
	}
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
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

var _ io.Closer = (*Log)(nil)
