package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"retryproxy/classify"
)

// destination is where a connection is to lead.
type destination struct {
	host string     // a name, or the address as text
	addr netip.Addr // zero for a name
	port uint16
}

// authority is host:port, an IPv6 address in brackets.
func (d destination) authority() string {
	return net.JoinHostPort(d.host, strconv.Itoa(int(d.port)))
}

// newDestination refuses what could be read as something else on the way.
func newDestination(host string, port uint16) (destination, error) {
	if addr, err := netip.ParseAddr(host); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return destination{addr.String(), addr, port}, nil
	}
	if !validName(host) {
		return destination{}, errors.New("the host is no name that an egress proxy could be given")
	}
	return destination{host: host, port: port}, nil
}

// refusal is a failure that the proxy itself told us, or that we can tell.
type refusal struct {
	fault classify.Fault
	text  string
}

func (r *refusal) Error() string { return r.text }

func refuse(fault classify.Fault, format string, args ...any) error {
	return &refusal{fault, fmt.Sprintf(format, args...)}
}

// Open makes conn, a connection to the proxy (inside TLS for https), lead to
// host and port; host is a name or an address without brackets. The returned
// connection is conn, or conn behind bytes that came early. On failure conn is
// still the caller's to close, and the error holds neither user nor password.
// ctx bounds it.
func (e *Exit) Open(ctx context.Context, conn net.Conn, host string, port uint16) (net.Conn, classify.Fault, error) {
	d, err := newDestination(host, port)
	if err != nil {
		return nil, classify.FaultEgressFailed, fmt.Errorf("egress %s: %w", e.name, err)
	}
	early, err := e.askWithin(ctx, conn, d)
	if err != nil {
		fault, err := judge(ctx, err)
		return nil, fault, fmt.Errorf("egress %s: %s: %w", e.name, d.authority(), err)
	}
	if len(early) > 0 {
		conn = &preceded{Conn: conn, early: early}
	}
	return conn, classify.FaultNone, nil
}

// askWithin is ask, cut short when ctx is done. It leaves no deadline behind.
func (e *Exit) askWithin(ctx context.Context, conn net.Conn, d destination) (early []byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	defer interruptible(ctx, conn)()
	return e.ask(conn, d)
}

// ask has the way opened, and returns what came behind the proxy's answer.
func (e *Exit) ask(conn net.Conn, d destination) (early []byte, err error) {
	p := &e.identity.proxy
	if p.socks() {
		return nil, askSOCKS5(conn, p, d)
	}
	return askHTTP(conn, p, d)
}

// interruptible makes reads and writes on conn fail once ctx is done, its
// deadline included. The returned func ends that and clears the deadline of conn.
func interruptible(ctx context.Context, conn net.Conn) (release func()) {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	return func() {
		if !stop() {
			<-interrupted
			_ = conn.SetDeadline(time.Time{})
		}
	}
}

// judge tells whose fault err is. What ctx cut off failed with the deadline that
// interruptible set, so ctx is asked first.
func judge(ctx context.Context, err error) (classify.Fault, error) {
	if said, ok := errors.AsType[*refusal](err); ok {
		return said.fault, err
	}
	switch cut := ctx.Err(); {
	case errors.Is(cut, context.DeadlineExceeded) || cut == nil && errors.Is(err, os.ErrDeadlineExceeded):
		return classify.FaultEgressTimeout, errors.New("the egress proxy did not answer in time")
	case cut != nil:
		return classify.FaultCancelled, cut
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return classify.FaultEgressFailed, errors.New("the egress proxy closed the connection before its answer was complete")
	}
	return classify.FaultEgressFailed, err
}
