package sqlite

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// The redo log has the changes of rows that the database does not have yet. A frame
// is what was acknowledged together. Two files take turns: what is carried over is
// written to the other one before the rest is in the database.

const (
	redoMagic  = "rpR3"   // the last byte is the format
	redoFirst  = '1'      // the oldest format that is still read
	redoHeader = 32       // magic, flags, id of the database, number, length, checksum
	redoAlign  = 8        // frames begin at multiples of it
	redoLarge  = 16 << 20 // a file that grew beyond it is cut when it is used again
)

// redoSynced is the flag of frames that were synced before they were acknowledged.
const redoSynced = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// redoLog is written by the writer alone.
type redoLog struct {
	path    string // of the files, but the last character
	id      uint64 // of the database
	synced  bool   // before anything is acknowledged
	files   [2]redoFile
	at      int    // which is written
	number  uint64 // of the last frame
	applied uint64 // up to this one all is in the database

	sync     func(*os.File) error // what a file holds
	syncName func() error         // that a file is in its directory
}

type redoFile struct {
	*os.File        // nil: not opened yet
	end      int64  // where the next frame goes
	last     uint64 // number of the last frame in it
}

// frame is one that was read.
type frame struct {
	format  byte
	synced  bool
	id      uint64
	number  uint64
	payload []byte
}

func newRedoLog(path string, mark redoMark, durability string) *redoLog {
	l := &redoLog{path: path + ".redo", id: mark.id, synced: durability != Process, number: mark.applied, applied: mark.applied, sync: syncData}
	l.syncName = l.syncDirectory
	return l
}

// name is the name of a file.
func (l *redoLog) name(i int) string { return l.path + strconv.Itoa(i+1) }

// newFrame is an empty frame, to which a payload is appended.
func newFrame(buf []byte) []byte { return append(buf[:0], make([]byte, redoHeader)...) }

// seal fills in the header of a frame. The number is the one behind the last.
func (l *redoLog) seal(f []byte) []byte {
	size := len(f) - redoHeader
	f = append(f, make([]byte, -len(f)&(redoAlign-1))...)
	copy(f, redoMagic)
	f[4] = 0
	if l.synced {
		f[4] = redoSynced
	}
	binary.LittleEndian.PutUint64(f[8:], l.id)
	binary.LittleEndian.PutUint64(f[16:], l.number+1)
	binary.LittleEndian.PutUint32(f[24:], uint32(size))
	binary.LittleEndian.PutUint32(f[28:], checksum(f))
	return f
}

// checksum is that of a frame whose length is filled in.
func checksum(f []byte) uint32 {
	return crc32.Update(crc32.Checksum(f[:28], castagnoli), castagnoli, f[redoHeader:])
}

// write appends a frame. When it fails, what there is of the frame may be found by the
// next process all the same: its number is used up, and nothing may be written before
// all up to it is settled.
func (l *redoLog) write(f []byte) error { return l.writeTo(l.at, f) }

func (l *redoLog) writeTo(i int, f []byte) error {
	file := &l.files[i]
	if err := l.open(i); err != nil {
		return err
	}
	f = l.seal(f)
	l.number++
	_, err := file.WriteAt(f, file.end)
	if err == nil && l.synced {
		err = l.sync(file.File)
	}
	if err != nil {
		_ = file.Truncate(file.end) // whoever waits for it is told that it failed
		return err
	}
	file.end += int64(len(f))
	file.last = l.number
	return nil
}

// open opens a file. One that may be gone after a loss of power is not used.
func (l *redoLog) open(i int) error {
	if l.files[i].File != nil {
		return nil
	}
	f, err := os.OpenFile(l.name(i), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := l.syncName(); err != nil {
		f.Close()
		return err
	}
	l.files[i].File = f
	return nil
}

// syncDirectory makes sure that a new file is found after a loss of power. Windows
// has no such thing.
func (l *redoLog) syncDirectory() error {
	if !l.synced || runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(filepath.Dir(l.path))
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		return nil // of this file system; SQLite does without it as well
	}
	return err
}

// carry writes a frame to the other file, which is the one that is written from then
// on. It says false when the other one is still needed.
func (l *redoLog) carry(f []byte) (bool, error) {
	other := 1 - l.at
	if l.files[other].last > l.applied {
		return false, nil
	}
	if err := l.writeTo(other, f); err != nil {
		return false, err
	}
	l.at = other
	return true, nil
}

// settle says that all frames up to one are in the database. Files without others
// are used from their beginning.
func (l *redoLog) settle(applied uint64) {
	l.applied, l.number = applied, max(l.number, applied)
	for i := range l.files {
		f := &l.files[i]
		if f.File == nil || f.last > applied {
			continue
		}
		if f.end > redoLarge {
			_ = f.Truncate(0) // it only takes room
		}
		f.end = 0
	}
}

// close closes the files.
func (l *redoLog) close() {
	for i := range l.files {
		if l.files[i].File != nil {
			l.files[i].Close()
			l.files[i] = redoFile{}
		}
	}
}

