package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"retryproxy/config"
)

// -data keeps calls in its directory, unless the file asks for something else.
func TestDataAndTheFile(t *testing.T) {
	const file, none = "policy.yaml", ""
	tests := []struct {
		name, file, text, kind, path string
	}{
		{"embedded file", none, string(defaultConfig), "sqlite", "d"},
		{"no store", file, "instance: p\n", "sqlite", "d"},
		{"durability alone", file, "store: {durability: process}\n", "sqlite", "d"},
		{"memory", file, "store: {kind: memory}\n", "memory", ""},
		{"another directory", file, "store: {kind: sqlite, path: e}\n", "sqlite", "e"},
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
		})
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
