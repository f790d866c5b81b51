//go:build !windows

package service

import "errors"

// Here says whether this system has what this package speaks to.
const Here = false

// Install makes a service that starts with the system.
func Install(Spec) error { return errors.ErrUnsupported }

// Uninstall stops the service and takes it away.
func Uninstall(string) error { return errors.ErrUnsupported }

// Start starts the service and returns when it serves.
func Start(string) error { return errors.ErrUnsupported }

// Halt stops the service and returns when it has ended.
func Halt(string) error { return errors.ErrUnsupported }

// Run is what the system starts.
func Run(string, Program) (int, error) { return 0, errors.ErrUnsupported }
