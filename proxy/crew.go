package proxy

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
)

// crew is the work that goes on without a client's goroutine. A panic in it ends
// that piece of work, not the process.
type crew struct {
	mu   sync.Mutex
	busy int
	idle chan struct{} // closed: busy is 0; made when somebody asks
}

// goes starts a piece of work.
func (c *crew) goes(log *slog.Logger, work func()) {
	c.comes()
	go func() { // whoever shuts down waits for it
		defer c.done()
		defer func() {
			if p := recover(); p != nil {
				log.Error("a call without a client panicked", "error", p, "stack", string(debug.Stack()))
			}
		}()
		work()
	}()
}

// comes is the beginning of a piece of work that has a goroutine, done its end.
func (c *crew) comes() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy++
}

func (c *crew) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy--; c.busy == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// wait returns when nothing is going on any more, or with ctx.
func (c *crew) wait(ctx context.Context) error {
	c.mu.Lock()
	if c.busy == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
