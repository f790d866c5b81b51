package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

const smallScenario = `
name: small
about: A small one.
duration: 10s
platform: {failures: [{share: 0.5, status: 503}]}
bots: [{name: bots, bots: 10, every: 1s, keyed: true}]
runs: [{peer: direct}, {name: usual}]
`

func withScenarios(e *Env) {
	e.Scenarios = fstest.MapFS{"small.yaml": {Data: []byte(smallScenario)}}
}

func TestSimulate(t *testing.T) {
	own := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(own, []byte("duration: 5s\nbots: [{bots: 0}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	without := file(t, "retry_policies: [{name: default, max_retries: 0}]\nadmin: {token: \"${NOT_SET}\"}\n")
	tests := []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"list", []string{"-list"}, OK, "small\n    A small one.\n", ""},
		{"by name", []string{"small"}, OK, "small, seed 1: A small one.", ""},
		{"another seed", []string{"-seed", "7", "small"}, OK, "small, seed 7", ""},
		{"another configuration, whose secrets are not here", []string{"small", "-config", without}, OK, "config.yaml", ""},
		{"two of them", []string{"small", "-config", without, "-config", without}, OK, "config.yaml (2)", ""},
		{"CSV", []string{"small", "-csv", "-"}, OK, "run,second,offered", ""},
		{"SVG", []string{"small", "-svg", "-"}, OK, "<svg xmlns", ""},
		{"neither name nor file", []string{"tall"}, Usage, "", `"tall" is neither a file nor one of the scenarios`},
		{"no such file", []string{"./none.yaml"}, Usage, "", "no such file"},
		{"faults", []string{own}, Usage, "", own + ":2: bots[0].bots: 0 must be from 1 to 100000"},
		{"no such configuration", []string{"small", "-config", "none.yaml"}, Usage, "", "none.yaml"},
		{"nothing", nil, Usage, "", "want a scenario"},
		{"list of one", []string{"-list", "small"}, Usage, "", "or -list alone"},
		{"both to standard output", []string{"small", "-csv", "-", "-svg", "-"}, Usage, "", "cannot both go to standard output"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := typed(t, withScenarios, append([]string{"simulate"}, test.args...)...)
			if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
				t.Errorf("simulate %q = %d %q %q, want %d %q %q", test.args, code, stdout, stderr, test.code, test.stdout, test.stderr)
			}
		})
	}
}

// A week that nobody waits for any more ends soon.
func TestSimulateCanBeInterrupted(t *testing.T) {
	code, stdout, stderr := typed(t, func(e *Env) {
		life, cancel := context.WithCancel(t.Context())
		cancel()
		e.Life, e.Scenarios = life, fstest.MapFS{"long.yaml": {Data: []byte("duration: 168h\nbots: [{bots: 8, every: 1s}]\n")}}
	}, "simulate", "long")
	if code != Failure || stdout != "" || !strings.Contains(stderr, "simulate: interrupted") {
		t.Errorf("simulate = %d %q %q, want a failure that says interrupted", code, stdout, stderr)
	}
}

func TestSimulateWritesFiles(t *testing.T) {
	dir := t.TempDir()
	csv, svg := filepath.Join(dir, "s.csv"), filepath.Join(dir, "s.svg")
	code, stdout, stderr := typed(t, withScenarios, "simulate", "-json", "-csv", csv, "-svg", svg, "small")
	var report struct {
		Seed int
		Runs []struct {
			Name  string
			Total struct{ Calls, Upstream int }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != OK {
		t.Fatalf("simulate = %d, %v, %s", code, err, stderr)
	}
	if len(report.Runs) != 2 || report.Runs[0].Total.Calls != 100 || report.Runs[1].Total.Upstream <= 100 {
		t.Errorf("report = %+v, want 100 calls of both runs, and retries of the second", report)
	}
	for name, want := range map[string]string{csv: "run,second", svg: "<svg"} {
		if data, err := os.ReadFile(name); err != nil || !strings.HasPrefix(string(data), want) {
			t.Errorf("%s: %v, want it to begin with %s", name, err, want)
		}
	}
}
