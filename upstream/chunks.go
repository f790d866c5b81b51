package upstream

import (
	"bytes"
	"io"

	"retryproxy/message"
)

const (
	longestChunkLine = 4 << 10
	// freeOverhead is how many bytes more than 16 + the data per chunk a peer may
	// spend on framing before we call it an attack.
	freeOverhead = 16 << 10
)

// chunks reads a chunked body (RFC 9112 section 7.1).
type chunks struct {
	limit    int   // of the trailers, in bytes
	left     int64 // of the chunk
	begun    bool  // a size line was read, its chunk's end was not
	ended    bool
	overhead int64 // framing beyond what is normal
	trailers message.Fields
}

// read returns data, and io.EOF once the trailers were read as well.
func (c *chunks) read(cn *conn, p []byte) (int, error) {
	for c.left == 0 {
		if err := c.next(cn); err != nil {
			return 0, err
		}
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := cn.readThrough(p)
	c.left -= int64(n)
	if err == nil && c.left == 0 && endIsHere(cn) {
		return n, c.next(cn)
	}
	return n, shortOf(err)
}

// lastChunk is how most bodies end.
const lastChunk = "\r\n0\r\n\r\n"

// endIsHere says whether the end of the body is in the buffer, so that the last
// data and io.EOF can be told together.
func endIsHere(cn *conn) bool {
	b := cn.in.unread()
	return len(b) >= len(lastChunk) && string(b[:len(lastChunk)]) == lastChunk
}

// next ends a chunk and begins the next, or ends the body with io.EOF.
func (c *chunks) next(cn *conn) error {
	if c.ended {
		return io.EOF
	}
	if c.begun {
		if err := c.endChunk(cn); err != nil {
			return err
		}
	}
	line, err := chunkLineOf(cn)
	if err != nil {
		return err
	}
	size, ok := chunkSize(line)
	if !ok {
		return malformed("chunk size")
	}
	if c.overhead = max(0, c.overhead+int64(len(line))-16-size); c.overhead > freeOverhead {
		return malformed("too much chunk framing")
	}
	cn.in.skip(len(line))
	if size == 0 {
		return c.end(cn)
	}
	c.left, c.begun = size, true
	return nil
}

func (c *chunks) endChunk(cn *conn) error {
	for len(cn.in.unread()) < 2 {
		if err := cn.more(readSize); err != nil {
			return err
		}
	}
	if string(cn.in.unread()[:2]) != "\r\n" {
		return malformed("chunk longer than its size")
	}
	cn.in.skip(2)
	c.begun = false
	return nil
}

// more is fill, for when the body must not end.
func (cn *conn) more(limit int) error {
	err := cn.fill(limit)
	if err == errFull {
		return malformed("line too long")
	}
	return shortOf(err)
}

// chunkLineOf returns the next line with its end, which must be CRLF; it stays
// in the buffer.
func chunkLineOf(cn *conn) ([]byte, error) {
	for {
		b := cn.in.unread()
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			if i == 0 || i > longestChunkLine || bytes.IndexByte(b[:i], '\r') != i-1 {
				return nil, malformed("chunk line")
			}
			return b[:i+1], nil
		}
		if len(b) > longestChunkLine {
			return nil, malformed("chunk line")
		}
		if err := cn.more(readSize); err != nil {
			return nil, err
		}
	}
}

// chunkSize reads the size; extensions are ignored.
func chunkSize(line []byte) (size int64, ok bool) {
	line = line[:len(line)-2]
	if i := bytes.IndexByte(line, ';'); i >= 0 {
		line = line[:i]
	}
	line = bytes.TrimRight(line, " \t") // RFC 9112 section 7.1.1, BWS
	if len(line) == 0 || len(line) > 15 {
		return 0, false
	}
	for _, d := range line {
		switch {
		case '0' <= d && d <= '9':
			d -= '0'
		case 'a' <= d|0x20 && d|0x20 <= 'f':
			d = d | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		size = size<<4 | int64(d)
	}
	return size, true
}

// end reads the trailers. Fields that frame or route a message have no business
// there (RFC 9110 section 6.5.1) and are dropped.
func (c *chunks) end(cn *conn) error {
	from, lines, end := 0, 0, 0
	for {
		if end, from, lines = headEnd(cn.in.unread(), from, lines); end > 0 {
			break
		}
		if len(cn.in.unread()) > c.limit {
			return malformed("trailers too long")
		}
		if err := cn.more(c.limit); err != nil {
			return err
		}
	}
	text := string(cn.in.unread()[:end])
	for line, rest := cutLine(text); line != ""; line, rest = cutLine(rest) {
		f, ok := parseField(line)
		if !ok {
			return malformed("trailer")
		}
		if !ownField(f.Name) {
			c.trailers = append(c.trailers, f)
		}
	}
	cn.in.skip(end)
	c.ended = true
	return io.EOF
}
