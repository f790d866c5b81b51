package report

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// twoArms is a policy with the variants a and b, whose settings are these.
func twoArms(a, b string) []Group {
	return []Group{{"ship", []Arm{{"ship/a", "a", 90, a}, {"ship/b", "b", 10, b}}}, {"rest", []Arm{{Name: "rest", Settings: "r"}}}}
}

// count counts n calls alike.
func count(r *Report, name string, n int, c Call) {
	for range n {
		r.Count(name, c)
	}
}

// armOf looks up an arm.
func armOf(t *testing.T, r *Report, name string) ArmView {
	t.Helper()
	v, _ := r.View("", start.Add(time.Hour))
	for _, p := range v.Policies {
		for _, a := range p.Arms {
			if a.Name == name {
				return a
			}
		}
	}
	t.Fatalf("no arm %s in %+v", name, v)
	return ArmView{}
}

var (
	first = Call{Succeeded: true, Attempts: 1, Sent: 1}
	again = Call{Succeeded: true, Attempts: 2, Sent: 1, Added: 1500 * time.Millisecond}
	lost  = Call{Attempts: 4, Sent: 4, Added: 7 * time.Second}
)

func TestCount(t *testing.T) {
	r := New(twoArms("1", "2"), start)
	count(r, "ship/a", 7, first)
	count(r, "ship/a", 2, again)
	count(r, "ship/a", 1, lost)
	count(r, "ship/a", 3, Call{Left: true, Attempts: 1, Sent: 1})
	count(r, "ship/gone", 5, first)
	got := armOf(t, r, "ship/a")
	if got.Calls != 10 || got.Succeeded != 9 || got.Saved != 2 || got.Left != 3 || !got.Since.Equal(start) || got.Variant != "a" || got.Weight != 90 {
		t.Errorf("a = %+v, want 10 calls, 9 succeeded, 2 saved, 3 left", got)
	}
	count(r, "ship/b", 1, Call{Succeeded: true, Attempts: 10})
	count(r, "ship/b", 2, Call{Succeeded: true, Attempts: 1000})
	count(r, "ship/b", 2, Call{Attempts: 3})
	if b := armOf(t, r, "ship/b"); !slices.Equal(got.Healed, []int{7, 2, 0, 0, 0, 0, 0, 0, 0, 0}) || !slices.Equal(b.Healed, []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 3}) {
		t.Errorf("healed = %v and %v, want 7 and 2 on attempts 1 and 2, and 3 on the last", got.Healed, b.Healed)
	}
	r.Reset("ship", start)
	low, high := edges(bucket(7000))
	for what, c := range map[string][2]float64{
		"success": {got.Success.Value, 0.9}, "attempts": {got.Attempts.Value, 1.5}, "amplification": {got.Amplification.Value, 1.3},
		"added": {got.Added.Value, 1000}, "p95": {got.AddedP95.Value, (low + high) / 2},
	} {
		if !near(c[0], c[1], 1e-9) {
			t.Errorf("%s = %v, want %v", what, c[0], c[1])
		}
	}
	if b := armOf(t, r, "ship/b"); b.Calls != 0 || !math.IsNaN(b.Success.Value) {
		t.Errorf("b = %+v, want no calls and nothing known", b)
	}
}

func TestWaitsUnderAMillisecondAreNone(t *testing.T) {
	r := New(twoArms("1", "2"), start)
	r.Count("rest", Call{Succeeded: true, Attempts: 1, Added: 999 * time.Microsecond})
	r.Count("rest", Call{Succeeded: true, Attempts: 1, Added: -time.Second}) // the clock was set back
	if got := armOf(t, r, "rest"); got.Added.Value != 0 || got.AddedP95.Value != 0 {
		t.Errorf("rest = %+v, want no added latency", got)
	}
}

