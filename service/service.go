// Package service answers one question: how does the system start and stop the proxy without anybody logged in?
//
// That is Windows and its service control manager. Elsewhere systemd, Docker and
// Kubernetes run the program as it is, and nothing of this is there.
package service

import (
	"context"
	"errors"
	"io"
	"time"
)

// Spec is a service as it is installed.
type Spec struct {
	Name  string
	Serve []string      // arguments of `retryproxy serve`, which `service run` has as well
	Drain time.Duration // what it may take to stop
}

// Program runs until life ends and gives its exit code. The first byte on stdout says
// that it serves; what it writes to stderr goes to the event log.
type Program func(life context.Context, stdout, stderr io.Writer) int

// ErrTimeout says that the service has not got there in the time it has.
var ErrTimeout = errors.New("service: it takes too long; look into its log file and the event log")

// State is what the system is told of the service.
type State int

// States, in their order.
const (
	Starting State = iota
	Running
	Stopping
)

// Request is what the system asks for.
type Request int

// Requests.
const (
	Report Request = iota // how it stands
	Stop
)

// Status is one report. CheckPoint rises while it starts or stops, so that the system
// sees that it still does, and waits for a further Hint.
type Status struct {
	State      State
	CheckPoint uint32
	Hint       time.Duration
}

// sign is how often a service that starts or stops gives a sign of life, which the
// system expects within patience.
const sign, patience = 2 * time.Second, 15 * time.Second

// supervise runs a program, reports how it stands, and ends it when asked. It gives
// its exit code.
func supervise(run Program, stderr io.Writer, asked <-chan Request, report func(Status)) int {
	life, stop := context.WithCancel(context.Background())
	defer stop()
	serves := &first{come: make(chan struct{})}
	ended := make(chan int, 1)
	go func() { ended <- run(life, serves, stderr) }()

	now := Status{State: Starting, Hint: patience}
	enter := func(s State) {
		if now = (Status{State: s}); s != Running {
			now.Hint = patience
		}
		report(now)
	}
	report(now)
	tick := time.NewTicker(sign)
	defer tick.Stop()
	for {
		select {
		case code := <-ended:
			return code
		case <-serves.come:
			if serves.come = nil; now.State == Starting {
				enter(Running)
			}
		case r := <-asked:
			if r == Stop && now.State != Stopping {
				stop()
				enter(Stopping)
				continue
			}
			report(now)
		case <-tick.C:
			if now.State != Running {
				now.CheckPoint++
				report(now)
			}
		}
	}
}

// first closes come with the first byte that is written.
type first struct {
	come chan struct{}
	done bool
}

// Write implements io.Writer; there is nobody to read it.
func (f *first) Write(p []byte) (int, error) {
	if !f.done {
		f.done = true
		close(f.come)
	}
	return len(p), nil
}
