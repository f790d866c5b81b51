package upstream

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// tap sits between the HTTP/2 client of the standard library and the TLS
// connection, and reads the frame headers that pass. That client hides what
// matters here: whether HEADERS went out, and whether the peer said that a
// stream was not processed (RFC 9113 sections 6.8 and 8.7).
type tap struct {
	net.Conn
	onClose func()
	closed  sync.Once
	heard   atomic.Int64 // unix nanoseconds of the last bytes read
	hello   chan bool    // gets whether the peer began with SETTINGS, once it is known

	mu      sync.Mutex
	out, in frames
	preface int              // bytes of ours still to come before the first frame
	newest  uint32           // highest stream whose HEADERS were written
	claimed uint32           // highest stream given to an attempt
	streams map[uint32]*seen // of attempts under way
	goaway  bool
	last    uint32 // highest stream the peer may process, once goaway
	lost    bool   // the connection has ended
	greeted bool   // hello was told
}

// seen is what passed for one stream. Its fields are guarded by tap.mu.
type seen struct {
	id       uint32
	bytes    int64 // of HEADERS
	unsent   bool  // the write failed before the first byte
	answered bool  // HEADERS came back
	reset    bool
	code     uint32 // of RST_STREAM
}

const (
	frameHeaders   = 0x1
	frameRSTStream = 0x3
	frameSettings  = 0x4
	frameGoaway    = 0x7
	refusedStream  = 0x7 // error code
)

func newTap(nc net.Conn, onClose func()) *tap {
	t := &tap{Conn: nc, onClose: onClose, hello: make(chan bool, 1), streams: map[uint32]*seen{}, preface: len(clientPreface)}
	t.heard.Store(time.Now().UnixNano())
	return t
}

const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

func (t *tap) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if n > 0 {
		t.heard.Store(time.Now().UnixNano())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.in.pass(p[:n], t.receivedLocked)
	if t.lost = t.lost || err != nil; t.lost {
		t.greetLocked(false)
	}
	return n, err
}

// Write registers the streams before their bytes leave: the answer may be
// faster than our return from the write.
func (t *tap) Write(p []byte) (int, error) {
	t.mu.Lock()
	before := t.newest
	skip := min(t.preface, len(p))
	t.preface -= skip
	t.out.pass(p[skip:], t.sentLocked)
	after := t.newest
	t.mu.Unlock()
	n, err := t.Conn.Write(p)
	if err != nil && n == 0 && after > before {
		t.mu.Lock()
		if s := t.streams[after]; s != nil {
			s.unsent = true
		}
		t.mu.Unlock()
	}
	return n, err
}

func (t *tap) Close() error {
	t.closed.Do(t.onClose)
	return t.Conn.Close()
}

// claim returns the stream whose HEADERS were written last, nil if they were
// claimed before. The client calls it, by the trace, under its write lock.
func (t *tap) claim() *seen {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.newest == t.claimed {
		return nil
	}
	t.claimed = t.newest
	return t.streams[t.newest]
}

// forget ends the watch on a stream.
func (t *tap) forget(s *seen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.streams, s.id)
}

// verdict is what the frames say about a stream.
type verdict struct {
	seen
	goaway bool // above the last stream that the peer may process
	lost   bool // the connection is gone
}

func (t *tap) verdict(s *seen) verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	return verdict{seen: *s, goaway: t.goaway && s.id > t.last, lost: t.lost}
}

// leaving says whether the peer takes no new streams.
func (t *tap) leaving() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.goaway
}

// silentSince says whether nothing was read after at.
func (t *tap) silentSince(at time.Time) bool { return t.heard.Load() < at.UnixNano() }

func (t *tap) sentLocked(f frame) {
	if f.kind == frameHeaders && f.stream > t.newest {
		t.newest = f.stream
		t.streams[f.stream] = &seen{id: f.stream, bytes: int64(frameHead + f.length)}
	}
}

// greetLocked tells, the first time, how the peer began.
func (t *tap) greetLocked(settings bool) {
	if !t.greeted {
		t.greeted = true
		t.hello <- settings
	}
}

func (t *tap) receivedLocked(f frame) {
	t.greetLocked(f.kind == frameSettings && f.stream == 0)
	s := t.streams[f.stream]
	switch {
	case f.kind == frameGoaway:
		// The payload starts with the last stream; it never rises again.
		if last := binary.BigEndian.Uint32(f.payload[:]) &^ (1 << 31); !t.goaway || last < t.last {
			t.goaway, t.last = true, last
		}
	case s == nil:
	case f.kind == frameHeaders:
		s.answered = true
	case f.kind == frameRSTStream:
		s.reset, s.code = true, binary.BigEndian.Uint32(f.payload[:])
	}
}

const frameHead = 9

// frame is a frame header with the first bytes of the payload.
type frame struct {
	length  int
	kind    byte
	stream  uint32
	payload [4]byte
}

// frames cuts a byte stream into frames and keeps only what frame holds.
type frames struct {
	head [frameHead + 4]byte
	have int // bytes of head
	need int // bytes of head that tell all: 9, then up to 4 of the payload
	skip int // rest of the payload
}

// pass reads p on and calls each for every frame as soon as it can be told.
func (f *frames) pass(p []byte, each func(frame)) {
	for len(p) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(p))
			f.skip, p = f.skip-n, p[n:]
			continue
		}
		f.need = max(f.need, frameHead)
		n := copy(f.head[f.have:f.need], p)
		f.have, p = f.have+n, p[n:]
		if f.have < f.need {
			return
		}
		length := int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
		if wanted := frameHead + min(length, 4); f.have < wanted && f.head[3] != frameHeaders {
			f.need = wanted
			continue
		}
		g := frame{length: length, kind: f.head[3], stream: binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31)}
		copy(g.payload[:], f.head[frameHead:f.have])
		f.skip = length - (f.have - frameHead)
		*f = frames{skip: f.skip}
		each(g)
	}
}
