//go:build !unix

package main

import "os"

// reloadSignal never fires: this system has no SIGHUP; the file is polled.
func reloadSignal() <-chan os.Signal { return nil }
