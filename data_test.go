package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"retryproxy/config"
)

// -data keeps calls in its directory, unless the file names another durable store:
// whoever names a directory wants to find its calls again.
func TestDataAndTheFile(t *testing.T) {
	const file, none = "policy.yaml", ""
	tests := []struct {
		name, file, text, kind, path string
		overruled                    bool
	}{
		{"embedded file", none, string(defaultConfig), "sqlite", "d", true},
		{"no store", file, "instance: p\n", "sqlite", "d", false},
		{"durability alone", file, "store: {durability: process}\n", "sqlite", "d", false},
		{"memory", file, "store: {kind: memory}\n", "sqlite", "d", true},
		{"copied from config.yaml", file, string(defaultConfig), "sqlite", "d", true},
		{"another directory", file, "store: {kind: sqlite, path: e}\n", "sqlite", "e", false},
		{"a directory and no kind", file, "store: {path: e}\n", "sqlite", "e", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &serveFlags{file: tt.file, data: "d"}
			cfg, err := parseConfig("policy.yaml", []byte(tt.text), f, func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			if got := cfg.Store; got.Kind != tt.kind || got.Path != tt.path {
				t.Errorf("store = %s %q, want %s %q", got.Kind, got.Path, tt.kind, tt.path)
			}
			if got := cfg.Overruled("store.kind"); got != tt.overruled {
				t.Errorf("Overruled(store.kind) = %v, want %v", got, tt.overruled)
			}
		})
	}
}

// The banner says where calls are kept, and that the file says something else.
func TestBannerOfData(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel() // it drains as soon as it serves
	for _, tt := range []struct {
		text string
		want bool
	}{{"store: {kind: memory}\n", true}, {"store: {durability: full}\n", false}} {
		file, dir := filepath.Join(t.TempDir(), "copied.yaml"), t.TempDir()
		if err := os.WriteFile(file, []byte("listen: {proxy: \"127.0.0.1:0\", admin: \"\"}\n"+tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr lockedBuffer
		if code := serve(over, []string{"-config", file, "-data", dir}, environment{getenv: os.Getenv, stdout: &stdout, stderr: &stderr}); code != 0 {
			t.Fatalf("serve = %d %s", code, stderr.String())
		}
		kept := "Keyed calls are kept in " + dir
		if got := stdout.String(); !strings.Contains(got, kept) || strings.Contains(got, "copied.yaml says store.kind: memory") != tt.want {
			t.Errorf("the banner for %s is\n%s\nwant %q, and that the file says memory: %v", tt.text, got, kept, tt.want)
		}
	}
}

// A fault of the file is told as the file's, whatever -data changes beside it.
func TestFaultsBesideData(t *testing.T) {
	f := &serveFlags{file: "policy.yaml", data: "d"}
	_, err := parseConfig("policy.yaml", []byte("store: {durability: some}\n"), f, func(string) string { return "" })
	if err == nil || !strings.HasPrefix(err.Error(), "policy.yaml:1: store.durability: ") {
		t.Errorf("parseConfig = %v, want a fault of store.durability", err)
	}
}

// What is wrong with the store is told under its name, once.
func TestStoreFaultIsNamedOnce(t *testing.T) {
	cfg := config.Default()
	cfg.Store.Kind, cfg.Store.Path = "sqlite", filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(cfg.Store.Path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := openStore(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err == nil || !strings.HasPrefix(err.Error(), "store: ") || strings.Count(err.Error(), "store: ") != 1 {
		t.Errorf("openStore over a file = %v, want one line that begins with store:", err)
	}
}
