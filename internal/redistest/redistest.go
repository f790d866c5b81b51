// Package redistest answers one question: where is a Redis that this test may break?
//
// It starts a real server, Redis or Valkey, on a loopback port.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is a running server, or one that was stopped.
type Server struct {
	tb   testing.TB
	path string
	args []string
	addr string

	mu     sync.Mutex
	cmd    *exec.Cmd // nil: it is stopped
	failed int       // times in a row that it did not start
}

// bound is how long a server may take to start and to stop.
const bound = 20 * time.Second

// Start starts a server that ends with the test. Its data is in a temporary
// directory and outlives Kill. settings are those of redis.conf, name and value in
// turn; without any nothing is written to the disk. Without a server on this
// machine the test fails.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	path, err := find()
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, path: path, addr: FreeAddr(tb)}
	s.args = []string{"--bind", "127.0.0.1", "--dir", tb.TempDir(), "--save", ""}
	for i := 0; i+1 < len(settings); i += 2 {
		s.args = append(s.args, "--"+settings[i], settings[i+1])
	}
	tb.Cleanup(s.Kill)
	for s.start() != nil { // somebody else was quicker to take the port, or it never starts
		s.addr = FreeAddr(tb)
	}
	return s
}

// find gives the server of this machine.
func find() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("these tests need a real server: install redis-server (Debian: apt-get install redis-server) or valkey-server; PATH is %s", os.Getenv("PATH"))
}

// FreeAddr is an address on loopback that nobody listens on.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Addr is host and port.
func (s *Server) Addr() string { return s.addr }

// URL is what store.url wants.
func (s *Server) URL() string { return "redis://" + s.addr + "/0" }

// Restart starts the server again, at the same address and on the same data.
func (s *Server) Restart() {
	s.tb.Helper()
	for s.start() != nil {
		<-time.After(100 * time.Millisecond) // a connection to elsewhere may have the port for a moment
	}
}

// attempts is how often a server may fail to start, in all.
const attempts = 20

// start runs the server until it is ready, or ends before.
func (s *Server) start() error {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		s.tb.Fatal("the server is running")
	}
	_, port, _ := net.SplitHostPort(s.addr)
	cmd, log := exec.CommandContext(context.WithoutCancel(s.tb.Context()), s.path, append([]string{"--port", port}, s.args...)...), &strings.Builder{}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.tb.Fatalf("%s: %v", s.path, err)
	}
	ready := make(chan bool, 1)
	go func() { // ends with the server
		for in := bufio.NewScanner(out); in.Scan(); {
			if strings.Contains(strings.ToLower(in.Text()), "ready to accept connections") {
				ready <- true
				continue
			}
			log.WriteString(in.Text() + "\n")
		}
		close(ready)
	}()
	select {
	case ok := <-ready:
		if ok {
			s.cmd, s.failed = cmd, 0
			return nil
		}
		_ = cmd.Wait() // how it ended is in the log
	case <-time.After(bound):
		_ = cmd.Process.Kill()
		s.tb.Fatalf("%s did not start within %v", s.path, bound)
	}
	if s.failed++; s.failed == attempts {
		s.tb.Fatalf("%s did not start:\n%s", s.path, log.String())
	}
	return errors.New("it ended at once")
}

// Kill ends the server at once, as a crash would. A stopped one stays so.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended by itself
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Process is the running server, to be stopped and continued by signals.
func (s *Server) Process() *os.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process
}
