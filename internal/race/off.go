//go:build !race

// Package race answers one question: does the race detector run? Tests ask: with it they
// take ten times the time, and it has allocations and frames of its own.
package race

// Enabled tells whether the program is built with the race detector.
const Enabled = false
