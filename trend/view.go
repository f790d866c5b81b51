package trend

import (
	"slices"
	"strings"
	"time"
)

// Span is which minutes a view has: the first one, and how long each is. The last is the
// minute that is not over yet.
type Span struct {
	Start time.Time `json:"start"`
	Step  int       `json:"step_s"`
}

// Hosts is what happened per minute at each host, and what waited.
type Hosts struct {
	Span
	Hosts   []Host           `json:"hosts"`   // by name
	Waiting map[string][]int `json:"waiting"` // by cause: the most at a time
}

// Host is one of Hosts. Calls count in the minute of their end, attempts in that of theirs.
type Host struct {
	Host      string `json:"host"`
	Calls     []int  `json:"calls"`
	Succeeded []int  `json:"succeeded"`
	Recovered []int  `json:"recovered"` // of Succeeded: not on the first attempt
	Attempts  []int  `json:"attempts"`
}

// Shops is what happened per minute to each shop.
type Shops struct {
	Span
	Shops []Shop `json:"shops"` // by name
}

// Shop is one of Shops.
type Shop struct {
	Shop   string `json:"shop"` // - has the calls without one
	Calls  []int  `json:"calls"`
	Failed []int  `json:"failed"`
}

// Sum is what a while came to.
type Sum struct {
	Calls     int `json:"calls"`
	Succeeded int `json:"succeeded"`
	Recovered int `json:"recovered"` // of Succeeded: not on the first attempt
	Failed    int `json:"failed"`
}

// span is that of the last minutes until now; first is the number of its first minute.
func span(minutes int, now time.Time) (s Span, first int64) {
	first = minuteOf(now) - int64(minutes) + 1
	return Span{time.Unix(first*60, 0).In(now.Location()), 60}, first
}

// Hosts gives the last minutes, 1 to Minutes of them, of the hosts that had any calls.
func (t *Trend) Hosts(minutes int, now time.Time) Hosts {
	at, first := span(minutes, now)
	v := Hosts{at, []Host{}, map[string][]int{}}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.hosts.lively(first) {
		get := func(measure int) []int { return s.row(measure, first, minutes) }
		v.Hosts = append(v.Hosts, Host{s.name, get(calls), get(succeeded), get(recovered), get(attempts)})
	}
	for _, s := range t.waits.lively(first) {
		v.Waiting[s.name] = s.row(calls, first, minutes)
	}
	return v
}

// Shops gives the last minutes, 1 to Minutes of them, of the shops that had any calls.
func (t *Trend) Shops(minutes int, now time.Time) Shops {
	at, first := span(minutes, now)
	v := Shops{at, []Shop{}}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.shops.lively(first) {
		v.Shops = append(v.Shops, Shop{s.name, s.row(calls, first, minutes), s.row(failed, first, minutes)})
	}
	return v
}

// Last sums the last minutes, 1 to Minutes of them.
func (t *Trend) Last(minutes int, now time.Time) (sum Sum) {
	_, first := span(minutes, now)
	t.mu.Lock()
	defer t.mu.Unlock()
	for m := first; m < first+int64(minutes); m++ {
		if c := t.all.look(m); c != nil {
			sum.Calls += int(c[calls])
			sum.Succeeded += int(c[succeeded])
			sum.Recovered += int(c[recovered])
			sum.Failed += int(c[failed])
		}
	}
	return sum
}

// lively are the series that counted anything since a minute, by name.
func (g *group) lively(first int64) []*series {
	out := slices.DeleteFunc(slices.Clone(g.list), func(s *series) bool { return s.head < first })
	slices.SortFunc(out, func(a, b *series) int { return strings.Compare(a.name, b.name) })
	return out
}

// look is what a minute has; nil: nothing.
func (s *series) look(minute int64) *[measures]uint32 {
	if minute > s.head || minute <= s.head-Minutes {
		return nil
	}
	return &s.cells[minute%Minutes]
}

func (s *series) row(measure int, first int64, minutes int) []int {
	out := make([]int, minutes)
	for i := range out {
		if c := s.look(first + int64(i)); c != nil {
			out[i] = int(c[measure])
		}
	}
	return out
}
