//go:build unix

package upstream

import (
	"os"
	"syscall"
	"testing"

	"retryproxy/classify"
)

// Without descriptors neither an address nor a name is at fault.
func TestCase_RS_04_OutOfDescriptors(t *testing.T) {
	s := newScript(t, always(ok))
	c := client(t, Config{})
	restore := starve(t)
	literal := c.Send(t.Context(), attempt(s.target(), "GET", "/", nil))
	name := c.Send(t.Context(), attempt(Target{Scheme: "http", Host: "u1.invalid", Port: 80}, "GET", "/", nil))
	restore()

	check(t, literal, classify.PhaseNone, classify.FaultLocal)
	check(t, name, classify.PhaseNone, classify.FaultLocal)
	mustFetch(t, c, attempt(s.target(), "GET", "/", nil))
}

// starve takes all descriptors of the process until restore is called.
func starve(t *testing.T) (restore func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	low := was
	low.Cur = 100
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	var held []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		held = append(held, f)
	}
	return func() {
		for _, f := range held {
			_ = f.Close()
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}
}
