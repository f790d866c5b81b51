package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// sizes are what a finished keyed call leaves behind: memory, room on the disk, and what
// was written for it.
func (l *lab) sizes() error {
	fmt.Fprintf(l.out, "%-8s  %12s  %12s  %13s\n", "records", "memory B/rec", "file B/rec", "written B/call")
	for _, s := range stores {
		memory, file, written, err := l.sizesOf(s.name, s.config)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(l.out, "%-8s  %12d  %12d  %13d\n", s.name, memory, file, written)
	}
	return nil
}

func (l *lab) sizesOf(name, store string) (memory, file, written int64, err error) {
	p, err := l.start(name, store)
	if err != nil {
		return 0, 0, 0, err
	}
	defer p.stop()
	var n atomic.Int64
	few := func() bool { return n.Add(1) > 1000 } // until buffers and statements are there
	if _, err := l.loop(p, connections, "/", "201", few); err != nil {
		return 0, 0, 0, err
	}
	before, err := p.holds()
	if err != nil {
		return 0, 0, 0, err
	}
	n.Store(0)
	calls, err := l.loop(p, connections, "/", "201", func() bool { return n.Add(1) > int64(l.records) })
	if err != nil {
		return 0, 0, 0, err
	}
	time.Sleep(3 * time.Second) // what is written later is
	after, err := p.holds()
	if err != nil {
		return 0, 0, 0, err
	}
	return (after.memory - before.memory) / calls, (after.file - before.file) / calls, (after.written - before.written) / calls, nil
}

// holdings are what a proxy has.
type holdings struct{ memory, file, written int64 }

func (p *proxy) holds() (h holdings, err error) {
	if h.memory, err = p.Memory(); err != nil {
		return h, err
	}
	if info, err := os.Stat(filepath.Join(p.data, "retryproxy.db")); err == nil {
		h.file = info.Size()
	}
	h.written, err = p.Written()
	return h, err
}
