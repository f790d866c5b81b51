package report

import (
	"encoding/json"
	"math"
	"time"
)

// leastCalls of each arm, before anything is said of a difference.
const leastCalls = 100

// Verdicts on a difference.
const (
	Better    = "better"
	Worse     = "worse"
	Same      = "no difference seen"
	NotEnough = "not enough data yet"
)

// View is the report at a time, as the API has it. Times are in milliseconds,
// success is a part of 1.
type View struct {
	At         time.Time    `json:"at"`
	Confidence float64      `json:"confidence"` // of each interval
	Policies   []PolicyView `json:"policies"`
}

// PolicyView is one policy. Without variants it has one arm and nothing to compare.
type PolicyView struct {
	Policy string `json:"policy"`
	// ChangedAt is when variants or weights changed while some kept their figures,
	// which then mix two times; zero: never.
	ChangedAt time.Time `json:"changed_at,omitzero"`
	Arms      []ArmView `json:"arms"`
}

// ArmView are the figures of one arm.
type ArmView struct {
	Name      string    `json:"name"` // as the log, calls and metrics have it
	Variant   string    `json:"variant,omitempty"`
	Weight    int       `json:"weight,omitempty"`
	Since     time.Time `json:"since"`
	Calls     int       `json:"calls"`
	Succeeded int       `json:"succeeded"`
	Saved     int       `json:"saved"` // of them by a retry
	Left      int       `json:"left"`  // clients that left before the end; not among the calls
	// Healed are those that succeeded on attempt 1, on attempt 2, …; the last place has
	// all on attempt 10 or later.
	Healed []int `json:"healed"`

	Success       Estimate `json:"success"`
	Attempts      Estimate `json:"attempts_per_call"`
	Amplification Estimate `json:"amplification"` // requests that reached an upstream, per call
	Added         Estimate `json:"added_latency_ms"`
	AddedP95      Estimate `json:"added_latency_p95_ms"`

	Against *Comparison `json:"against_first,omitempty"` // of the first arm: none
}

// Comparison is an arm against the first one.
type Comparison struct {
	Success       Difference `json:"success"`
	Attempts      Difference `json:"attempts_per_call"`
	Amplification Difference `json:"amplification"`
	Added         Difference `json:"added_latency_ms"`
	AddedP95      Difference `json:"added_latency_p95_ms"`
}

// Difference is a figure of an arm less that of the first one.
type Difference struct {
	Estimate
	Verdict string
}

// MarshalJSON writes what is not known as null.
func (e Estimate) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Value any `json:"value"`
		Low   any `json:"low"`
		High  any `json:"high"`
	}{known(e.Value), known(e.Low), known(e.High)})
}

// MarshalJSON adds the verdict.
func (d Difference) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Value   any    `json:"value"`
		Low     any    `json:"low"`
		High    any    `json:"high"`
		Verdict string `json:"verdict"`
	}{known(d.Value), known(d.Low), known(d.High), d.Verdict})
}

// known is a number rounded to what anybody reads; nil: it is not known.
func known(x float64) any {
	if math.IsNaN(x) {
		return nil
	}
	return math.Round(x*1e6)/1e6 + 0 // never -0
}

// View shows the policies in their order; policy limits it to one. False: there is
// none of that name.
func (r *Report) View(policy string, now time.Time) (View, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := View{At: now, Confidence: Confidence, Policies: []PolicyView{}}
	for i := range r.groups {
		if g := &r.groups[i]; policy == "" || g.Policy == policy {
			v.Policies = append(v.Policies, r.policyLocked(g))
		}
	}
	return v, policy == "" || len(v.Policies) > 0
}

func (r *Report) policyLocked(g *group) PolicyView {
	v := PolicyView{Policy: g.Policy, ChangedAt: g.changed}
	var first figures
	for i, a := range g.Arms {
		f := r.byName()[a.Name].look()
		arm := f.view(a)
		if i == 0 {
			first = f
		} else {
			arm.Against = compare(&first, &f)
		}
		v.Arms = append(v.Arms, arm)
	}
	return v
}

func (f *figures) view(a Arm) ArmView {
	return ArmView{
		Name: a.Name, Variant: a.Variant, Weight: a.Weight, Since: f.since,
		Calls: f.calls, Succeeded: f.succeeded, Saved: f.saved, Left: f.left, Healed: f.healed[:],
		Success: proportion(f.succeeded, f.calls), Attempts: f.attempts.estimate(), Amplification: f.sent.estimate(),
		Added: f.added.estimate(), AddedP95: f.spread.quantile(f.calls),
	}
}

// What no difference may reach for "no difference seen": a point of success, five
// requests in a hundred calls, a fifth of a time or a tenth of a second.
const (
	successWithin  = 0.01
	attemptsWithin = 0.05
	timeWithin     = 0.2
	leastTime      = 100.0 // ms
)

// compare says how b does against a.
func compare(a, b *figures) *Comparison {
	enough := min(a.calls, b.calls) >= leastCalls
	mean := func(x, y moments, within float64) Difference {
		least := min(x.n, y.n)
		d := difference(x.estimate(), y.estimate())
		return Difference{d, d.verdict(-1, within, enough && x.and(y).normal(least))}
	}
	success := difference(proportion(a.succeeded, a.calls), proportion(b.succeeded, b.calls))
	p, q := a.spread.quantile(a.calls), b.spread.quantile(b.calls)
	tails := difference(p, q)
	return &Comparison{
		Success:       Difference{success, success.verdict(1, successWithin, enough)},
		Attempts:      mean(a.attempts, b.attempts, attemptsWithin),
		Amplification: mean(a.sent, b.sent, attemptsWithin),
		Added:         mean(a.added, b.added, within(a.added.mean, b.added.mean)),
		AddedP95:      Difference{tails, tails.verdict(-1, within(p.Value, q.Value), enough)},
	}
}

// within is the difference of two times that matters, in milliseconds.
func within(a, b float64) float64 { return max(timeWithin*max(a, b), leastTime) }

// verdict reads a difference whose sign is good: 1, more is better, or -1. It is
// seen when its interval leaves 0 out, and ruled out when all of the interval is
// closer to 0 than matters.
func (e Estimate) verdict(good, matters float64, enough bool) string {
	switch {
	case !enough || math.IsNaN(e.Low) || math.IsNaN(e.High):
		return NotEnough
	case e.Low > 0 && good > 0, e.High < 0 && good < 0:
		return Better
	case e.Low > 0, e.High < 0:
		return Worse
	case e.Low > -matters && e.High < matters:
		return Same
	}
	return NotEnough
}
