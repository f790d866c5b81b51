package config

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// pollEvery is how often the file is looked at. Polling sees what watching
// misses: swapped symlinks (ConfigMaps), network file systems, replaced folders.
const pollEvery = 500 * time.Millisecond

// ErrEmpty is reported for a file without content: a save in place looks like
// that for a moment, and the defaults are hardly what was meant.
var ErrEmpty = errors.New("config: the file is empty; keeping what runs")

// ErrStopped is returned by Reload when the watcher has ended.
var ErrStopped = errors.New("config: no longer watching")

// File is the content of a configuration file at one moment.
type File struct {
	Data []byte
	// Stamp changes with every write, also with one that leaves the same content.
	Stamp time.Time
	// Beside is a digest of further files that it names; zero: it names none.
	Beside [sha256.Size]byte
}

// ReadFile reads the file behind all symlinks. A file that is written to
// meanwhile gets a Stamp that the next reading does not repeat.
func ReadFile(path string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return File{}, fmt.Errorf("config: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return File{}, fmt.Errorf("config: %w", err)
	}
	return File{Data: data, Stamp: info.ModTime()}, nil
}

// Watcher keeps what runs in line with a file. Read and Apply are required.
type Watcher struct {
	Read func() (File, error)
	// Apply builds what the content says and swaps it in, or fails and changes
	// nothing. It is called from Run's goroutine only.
	Apply func(data []byte) error
	// Report hears of every Apply (nil: it worked) and once of a file that
	// cannot be read. May be nil.
	Report func(err error)

	requests chan chan error
	stopped  chan struct{}

	handled [sha256.Size]byte // sum of what Apply saw last
	pending version           // seen by one poll, not yet by a second
	misses  int               // polls in a row that could not read the file
}

// version tells one write of the file from another.
type version struct {
	sum   [sha256.Size]byte
	stamp time.Time
}

// sum is of the content, and of what it names.
func (f *File) sum() [sha256.Size]byte {
	h := sha256.New()
	_, _ = h.Write(f.Beside[:]) // a hash never fails
	_, _ = h.Write(f.Data)
	return [sha256.Size]byte(h.Sum(nil))
}

// NewWatcher returns a watcher for a file that is applied as running is.
func NewWatcher(running File, read func() (File, error), apply func([]byte) error) *Watcher {
	return &Watcher{
		Read: read, Apply: apply,
		requests: make(chan chan error), stopped: make(chan struct{}),
		handled: running.sum(),
	}
}

// Run polls until ctx ends. Call it once.
func (w *Watcher) Run(ctx context.Context) error {
	defer close(w.stopped)
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case reply := <-w.requests:
			reply <- w.reload()
		case <-ticker.C:
			w.poll()
		}
	}
}

// Reload applies the file now, also when it did not change: SIGHUP and the API.
// The error says why it was not applied.
func (w *Watcher) Reload(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case w.requests <- reply:
		return <-reply
	case <-w.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// poll applies new content once two polls saw the same write of it. Content
// that was refused is not tried again until it changes.
func (w *Watcher) poll() {
	file, err := w.Read()
	if err != nil {
		w.miss(err)
		return
	}
	w.misses = 0
	seen := version{file.sum(), file.Stamp}
	switch {
	case seen.sum == w.handled:
		w.pending = version{}
	case seen != w.pending:
		w.pending = seen
	default:
		_ = w.apply(file) // reported
	}
}

// miss reports the second poll in a row that finds no file: one may fall into a
// swap. When the file is back it counts as new, so that its success is reported.
func (w *Watcher) miss(err error) {
	w.pending = version{}
	if w.misses++; w.misses == 2 {
		w.handled = [sha256.Size]byte{}
		w.report(err)
	}
}

func (w *Watcher) reload() error {
	file, err := w.Read()
	if err != nil {
		w.report(err)
		return err
	}
	return w.apply(file)
}

// apply hands the content on and remembers it, whatever comes of it.
func (w *Watcher) apply(file File) error {
	w.handled = file.sum()
	w.pending = version{}
	err := ErrEmpty
	if len(bytes.TrimSpace(file.Data)) > 0 {
		err = w.Apply(file.Data)
	}
	w.report(err)
	return err
}

func (w *Watcher) report(err error) {
	if w.Report != nil {
		w.Report(err)
	}
}
