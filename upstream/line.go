package upstream

import (
	"context"
	"errors"
	"net"
	"time"

	"retryproxy/classify"
)

// line is what an attempt is sent on: one of the two, or neither.
type line struct {
	conn    *conn
	session *session
}

func (l line) none() bool { return l.conn == nil && l.session == nil }

// line finds a kept connection that is fit for a, or opens one.
func (c *Client) line(ctx context.Context, a *Attempt) (line, Result) {
	plain := a.Target.Scheme == "h2c"
	upgrade := !plain && a.Request.Fields.Has("Upgrade")
	for {
		if l := c.pool.take(&a.Target, a.Unsafe, upgrade); !l.none() {
			return l, Result{}
		}
		if !plain && (upgrade || !c.speaksH2.Contains(a.Target)) {
			return c.connect(ctx, a, upgrade)
		}
		if l, failed, again := c.join(ctx, a); !again {
			return l, failed
		}
	}
}

// connect opens a connection within the attempt's time.
func (c *Client) connect(ctx context.Context, a *Attempt, upgrade bool) (line, Result) {
	if why := a.Target.refusal(); why != "" {
		return line{}, failure(classify.PhaseNone, classify.FaultBadTarget, why)
	}
	limited, cancel := within(ctx, a.ConnectTimeout, a.Deadline)
	defer cancel()
	l, o := c.openAside(limited, &a.Target, upgrade)
	if o.failed() {
		return line{}, ended(ctx, o)
	}
	return l, Result{}
}

// openAside is open on a goroutine of its own: dialling is deep, and the stack
// it needs would stay with the caller, whose call may wait for a long time.
func (c *Client) openAside(ctx context.Context, t *Target, upgrade bool) (l line, o opened) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l, o = c.open(ctx, t, upgrade)
	}()
	<-done
	return l, o
}

// ended is the Result of a connection that did not come about.
func ended(ctx context.Context, o opened) Result {
	if ctx.Err() != nil && o.fault != classify.FaultDenied && o.fault != classify.FaultLoop {
		o.fault = classify.FaultCancelled
	}
	if o.fault == classify.FaultLocal {
		o.phase = classify.PhaseNone
	}
	return o.result()
}

// open opens one connection and finds out what is spoken on it.
func (c *Client) open(ctx context.Context, t *Target, upgrade bool) (line, opened) {
	o := c.reach(ctx, t)
	if !o.failed() && o.early {
		// Neither HTTP nor TLS begins with the server: these bytes are the exit's, and
		// must not be taken for an answer.
		_ = o.nc.Close()
		o.phase, o.fault, o.err = classify.PhaseConnect, classify.FaultEgressFailed, errEarly
	}
	if o.failed() {
		return line{}, o
	}
	switch t.Scheme {
	case "http":
		return line{conn: newConn(c, t, &o)}, o
	case "h2c":
		return c.openSession(ctx, t, o)
	}
	protocols := []string{"h2", "http/1.1"}
	if upgrade { // needs HTTP/1.1
		protocols = protocols[1:]
	}
	o, tc := c.secure(ctx, o, t, protocols...)
	if o.failed() {
		return line{}, o
	}
	if tc.ConnectionState().NegotiatedProtocol == "h2" {
		return c.openSession(ctx, t, o)
	}
	if !upgrade {
		c.speaksH2.Remove(*t)
	}
	return line{conn: newConn(c, t, &o)}, o
}

var errEarly = errors.New("it sent bytes of its own behind its answer")

// openSession starts HTTP/2 on o.
func (c *Client) openSession(ctx context.Context, t *Target, o opened) (line, opened) {
	s, err := newSession(ctx, c, t, &o)
	if err != nil {
		o.err = err
		o.phase, o.fault = helloFault(err)
		o.fault = t.blame(o.phase, o.fault)
		return line{}, o
	}
	if t.Scheme != "h2c" {
		c.speaksH2.Add(*t, struct{}{})
	}
	c.pool.share(s)
	return line{session: s}, o
}

// flight is a dial to a host that is known to speak HTTP/2: attempts that come
// meanwhile wait for its session, so that a lost connection with a hundred
// streams is not followed by a hundred handshakes.
type flight struct {
	done   chan struct{}
	failed Result // valid after done
	ok     bool
}

// join takes part in the flight to a's host, or makes one. again: look into the
// pool once more.
func (c *Client) join(ctx context.Context, a *Attempt) (l line, failed Result, again bool) {
	c.mu.Lock()
	f := c.flights[a.Target]
	if f != nil {
		c.mu.Unlock()
		return c.await(ctx, a, f)
	}
	f = &flight{done: make(chan struct{})}
	c.flights[a.Target] = f
	c.mu.Unlock()

	// One may have landed since the caller looked.
	if l = c.pool.take(&a.Target, a.Unsafe, false); l.none() {
		l, f.failed = c.connect(ctx, a, false)
	}
	f.ok = !l.none()
	c.mu.Lock()
	delete(c.flights, a.Target)
	c.mu.Unlock()
	close(f.done)
	return l, f.failed, false
}

// await waits for another attempt's dial. If that attempt was given up, the
// dial says nothing about the host.
func (c *Client) await(ctx context.Context, a *Attempt, f *flight) (line, Result, bool) {
	limited, cancel := within(ctx, a.ConnectTimeout, a.Deadline)
	defer cancel()
	select {
	case <-f.done:
		again := f.ok || f.failed.Outcome.Fault == classify.FaultCancelled
		return line{}, f.failed, again
	case <-limited.Done():
		fault := a.Target.outOfTime()
		if ctx.Err() != nil {
			fault = classify.FaultCancelled
		}
		return line{}, failure(classify.PhaseConnect, fault, "still waiting for a connection to "+a.Target.Host), false
	}
}

// Tunnel opens a connection to t within timeout, for CONNECT: plain TCP, or the
// way through t's exit. t needs no scheme. With 0 or less there is no time left and nothing is dialled. The
// caller closes it; it is not counted in Stats.
func (c *Client) Tunnel(ctx context.Context, t Target, timeout time.Duration) (net.Conn, Result) {
	if why := t.unreachable(); why != "" {
		return nil, failure(classify.PhaseNone, classify.FaultBadTarget, why)
	}
	if timeout <= 0 {
		return nil, failure(classify.PhaseNone, t.outOfTime(), noTime)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	o := c.reach(limited, &t)
	if o.failed() {
		return nil, ended(ctx, o)
	}
	return o.nc, Result{Remote: o.remote, Outcome: classify.Outcome{Phase: classify.PhaseReady}}
}

// within limits ctx to d from now and to the time by, where they are set.
func within(ctx context.Context, d time.Duration, by time.Time) (context.Context, context.CancelFunc) {
	if t := earlier(d, by); !t.IsZero() {
		return context.WithDeadline(ctx, t)
	}
	return context.WithCancel(ctx)
}

// earlier is the earlier of d from now and by; a zero value is no limit.
func earlier(d time.Duration, by time.Time) time.Time {
	if d <= 0 {
		return by
	}
	if t := time.Now().Add(d); by.IsZero() || t.Before(by) {
		return t
	}
	return by
}
