// Package logfile answers one question: into which file does a line of the log go, and when does a new one begin?
//
// A file that is full becomes NAME.1, what was NAME.1 becomes NAME.2, and so on to the
// number that is kept. So all of them together are bounded.
package logfile

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
)

// Config says where lines go.
type Config struct {
	Name  string      // what messages call it
	Path  string      // of the file that is written; its folder must be there
	Max   int64       // bytes of a file; a line is never cut for it
	Keep  int         // full files that stay, the newest
	Mode  os.FileMode // of a new file
	Spare io.Writer   // gets the lines that cannot be written to the file, such as on a full disk
}

// File is a log file that rotates. It is safe for concurrent use.
type File struct {
	conf Config

	mu     sync.Mutex
	file   *os.File // nil: it could not be opened again
	size   int64
	retry  int64 // size at which to try again after a rotation that failed
	failed bool  // the last line went to the spare
	torn   bool  // the file ends within a line, which a full disk or a crash cut
}

// Open opens the file, to be gone on with.
func Open(c Config) (*File, error) {
	l := &File{conf: c}
	return l, l.openLocked()
}

// Write writes one line whole into one file. It only fails when the spare does as well.
func (l *File) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.writeLocked(line)
	if err == nil {
		l.failed = false
		return len(line), nil
	}
	if !l.failed {
		l.failed = true
		fmt.Fprintf(l.conf.Spare, "retryproxy: %s: %v; until it can be written again its lines are here\n", l.conf.Name, err)
	}
	return l.conf.Spare.Write(line)
}

func (l *File) writeLocked(line []byte) error {
	if l.file == nil {
		if err := l.openLocked(); err != nil {
			return err
		}
	}
	if l.size > 0 && l.size+int64(len(line)) > max(l.conf.Max, l.retry) {
		if err := l.rotateLocked(); err != nil {
			return err
		}
	}
	if l.torn {
		n, err := l.file.Write([]byte{'\n'})
		if l.size += int64(n); err != nil {
			return err
		}
		l.torn = false
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	l.torn = err != nil && n > 0
	return err
}

func (l *File) openLocked() error {
	file, err := os.OpenFile(l.conf.Path, os.O_APPEND|os.O_CREATE|os.O_RDWR, l.conf.Mode)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return err
	}
	l.file, l.size = file, info.Size()
	last := []byte{'\n'}
	if _, err := file.ReadAt(last, max(l.size-1, 0)); err == nil || l.size == 0 {
		l.torn = last[0] != '\n'
	}
	return nil
}

// rotateLocked begins a new file. It closes the old one first, since Windows renames
// no open file. Where another program holds it so that it cannot be renamed, it is
// gone on with and tried again an eighth later, and at twice its size emptied: better
// lines lost than a disk full.
func (l *File) rotateLocked() error {
	_ = l.file.Close()
	l.file = nil
	moved := l.shift()
	if err := l.openLocked(); err != nil {
		return err
	}
	switch {
	case moved == nil:
		l.retry = 0
	case l.size < 2*l.conf.Max:
		l.retry = l.size + l.conf.Max/8
	default:
		if err := l.file.Truncate(0); err != nil {
			return err
		}
		l.size, l.retry, l.torn = 0, 0, false
	}
	return nil
}

// shift frees NAME. Only the files before the first gap move, so that trying again
// after a failure loses none.
func (l *File) shift() error {
	if l.conf.Keep == 0 {
		return os.Remove(l.conf.Path)
	}
	free := 1
	for ; free < l.conf.Keep; free++ {
		if _, err := os.Lstat(l.numbered(free)); os.IsNotExist(err) {
			break
		}
	}
	for ; free > 0; free-- {
		if err := os.Rename(l.numbered(free-1), l.numbered(free)); err != nil { // what is there gives way
			return err
		}
	}
	return nil
}

// numbered is the name of the nth file, 0 the one that is written.
func (l *File) numbered(n int) string {
	if n == 0 {
		return l.conf.Path
	}
	return l.conf.Path + "." + strconv.Itoa(n)
}

// Close ends it; a line that comes later opens it again.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	file := l.file
	l.file = nil
	return file.Close()
}
