package spool

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"

	"retryproxy/message"
)

// What a body gets in memory at first; it doubles as bytes come. A client that
// announces much and sends nothing takes no more than exactRoom.
const (
	firstRoom = 4 << 10  // of unknown length
	exactRoom = 64 << 10 // up to this a declared one gets one exact piece
)

// chunks are for copying into files.
var chunks = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// Buffer is one body that was read completely, or to its limit. It is a
// message.Body that can be opened any number of times, also at once.
type Buffer struct {
	pool     *Pool
	size     int64
	trailers message.Fields

	mu     sync.Mutex // guards what follows once Fill is done
	mem    []byte     // as long as file is nil
	file   *os.File
	name   string // of a file that could not be unlinked while open
	onDisk int64  // reserved
	inMem  int64  // reserved
	closed bool
}

// Len is the number of bytes kept.
func (b *Buffer) Len() int64 { return b.size }

// Bytes gives the content when it is in memory. It must not be written to.
func (b *Buffer) Bytes() ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mem, b.file == nil
}

// Open returns a reader at the first byte. It fails with os.ErrClosed after Close.
func (b *Buffer) Open() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, fmt.Errorf("spool: open: %w", os.ErrClosed)
	case b.file == nil:
		r := new(memReader)
		r.Reset(b.mem)
		return r, nil
	}
	return fileReader{io.NewSectionReader(b.file, 0, b.size)}, nil
}

// Body makes the buffer the content of a request, with the trailers that came
// after it.
func (b *Buffer) Body(trailers message.Fields) message.Body {
	b.trailers = trailers
	return b
}

// Trailers are what Body was given.
func (b *Buffer) Trailers() message.Fields { return b.trailers }

// Close gives up the content; it may be called again. A reader still open reads
// on from memory, from a file it fails.
func (b *Buffer) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed, b.mem = true, nil
	defer b.freeLocked()
	if b.file == nil {
		return nil
	}
	err := b.file.Close()
	if b.name != "" {
		err = os.Remove(b.name)
	}
	if err != nil {
		return fmt.Errorf("spool: close: %w", err)
	}
	return nil
}

// freeLocked gives the reservations back.
func (b *Buffer) freeLocked() {
	b.pool.memory.give(b.inMem)
	b.pool.disk.give(b.onDisk)
	b.inMem, b.onDisk = 0, 0
}

// fill reads most bytes or to the end of r, whichever comes first.
func (b *Buffer) fill(r io.Reader, declared, most int64) error {
	ended, err := b.fillMemory(r, declared, most)
	if !ended && err == nil {
		err = b.fillFile(r, declared, most)
	}
	if err == nil && b.size < declared {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fillMemory reads as far as memory is allowed. ended says that there is no more.
func (b *Buffer) fillMemory(r io.Reader, declared, most int64) (ended bool, err error) {
	room := int64(firstRoom)
	if declared >= 0 {
		room = min(declared, exactRoom)
	}
	memory := b.pool.inMemory()
	for ; b.size < most; room *= 2 {
		if declared > memory || !b.grow(min(room, most, memory)) {
			return false, nil
		}
		n, err := readFull(r, b.mem[b.size:cap(b.mem)])
		b.size += int64(n)
		b.mem = b.mem[:b.size]
		if err != nil {
			return true, atEnd(err)
		}
	}
	return true, nil
}

// grow makes the piece in memory room bytes large. It fails when that is no
// more than it was, or more than all bodies together may have.
func (b *Buffer) grow(room int64) bool {
	more := room - int64(cap(b.mem))
	if more <= 0 || !b.pool.memory.take(more) {
		return false
	}
	b.inMem += more
	grown := make([]byte, len(b.mem), room)
	copy(grown, b.mem)
	b.mem = grown
	return true
}

// fillFile moves what is in memory to a file and reads on into that. A body that
// would not fit now is refused unread; room is taken only as its bytes come.
func (b *Buffer) fillFile(r io.Reader, declared, most int64) error {
	if declared > b.pool.disk.free() {
		return errDiskTotal
	}
	if err := b.moveToFile(); err != nil {
		return err
	}
	chunk := chunks.Get().(*[64 << 10]byte)
	defer chunks.Put(chunk)
	for b.size < most {
		n, err := r.Read(chunk[:min(int64(len(chunk)), most-b.size)])
		if err := b.write(chunk[:n]); err != nil {
			return err
		}
		b.size += int64(n)
		if err != nil {
			return atEnd(err)
		}
	}
	return nil
}

// moveToFile creates the file and gives the memory back.
func (b *Buffer) moveToFile() error {
	file, err := os.CreateTemp(b.pool.cfg.Load().Dir, "retryproxy-body-*") // mode 0600
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	b.file = file
	if os.Remove(file.Name()) != nil { // Windows keeps open files
		b.name = file.Name()
	}
	held := b.mem
	b.size = 0
	if err := b.write(held); err != nil {
		return err
	}
	b.size = int64(len(held))
	b.pool.memory.give(b.inMem)
	b.mem, b.inMem = nil, 0
	return nil
}

// write appends to the file.
func (b *Buffer) write(part []byte) error {
	if err := b.reserve(b.size + int64(len(part))); err != nil {
		return err
	}
	if _, err := b.file.Write(part); err != nil {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return nil
}

// reserve makes sure that size bytes on disk are ours.
func (b *Buffer) reserve(size int64) error {
	more := size - b.onDisk
	if more <= 0 {
		return nil
	}
	if !b.pool.disk.take(more) {
		return errDiskTotal
	}
	b.onDisk += more
	return nil
}

// readFull reads until part is full or r has no more. Unlike io.ReadFull it
// gives r's own errors, so that a body cut short is not taken for its end.
func readFull(r io.Reader, part []byte) (n int, err error) {
	for n < len(part) && err == nil {
		var m int
		m, err = r.Read(part[n:])
		n += m
	}
	return n, err
}

// atEnd is nil at the end of the body.
func atEnd(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// memReader and fileReader have nothing to close: the buffer owns the content.
type memReader struct{ bytes.Reader }

func (*memReader) Close() error { return nil }

type fileReader struct{ *io.SectionReader }

func (fileReader) Close() error { return nil }
