package upstream

import (
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"retryproxy/classify"
)

func TestGuardSeesALoop(t *testing.T) {
	c := client(t, Config{Guard: func(at netip.AddrPort, _ bool) error { return fmt.Errorf("%w: %v is ours", ErrLoop, at) }})
	to := Target{Scheme: "http", Host: "192.0.2.1", Port: 80}
	check(t, c.Send(t.Context(), attempt(to, "GET", "/", nil)), classify.PhaseNone, classify.FaultLoop)
	_, r := c.Tunnel(t.Context(), to, time.Second)
	check(t, r, classify.PhaseNone, classify.FaultLoop)
}

func TestTunnelNeedsNoScheme(t *testing.T) {
	s := newScript(t, func(p *peer) { _, _ = io.WriteString(p, "hello") })
	to := s.target()
	to.Scheme = "tcp"
	nc, r := client(t, Config{}).Tunnel(t.Context(), to, time.Second)
	if nc == nil {
		t.Fatalf("Tunnel() = %+v, want a connection", r.Outcome)
	}
	defer nc.Close()
	if got, err := io.ReadAll(nc); string(got) != "hello" {
		t.Errorf("read %q, %v through the tunnel", got, err)
	}
}
