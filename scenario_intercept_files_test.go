package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A CA that the configuration names is used or refused, never made: a typo would
// have every client trust something new.
func TestNamedCAIsNotMade(t *testing.T) {
	for _, command := range [][]string{{"serve", "-config"}, {"check", "-config"}} {
		for _, exists := range []string{"neither", "ca.pem", "ca.key"} {
			t.Run(command[0]+" "+exists, func(t *testing.T) {
				dir := t.TempDir()
				at := func(name string) string { return filepath.Join(dir, name) }
				text := strings.Replace(caseConfig, "\nlisten: {proxy: \"127.0.0.1:18080\", admin: \"127.0.0.1:18090\"}",
					"\nlisten: {proxy: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\nintercept: {hosts: [u1.test], ca_cert: '"+at("ca.pem")+"', ca_key: '"+at("ca.key")+"'}", 1)
				files := map[string]string{"config.yaml": text}
				if exists != "neither" {
					files[exists] = "nothing"
				}
				for name, text := range files {
					if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				var stdout, stderr bytes.Buffer
				stopped, stop := context.WithCancel(t.Context())
				stop() // whatever starts ends at once
				code := run(stopped, append(command, at("config.yaml")), environment{stdout: &stdout, stderr: &stderr, getenv: func(string) string { return "" }})
				if says := stderr.String(); code != 2 || !strings.Contains(says, "intercept.ca_cert") || !strings.Contains(says, at("ca.pem")) {
					t.Errorf("%s = %d and says %q, want 2 and the files named", command[0], code, says)
				}
				if made, err := os.ReadDir(dir); err != nil || len(made) != len(files) {
					t.Errorf("files afterwards = %v (%v), want the %d that were there", made, err, len(files))
				}
			})
		}
	}
}
