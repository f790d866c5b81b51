package service

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"
	"golang.org/x/sys/windows/svc/mgr"
	"golang.org/x/time/rate"
)

// Here says whether this system has what this package speaks to.
const Here = true

const (
	event    = 1               // its only kind of event
	most     = 5 * time.Minute // to start, which may bring a large store to a new version
	look     = 200 * time.Millisecond
	resetDay = 24 * 60 * 60 // seconds without a failure, after which it counts anew
)

// Install makes a service that starts with the system, under an account of its own
// that may do nothing by itself, and is started again when it fails.
func Install(s Spec) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	m, err := mgr.Connect()
	if err != nil {
		return fmt.Errorf("service: connect to the service control manager, which takes an administrator: %w", err)
	}
	defer func() { _ = m.Disconnect() }()
	made, err := m.CreateService(s.Name, program, mgr.Config{
		DisplayName: s.Name, Description: "An HTTP proxy that retries calls which failed for a passing reason.",
		StartType: mgr.StartAutomatic, ErrorControl: mgr.ErrorNormal, ServiceStartName: `NT SERVICE\` + s.Name,
	}, append([]string{"service", "run", "-name", s.Name}, s.Serve...)...)
	if err != nil {
		return fmt.Errorf("service: create %s: %w", s.Name, err)
	}
	defer func() { _ = made.Close() }()
	if err := arrange(made, s); err != nil {
		return errors.Join(fmt.Errorf("service: configure %s: %w", s.Name, err), made.Delete())
	}
	return nil
}

// arrange sets what a service is not created with.
func arrange(made *mgr.Service, s Spec) error {
	again := func(after time.Duration) mgr.RecoveryAction {
		return mgr.RecoveryAction{Type: mgr.ServiceRestart, Delay: after}
	}
	if err := made.SetRecoveryActions([]mgr.RecoveryAction{again(time.Second), again(10 * time.Second), again(time.Minute)}, resetDay); err != nil {
		return err
	}
	if err := made.SetRecoveryActionsOnNonCrashFailures(true); err != nil {
		return err
	}
	milliseconds := uint32((s.Drain + patience).Milliseconds())
	if err := windows.ChangeServiceConfig2(made.Handle, windows.SERVICE_CONFIG_PRESHUTDOWN_INFO, (*byte)(unsafe.Pointer(&milliseconds))); err != nil { // SERVICE_PRESHUTDOWN_INFO
		return err
	}
	err := eventlog.InstallAsEventCreate(s.Name, eventlog.Error|eventlog.Warning|eventlog.Info)
	if err != nil && !strings.Contains(err.Error(), "already exists") { // left by an earlier one
		return err
	}
	return nil
}

// with calls f with the service of that name.
func with(name string, f func(*mgr.Service) error) error {
	m, err := mgr.Connect()
	if err != nil {
		return fmt.Errorf("service: connect to the service control manager, which takes an administrator: %w", err)
	}
	defer func() { _ = m.Disconnect() }()
	s, err := m.OpenService(name)
	if err != nil {
		return fmt.Errorf("service: open %s: %w", name, err)
	}
	defer func() { _ = s.Close() }()
	return f(s)
}

// Uninstall stops the service and takes it away.
func Uninstall(name string) error {
	return with(name, func(s *mgr.Service) error {
		if err := halt(s); err != nil {
			return err
		}
		if err := s.Delete(); err != nil {
			return fmt.Errorf("service: delete %s: %w", name, err)
		}
		_ = eventlog.Remove(name) // it may never have been there
		return nil
	})
}

// Start starts the service and returns when it serves.
func Start(name string) error {
	return with(name, func(s *mgr.Service) error {
		if err := s.Start(); err != nil {
			return fmt.Errorf("service: start %s: %w", name, err)
		}
		return reach(s, svc.Running)
	})
}

// Halt stops the service and returns when it has ended.
func Halt(name string) error { return with(name, halt) }

func halt(s *mgr.Service) error {
	_, err := s.Control(svc.Stop)
	if errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("service: stop %s: %w", s.Name, err)
	}
	return reach(s, svc.Stopped)
}

// reach waits until the service is in a state.
func reach(s *mgr.Service, want svc.State) error {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(look) {
		status, err := s.Query()
		switch {
		case err != nil:
			return fmt.Errorf("service: ask %s how it stands: %w", s.Name, err)
		case status.State == want:
			return nil
		case status.State == svc.Stopped:
			return fmt.Errorf("service: %s ended with code %d; the event log, or its log file, says why", s.Name, status.ServiceSpecificExitCode)
		}
	}
	return ErrTimeout
}

// Run is what the system starts: it tells the system how the program stands, and ends
// it when the system says so. It gives the program's exit code.
func Run(name string, program Program) (int, error) {
	log, err := eventlog.Open(name)
	if err != nil {
		return 0, fmt.Errorf("service: open the event log: %w", err)
	}
	defer func() { _ = log.Close() }()
	h := &handler{run: program, events: &events{log: log, some: rate.NewLimiter(1, 30)}}
	err = svc.Run(name, h)
	if errors.Is(err, windows.ERROR_FAILED_SERVICE_CONTROLLER_CONNECT) {
		return 0, errors.New("service: only the service control manager may run this; by hand it is retryproxy serve")
	}
	if err != nil {
		return 0, fmt.Errorf("service: %w", err)
	}
	return int(h.code.Load()), nil
}

// handler is between the service control manager and supervise.
type handler struct {
	run    Program
	events io.Writer
	code   atomic.Int64
}

// Execute implements svc.Handler.
func (h *handler) Execute(_ []string, changes <-chan svc.ChangeRequest, status chan<- svc.Status) (own bool, code uint32) {
	asked, ended := make(chan Request), make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case c := <-changes:
				r := Report
				if c.Cmd == svc.Stop || c.Cmd == svc.Shutdown || c.Cmd == svc.PreShutdown {
					r = Stop
				}
				select {
				case asked <- r:
				case <-ended:
					return
				}
			case <-ended:
				return
			}
		}
	}()
	n := supervise(h.run, h.events, asked, func(s Status) { status <- told(s) })
	h.code.Store(int64(n))
	return true, uint32(n)
}

// told is a status in the words of Windows.
func told(s Status) svc.Status {
	out := svc.Status{CheckPoint: s.CheckPoint, WaitHint: uint32(s.Hint.Milliseconds())}
	switch s.State {
	case Starting:
		out.State = svc.StartPending
	case Running:
		out.State, out.Accepts = svc.Running, svc.AcceptStop|svc.AcceptPreShutdown
	case Stopping:
		out.State = svc.StopPending
	}
	return out
}

// events writes to the event log, some thirty lines at once and one a second: others
// need its room too.
type events struct {
	log  *eventlog.Log
	some *rate.Limiter
}

// Write implements io.Writer.
func (e *events) Write(p []byte) (int, error) {
	if !e.some.Allow() {
		return len(p), nil
	}
	return len(p), e.log.Error(event, string(p))
}
