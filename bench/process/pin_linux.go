package process

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Pin keeps the threads of a process on one core. Threads made later inherit it
// from those that make them; the second look finds the ones made meanwhile.
func Pin(pid, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	for range 2 {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		for _, t := range threads {
			id, _ := strconv.Atoi(t.Name())
			if err := unix.SchedSetaffinity(id, &set); err != nil && err != unix.ESRCH {
				return fmt.Errorf("pin to core %d: %w", cpu, err)
			}
		}
	}
	return nil
}

// bind lets a process end with us, however we end.
func bind(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
