package upstream

import (
	"context"
	"crypto/tls"
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

// newSession starts HTTP/2 on tc, with a first stream reserved.
func newSession(c *Client, t *Target, tc *tls.Conn, remote netip.AddrPort) (*session, error) {
	s := &session{client: c, remote: remote, streams: 1}
	s.parked = parked{target: *t, session: s}
	c.live.Add(1)
	s.tap = newTap(tc, func() { c.live.Add(-1) })
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
	if err := cc.Reserve(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) close() { _ = s.cc.Close() }

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
