package trend

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// began is the first second of a minute.
var began = time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)

func at(minute int) time.Time { return began.Add(time.Duration(minute) * time.Minute) }

func TestMinutes(t *testing.T) {
	tr := New()
	for _, c := range []Call{
		{Host: "a", Shop: "s1", Succeeded: true, Ended: at(0)},
		{Host: "a", Shop: "s1", Succeeded: true, Recovered: true, Ended: at(0).Add(59 * time.Second)},
		{Host: "a", Shop: "s2", Failed: true, Ended: at(1)},
		{Host: "b", Ended: at(3)}, // its client left
		{Host: "a", Shop: "s1", Succeeded: true, Ended: at(2)},
	} {
		tr.Call(&c)
	}
	for _, minute := range []int{0, 0, 0, 1, 2} {
		tr.Attempt("a", at(minute))
	}
	tr.Waiting(map[string]int{"breaker": 7, "tokens": 1}, at(2))
	tr.Waiting(map[string]int{"breaker": 4}, at(2).Add(5*time.Second))
	now := at(3).Add(30 * time.Second)
	span := Span{at(0), 60}
	if diff := cmp.Diff(Hosts{span, []Host{
		{"a", []int{2, 1, 1, 0}, []int{2, 0, 1, 0}, []int{1, 0, 0, 0}, []int{3, 1, 1, 0}},
		{"b", []int{0, 0, 0, 1}, []int{0, 0, 0, 0}, []int{0, 0, 0, 0}, []int{0, 0, 0, 0}},
	}, map[string][]int{"breaker": {0, 0, 7, 0}, "tokens": {0, 0, 1, 0}}}, tr.Hosts(4, now)); diff != "" {
		t.Errorf("Hosts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Shops{span, []Shop{
		{"-", []int{0, 0, 0, 1}, []int{0, 0, 0, 0}},
		{"s1", []int{2, 0, 1, 0}, []int{0, 0, 0, 0}},
		{"s2", []int{0, 1, 0, 0}, []int{0, 1, 0, 0}},
	}}, tr.Shops(4, now)); diff != "" {
		t.Errorf("Shops (-want +got):\n%s", diff)
	}
	for minutes, want := range map[int]Sum{4: {5, 3, 1, 1}, 3: {3, 1, 0, 1}, 1: {1, 0, 0, 0}, Minutes: {5, 3, 1, 1}} {
		if got := tr.Last(minutes, now); got != want {
			t.Errorf("Last(%d) = %+v, want %+v", minutes, got, want)
		}
	}
	if got := tr.Last(Minutes, at(61)); got != (Sum{2, 1, 0, 0}) {
		t.Errorf("Last an hour on = %+v, want what the minutes 2 and later had", got)
	}
}

// What is older than an hour is gone, and what comes late counts where it belongs.
func TestRing(t *testing.T) {
	for _, tt := range []struct {
		name    string
		minutes []int // at which a call ended
		at      int
		want    map[int]int // calls by minute
	}{
		{"in order", []int{0, 1, 1}, 1, map[int]int{0: 1, 1: 2}},
		{"late", []int{5, 3, 5}, 5, map[int]int{3: 1, 5: 2}},
		{"too late", []int{100, 40}, 100, map[int]int{100: 1}},
		{"just in time", []int{100, 41}, 100, map[int]int{41: 1, 100: 1}},
		{"round the ring", []int{0, 60}, 60, map[int]int{60: 1}},
		{"a long pause", []int{0, 1, 1000}, 1000, map[int]int{1000: 1}},
		{"a gap", []int{0, 30, 62}, 62, map[int]int{30: 1, 62: 1}},
		{"all over", []int{0}, 60, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := New()
			for _, m := range tt.minutes {
				tr.Call(&Call{Host: "a", Failed: true, Ended: at(m)})
			}
			got := map[int]int{}
			v := tr.Shops(Minutes, at(tt.at))
			for _, s := range v.Shops {
				for i, n := range s.Failed {
					if n > 0 {
						got[int(v.Start.Sub(began)/time.Minute)+i] = n
					}
				}
			}
			if tt.want == nil {
				tt.want = map[int]int{}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("failed (-want +got):\n%s", diff)
			}
			all := 0
			for _, n := range tt.want {
				all += n
			}
			if sum := tr.shops.list[0].total(minuteOf(at(tt.at))); sum != all {
				t.Errorf("total = %d, want %d", sum, all)
			}
		})
	}
}

// Where there are too many names the quietest goes, so a busy shop is never pushed out
// by a crowd of names that come once.
func TestQuietestIsForgotten(t *testing.T) {
	tr := New()
	for range 3 {
		tr.Call(&Call{Host: "a", Shop: "busy", Ended: at(0)})
	}
	for i := range 2 * mostShops {
		tr.Call(&Call{Host: "a", Shop: strconv.Itoa(i), Ended: at(0)})
	}
	v := tr.Shops(1, at(0))
	if len(v.Shops) != mostShops || len(tr.shops.byName) != mostShops {
		t.Errorf("%d shops, %d names, want %d", len(v.Shops), len(tr.shops.byName), mostShops)
	}
	if tr.shops.byName["busy"] == nil || tr.shops.byName[strconv.Itoa(2*mostShops-1)] == nil {
		t.Error("the busy shop, or the one that came last, is forgotten")
	}
	for i := range 2 * mostShops {
		tr.Call(&Call{Host: "a", Shop: strconv.Itoa(i), Ended: at(Minutes)})
	}
	if tr.shops.byName["busy"] != nil {
		t.Error("a shop that had no call for an hour is still known")
	}
	if got := tr.Hosts(1, at(Minutes)).Hosts[0].Calls[0]; got != 2*mostShops {
		t.Errorf("calls of the host = %d, want %d: those of forgotten shops, too", got, 2*mostShops)
	}
}

func TestLongNamesAreCut(t *testing.T) {
	tr := New()
	name := string(make([]byte, 2*longest))
	tr.Call(&Call{Host: name, Shop: name, Ended: at(0)})
	tr.Attempt(name, at(0))
	if v := tr.Hosts(1, at(0)); len(v.Hosts) != 1 || len(v.Hosts[0].Host) != longest || v.Hosts[0].Attempts[0] != 1 {
		t.Errorf("hosts = %+v, want one with a name of %d bytes", v, longest)
	}
}

func BenchmarkCall(b *testing.B) {
	tr := New()
	for i := range mostShops {
		tr.Call(&Call{Host: strconv.Itoa(i % mostHosts), Shop: strconv.Itoa(i), Ended: began})
	}
	b.ReportAllocs()
	c := Call{Host: "17", Shop: "17", Succeeded: true, Ended: began}
	for b.Loop() {
		tr.Attempt(c.Host, began)
		tr.Call(&c)
	}
}

func BenchmarkNewShop(b *testing.B) {
	tr := New()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		tr.Call(&Call{Host: "a", Shop: strconv.Itoa(i), Ended: began})
	}
}

func TestNothingIsAllocated(t *testing.T) {
	tr := New()
	c, waiting := Call{Host: "a.test:80", Shop: "17", Failed: true, Ended: at(0)}, map[string]int{"tokens": 1}
	if n := testing.AllocsPerRun(1000, func() {
		tr.Call(&c)
		tr.Attempt(c.Host, c.Ended)
		tr.Waiting(waiting, c.Ended)
		c.Ended = c.Ended.Add(time.Second)
	}); n > 0 {
		t.Errorf("%v allocations per call, want none", n)
	}
}
