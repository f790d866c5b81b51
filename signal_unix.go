//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// reloadSignal is told when the operator asks for a reload by SIGHUP.
func reloadSignal() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c
}
