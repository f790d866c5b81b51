package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

const (
	startTime = 10 * time.Second
	tick      = time.Second / 100 // USER_HZ, the unit of times in /proc
)

// peer is a proxy in a process of its own.
type peer struct {
	name    string
	addr    string
	process *exec.Cmd
	roots   *x509.CertPool // of the certificates it shows
}

// startPeer runs a command on core 0 until it takes connections at addr.
func startPeer(ctx context.Context, dir, name, addr string, command ...string) (*peer, error) {
	out, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &peer{name: name, addr: addr, process: exec.CommandContext(ctx, command[0], command[1:]...)}
	p.process.Env = append(os.Environ(), "GOMAXPROCS=1")
	bind(p.process)
	p.process.Stdout, p.process.Stderr = out, out
	if err := p.process.Start(); err != nil {
		return nil, err
	}
	if err := pin(p.process.Process.Pid, 0); err != nil {
		return p, err
	}
	for end := time.Now().Add(startTime); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return p, c.Close()
		}
		if time.Now().After(end) {
			said, _ := os.ReadFile(out.Name())
			return p, fmt.Errorf("%s does not start: %w\n%s", name, err, said)
		}
	}
}

// stop ends the process.
func (p *peer) stop() {
	_ = p.process.Process.Kill()
	_ = p.process.Wait()
}

// trust learns the certificate of the proxy the way its clients do.
func (p *peer) trust() error {
	get := http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: p.addr}), DisableKeepAlives: true}}
	res, err := get.Get("http://retryproxy.internal/ca.pem")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	p.roots = x509.NewCertPool()
	if !p.roots.AppendCertsFromPEM(text) {
		return fmt.Errorf("no certificate at %s: %s", res.Request.URL, res.Status)
	}
	return nil
}

// cpu is the user and system time that the process has taken.
func (p *peer) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.process.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc: short stat %q", text)
	}
	var sum time.Duration
	for _, f := range fields[11:13] { // utime and stime (proc(5): fields 14 and 15)
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// freeAddress is a loopback address that nobody listens on now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
