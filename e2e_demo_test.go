package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestE2E_DemoGoesAsPromised walks through the demo on real sockets; each of
// its steps is an error when the proxy does not do what it says there.
func TestE2E_DemoGoesAsPromised(t *testing.T) {
	var out, errs bytes.Buffer
	env := environment{stdout: &out, stderr: &errs, getenv: func(string) string { return "" }}
	if code := run(t.Context(), []string{"demo"}, env); code != 0 {
		t.Errorf("run(demo) = %d, want 0: %s\n%s", code, errs.String(), out.String())
	}
	if !strings.Contains(out.String(), "\n8. ") {
		t.Errorf("run(demo) printed %q, want 8 steps", out.String())
	}
}
