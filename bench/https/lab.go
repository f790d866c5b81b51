package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"retryproxy/bench/process"
)

// product is the name of the proxy that is measured.
const product = "retryproxy"

// sample is one measurement.
type sample struct {
	done         int64 // calls, tunnels or bytes
	cpu, elapsed time.Duration
}

// cell is a workload at a proxy.
type cell struct{ workload, peer string }

// lab holds what runs and what was measured.
type lab struct {
	options
	dir     string
	up      *upstream
	peers   []*peer
	keys    atomic.Int64 // idempotency keys given
	done    atomic.Int64 // calls, tunnels or bytes
	samples map[cell][]sample
}

// start brings up the upstream and all proxies.
func (l *lab) start(ctx context.Context) error {
	if err := writeCertificate(l.dir); err != nil {
		return err
	}
	show, trust, err := readCertificate(l.dir)
	if err != nil {
		return err
	}
	if l.up, err = startUpstream(show, &l.done); err != nil {
		return err
	}
	for _, role := range []string{roleLoop, roleServer} {
		p, err := l.startBare(ctx, role)
		if err != nil {
			return err
		}
		p.roots = trust
	}
	p, err := l.startProduct(ctx)
	if err != nil || !l.opens() {
		return err
	}
	return p.trust()
}

// close ends all processes and removes the files.
func (l *lab) close() {
	for _, p := range l.peers {
		p.Stop()
	}
	if l.up != nil {
		l.up.close()
	}
	_ = os.RemoveAll(l.dir) // a temporary folder
}

func (l *lab) startBare(ctx context.Context, role string) (*peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addr, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	return l.add(ctx, role, addr,
		self, "-role", role, "-bare-listen", addr, "-bare-open", l.up.target(), "-bare-dir", l.dir)
}

// configText is all defaults but for what the bench must name. The log, a line
// for each call, goes to a file.
const configText = `listen: {proxy: %s, admin: "127.0.0.1:0"}
tls: {ca_files: [%s]}
intercept: {hosts: ["%s"]}
destinations: {connect_ports: [%s, %s]}
`

func (l *lab) startProduct(ctx context.Context) (_ *peer, err error) {
	if l.binary, err = process.Binary(ctx, l.binary, l.dir); err != nil {
		return nil, err
	}
	addr, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(l.dir, "config.yaml")
	text := fmt.Sprintf(configText, addr, filepath.Join(l.dir, certificateFile), l.up.target(), port(l.up.https), port(l.up.bytes))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return l.add(ctx, product, addr, l.binary, "serve", "-f", file, "-data", filepath.Join(l.dir, "data"))
}

// add starts a process on core 0.
func (l *lab) add(ctx context.Context, name, addr string, command ...string) (*peer, error) {
	p, err := process.Start(ctx, filepath.Join(l.dir, name+".log"), addr, command...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l.peers = append(l.peers, &peer{Process: p, name: name})
	return l.peers[len(l.peers)-1], nil
}

// opens says whether a workload is to be run for which tunnels are opened.
func (l *lab) opens() bool {
	return slices.ContainsFunc(workloads, func(w workload) bool { return w.opened && l.only.MatchString(w.name) })
}

// round measures every workload at every proxy; who comes first changes.
func (l *lab) round(ctx context.Context, round int) error {
	for _, w := range workloads {
		if !l.only.MatchString(w.name) {
			continue
		}
		for i := range l.peers {
			p := l.peers[(i+round)%len(l.peers)]
			if !w.meets(p.name) {
				continue
			}
			s, err := l.measure(ctx, w, p)
			if err != nil {
				return fmt.Errorf("%s at %s: %w", w.name, p.name, err)
			}
			at := cell{w.name, p.name}
			l.samples[at] = append(l.samples[at], s)
			fmt.Fprintf(os.Stderr, "round %d %s\n", round+1, w.line(at, s))
		}
	}
	return nil
}

// measure runs the load and looks at the process for a while.
func (l *lab) measure(ctx context.Context, w workload, p *peer) (s sample, err error) {
	under, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.load(under, l, p) }()
	if err := pause(ended, l.warmUp); err != nil {
		return s, err
	}
	cpu, err := p.CPU()
	if err != nil {
		return s, err
	}
	began, done := time.Now(), l.done.Load()
	if err := pause(ended, l.window); err != nil {
		return s, err
	}
	s.done, s.elapsed = l.done.Load()-done, time.Since(began)
	after, err := p.CPU()
	s.cpu = after - cpu
	stop()
	if gone := <-ended; err == nil {
		err = gone
	}
	if err == nil && s.done == 0 {
		err = fmt.Errorf("nothing came in %v", s.elapsed)
	}
	return s, err
}

// pause waits while the load runs.
func pause(ended chan error, d time.Duration) error {
	select {
	case err := <-ended:
		if err == nil {
			err = context.Canceled
		}
		return err
	case <-time.After(d):
		return nil
	}
}
