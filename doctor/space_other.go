//go:build !linux && !darwin

package doctor

// freeSpace is unknown here.
func freeSpace(string) uint64 { return 0 }
