package patience

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// near says that a time is right to a tenth.
func near(got, want time.Duration) bool {
	return float64(got) > 0.9*float64(want) && float64(got) < 1.1*float64(want)
}

func TestQuantiles(t *testing.T) {
	for _, want := range []time.Duration{time.Millisecond * 12, 250 * time.Millisecond, time.Second, 30 * time.Second, 5 * time.Minute, 3 * time.Hour} {
		p := New()
		for i := range 100 {
			p.Count(Call{Kind: "a", Left: want})
			p.Count(Call{Kind: "b", Left: want * time.Duration(i+1) / 50})
		}
		if v := p.Of("a"); !near(v.P50, want) || v.P90 != v.P50 {
			t.Errorf("all left after %v: %v, %v", want, v.P50, v.P90)
		}
		if v := p.Of("b"); !near(v.P50, want) || !near(v.P90, want*90/50) {
			t.Errorf("they left after up to twice %v: %v, %v, want half of them within that, nine tenths within %v", want, v.P50, v.P90, want*90/50)
		}
	}
	p := New()
	p.Count(Call{Left: 1})
	p.Count(Call{Left: 1000 * time.Hour})
	if v := p.Of(""); v.P50 <= 0 || v.P50 > 10*time.Millisecond || v.P90 < 10*time.Hour {
		t.Errorf("beyond the ends: %v, %v", v.P50, v.P90)
	}
	if v := New().Of("x"); v != (View{Kind: "x"}) {
		t.Errorf("of nobody: %+v", v)
	}
}

func TestCounts(t *testing.T) {
	p := New()
	p.Count(Call{Kind: "ship", Deadline: time.Minute})
	p.Count(Call{Kind: "ship", Waited: true, Deadline: 2 * time.Minute})
	p.Count(Call{Kind: "ship", Waited: true, Left: time.Second})
	p.Count(Call{Kind: "ship", Left: time.Second})
	p.Count(Call{})
	want := []View{
		{Kind: "-", Calls: 1},
		{Kind: "ship", Calls: 4, Left: 2, Waited: 2, WaitedLeft: 1, Deadline: 2 * time.Minute, P50: time.Second, P90: time.Second},
	}
	if diff := cmp.Diff(want, p.Views()); diff != "" {
		t.Errorf("Views (-want +got):\n%s", diff)
	}
}

func TestKindsAreBounded(t *testing.T) {
	p := New()
	for i := range 1000 {
		p.Count(Call{Kind: fmt.Sprint("k", i), Left: time.Second})
	}
	if n := len(p.Views()); n != mostKinds+1 {
		t.Errorf("%d kinds, want %d and the others", n, mostKinds)
	}
	if v := p.Of("k999"); v.Kind != Others || v.Left != 1000-mostKinds {
		t.Errorf("Of one of the others = %+v", v)
	}
	if v := p.Of("k0"); v.Kind != "k0" || v.Left != 1 {
		t.Errorf("Of the first = %+v", v)
	}
}

// It is said once, and not before there is something to say.
func TestMostLeave(t *testing.T) {
	p, said := New(), 0
	for i := range 200 {
		v, most := p.Count(Call{Kind: "ship", Waited: true, Left: time.Duration(i%3) * time.Second, Deadline: time.Minute})
		if most {
			said++
			if v.Waited != enough || v.Kind != "ship" || v.Deadline != time.Minute || v.WaitedLeft != 13 {
				t.Errorf("said of %+v, want as soon as %d waited", v, enough)
			}
		}
		if _, most := p.Count(Call{Kind: "report", Waited: true, Left: time.Duration(i%2) * time.Second}); most {
			t.Error("half of them are not most")
		}
		if _, most := p.Count(Call{Kind: "quick", Left: time.Second}); most {
			t.Error("they did not wait")
		}
	}
	if said != 1 {
		t.Errorf("said %d times, want once", said)
	}
}
