package proxy

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"retryproxy/message"
)

const (
	sniffBytes = 8 << 10                // longest request line looked for
	sniffFor   = 300 * time.Millisecond // a line that does not end in time is no request
)

// splice answers a CONNECT whose dial succeeded and joins both sides. Plain
// HTTP in the tunnel goes down the full path instead: several clients send
// CONNECT host:80 for http targets.
func (x *exchange) splice(up net.Conn) {
	x.release()
	blind := x.accepted != nil // its first bytes were looked at
	if !x.acceptConnect() {
		up.Close()
		return
	}
	began := time.Now()
	defer func() { x.away += time.Since(began) }()
	t := &tunnel{client: x.accepted, up: up, idle: x.set.TunnelIdle}
	if !blind && x.hops[x.hop].target.Port != 443 {
		if head := t.sniff(); head != nil {
			up.Close()
			x.serveInside(&prefixed{Conn: t.client, head: head}, "http", nil)
			return
		}
	}
	x.opaque()
	x.outcome.bytes = t.join()
	if x.trace != nil {
		x.trace.Up = t.sent
	}
}

// acceptConnect answers a CONNECT unless that was done; false: the client is gone.
func (x *exchange) acceptConnect() bool {
	if x.accepted != nil {
		return true
	}
	client, err := x.call.AcceptConnect(message.Fields{{Name: hCallID, Value: x.id}})
	if err != nil {
		x.outcome.decision = stop("client_gone")
		return false
	}
	x.accepted, x.outcome.status = client, 200
	return true
}

// opaque counts a tunnel that we cannot look into, and says so once per host.
func (x *exchange) opaque() {
	host := x.hops[x.hop].host
	if hook := x.p.Hooks.Tunnel; hook != nil {
		hook(host)
	}
	if x.p.hosts.first("tunnel " + host) {
		x.p.Log.Info("opaque tunnel: retries cover only the connection; for full retries call http:// with upgrade_to_https, use a route, or list it under intercept", "host", host)
	}
}

// prefixed is a connection that was already read from: its first bytes, and the
// error that came with them.
type prefixed struct {
	net.Conn
	head []byte
	err  error
}

// Read gives the first bytes, then the connection's own.
func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.head) > 0 {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	if p.err != nil {
		return 0, p.err
	}
	return p.Conn.Read(b)
}

// Buffered says whether Read has something besides what the connection gives.
func (p *prefixed) Buffered() bool { return len(p.head) > 0 || p.err != nil }

// NetConn is the connection underneath, so that it can be reset.
func (p *prefixed) NetConn() net.Conn { return p.Conn }

// CloseWrite passes a half-close on.
func (p *prefixed) CloseWrite() error { return closeWrite(p.Conn) }

// tunnel joins a client and an upstream connection.
type tunnel struct {
	client, up net.Conn
	idle       time.Duration

	mu    sync.Mutex // orders the deadlines of client while it is looked at
	spoke bool       // the server spoke first, or left
	sent  int64      // bytes that went to the server, once both sides ended

	moved atomic.Int64 // when something last went either way, Unix nanoseconds
}

// longAgo is a deadline that ends a read in progress.
var longAgo = time.Unix(1, 0)

// sniff looks at the first client bytes. It returns them when they are an HTTP
// request; otherwise they are kept for join. A server that speaks first is no
// HTTP server: that ends the looking, so that its bytes flow.
func (t *tunnel) sniff() []byte {
	first := make(chan *prefixed, 1)
	go func() { // ends by the deadline set below
		p := &prefixed{Conn: t.up, head: make([]byte, 4<<10)}
		n, err := t.up.Read(p.head)
		p.head = p.head[:n]
		if !isTimeout(err) {
			p.err = err
			t.serverSpoke()
		}
		first <- p
	}()
	head, http, err := t.readHead()
	_ = t.up.SetReadDeadline(longAgo)
	up := <-first
	_ = t.up.SetReadDeadline(time.Time{})
	_ = t.client.SetReadDeadline(time.Time{})
	if http && !t.spoke {
		return head
	}
	if t.spoke && isTimeout(err) {
		err = nil // ours
	}
	t.up, t.client = up, &prefixed{Conn: t.client, head: head, err: err}
	return nil
}

// serverSpoke ends the looking at the client.
func (t *tunnel) serverSpoke() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spoke = true
	_ = t.client.SetReadDeadline(longAgo)
}

// give lets the client take so long for its next bytes, unless the server spoke.
func (t *tunnel) give(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.spoke {
		_ = t.client.SetReadDeadline(time.Now().Add(d))
	}
}

// readHead reads until the first line is known to be a request line or not. An
// error is the client's, except that a line which does not end in time is none.
func (t *tunnel) readHead() (head []byte, http bool, err error) {
	buf := make([]byte, 0, sniffBytes)
	t.give(t.idle)
	for len(buf) < sniffBytes {
		n, err := t.client.Read(buf[len(buf):sniffBytes])
		buf = buf[:len(buf)+n]
		if known, is := requestLine(buf); known {
			return buf, is, nil
		}
		if err != nil {
			if len(buf) > 0 && isTimeout(err) {
				err = nil
			}
			return buf, false, err
		}
		t.give(sniffFor)
	}
	return buf, false, nil
}

// requestLine says whether b begins with an HTTP/1 request line, as far as b
// can tell.
func requestLine(b []byte) (known, is bool) {
	for i, c := range b {
		if c >= 'A' && c <= 'Z' || c == '-' && i > 0 {
			continue
		}
		if c != ' ' || i < 3 {
			return true, false
		}
		line, _, ended := bytes.Cut(b, []byte("\r\n"))
		if !ended {
			return false, false
		}
		return true, bytes.HasSuffix(line, []byte(" HTTP/1.1")) || bytes.HasSuffix(line, []byte(" HTTP/1.0"))
	}
	return false, false
}

func closeWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// upgradeTo passes a 101 on and joins both sides; its record ends here.
func (x *exchange) upgradeTo(r *message.Response) {
	x.release()
	x.settleMarker(r)
	up := r.Upgrade
	fields := r.Fields
	proto := fields.Get("Upgrade")
	out := *r
	out.Fields = fromUpstream(fields, r.Status)
	out.Fields.Add("Upgrade", proto)
	out.Fields.Add("Connection", "Upgrade")
	x.mark(&out.Fields, "", time.Time{})
	x.outcome.status = 101
	client, err := x.call.Upgrade(&out)
	if err != nil {
		up.Close()
		return
	}
	began := time.Now()
	x.outcome.bytes = joinUpgrade(client, up)
	x.away += time.Since(began)
}

// joinUpgrade copies both ways until both sides ended.
func joinUpgrade(client, up message.Upgrade) int64 {
	defer client.Close()
	defer up.Close()
	var group sync.WaitGroup
	group.Go(func() { pump(up, client, client, up) })
	n := pump(client, up, client, up)
	group.Wait()
	return n
}

// pump copies one way; a failure ends both ways, an end is passed on.
func pump(dst, src, a, b message.Upgrade) int64 {
	n, err := io.Copy(dst, src)
	if err != nil {
		a.Close()
		b.Close()
		return n
	}
	_ = dst.CloseWrite()
	return n
}
