package policy

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func mustSet(t testing.TB, zone *time.Location, policies ...*Policy) *Set {
	t.Helper()
	s, err := NewSet(policies, zone)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSetFirstMatchWins(t *testing.T) {
	s := mustSet(t, nil,
		&Policy{Name: "vip", Match: Match{TaskType: []string{"order_ship"}, ShopTier: []string{"vip"}}},
		&Policy{Name: "ship", Match: Match{TaskType: []string{"order_ship"}}},
		&Policy{Name: "default"})
	for _, c := range []struct {
		attrs Attrs
		want  string
	}{
		{Attrs{TaskType: "order_ship", ShopTier: "vip"}, "vip"},
		{Attrs{TaskType: "order_ship", ShopTier: "normal"}, "ship"},
		{Attrs{TaskType: "order_ship"}, "ship"},
		{Attrs{TaskType: "report"}, "default"},
		{Attrs{}, "default"},
	} {
		if got := s.Match(&c.attrs, at(1, 0)).Name; got != c.want {
			t.Errorf("Match(%+v) = %v, want %v", c.attrs, got, c.want)
		}
	}
}

// Here the first match wins, not the most specific one: the order is the operator's.
func TestCase_CF_06_OverlappingPoliciesResolveTheSameWay(t *testing.T) {
	call := Attrs{TaskType: "order", ShopTier: "vip", Host: "u1.test:80"}
	for run := range 100 {
		s := mustSet(t, time.UTC,
			&Policy{Name: "night", Match: Match{Hours: []HourRange{{22, 6}}, TaskType: []string{"order"}}},
			&Policy{Name: "host", Match: Match{Host: []string{"u1.test"}}},
			&Policy{Name: "vip", Match: Match{ShopTier: []string{"vip"}}},
			&Policy{Name: "default"})
		for _, c := range []struct {
			now  time.Time
			want string
		}{
			{time.Date(2026, 3, 1, 23, 30, 0, 0, time.UTC), "night"},
			{time.Date(2026, 3, 2, 5, 59, 59, 0, time.UTC), "night"},
			{time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC), "host"},
		} {
			if got := s.Match(&call, c.now).Name; got != c.want {
				t.Fatalf("run %d: Match at %v = %v, want %v", run, c.now, got, c.want)
			}
		}
	}
}

func TestNewSetErrors(t *testing.T) {
	for _, c := range []struct {
		name     string
		policies []*Policy
		want     error
	}{
		{"none", nil, ErrSet},
		{"last one matches not all", []*Policy{{Name: "a", Match: Match{Shop: []string{"s1"}}}}, ErrSet},
		{"nameless", []*Policy{{}}, ErrSet},
		{"name used twice", []*Policy{{Name: "a", Match: Match{Shop: []string{"s1"}}}, {Name: "a"}}, ErrSet},
		{"hours", []*Policy{{Name: "a", Match: Match{Hours: []HourRange{{1, 1}}}}, {Name: "default"}}, ErrHours},
	} {
		if _, err := NewSet(c.policies, nil); !errors.Is(err, c.want) {
			t.Errorf("%s: NewSet = %v, want %v", c.name, err, c.want)
		}
	}
}

func manyPolicies(n int) []*Policy {
	var list []*Policy
	for i := range n {
		list = append(list, &Policy{Name: fmt.Sprint("p", i), Match: Match{
			TaskType: []string{fmt.Sprint("task", i)}, Host: []string{"*.example.com"}, Hours: []HourRange{{22, 6}},
		}})
	}
	return append(list, &Policy{Name: "default"})
}

func TestMatchAllocatesNothing(t *testing.T) {
	s := mustSet(t, time.FixedZone("CST", 8*3600), manyPolicies(10)...)
	call := Attrs{TaskType: "task9", Host: "API.example.com:443", Method: "POST", Path: "/"}
	now := at(2, 0)
	if n := testing.AllocsPerRun(100, func() { s.Match(&call, now) }); n != 0 {
		t.Errorf("Match allocates %v times, want 0", n)
	}
}

func BenchmarkMatch(b *testing.B) {
	s := mustSet(b, time.UTC, manyPolicies(5)...)
	call := Attrs{TaskType: "other", Host: "gw-api.example.com:443", Method: "POST", Path: "/api/router"}
	now := at(2, 0)
	b.ReportAllocs()
	for b.Loop() {
		s.Match(&call, now)
	}
}
