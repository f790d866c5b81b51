package inbound

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"retryproxy/message"
)

// Errors of Call.Read. After any of them the connection ends with the answer.
var (
	// ErrBodyMalformed: the chunked framing is broken; a client error (400).
	ErrBodyMalformed = errors.New("inbound: the content is not framed by the rules")
	// ErrBodyShort: the connection ended before the content did; the client is gone.
	ErrBodyShort = errors.New("inbound: the content was cut off")
	// ErrBodyStalled: nothing came for BodyIdle.
	ErrBodyStalled = errors.New("inbound: the client sends nothing")
	// ErrBodyStopped: CloseRead was called, or the call is over.
	ErrBodyStopped = errors.New("inbound: the content is read no further")
)

const (
	maxChunkLine  = 256      // bytes of one chunk-size line
	maxExtensions = 16 << 10 // bytes of all chunk extensions of a message
)

// step is where the chunked framing stands.
type step uint8

const (
	atSize step = iota
	inData
	behindData
	inTrailers
)

// content reads what follows a head. Reading may go on in another goroutine
// than the handler's, so the lock is held over a read.
type content struct {
	mu       sync.Mutex
	in       *input
	chunked  bool
	at       step
	left     int64 // of a sized content, or of the chunk
	extra    int   // bytes of chunk extensions so far
	limit    int   // bytes of the trailer section
	trailers message.Fields
	err      error  // why reading ended, io.EOF at the end
	ended    func() // called once when all of it was read

	done atomic.Bool // all of it was read
	stop atomic.Bool // no more is wanted
}

// begin prepares for the content of a request: length bytes, or -1 for chunked.
func (b *content) begin(length int64, limit int) {
	b.chunked, b.at, b.left, b.extra = length < 0, atSize, max(length, 0), 0
	b.limit, b.trailers, b.err = limit, nil, nil
	b.done.Store(length == 0)
	b.stop.Store(false)
}

// read is Call.Read; idle 0 waits for ever.
func (b *content) read(p []byte, idle time.Duration) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.done.Load():
		return 0, io.EOF
	case b.err != nil:
		return 0, b.err
	case b.stop.Load():
		return 0, ErrBodyStopped
	case len(p) == 0:
		return 0, nil
	case b.chunked:
		n, err = b.readChunkedLocked(p, idle)
	default:
		n, err = b.readDataLocked(p, idle)
		if err == nil && b.left == 0 {
			err = io.EOF
		}
	}
	b.err = err
	if err == io.EOF {
		b.done.Store(true)
		b.ended() // under the lock: end waits for it
	}
	return n, err
}

// readDataLocked reads up to left bytes, large pieces without a detour.
func (b *content) readDataLocked(p []byte, idle time.Duration) (n int, err error) {
	p = p[:min(int64(len(p)), b.left)]
	if len(b.in.bytes()) == 0 && len(p) < readSize {
		err = b.moreLocked(readSize, idle)
	}
	if got := b.in.bytes(); len(got) > 0 {
		n = copy(p, got)
		b.in.take(n)
	} else if err == nil {
		n, err = b.in.read(p, until(idle))
		err = b.explain(err)
	}
	b.left -= int64(n)
	return n, err
}

func until(idle time.Duration) time.Time {
	if idle <= 0 {
		return time.Time{}
	}
	return time.Now().Add(idle)
}

func (b *content) moreLocked(limit int, idle time.Duration) error {
	return b.explain(b.in.more(limit, until(idle)))
}

// explain says what a failed read means for the content.
func (b *content) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case b.stop.Load():
		return ErrBodyStopped
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrBodyStalled
	case errors.Is(err, errFull):
		return ErrBodyMalformed
	}
	return fmt.Errorf("%w: %w", ErrBodyShort, err)
}

