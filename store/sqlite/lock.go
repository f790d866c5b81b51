package sqlite

import (
	"fmt"
	"os"
)

// lock makes this process the only one that uses a store. The system gives the
// lock back when the process ends, however it ends.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("store: %s is locked, another process uses this store; stop it, or give this one a directory of its own: %w", path, err)
	}
	return f, nil
}
