package sqlite

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData syncs what a file holds, and its size, but not its times.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}
