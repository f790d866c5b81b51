package main

import (
	"embed"
	"io/fs"
)

// defaultConfig is the configuration without -config: the commented example
// itself, so that it cannot drift from what runs.
//
//go:embed config.yaml
var defaultConfig []byte

//go:embed example/scenarios/*.yaml
var examples embed.FS

// scenarios are those of simulate that come with the program.
var scenarios = mustSub(examples, "example/scenarios")

func mustSub(of fs.FS, dir string) fs.FS {
	sub, err := fs.Sub(of, dir)
	if err != nil {
		panic("bug: " + err.Error()) // only an invalid path fails
	}
	return sub
}
