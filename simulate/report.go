package simulate

import (
	"maps"
	"slices"
	"time"
)

// Report is what came of a scenario. Times are in milliseconds; of a time that did
// not come within the run it is -1.
type Report struct {
	Scenario string   `json:"scenario"`
	About    string   `json:"about,omitempty"`
	Seed     int      `json:"seed"`
	Runs     []Result `json:"runs"`

	scenario *Scenario
}

// Result is what came of one run.
type Result struct {
	Name   string  `json:"name"`
	Total  Group   `json:"total"`
	Groups []Group `json:"groups"`
	// Policies are the calls by the policy, or variant of one, that they lived by.
	Policies []Group `json:"policies,omitempty"`

	// Seconds after the outage's end from which, for three seconds running, 99 % of
	// what arrives succeeds, and does so within a second.
	Recovery     int `json:"recovery_s"`
	RecoveryFast int `json:"recovery_fast_s"`
	// OutageSuccess is the share of the calls from during the outage that succeeded.
	OutageSuccess float64 `json:"outage_success"`
	// BacklogMS is how long after the outage the last call from before its end was settled.
	BacklogMS int64 `json:"backlog_done_ms"`
	// OverloadMS is the longest time after the outage for which the platform had more
	// than 1.1 times its slots.
	OverloadMS int64 `json:"overload_ms"`

	Wakeups  Wakeups        `json:"wakeups"`
	Stops    map[string]int `json:"stops,omitempty"` // of calls by retryproxy, why they ended
	Breakers []BreakerEvent `json:"breakers,omitempty"`
	Seconds  []Second       `json:"seconds"`
}

// Group is what came of the calls of a group of bots, or of all.
type Group struct {
	Name          string  `json:"name"`
	Calls         int     `json:"calls"`
	Good          int     `json:"succeeded"` // before the patience of its bot was over
	Success       float64 `json:"success"`   // share of the calls
	Upstream      int     `json:"upstream"`  // requests sent to the platform
	Amplification float64 `json:"amplification"`
	// Added are percentiles of what a successful call took beyond the platform's time
	// for its answer: lines, waits, failed attempts.
	AddedP50MS int64 `json:"added_p50_ms"`
	AddedP95MS int64 `json:"added_p95_ms"`
	AddedP99MS int64 `json:"added_p99_ms"`
}

// Wakeups are the starts of retries in bins of 100 ms.
type Wakeups struct {
	Retries int   `json:"retries"`
	Peak    int   `json:"peak"`       // in the fullest bin
	PeakMS  int64 `json:"peak_at_ms"` // when that was
	// Mean is the highest mean of a bin that the jitter of all retries comes to, Ratio
	// the fullest bin against it; 0: there are too few to say.
	Mean  float64 `json:"window_mean"`
	Ratio float64 `json:"ratio"`
	Bins  []Bin   `json:"bins,omitempty"` // those that are not empty
}

// Bin is 100 ms.
type Bin struct {
	AtMS    int64 `json:"at_ms"`
	Retries int   `json:"retries"`
}

// Second is one second of a run. Good and Fast are of the calls that began in it.
type Second struct {
	Offered  int `json:"offered"`   // calls that began
	Good     int `json:"succeeded"` // of these
	Fast     int `json:"fast"`      // of these, within a second
	Answered int `json:"answered"`  // good answers that came
	Upstream int `json:"upstream"`  // requests sent to the platform
	Retries  int `json:"retries"`   // of these
	Waiting  int `json:"waiting"`   // at the end: calls held back
	InFlight int `json:"in_flight"` // at the end: requests at the platform
	Slots    int `json:"slots"`     // at the end: of the platform; 0: no bound

	// Capacity is how many requests a second the platform can take at the end; 0: no bound.
	Capacity float64 `json:"capacity"`
}

// result sums a run up.
func (t *tally) result(name string) Result {
	if t.over >= 0 {
		t.stretch(max(t.over, time.Duration(len(t.seconds))*time.Second))
	}
	all := counts{}
	r := Result{
		Name: name, Recovery: -1, RecoveryFast: -1, BacklogMS: t.backlog.Milliseconds(), OverloadMS: t.longest.Milliseconds(),
		Stops: t.stops, Breakers: t.events, Seconds: t.seconds, Wakeups: t.wakeups(),
	}
	for i := range t.groups {
		g := &t.groups[i]
		r.Groups = append(r.Groups, g.sum(t.names[i]))
		all.calls += g.calls
		all.good += g.good
		all.sent += g.sent
		all.added = append(all.added, g.added...)
	}
	r.Total = all.sum("all")
	delete(t.arms, "") // of peers
	for _, name := range slices.Sorted(maps.Keys(t.arms)) {
		r.Policies = append(r.Policies, t.arms[name].sum(name))
	}
	if t.outage != nil {
		r.Recovery = t.recovery(func(s *Second) int { return s.Good })
		r.RecoveryFast = t.recovery(func(s *Second) int { return s.Fast })
		r.OutageSuccess = t.during.sum("").Success
	}
	return r
}

// sum turns counts into shares and percentiles.
func (c *counts) sum(name string) Group {
	g := Group{Name: name, Calls: c.calls, Good: c.good, Upstream: c.sent}
	if c.calls > 0 {
		g.Success, g.Amplification = float64(c.good)/float64(c.calls), float64(c.sent)/float64(c.calls)
	}
	slices.Sort(c.added)
	g.AddedP50MS, g.AddedP95MS, g.AddedP99MS = percentile(c.added, 50), percentile(c.added, 95), percentile(c.added, 99)
	return g
}

// percentile is the smallest value that p percent are not above, in milliseconds.
func percentile(sorted []time.Duration, p int) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max((len(sorted)*p+99)/100-1, 0)].Milliseconds()
}

// steady is for how many seconds a recovery has to last.
const steady = 3

// recovery is the number of seconds after the outage from which at least 99 % of
// what arrives comes to good; -1: it does not before calls cease.
func (t *tally) recovery(good func(*Second) int) int {
	end, until := int((t.outage.To+time.Second-1)/time.Second), min(int(t.length/time.Second), len(t.seconds))
	run := 0
	for n := end; n < until; n++ {
		s := &t.seconds[n]
		if float64(good(s)) < 0.99*float64(s.Offered) {
			run = 0
		} else if run++; run == steady {
			return n - steady + 1 - end
		}
	}
	return -1
}

// wakeups sums up the starts of retries.
func (t *tally) wakeups() Wakeups {
	w := Wakeups{}
	for b, n := range t.retries {
		w.Retries += n
		at := int64(b) * bin.Milliseconds()
		w.Bins = append(w.Bins, Bin{at, n})
		if n > w.Peak || n == w.Peak && at < w.PeakMS {
			w.Peak, w.PeakMS = n, at
		}
	}
	slices.SortFunc(w.Bins, func(x, y Bin) int { return int(x.AtMS - y.AtMS) })
	for _, n := range t.expected {
		w.Mean = max(w.Mean, n)
	}
	if w.Mean >= 1 {
		w.Ratio = float64(w.Peak) / w.Mean
	}
	return w
}