func TestConfigureKeepsWhatStays(t *testing.T) {
	r := New(twoArms("1", "2"), start)
	for _, name := range []string{"ship/a", "ship/b", "rest"} {
		count(r, name, 5, first)
	}
	same := start.Add(time.Minute)
	r.Configure(twoArms("1", "2"), same)
	if v, _ := r.View("ship", same); !v.Policies[0].ChangedAt.IsZero() || v.Policies[0].Arms[0].Calls != 5 {
		t.Errorf("after a reload that changed nothing: %+v, want all as it was", v.Policies[0])
	}
	later := start.Add(2 * time.Minute)
	r.Configure(twoArms("1", "other"), later)
	if a, b := armOf(t, r, "ship/a"), armOf(t, r, "ship/b"); a.Calls != 5 || !a.Since.Equal(start) || b.Calls != 0 || !b.Since.Equal(later) {
		t.Errorf("a = %+v, b = %+v; want a as it was and b anew", a, b)
	}
	r.Configure(twoArms("1", "other"), start.Add(3*time.Minute))
	if v, _ := r.View("ship", later); !v.Policies[0].ChangedAt.Equal(later) {
		t.Errorf("changed at %v, want %v, also after a reload that changed nothing", v.Policies[0].ChangedAt, later)
	}
	if got := armOf(t, r, "rest"); got.Calls != 5 {
		t.Errorf("rest has %d calls, want 5", got.Calls)
	}
	r.Configure([]Group{{"ship", []Arm{{Name: "ship", Settings: "1"}}}}, start.Add(4*time.Minute))
	if v, ok := r.View("rest", later); ok {
		t.Errorf("a policy that is gone is shown: %+v", v)
	}
	if v, _ := r.View("ship", later); !v.Policies[0].ChangedAt.IsZero() || v.Policies[0].Arms[0].Calls != 0 {
		t.Errorf("ship without variants = %+v, want it anew", v.Policies[0])
	}
}

func TestReset(t *testing.T) {
	r := New(twoArms("1", "2"), start)
	count(r, "ship/a", 5, first)
	count(r, "rest", 5, first)
	r.Configure(twoArms("1", "3"), start.Add(time.Minute))
	at := start.Add(2 * time.Minute)
	if r.Reset("ship/a", at) {
		t.Error("a variant was reset alone: what is left cannot be compared with it")
	}
	if !r.Reset("ship", at) {
		t.Fatal("Reset(ship) = false")
	}
	a := armOf(t, r, "ship/a")
	if v, _ := r.View("ship", at); a.Calls != 0 || !a.Since.Equal(at) || !v.Policies[0].ChangedAt.IsZero() || armOf(t, r, "rest").Calls != 5 {
		t.Errorf("after Reset(ship): %+v and rest with %d calls, want ship anew and rest as it was", v.Policies[0], armOf(t, r, "rest").Calls)
	}
	if !r.Reset("", at) || armOf(t, r, "rest").Calls != 0 {
		t.Error("Reset of all left the calls of rest")
	}
}

// Verdicts by the rules of docs/experiments.md.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name string
		fill func(r *Report)
		want Comparison // verdicts only; empty: not looked at
	}{
		{"too few of one", func(r *Report) {
			count(r, "ship/a", 1000, first)
			count(r, "ship/b", 99, lost)
		}, verdicts(NotEnough, NotEnough, NotEnough, NotEnough)},
		{"enough for what is plain", func(r *Report) {
			count(r, "ship/a", 100, first)
			count(r, "ship/b", 60, first)
			count(r, "ship/b", 40, lost)
		}, verdicts(Worse, Worse, Worse, Worse)},
		{"the same the other way round", func(r *Report) {
			count(r, "ship/b", 100, first)
			count(r, "ship/a", 60, first)
			count(r, "ship/a", 40, lost)
		}, verdicts(Better, Better, Better, Better)},
		{"alike, but nobody could see a point", func(r *Report) {
			for _, name := range []string{"ship/a", "ship/b"} {
				count(r, name, 180, first)
				count(r, name, 20, lost)
			}
		}, verdicts(NotEnough, NotEnough, NotEnough, "")},
		{"alike", func(r *Report) {
			for _, name := range []string{"ship/a", "ship/b"} {
				count(r, name, 99_000, first)
				count(r, name, 1_000, lost)
			}
		}, verdicts(Same, Same, Same, Same)},
		// 1 % of retries in 1000 calls: ten values say nothing of a mean, Cochran.
		{"too skewed", func(r *Report) {
			count(r, "ship/a", 1000, first)
			count(r, "ship/b", 990, first)
			count(r, "ship/b", 10, again)
		}, verdicts("", NotEnough, NotEnough, "")},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := New(twoArms("1", "2"), start)
			c.fill(r)
			if armOf(t, r, "ship/a").Against != nil {
				t.Error("the first variant is compared with itself")
			}
			got := armOf(t, r, "ship/b").Against
			for what, v := range map[string][2]Difference{
				"success": {got.Success, c.want.Success}, "attempts": {got.Attempts, c.want.Attempts},
				"added": {got.Added, c.want.Added}, "p95": {got.AddedP95, c.want.AddedP95},
			} {
				if v[1].Verdict != "" && v[0].Verdict != v[1].Verdict {
					t.Errorf("%s: %+v, want %q", what, v[0], v[1].Verdict)
				}
			}
		})
	}
}

