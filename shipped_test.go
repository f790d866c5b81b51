package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"retryproxy/config"
	"retryproxy/demo"
)

// TestShippedConfigurationsLoad reads every configuration that comes with the
// program, but the default, which has its own test.
func TestShippedConfigurationsLoad(t *testing.T) {
	files := map[string]string{
		"demo":    "listen: {proxy: 127.0.0.1:0, admin: 127.0.0.1:0}\n" + demo.Config,
		"example": readShipped(t, "example/config.yaml"),
		"fleet":   readShipped(t, "example/fleet-config.yaml"),
	}
	peers, err := filepath.Glob("bench/peers/*/config.yaml")
	if err != nil || len(peers) == 0 {
		t.Fatalf("Glob(peers) = %v, %v, want some", peers, err)
	}
	for _, name := range peers {
		for _, role := range []string{"reverse", "forward", "connect", "retry"} {
			files[name+" as "+role] = render(t, readShipped(t, name), role)
		}
	}
	for name, text := range files {
		t.Run(name, func(t *testing.T) {
			if _, err := config.Parse(name, []byte(text), config.Options{}); err != nil {
				t.Errorf("Parse(%s) = %v, want nil for\n%s", name, err, text)
			}
		})
	}
}

// TestScenariosComeAlong: simulate has them in the program itself.
func TestScenariosComeAlong(t *testing.T) {
	var out bytes.Buffer
	code := run(t.Context(), []string{"simulate", "-list"}, environment{stdout: &out, stderr: &out, getenv: os.Getenv})
	for _, name := range []string{"published", "storm-slow", "storm-fast", "independent", "thundering", "saturated", "one-shop"} {
		if code != 0 || !strings.Contains("\n"+out.String(), "\n"+name+"\n") {
			t.Errorf("simulate -list = %d without %s:\n%s", code, name, &out)
		}
	}
}

func readShipped(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// render fills in what the lab fills in.
func render(t *testing.T, text, role string) string {
	t.Helper()
	var out strings.Builder
	fields := map[string]string{"Listen": "127.0.0.1:18000", "Upstream": "127.0.0.1:19000", "UpPort": "19000", "Role": role}
	if err := template.Must(template.New("").Parse(text)).Execute(&out, fields); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
