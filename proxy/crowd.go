package proxy

import (
	"math/bits"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	crowdFrom  = 1024             // waiting calls from which their memory matters
	crowdEvery = 10 * time.Second // least time between two collections for their sake
)

// crowd counts the calls that wait for their turn. A sleeping call keeps the
// stack that its first attempt needed until the collector halves it, and while
// thousands sleep little is allocated that would start a collection. So one is
// asked for each time their number doubles.
type crowd struct {
	waiting atomic.Int64
	last    [64]atomic.Int64 // by the size's power of two: when it was last asked for, Unix nanoseconds
}

// join counts one more.
func (c *crowd) join() {
	n := c.waiting.Add(1)
	if n < crowdFrom || n&(n-1) != 0 {
		return
	}
	now := time.Now().UnixNano()
	last := &c.last[bits.Len64(uint64(n))-1]
	old := last.Load()
	if now-old >= int64(crowdEvery) && last.CompareAndSwap(old, now) {
		go debug.FreeOSMemory() // a collection that also gives the space back; ends by itself
	}
}

func (c *crowd) leave() { c.waiting.Add(-1) }
