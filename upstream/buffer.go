package upstream

import "sync"

// Sizes of the buffers. A request that fits with its content in writeSize goes
// out in one write.
const (
	readSize  = 8 << 10
	writeSize = 16 << 10
)

var (
	readBuffers  = sync.Pool{New: func() any { return new([readSize]byte) }}
	writeBuffers = sync.Pool{New: func() any { return new([writeSize]byte) }}
)

// buffer holds the bytes that were received and not used yet. Its memory is
// pooled and held only while there are any.
type buffer struct {
	b      []byte
	r, w   int             // b[r:w] is unread
	pooled *[readSize]byte // what b is, unless it had to grow
}

// unread are the bytes not used yet; valid until the buffer changes.
func (b *buffer) unread() []byte { return b.b[b.r:b.w] }

// skip marks n bytes as used.
func (b *buffer) skip(n int) { b.r += n }

// empty says whether all bytes were used.
func (b *buffer) empty() bool { return b.r == b.w }

// take makes sure that there is memory.
func (b *buffer) take() {
	if b.b == nil {
		b.pooled = readBuffers.Get().(*[readSize]byte)
		b.b = b.pooled[:]
	}
}

// give returns the memory; what is unread is lost.
func (b *buffer) give() {
	if b.pooled != nil {
		readBuffers.Put(b.pooled)
	}
	*b = buffer{}
}

// space is where the next bytes go.
func (b *buffer) space() []byte { return b.b[b.w:] }

// room makes space for more bytes: at the front if some were used, else by
// growing up to limit bytes. It fails when the unread bytes fill that.
func (b *buffer) room(limit int) bool {
	b.take()
	if b.empty() {
		b.r, b.w = 0, 0
	}
	if b.w < len(b.b) {
		return true
	}
	if b.r > 0 {
		b.w = copy(b.b, b.unread())
		b.r = 0
		return true
	}
	if len(b.b) >= limit {
		return false
	}
	grown := make([]byte, min(2*len(b.b), limit))
	kept := copy(grown, b.unread())
	b.give()
	b.b, b.w = grown, kept
	return true
}
