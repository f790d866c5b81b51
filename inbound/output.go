package inbound

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"retryproxy/message"
)

// ErrClient says that the client is gone or takes nothing; what it was told is cut off.
var ErrClient = errors.New("inbound: the client does not take its answer")

// Buffers for what is written: heads with small contents, and large contents.
const (
	smallWrite = 8 << 10
	largeWrite = 32 << 10
	recordSize = 16 << 10 // of TLS
)

var (
	smallBuffers = sync.Pool{New: func() any { return new([smallWrite]byte) }}
	largeBuffers = sync.Pool{New: func() any { return new([largeWrite]byte) }}
)

// output is the sending side of a connection.
type output struct {
	raw    net.Conn
	slice  time.Duration // the write deadline in force was set that far ahead; 0: none is
	secure bool          // TLS: no write succeeds after one that ran into its deadline
	until  time.Time     // the deadline in force, of TLS
}

func newOutput(raw net.Conn) output {
	_, secure := raw.(*tls.Conn)
	return output{raw: raw, secure: secure}
}

// write writes all of p. A client that takes nothing for idle is given up
// (between idle and a quarter more, as the deadline is set only when one has
// gone by); idle 0 waits for ever.
func (o *output) write(p []byte, idle time.Duration) (done int, err error) {
	if o.secure {
		return o.writeSecure(p, idle)
	}
	if idle > 0 && (o.slice == 0 || idle/4 < o.slice) {
		o.setDeadline(idle / 4)
	}
	var stalled time.Time
	for {
		n, err := o.raw.Write(p[done:])
		done += n
		if err == nil {
			return done, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return done, fmt.Errorf("%w: %w", ErrClient, err)
		}
		now := time.Now()
		if n > 0 || stalled.IsZero() {
			stalled = now
		}
		if idle > 0 && now.Sub(stalled) >= idle {
			return done, fmt.Errorf("%w: nothing for %v", ErrClient, idle)
		}
		o.setDeadline(idle / 4)
	}
}

// writeSecure is write for TLS: a record at a time, each with a deadline that
// is far enough ahead.
func (o *output) writeSecure(p []byte, idle time.Duration) (done int, err error) {
	for done < len(p) {
		o.extend(idle)
		n, err := o.raw.Write(p[done:min(done+recordSize, len(p))])
		done += n
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return done, fmt.Errorf("%w: nothing for %v", ErrClient, idle)
		default:
			return done, fmt.Errorf("%w: %w", ErrClient, err)
		}
	}
	return done, nil
}

// extend keeps the deadline between idle and a quarter more ahead.
func (o *output) extend(idle time.Duration) {
	if idle <= 0 {
		if !o.until.IsZero() {
			o.until = time.Time{}
			o.setDeadline(0)
		}
		return
	}
	now := time.Now()
	if left := o.until.Sub(now); left < idle || left > idle+idle/4 {
		o.until = now.Add(idle + idle/4)
		o.setDeadline(idle + idle/4)
	}
}

func (o *output) setDeadline(ahead time.Duration) {
	var t time.Time
	if ahead > 0 {
		t = time.Now().Add(ahead)
	}
	o.slice = ahead
	_ = o.raw.SetWriteDeadline(t) // fails on a closed connection, where Write says so
}

// appendStatus appends a status line.
func appendStatus(b []byte, status int, reason string) []byte {
	if reason == "" {
		reason = phrase(status)
	}
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = appendClean(b, reason)
	return append(b, "\r\n"...)
}

func appendField(b []byte, name, value string) []byte {
	b = appendClean(b, name)
	b = append(b, ": "...)
	b = appendClean(b, value)
	return append(b, "\r\n"...)
}

// appendClean replaces what would end a line early by space (RFC 9110 section
// 5.5): whoever made the value, it must not become a second answer.
func appendClean(b []byte, s string) []byte {
	start := len(b)
	b = append(b, s...)
	if strings.IndexByte(s, '\n') < 0 && strings.IndexByte(s, '\r') < 0 && strings.IndexByte(s, 0) < 0 {
		return b
	}
	for i := start; i < len(b); i++ {
		if b[i] == '\r' || b[i] == '\n' || b[i] == 0 {
			b[i] = ' '
		}
	}
	return b
}

// appendFields appends the fields that do not frame the message: framing and
// the connection's life are decided here, whatever the fields say.
func appendFields(b []byte, fields message.Fields) []byte {
	for i := range fields {
		if name := fields[i].Name; !ownField(name) {
			b = appendField(b, name, fields[i].Value)
		}
	}
	return b
}

func ownField(name string) bool {
	switch len(name) {
	case len("Connection"):
		return strings.EqualFold(name, "Connection")
	case len("Content-Length"):
		return strings.EqualFold(name, "Content-Length")
	case len("Transfer-Encoding"):
		return strings.EqualFold(name, "Transfer-Encoding")
	}
	return false
}

// dateStamp is the text of Date for one second.
type dateStamp struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[dateStamp]

// httpDate formats now as an IMF-fixdate, once a second.
func httpDate(now time.Time) string {
	if d := lastDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &dateStamp{now.Unix(), now.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")}
	lastDate.Store(d)
	return d.text
}
