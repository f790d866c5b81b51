package main

import _ "embed"

// defaultConfig is the configuration without -config: the commented example
// itself, so that it cannot drift from what runs.
//
//go:embed config.yaml
var defaultConfig []byte
