package doctor

import (
	"context"
	"fmt"
	"os/exec"
)

// Machine is what Collect asks the machine itself.
type Machine struct {
	// Output runs a program and gives what it prints; nil: none is run.
	Output func(ctx context.Context, name string, args ...string) (string, error)
	Has    func(name string) bool      // says whether there is such a program; nil: there is not
	Free   func(dir string) (n uint64) // bytes that we may still write to a folder, 0: unknown; nil: unknown
}

// ThisMachine is the one we run on.
func ThisMachine() Machine { return Machine{Output: output, Has: hasProgram, Free: freeSpace} }

func (m *Machine) free(dir string) uint64 {
	if m.Free == nil {
		return 0
	}
	return m.Free(dir)
}

func hasProgram(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}

// output runs a program.
func output(ctx context.Context, name string, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return string(text), nil
}
