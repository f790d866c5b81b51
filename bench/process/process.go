// Package process answers one question: what does a proxy in a process of its own take?
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	startTime = 10 * time.Second
	tick      = time.Second / 100 // USER_HZ, the unit of times in /proc
)

// Process is one that takes connections at Addr.
type Process struct {
	Addr string
	cmd  *exec.Cmd
}

// Binary is the one to measure: the one that is named, or that of the current directory,
// which is then built in dir.
func Binary(ctx context.Context, named, dir string) (path string, err error) {
	if named != "" {
		return named, nil
	}
	path = filepath.Join(dir, "retryproxy")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// Start runs a command on core 0 until it takes connections at addr. What it says
// goes into a new file.
func Start(ctx context.Context, file, addr string, command ...string) (*Process, error) {
	out, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &Process{Addr: addr, cmd: exec.CommandContext(ctx, command[0], command[1:]...)}
	p.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	bind(p.cmd)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := errors.Join(Pin(p.cmd.Process.Pid, 0), p.await()); err != nil {
		p.Stop()
		said, _ := os.ReadFile(file)
		return nil, fmt.Errorf("%s does not start: %w\n%s", command[0], err, said)
	}
	return p, nil
}

// await returns as soon as it takes connections.
func (p *Process) await() error {
	for end := time.Now().Add(startTime); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", p.Addr)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(end) {
			return err
		}
	}
}

// Stop kills it.
func (p *Process) Stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// CPU is the user and system time that it has taken.
func (p *Process) CPU() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
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

// Memory is its resident set in bytes.
func (p *Process) Memory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("/proc: no VmRSS")
}

// Written is what it had written to disks, in bytes.
func (p *Process) Written() (n int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\nwrite_bytes: ")
	_, err = fmt.Sscan(rest, &n)
	return n, err
}

// FreeAddress is a loopback address that nobody listens on now.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
