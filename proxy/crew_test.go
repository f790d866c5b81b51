package proxy

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever waits for the crew waits for all of it, those that begin meanwhile
// included, and a panic ends nothing but its own work.
func TestCrew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c crew
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		if err := c.wait(t.Context()); err != nil {
			t.Errorf("wait with nothing to do = %v", err)
		}
		c.goes(log, func() {
			time.Sleep(time.Second)
			c.goes(log, func() { time.Sleep(time.Second) })
			panic("oh")
		})
		soon, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if err := c.wait(soon); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait = %v before the end", err)
		}
		began := time.Now()
		if err := c.wait(t.Context()); err != nil || time.Since(began) != 1500*time.Millisecond {
			t.Errorf("wait = %v after %v", err, time.Since(began))
		}
		if !strings.Contains(out.String(), "panicked") || !strings.Contains(out.String(), "error=oh") {
			t.Errorf("log: %s", out.String())
		}
	})
}