// remove deletes the files, when all that they have is in the database.
func (l *redoLog) remove() error {
	l.close()
	var err error
	for i := range l.files {
		if e := os.Remove(l.name(i)); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// Errors of read.
var (
	errRedo     = errors.New("the redo log")
	errUnsynced = errors.New("it was not synced") // so that a loss of power explains it
)

// fault is what is wrong with a log in which this frame comes too late.
func fault(f *frame, text string, args ...any) error {
	err := fmt.Errorf("%w "+text, append([]any{errRedo}, args...)...)
	if !f.synced {
		err = fmt.Errorf("%w (%w)", err, errUnsynced)
	}
	return err
}

// read gives the frames that the database does not have, in their order. What was
// torn when the process ended was not acknowledged, and is left out. A fault before
// that is an errRedo, beside the frames that come before it.
func (l *redoLog) read() (found []frame, err error) {
	var faults error
	for i := range l.files {
		text, err := os.ReadFile(l.name(i))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		frames, err := l.parse(text, l.name(i))
		found, faults = append(found, frames...), errors.Join(faults, err)
	}
	found = slices.DeleteFunc(found, func(f frame) bool { return f.number <= l.applied })
	slices.SortFunc(found, func(a, b frame) int { return cmp.Compare(a.number, b.number) })
	for i := range found {
		if f, want := &found[i], l.number+1; f.number != want {
			return found[:i], cmp.Or(faults, fault(f, "%s1 and …2 goes on with change %d, the database and what comes before end with %d", l.path, f.number, want-1))
		}
		l.number++
	}
	return found, faults
}

// parse reads a file to the end of what was written last: behind it is what an
// earlier turn left.
func (l *redoLog) parse(text []byte, name string) (found []frame, err error) {
	if f, size := frameAt(text); size > 0 {
		if err := l.own(&f); err != nil {
			return nil, fmt.Errorf("%w %s: %w", errRedo, name, err)
		}
	}
	var last uint64
	at := 0
	for {
		f, size := l.laterAt(text[at:], last)
		if size == 0 {
			break
		}
		found, last = append(found, f), f.number
		at += size
	}
	last = max(last, l.applied)
	for behind := at; behind < len(text); behind += redoAlign {
		if f, size := l.laterAt(text[behind:], last); size > 0 {
			return found, fault(&f, "%s is damaged at byte %d", name, at)
		}
	}
	return found, nil
}

// laterAt is frameAt for frames of this log with a number behind last. An earlier turn
// leaves parts of requests and answers: what these have that looks like a frame is none,
// as nobody who sends them knows the id.
func (l *redoLog) laterAt(text []byte, last uint64) (f frame, size int) {
	if len(text) < redoHeader || binary.LittleEndian.Uint64(text[8:]) != l.id || binary.LittleEndian.Uint64(text[16:]) <= last {
		return f, 0
	}
	if f, size = frameAt(text); l.own(&f) != nil {
		return f, 0
	}
	return f, size
}

// own says whether a frame is of this program and of this database.
func (l *redoLog) own(f *frame) error {
	switch {
	case f.format < redoFirst || f.format > redoMagic[3]:
		return fmt.Errorf("it has format %q, written by a newer retryproxy", f.format)
	case f.id != l.id:
		return fmt.Errorf("it belongs to another database, %016x, not to this one, %016x", f.id, l.id)
	}
	return nil
}

// frameAt reads a frame; size 0: there is none.
func frameAt(text []byte) (f frame, size int) {
	if len(text) < redoHeader || string(text[:3]) != redoMagic[:3] {
		return f, 0
	}
	n := int(binary.LittleEndian.Uint32(text[24:]))
	size = redoHeader + n + -n&(redoAlign-1)
	if n < 0 || size > len(text) || checksum(text[:size]) != binary.LittleEndian.Uint32(text[28:]) {
		return f, 0
	}
	return frame{
		format: text[3], synced: text[4]&redoSynced != 0, id: binary.LittleEndian.Uint64(text[8:]),
		number: binary.LittleEndian.Uint64(text[16:]), payload: text[redoHeader : redoHeader+n],
	}, size
}

// setAside keeps what read could not use for whoever wants to look.
func (l *redoLog) setAside() error {
	var err error
	for i := range l.files {
		if e := os.Rename(l.name(i), l.name(i)+".bad"); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

const (
	selectRedo = "SELECT value FROM meta WHERE name = 'redo'"
	noteRedo   = "UPDATE meta SET value = ? WHERE name = 'redo'"
)

// redoMark is the row of meta that says what the database has of the log.
type redoMark struct {
	id      uint64
	applied uint64
}

func (m redoMark) String() string { return fmt.Sprintf("%016x %d", m.id, m.applied) }

func parseRedoMark(text string) (m redoMark, err error) {
	id, applied, _ := strings.Cut(text, " ")
	if m.id, err = strconv.ParseUint(id, 16, 64); err == nil {
		m.applied, err = strconv.ParseUint(applied, 10, 64)
	}
	return m, err
}
