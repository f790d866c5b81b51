package main

import (
	"bytes"
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

func build(to string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-o", to, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// process is a running proxy.
type process struct {
	cmd  *exec.Cmd
	addr string
	data string
}

const configText = `
listen: {proxy: %q, admin: ""}
log: {level: error}
retry_limits: {global: off, task_type: off, shop: off}
idempotency: {entries: 10000000, bytes: 4GiB}
store: %s
retry_policies: [{name: default, retry_after_over_cap: park}]
`

// start runs the proxy on one core with a store of its own.
func (l *lab) start(name, store string) (*process, error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	p := &process{addr: addr, data: filepath.Join(l.dir, name+strconv.FormatInt(time.Now().UnixNano(), 36))}
	if err := os.Mkdir(p.data, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(p.data, "config.yaml")
	text := fmt.Sprintf(configText, addr, strings.ReplaceAll(store, "DIR", p.data))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	command := []string{l.binary, "serve", "-config", file}
	if _, err := exec.LookPath("taskset"); err == nil {
		command = append([]string{"taskset", "-c", "0"}, command...)
	}
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	var said bytes.Buffer
	p.cmd.Stdout, p.cmd.Stderr = &said, &said
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(startTime); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return p, c.Close()
		}
		if time.Now().After(end) {
			p.stop()
			return nil, fmt.Errorf("it does not start: %w\n%s", err, said.String())
		}
	}
}

func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	_ = os.RemoveAll(p.data)
}

// cpu is the user and system time that the process has taken.
func (p *process) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, errors.New("/proc: short stat")
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

// memory is the resident set in bytes.
func (p *process) memory() (int64, error) {
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

// freeAddress is a loopback address that nobody listens on now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