// readChunkedLocked walks the framing until there is data or an end.
func (b *content) readChunkedLocked(p []byte, idle time.Duration) (int, error) {
	for {
		var err error
		switch b.at {
		case atSize:
			err = b.sizeLocked(idle)
		case inData:
			n, err := b.readDataLocked(p, idle)
			if b.left == 0 {
				b.at = behindData
			}
			return n, err
		case behindData:
			err = b.dataEndLocked(idle)
		case inTrailers:
			if err = b.trailersLocked(idle); err == nil {
				err = io.EOF
			}
		}
		if err != nil {
			return 0, err
		}
	}
}

// lineLocked takes one line of at most limit bytes without its CRLF; it is
// valid until the next read. A bare LF is refused (RFC 9112 section 7.1).
func (b *content) lineLocked(limit int, idle time.Duration) ([]byte, error) {
	for {
		got := b.in.bytes()
		i := bytes.IndexByte(got[:min(len(got), limit+2)], '\n')
		if i == 0 || i > 0 && got[i-1] != '\r' || i < 0 && len(got) >= limit+2 {
			return nil, ErrBodyMalformed
		}
		if i > 0 {
			b.in.take(i + 1)
			return got[:i-1], nil
		}
		if err := b.moreLocked(max(limit+2, readSize), idle); err != nil {
			return nil, err
		}
	}
}

func (b *content) sizeLocked(idle time.Duration) error {
	line, err := b.lineLocked(maxChunkLine, idle)
	if err != nil {
		return err
	}
	size, extension, ok := parseChunkSize(line)
	b.extra += extension
	if !ok || b.extra > maxExtensions {
		return ErrBodyMalformed
	}
	b.left, b.at = size, inData
	if size == 0 {
		b.at = inTrailers
	}
	return nil
}

// parseChunkSize reads "hex" or "hex ;extension" and says how many bytes the
// extension has; extensions mean nothing to us.
func parseChunkSize(line []byte) (size int64, extension int, ok bool) {
	i := 0
	for ; i < len(line); i++ {
		d, isHex := unhex(line[i])
		if !isHex {
			break
		}
		if size >= 1<<58 {
			return 0, 0, false
		}
		size = size<<4 | int64(d)
	}
	rest := line[i:]
	for _, c := range rest {
		if classes[c]&inValue == 0 {
			return 0, 0, false
		}
	}
	trimmed := bytes.TrimLeft(rest, " \t")
	return size, len(rest), i > 0 && (len(rest) == 0 || len(trimmed) > 0 && trimmed[0] == ';')
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// dataEndLocked takes the CRLF behind the data of a chunk.
func (b *content) dataEndLocked(idle time.Duration) error {
	line, err := b.lineLocked(0, idle)
	if err == nil && len(line) > 0 {
		err = ErrBodyMalformed
	}
	b.at = atSize
	return err
}

// trailersLocked reads the trailer section up to its empty line.
func (b *content) trailersLocked(idle time.Duration) error {
	for {
		line, err := b.lineLocked(b.limit, idle)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			return nil
		}
		b.limit -= len(line) + 2
		field, fault := parseField(string(line))
		if fault != nil || b.limit < 0 || len(b.trailers) == maxFields || framesMessage(field.Name) {
			return ErrBodyMalformed
		}
		b.trailers = append(b.trailers, field)
	}
}

// framesMessage names the fields that must not stand in a trailer section
// because they would change how the message is read (RFC 9110 section 6.5.1).
func framesMessage(name string) bool {
	return foldUnderscore(name, "Content-Length") || foldUnderscore(name, "Transfer-Encoding") ||
		strings.EqualFold(name, "Host") || strings.EqualFold(name, "Connection")
}

// rest says how many bytes are left, -1: unknown, or somebody is reading them.
func (b *content) rest() int64 {
	if b.done.Load() {
		return 0
	}
	if !b.mu.TryLock() {
		return -1
	}
	defer b.mu.Unlock()
	if b.chunked || b.err != nil || b.stop.Load() {
		return -1
	}
	return b.left
}

// end stops a read in progress and waits for it.
func (b *content) end() {
	b.stop.Store(true)
	if !b.mu.TryLock() {
		b.in.halt()
		b.mu.Lock()
		b.in.resume()
	}
	b.mu.Unlock()
}
