package journal

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"retryproxy/attempt"
)

// BenchmarkRecorder is what it costs to hand a call on, beside what the Journal does with it.
func BenchmarkRecorder(b *testing.B) {
	r := NewRecorder(&nothing{}, nil)
	ctx, cancel := context.WithCancel(b.Context())
	var done sync.WaitGroup
	done.Go(func() { r.Run(ctx, func() <-chan time.Time { return time.After(200 * time.Millisecond) }) })
	c := &attempt.Summary{}
	for b.Loop() {
		r.Add(c)
		runtime.Gosched() // another call goes on
	}
	cancel()
	done.Wait()
}

type nothing struct{ kept }

func (*nothing) Note(context.Context, []*attempt.Summary) error { return nil }
