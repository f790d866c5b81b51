package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	connections = 64  // of the closed loop
	steadyRate  = 500 // calls a second of the open loop
)

// lab measures.
type lab struct {
	*options
	dir  string
	up   string
	keys atomic.Int64
	out  io.Writer
}

// stores are what is compared.
var stores = []struct{ name, config string }{
	{"memory", "{kind: memory}"},
	{"process", "{kind: sqlite, path: 'DIR', durability: process}"},
	{"full", "{kind: sqlite, path: 'DIR', durability: full}"},
}

var content = strings.Repeat("x", 1<<10)

// call sends one keyed POST of 1 KiB over a kept connection.
func (l *lab) call(c net.Conn, in *textproto.Reader, path string) (status string, err error) {
	_, err = fmt.Fprintf(c, "POST http://%[1]s%[2]s HTTP/1.1\r\nHost: %[1]s\r\nX-Idempotency-Key: order-%[3]d\r\nContent-Type: text/plain\r\nContent-Length: %[4]d\r\n\r\n%[5]s",
		l.up, path, l.keys.Add(1), len(content), content)
	if err != nil {
		return "", err
	}
	line, length, err := head(in)
	if err != nil || len(line) < 12 {
		return "", errors.Join(err, fmt.Errorf("answer %q", line))
	}
	_, err = io.CopyN(io.Discard, in.R, length)
	return line[9:12], err
}

// loop makes calls on several connections until enough says so.
func (l *lab) loop(p *proxy, n int, path, want string, enough func() bool) (calls int64, err error) {
	var group sync.WaitGroup
	var done atomic.Int64
	errs := make([]error, n)
	for i := range n {
		group.Go(func() {
			c, err := net.Dial("tcp", p.Addr)
			if err != nil {
				errs[i] = err
				return
			}
			defer c.Close()
			for in := textproto.NewReader(bufio.NewReader(c)); !enough(); done.Add(1) {
				if status, err := l.call(c, in, path); err != nil || status != want {
					errs[i] = fmt.Errorf("%s, want %s: %w", status, want, err)
					return
				}
			}
		})
	}
	group.Wait()
	return done.Load(), errors.Join(errs...)
}

func until(end time.Time) func() bool { return func() bool { return time.Now().After(end) } }

// rate is how many keyed calls a second one core makes, and what one takes.
func (l *lab) rate() error {
	fmt.Fprintf(l.out, "%-8s  %10s  %12s\n", "records", "calls/s", "CPU µs/call")
	cpu := map[string][]float64{}
	for range l.rounds {
		for _, s := range stores {
			calls, each, err := l.rateOf(s.name, s.config)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			cpu[s.name] = append(cpu[s.name], each)
			fmt.Fprintf(l.out, "%-8s  %10.0f  %12.1f\n", s.name, calls, each)
		}
	}
	base := median(cpu["memory"])
	for _, s := range stores[1:] {
		fmt.Fprintf(l.out, "%s takes %.2f times the CPU of memory\n", s.name, median(cpu[s.name])/base)
	}
	return nil
}

func (l *lab) rateOf(name, store string) (perSecond, each float64, err error) {
	p, err := l.start(name, store)
	if err != nil {
		return 0, 0, err
	}
	defer p.stop()
	if _, err := l.loop(p, connections, "/", "201", until(time.Now().Add(time.Second))); err != nil {
		return 0, 0, err
	}
	before, err := p.CPU()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	calls, err := l.loop(p, connections, "/", "201", until(began.Add(l.window)))
	if err != nil {
		return 0, 0, err
	}
	took := time.Since(began)
	after, err := p.CPU()
	return float64(calls) / took.Seconds(), float64((after - before).Microseconds()) / float64(calls), err
}

// steady is the latency of a moderate load, beside syncs of the same disk.
func (l *lab) steady() error {
	p, err := l.start("steady", stores[2].config)
	if err != nil {
		return err
	}
	defer p.stop()
	quit, syncs := make(chan struct{}), make(chan []time.Duration)
	go func() { syncs <- l.sync(quit) }()
	took, err := l.open(p, 3*l.window)
	close(quit)
	disk := <-syncs
	if err != nil {
		return err
	}
	call, bare := percentile(took, 99), percentile(disk, 99)
	fmt.Fprintf(l.out, "%d calls/s with durability full: p50 %v, p99 %v; a bare fsync of 4 KiB meanwhile: p50 %v, p99 %v; p99 %.1f times that\n",
		steadyRate, percentile(took, 50), call, percentile(disk, 50), bare, float64(call)/float64(bare))
	return nil
}

// open makes calls at a rate, whatever they take.
func (l *lab) open(p *proxy, d time.Duration) (took []time.Duration, err error) {
	var mu sync.Mutex
	var errs []error
	var group sync.WaitGroup
	due := make(chan time.Time, steadyRate*60)
	for range connections {
		group.Go(func() {
			c, err := net.Dial("tcp", p.Addr)
			if err == nil {
				defer c.Close()
			}
			for in := textproto.NewReader(bufio.NewReader(c)); err == nil; {
				at, more := <-due
				if !more {
					break
				}
				_, err = l.call(c, in, "/")
				mu.Lock()
				took = append(took, time.Since(at))
				mu.Unlock()
			}
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
		})
	}
	ticker := time.NewTicker(time.Second / steadyRate)
	for end := time.Now().Add(d); time.Now().Before(end); {
		due <- <-ticker.C
	}
	ticker.Stop()
	close(due)
	group.Wait()
	return took, errors.Join(errs...)
}

// sync writes and syncs 4 KiB fifty times a second.
func (l *lab) sync(quit <-chan struct{}) (took []time.Duration) {
	f, err := os.Create(filepath.Join(l.dir, "syncs"))
	if err != nil {
		return nil
	}
	defer f.Close()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for page := make([]byte, 4<<10); ; {
		select {
		case <-quit:
			return took
		case <-ticker.C:
		}
		began := time.Now()
		if _, err := f.Write(page); err != nil || f.Sync() != nil {
			return took
		}
		took = append(took, time.Since(began))
	}
}

// parkedCalls is what calls cost that wait for hours.
func (l *lab) parkedCalls() error {
	p, err := l.start("parked", stores[1].config)
	if err != nil {
		return err
	}
	defer p.stop()
	empty, err := p.Memory()
	if err != nil {
		return err
	}
	var n atomic.Int64
	enough := func() bool { return n.Add(1) > int64(l.parked) }
	began := time.Now()
	if _, err := l.loop(p, connections, "/later", "202", enough); err != nil {
		return err
	}
	fmt.Fprintf(l.out, "%d calls parked in %v\n", l.parked, time.Since(began).Round(time.Millisecond))
	time.Sleep(5 * time.Second)
	before, err := p.CPU()
	if err != nil {
		return err
	}
	const idle = 30 * time.Second
	time.Sleep(idle)
	after, err := p.CPU()
	if err != nil {
		return err
	}
	now, err := p.Memory()
	fmt.Fprintf(l.out, "resident %d MiB, %d MiB before; idle CPU %.2f %%\n", now>>20, empty>>20, 100*float64(after-before)/float64(idle))
	return err
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func percentile(d []time.Duration, p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(len(d)*p/100, len(d)-1)].Round(time.Microsecond)
}
