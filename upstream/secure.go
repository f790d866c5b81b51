package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"retryproxy/classify"
)

// trust is the configuration that those of the connections derive from, with
// the sessions that were made under it.
type trust struct {
	base    *tls.Config
	tickets *lru.Cache[ticket, *tls.ClientSessionState]
}

func newTrust(base *tls.Config) *trust {
	cfg := base.Clone()
	if cfg == nil {
		cfg = &tls.Config{}
	}
	cfg.InsecureSkipVerify = false
	kept, _ := lru.New[ticket, *tls.ClientSessionState](sessionTickets) // fails on sizes below 1 only
	return &trust{base: cfg, tickets: kept}
}

// ticket says whose a TLS session is. A server knows its tickets again: one that
// is shown by way of another exit would tell it that two shops are one.
type ticket struct {
	exit   Exit
	server string
}

// tickets are the sessions of one exit, or of none.
type tickets struct {
	kept *lru.Cache[ticket, *tls.ClientSessionState]
	exit Exit
}

func (t tickets) Get(server string) (*tls.ClientSessionState, bool) {
	return t.kept.Get(ticket{t.exit, server})
}

// Put forgets the session when s is nil.
func (t tickets) Put(server string, s *tls.ClientSessionState) {
	if s == nil {
		t.kept.Remove(ticket{t.exit, server})
		return
	}
	t.kept.Add(ticket{t.exit, server}, s)
}

// below is a connection below TLS. crypto/tls takes its FIN for a clean end even
// without close_notify, but anybody on the way can send a FIN (RFC 9112 section
// 9.8).
type below struct {
	net.Conn
	broke atomic.Pointer[error] // its last error
}

var errNoNotify = fmt.Errorf("%w: no close_notify", io.ErrUnexpectedEOF)

func (b *below) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if err == io.EOF {
		err = errNoNotify
	}
	return n, b.note(err)
}

func (b *below) Write(p []byte) (int, error) {
	n, err := b.Conn.Write(p)
	return n, b.note(err)
}

func (b *below) note(err error) error {
	if err != nil {
		failed := err // err itself would always be on the heap
		b.broke.Store(&failed)
	}
	return err
}

// caused says whether err came from here and not from TLS.
func (b *below) caused(err error) bool {
	broke := b.broke.Load()
	return broke != nil && errors.Is(err, *broke)
}

// secure does the TLS handshake with t, and offers protocols.
func (c *Client) secure(ctx context.Context, o opened, t *Target, protocols ...string) (opened, *tls.Conn) {
	trust := c.trust.Load()
	cfg := trust.base.Clone()
	cfg.ServerName = t.Host
	cfg.NextProtos = protocols
	cfg.ClientSessionCache = tickets{trust.tickets, t.Exit}
	under := &below{Conn: o.nc}
	tc := tls.Client(under, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = o.nc.Close()
		o.phase, o.fault, o.err = classify.PhaseTLS, tlsFault(err), err
		if t.Exit != nil && o.fault == classify.FaultTLS && (under.caused(err) || unsecured(err)) {
			o.fault = classify.FaultEgressFailed
		}
		o.fault = t.blame(o.phase, o.fault)
		return o, nil
	}
	o.nc = tc
	return o, tc
}

// unsecured says whether what answered the handshake was no TLS at all.
func unsecured(err error) bool {
	_, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok
}
