//go:build linux || darwin

package doctor

import "syscall"

// freeSpace is what we may still write to a folder, in bytes; 0: unknown.
func freeSpace(dir string) uint64 {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return 0
	}
	return s.Bavail * uint64(s.Bsize) //nolint:gosec,unconvert // signed on one, unsigned on the other; never negative
}
