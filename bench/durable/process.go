package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"retryproxy/bench/process"
)

// proxy is one that runs, with a store of its own.
type proxy struct {
	*process.Process
	data string
}

const configText = `
listen: {proxy: %q, admin: ""}
log: {level: error}
retry_limits: {global: off, task_type: off, shop: off}
idempotency: {entries: 10000000, bytes: 4GiB}
store: %s
retry_policies: [{name: default, retry_after_over_cap: park}]
`

// start runs the proxy on one core with a store of its own.
func (l *lab) start(name, store string) (*proxy, error) {
	addr, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(l.dir, name+strconv.FormatInt(time.Now().UnixNano(), 36))
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(data, "config.yaml")
	text := fmt.Sprintf(configText, addr, strings.ReplaceAll(store, "DIR", data))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p, err := process.Start(context.Background(), filepath.Join(data, "log"), addr, l.binary, "serve", "-config", file)
	return &proxy{p, data}, err
}

func (p *proxy) stop() {
	p.Stop()
	_ = os.RemoveAll(p.data)
}