func verdicts(success, attempts, added, p95 string) Comparison {
	return Comparison{
		Success: Difference{Verdict: success}, Attempts: Difference{Verdict: attempts},
		Added: Difference{Verdict: added}, AddedP95: Difference{Verdict: p95},
	}
}

// The bounds of a verdict themselves.
func TestVerdictAtItsBounds(t *testing.T) {
	for _, c := range []struct {
		low, high, good float64
		enough          bool
		want            string
	}{
		{0.001, 0.5, 1, true, Better},
		{0.001, 0.5, -1, true, Worse},
		{-0.5, -0.001, 1, true, Worse},
		{-0.5, -0.001, -1, true, Better},
		{0, 0.009, 1, true, Same},
		{0, 0, -1, true, Same},
		{-0.009, 0.01, 1, true, NotEnough},
		{-0.01, 0.009, 1, true, NotEnough},
		{0.001, 0.5, 1, false, NotEnough},
		{math.NaN(), 0.5, 1, true, NotEnough},
		{0.001, math.NaN(), 1, true, NotEnough},
	} {
		if got := (Estimate{0, c.low, c.high}).verdict(c.good, 0.01, c.enough); got != c.want {
			t.Errorf("verdict of %v to %v, good %v, enough %v = %q, want %q", c.low, c.high, c.good, c.enough, got, c.want)
		}
	}
	for _, c := range [][3]float64{{0, 0, 100}, {499, 0, 100}, {501, 1000, 200}} {
		if got := within(c[0], c[1]); got != c[2] {
			t.Errorf("within(%v, %v) = %v, want %v", c[0], c[1], got, c[2])
		}
	}
}

func TestJSONOfWhatIsNotKnown(t *testing.T) {
	r := New(twoArms("1", "2"), start)
	r.Count("ship/a", first)
	v, _ := r.View("ship", start)
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"attempts_per_call":{"value":1,"low":null,"high":null}`, `"success":{"value":null,"low":null,"high":null}`,
		`"success":{"value":null,"low":null,"high":null,"verdict":"not enough data yet"}`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s\nwant in it %s", text, want)
		}
	}
}

func TestCountAllocatesNothing(t *testing.T) {
	r := New(twoArms("1", "2"), start)
	if n := testing.AllocsPerRun(100, func() { r.Count("ship/a", again) }); n != 0 {
		t.Errorf("Count allocates %v times, want 0", n)
	}
}

// Calls end while operators look and reload.
func TestConcurrently(t *testing.T) {
	r := New(twoArms("1", "2"), start)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { count(r, "ship/a", 1000, again) })
	}
	for i := range 100 {
		r.View("", start)
		r.Configure(twoArms("1", string(rune('a'+i%2))), start)
	}
	all.Wait()
	if got := armOf(t, r, "ship/a").Calls; got != 4000 {
		t.Errorf("%d calls, want 4000", got)
	}
}

func BenchmarkCount(b *testing.B) {
	r := New(twoArms("1", "2"), start)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Count("ship/a", again)
		}
	})
}
