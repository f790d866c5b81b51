package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"
)

// conn is one HTTP/1.1 connection. One attempt at a time has it.
type conn struct {
	client *Client
	parked parked // its place in the pool while idle
	host   *host
	raw    net.Conn // the TCP connection below nc
	broken bool     // an attempt failed on it
	nc     net.Conn
	sock   *socket // of the TCP connection below; nil: it has no descriptor
	bare   bool    // nc is that TCP connection, with no TLS or proxy in between
	remote netip.AddrPort
	used   bool      // served an attempt before
	epoch  int       // of the pool, when it was opened
	still  chan bool // while idle without sock: how listen ended

	in   buffer
	ctx  context.Context // of the attempt that has the connection
	idle time.Duration   // how long a read may wait; 0: as the deadline says
	hold time.Time       // reads of the body pause then; zero: they do not
	cut  func()          // interrupt, made once
	stop func() bool     // ends the watch on ctx; nil: ctx cannot end
}

// at names the other end for people.
func (cn *conn) at() string { return cn.parked.target.at(cn.remote) }

// longAgo as a deadline makes reads and writes fail at once.
var longAgo = time.Unix(1, 0)

// newConn takes over what was opened.
func newConn(c *Client, t *Target, o *opened) *conn {
	cn := &conn{client: c, nc: o.nc, raw: o.raw, sock: socketOf(o.raw), bare: o.nc == o.raw, remote: o.remote, ctx: context.Background()}
	cn.parked = parked{target: *t, conn: cn}
	cn.cut = cn.interrupt
	c.live.Add(1)
	c.pool.register(cn)
	return cn
}

// interrupt makes the read and the write in progress fail.
func (cn *conn) interrupt() { _ = cn.nc.SetDeadline(longAgo) }

// begin ties the connection to an attempt.
func (cn *conn) begin(ctx context.Context) {
	cn.ctx, cn.idle, cn.hold = ctx, 0, time.Time{}
	if ctx.Done() != nil {
		cn.stop = context.AfterFunc(ctx, cn.cut)
	}
}

// end unties it; false: an interrupt is under way and may strike later.
func (cn *conn) end() bool {
	clean := cn.stop == nil || cn.stop()
	cn.stop, cn.ctx, cn.idle = nil, context.Background(), 0
	return clean
}

// readBy and writeBy set a deadline, zero for none. They look at ctx
// afterwards: an interrupt in between would have been overwritten.
func (cn *conn) readBy(t time.Time) error {
	if err := cn.nc.SetReadDeadline(t); err != nil {
		return err
	}
	return cn.ctx.Err()
}

func (cn *conn) writeBy(t time.Time) error {
	if err := cn.nc.SetWriteDeadline(t); err != nil {
		return err
	}
	return cn.ctx.Err()
}

// wait starts the time that a read of the body may take.
func (cn *conn) wait() error {
	end := cn.hold
	if cn.idle != 0 {
		end = time.Now().Add(cn.idle)
		if !cn.hold.IsZero() && cn.hold.Before(end) {
			end = cn.hold
		}
	}
	if end.IsZero() {
		return nil
	}
	return cn.readBy(end)
}

// read reads past the buffer, which is empty.
func (cn *conn) read(p []byte) (int, error) {
	if err := cn.wait(); err != nil {
		return 0, err
	}
	n, err := cn.nc.Read(p)
	if n > 0 {
		err = nil // comes again
	}
	return n, err
}

var errFull = errors.New("over the limit")

// fill reads at least one byte into the buffer, which may grow to limit.
func (cn *conn) fill(limit int) error {
	if cn.in.empty() && cn.sock != nil && cn.bare {
		cn.in.give()
		if err := cn.wait(); err != nil {
			return err
		}
		return cn.sock.fill(&cn.in)
	}
	if !cn.in.room(limit) {
		return errFull
	}
	n, err := cn.read(cn.in.space())
	cn.in.w += n
	return err
}

// state of an idle connection.
type state uint8

const (
	dead    state = iota // closed by the peer, or it sent something unasked
	unknown              // nothing has come so far, but what lies below cannot be seen
	alive
)

// look finds out without waiting.
func (cn *conn) look() state {
	switch {
	case cn.sock == nil && cn.heardNothing():
		return unknown
	case cn.sock == nil, !cn.bare && !cn.quiet():
		return dead
	case cn.sock.silent():
		return alive
	}
	return dead
}

// listen starts the read that stands in for a look where there is no descriptor:
// it goes on while the connection is idle and ends with look or close. A second
// answer that nobody asked for would else be taken for the next one.
func (cn *conn) listen() {
	if cn.sock != nil || cn.nc.SetReadDeadline(noDeadline) != nil {
		return
	}
	still := make(chan bool, 1)
	cn.still = still
	go func() {
		var probe [1]byte
		n, err := cn.nc.Read(probe[:])
		still <- n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
	}()
}

// heardNothing stops listen and says whether it was in vain.
func (cn *conn) heardNothing() bool {
	return cn.still != nil && cn.nc.SetReadDeadline(longAgo) == nil && <-cn.still
}

// quiet looks into what lies above the socket: TLS, which may have read an alert
// together with the end of the last answer, or bytes that a proxy sent early. The
// deadline keeps it from reading on.
func (cn *conn) quiet() bool {
	var probe [1]byte
	if err := cn.nc.SetReadDeadline(longAgo); err != nil {
		return false
	}
	_, err := cn.nc.Read(probe[:])
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// release gives the connection back after an attempt.
func (cn *conn) release(reuse bool) {
	if !cn.end() || !cn.in.empty() {
		reuse = false
	}
	cn.used = true
	cn.in.give()
	if !reuse {
		cn.close()
		return
	}
	cn.listen()
	cn.client.pool.keep(cn)
}

// close closes for good. A broken connection is closed below TLS, whose goodbye
// would wait up to five seconds for a peer that takes nothing.
func (cn *conn) close() {
	if cn.broken {
		_ = cn.raw.Close()
	} else {
		_ = cn.nc.Close()
	}
	cn.client.live.Add(-1)
	cn.client.pool.unregister(cn)
}
