package simulate

import (
	"container/heap"
	"time"
)

// clock is virtual time and what is to happen in it. Events of one instant happen
// in the order in which they were planned.
type clock struct {
	start  time.Time
	at     time.Duration // since start
	events agenda
	seq    uint64
}

// event is something that happens at a time; do is nil once it was called off.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

type agenda []*event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(*event)) }
func (a *agenda) Pop() any {
	old := *a
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*a = old[:len(old)-1]
	return e
}

// now is the virtual date.
func (c *clock) now() time.Time { return c.start.Add(c.at) }

// since is a date as the clock counts.
func (c *clock) since(at time.Time) time.Duration { return at.Sub(c.start) }

// in plans something.
func (c *clock) in(d time.Duration, do func()) *event { return c.when(c.at+max(d, 0), do) }

// when plans something for a time, which is not before now.
func (c *clock) when(at time.Duration, do func()) *event {
	c.seq++
	e := &event{max(at, c.at), c.seq, do}
	heap.Push(&c.events, e)
	return e
}

// off calls an event off; what has happened, or was never planned, is left alone.
func (e *event) off() {
	if e != nil {
		e.do = nil
	}
}

// next is when the next event happens; false: there is none.
func (c *clock) next() (time.Duration, bool) {
	for len(c.events) > 0 {
		if c.events[0].do != nil {
			return c.events[0].at, true
		}
		heap.Pop(&c.events)
	}
	return 0, false
}

// step makes the next event happen.
func (c *clock) step() {
	e := heap.Pop(&c.events).(*event)
	c.at = e.at
	do := e.do
	e.do = nil
	do()
}
