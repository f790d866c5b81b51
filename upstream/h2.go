package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"

	"retryproxy/classify"
)

// session is one HTTP/2 connection. The frames are the business of net/http;
// when it is opened, shared and closed, and what a failure means, is ours.
type session struct {
	client *Client
	cc     *http.ClientConn
	tap    *tap
	remote netip.AddrPort
	used   atomic.Bool // had a stream

	// Guarded by pool.mu.
	parked  parked
	streams int
	retired bool // takes no new streams
}

// newSession starts HTTP/2 on o, with a first stream reserved.
func newSession(ctx context.Context, c *Client, t *Target, o *opened) (*session, error) {
	s := &session{client: c, remote: o.remote, streams: 1}
	s.parked = parked{target: *t, session: s}
	c.live.Add(1)
	s.tap = newTap(o.nc, func() { c.live.Add(-1) })
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true) // the tap hides that it is TLS
	tr := &http.Transport{
		Protocols:              &protocols,
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return s.tap, nil },
		DisableCompression:     true,
		MaxResponseHeaderBytes: int64(c.headerBytes),
	}
	// The address is not looked at: the connection exists.
	cc, err := tr.NewClientConn(context.Background(), "http", "session.invalid:443")
	if err != nil {
		_ = s.tap.Close()
		return nil, err
	}
	s.cc = cc
	if t.Scheme == "h2c" {
		err = s.awaitHello(ctx)
	}
	if err == nil {
		err = cc.Reserve()
	}
	if err != nil && s.tap.leaving() {
		err = errLeaving
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) close() { _ = s.cc.Close() }

// at names the other end for people.
func (s *session) at() string { return s.parked.target.at(s.remote) }

// Why a session does not come about.
var (
	errNoH2    = errors.New("HTTP/2 without TLS is not spoken there")
	errLeaving = errors.New("the session was ended before the request")
)

// awaitHello waits for the SETTINGS that a server of HTTP/2 begins with (RFC 9113
// section 3.4). Without TLS nobody has promised that the peer understands HTTP/2:
// what another kind of server makes of our frames is unknown, so no request is
// written before.
func (s *session) awaitHello(ctx context.Context) error {
	select {
	case ok := <-s.tap.hello:
		if !ok {
			return errNoH2
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// helloFault is the fault of a session that did not come about: not one byte of
// a request was written.
func helloFault(err error) (classify.Phase, classify.Fault) {
	switch {
	case timedOut(err):
		return classify.PhaseConnect, classify.FaultTimeout
	case errors.Is(err, errLeaving):
		return classify.PhaseReady, classify.FaultGoaway
	}
	return classify.PhaseReady, classify.FaultReset
}

// exchange sends a as a stream of the session. Unless begun, the session ended
// before a byte was sent.
func (s *session) exchange(ctx context.Context, a *Attempt) (res Result, begun bool) {
	st := newStream(ctx, s, a)
	req, err := st.request()
	if err != nil {
		s.cc.Release()
		st.end(false)
		return st.result(failure(classify.PhaseReady, classify.FaultBody, contentDetail(err))), true
	}
	resp, err := st.roundTrip(req)
	if err != nil {
		return st.fail(err)
	}
	return st.respond(resp), true
}
