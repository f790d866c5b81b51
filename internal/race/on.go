//go:build race

package race

// Enabled tells whether the program is built with the race detector.
const Enabled = true
