//go:build !linux

package process

import (
	"errors"
	"os/exec"
)

// Pin is for Linux.
func Pin(int, int) error { return errors.New("measures by /proc: Linux only") }

func bind(*exec.Cmd) {}
