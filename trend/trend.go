// Package trend answers one question: how did the last hour go?
//
// It counts calls and attempts per minute, for each host and each shop, and what waited,
// in memory of fixed size. It is told the time.
package trend

import (
	"strings"
	"sync"
	"time"
)

const (
	// Minutes is how far back counts go.
	Minutes = 60

	mostHosts  = 256
	mostShops  = 500
	mostCauses = 32
	longest    = 160 // bytes of a name
)

// NoShop is the name of calls without a shop.
const NoShop = "-"

// Call is what a call that ended is counted by.
type Call struct {
	Host, Shop string // empty Shop: none
	Succeeded  bool
	Recovered  bool // Succeeded, and not on the first attempt
	Failed     bool // neither means that its client left
	Ended      time.Time
}

// Trend counts. Make one with New; all methods are safe for concurrent use, and those
// that count do not allocate once a name is known.
type Trend struct {
	mu    sync.Mutex
	all   series
	hosts group
	shops group
	waits group // per cause: the most that waited at a time
}

// What a series counts per minute.
const (
	calls = iota
	succeeded
	recovered
	failed
	attempts
	measures
)

// New has counted nothing.
func New() *Trend {
	return &Trend{hosts: newGroup(mostHosts), shops: newGroup(mostShops), waits: newGroup(mostCauses)}
}

// Call counts a call that ended.
func (t *Trend) Call(c *Call) {
	m := minuteOf(c.Ended)
	shop := c.Shop
	if shop == "" {
		shop = NoShop
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.call(c, m)
	t.hosts.of(c.Host, m).call(c, m)
	t.shops.of(shop, m).call(c, m)
}

// Attempt counts an attempt at a host, at the time when it was over.
func (t *Trend) Attempt(host string, at time.Time) {
	m := minuteOf(at)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hosts.of(host, m).add(attempts, m)
}

// Waiting notes how many calls wait now, by what they wait for.
func (t *Trend) Waiting(byCause map[string]int, now time.Time) {
	m := minuteOf(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	for cause, n := range byCause {
		if c := t.waits.of(cause, m).cell(m); c != nil {
			c[calls] = max(c[calls], uint32(max(n, 0)))
		}
	}
}

// group is the series of one kind, by name.
type group struct {
	byName map[string]*series
	list   []*series // the same
	last   *series   // that was asked for: most calls go where the one before went
	most   int
}

func newGroup(most int) group { return group{byName: map[string]*series{}, most: most} }

// of finds or makes a series. Where there are too many, the quietest is forgotten.
func (g *group) of(name string, minute int64) *series {
	name = name[:min(len(name), longest)]
	if g.last != nil && g.last.name == name {
		return g.last
	}
	s := g.byName[name]
	if s == nil {
		s = g.add(name, minute)
	}
	g.last = s
	return s
}

// add makes a series.
func (g *group) add(name string, minute int64) *series {
	s := &series{name: strings.Clone(name)} // no buffer of a request stays alive
	g.byName[s.name] = s
	if len(g.list) < g.most {
		g.list = append(g.list, s)
		return s
	}
	quietest := 0
	for i := range g.list {
		if g.list[i].total(minute) < g.list[quietest].total(minute) {
			quietest = i
		}
	}
	delete(g.byName, g.list[quietest].name)
	g.list[quietest] = s
	return s
}

// series is a ring of minutes.
type series struct {
	name  string
	head  int64 // the newest minute
	sum   int   // of calls and attempts in the ring
	cells [Minutes][measures]uint32
}

// minuteOf numbers the minutes since 1970.
func minuteOf(at time.Time) int64 { return at.Unix() / 60 }

// cell is the place of a minute; nil: it is too long ago.
func (s *series) cell(minute int64) *[measures]uint32 {
	if minute <= s.head-Minutes {
		return nil
	}
	if minute > s.head {
		s.turn(minute)
	}
	return &s.cells[minute%Minutes]
}

// turn begins a minute, and forgets those that are too long ago.
func (s *series) turn(minute int64) {
	for m := max(s.head+1, minute-Minutes+1); m <= minute; m++ {
		c := &s.cells[m%Minutes]
		s.sum -= int(c[calls] + c[attempts])
		*c = [measures]uint32{}
	}
	s.head = minute
}

func (s *series) add(measure int, minute int64) {
	if c := s.cell(minute); c != nil {
		c[measure]++
		s.sum++
	}
}

func (s *series) call(k *Call, minute int64) {
	c := s.cell(minute)
	if c == nil {
		return
	}
	c[calls]++
	s.sum++
	switch {
	case k.Failed:
		c[failed]++
	case k.Succeeded:
		c[succeeded]++
		if k.Recovered {
			c[recovered]++
		}
	}
}

// total is how much there was within the hour before a minute, as far as it is known
// without looking at each.
func (s *series) total(minute int64) int {
	if minute-s.head >= Minutes {
		return 0
	}
	return s.sum
}
