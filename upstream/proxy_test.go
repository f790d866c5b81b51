package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"retryproxy/classify"
)

// exit is an Exit whose proxy gets "host port\n" and says one line; "ok" is yes.
type exit struct {
	name, scheme, host string
	port               uint16
	resolves           bool
	early              bool // Open gives the connection behind another

	mu    sync.Mutex
	asked []string
}

func (e *exit) Name() string                    { return e.name }
func (e *exit) Proxy() (string, string, uint16) { return e.scheme, e.host, e.port }
func (e *exit) Resolves() bool                  { return e.resolves }

var exitFaults = map[string]classify.Fault{"ok": classify.FaultNone, "auth": classify.FaultEgressAuth, "denied": classify.FaultEgressDenied}

func (e *exit) Open(ctx context.Context, nc net.Conn, host string, port uint16) (net.Conn, classify.Fault, error) {
	e.mu.Lock()
	e.asked = append(e.asked, fmt.Sprintf("%s %d", host, port))
	e.mu.Unlock()
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(longAgo) })()
	line := ""
	_, err := fmt.Fprintf(nc, "%s %d\n", host, port)
	for b := []byte{0}; err == nil && b[0] != '\n'; line += string(b) {
		_, err = nc.Read(b)
	}
	said := strings.TrimSuffix(line, "\n")
	fault, known := exitFaults[said]
	switch {
	case timedOut(err):
		return nil, classify.FaultEgressTimeout, errors.New("egress " + e.name + ": silence")
	case err != nil || !known:
		return nil, classify.FaultEgressFailed, errors.New("egress " + e.name + ": it said " + said)
	case fault != classify.FaultNone:
		return nil, fault, errors.New("egress " + e.name + ": it said " + said)
	case e.early:
		nc = blind{nc}
	}
	return nc, fault, nil
}

func (e *exit) asks() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.asked)
}

// newExit starts a proxy that answers as say does and leads, after ok, to to.
func newExit(t testing.TB, name, scheme string, to net.Addr, say func(asked string) string) *exit {
	t.Helper()
	play := func(p *peer) {
		asked := strings.TrimSuffix(p.until("\n"), "\n")
		word := "ok"
		if asked == "" {
			return
		}
		if say != nil {
			word = say(asked)
		}
		if word != "ok" {
			p.say(word + "\n")
			return
		}
		far, err := net.Dial("tcp", to.String())
		if err != nil {
			t.Error(err)
			return
		}
		p.say("ok\n")
		lead(p, far)
	}
	s := newScript
	if scheme == "https" {
		s = func(t testing.TB, plays ...func(*peer)) *script { return newTLSScript(t, nil, plays...) }
	}
	at := s(t, play).target()
	return &exit{name: name, scheme: scheme, host: at.Host, port: at.Port, resolves: true}
}

// lead copies both ways until one side ends.
func lead(near *peer, far net.Conn) {
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(near.Conn, far)
		_ = near.Close()
	})
	_, _ = io.Copy(far, near.Conn)
	_ = far.Close()
	wg.Wait()
}

// through is target by name and through e.
func through(e Exit, scheme string, s *script) Target {
	t := s.target()
	t.Scheme, t.Host, t.Exit = scheme, "u1.test", e
	return t
}
