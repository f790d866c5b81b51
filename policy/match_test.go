package policy

import (
	"errors"
	"testing"
	"time"
)

func TestHosts(t *testing.T) {
	h := NewHosts([]string{"gw-api.Pinduoduo.com", "*.test", "u1.example:8080", "::1", "[fd00::1]:443", "dot.example."})
	for _, c := range []struct {
		host string
		want bool
	}{
		{"gw-api.pinduoduo.com", true},
		{"GW-API.pinduoduo.com:443", true},
		{"gw-api.pinduoduo.com.", true},
		{"gw-api.pinduoduo.com.:80", true},
		{"u1.TEST:80", true},
		{"test", false},
		{"u1.example", false},
		{"u1.example:80", false},
		{"u1.example:8080", true},
		{"[::1]:9", true},
		{"::1", true},
		{"[fd00::1]:443", true},
		{"[fd00::1]:80", false},
		{"dot.example:1", true},
		{"", false},
	} {
		if got := h.Match(c.host); got != c.want {
			t.Errorf("Match(%q) = %v, want %v", c.host, got, c.want)
		}
	}
	if (Hosts{}).Match("a") {
		t.Error("the zero Hosts matches, want nothing")
	}
}

func at(hour, minute int) time.Time { return time.Date(2026, 3, 1, hour, minute, 59, 0, time.UTC) }

func TestMatcher(t *testing.T) {
	call := Attrs{
		TaskType: "order_ship", Shop: "s17", ShopTier: "vip", Host: "u1.test:80",
		Path: "/orders/17", Method: "POST", Operation: "pdd.order.ship",
	}
	for _, c := range []struct {
		name  string
		match Match
		want  bool
	}{
		{"empty", Match{}, true},
		{"task type", Match{TaskType: []string{"order_ship"}}, true},
		{"other task type", Match{TaskType: []string{"report"}}, false},
		{"list", Match{TaskType: []string{"report", "order_*"}}, true},
		{"labels are case-sensitive", Match{TaskType: []string{"Order_Ship"}}, false},
		{"shop", Match{Shop: []string{"s1*"}}, true},
		{"tier", Match{ShopTier: []string{"normal"}}, false},
		{"all must hold", Match{Shop: []string{"s17"}, ShopTier: []string{"normal"}}, false},
		{"host without port", Match{Host: []string{"U1.test"}}, true},
		{"host with another port", Match{Host: []string{"u1.test:81"}}, false},
		{"path", Match{Path: []string{"/orders/*"}}, true},
		{"path is case-sensitive", Match{Path: []string{"/Orders/*"}}, false},
		{"method in any case", Match{Method: []string{"post"}}, true},
		{"other method", Match{Method: []string{"GET", "PUT"}}, false},
		{"operation", Match{Operation: []string{"pdd.*"}}, true},
	} {
		m, err := NewMatcher(c.match, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Match(&call, at(3, 0)); got != c.want {
			t.Errorf("%s: Match(%v) = %v, want %v", c.name, c.match, got, c.want)
		}
	}
}

func TestMatcherMissingLabel(t *testing.T) {
	m, err := NewMatcher(Match{Shop: []string{"*"}}, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	if m.Match(&Attrs{Host: "u1.test:80", Method: "GET", Path: "/"}, at(0, 0)) {
		t.Error("shop * matches a call without a shop, want a shop to be needed")
	}
}

func TestHourRange(t *testing.T) {
	for _, c := range []struct {
		name         string
		hours        []HourRange
		hour, minute int
		want         bool
	}{
		{"from is inside", []HourRange{{2, 6}}, 2, 0, true},
		{"before from", []HourRange{{2, 6}}, 1, 59, false},
		{"last minute", []HourRange{{2, 6}}, 5, 59, true},
		{"to is outside", []HourRange{{2, 6}}, 6, 0, false},
		{"over midnight, late", []HourRange{{22, 6}}, 23, 30, true},
		{"over midnight, early", []HourRange{{22, 6}}, 5, 59, true},
		{"over midnight, to", []HourRange{{22, 6}}, 6, 0, false},
		{"over midnight, noon", []HourRange{{22, 6}}, 12, 0, false},
		{"to midnight as 24", []HourRange{{20, 24}}, 23, 59, true},
		{"to midnight as 0", []HourRange{{20, 0}}, 23, 59, true},
		{"to midnight ends", []HourRange{{20, 0}}, 0, 0, false},
		{"all day", []HourRange{{0, 24}}, 13, 0, true},
		{"list, second", []HourRange{{2, 6}, {12, 13}}, 12, 30, true},
		{"list, between", []HourRange{{2, 6}, {12, 13}}, 8, 0, false},
	} {
		m, err := NewMatcher(Match{Hours: c.hours}, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Match(&Attrs{}, at(c.hour, c.minute)); got != c.want {
			t.Errorf("%s: Match(%02d:%02d) = %v, want %v", c.name, c.hour, c.minute, got, c.want)
		}
	}
}

func TestHourRangeInZone(t *testing.T) {
	shanghai := time.FixedZone("CST", 8*3600)
	m, err := NewMatcher(Match{Hours: []HourRange{{2, 6}}}, shanghai)
	if err != nil {
		t.Fatal(err)
	}
	if !m.Match(&Attrs{}, at(18, 0)) || m.Match(&Attrs{}, at(3, 0)) {
		t.Error("hours 2-6 do not follow the zone, want 18:00 UTC inside and 03:00 UTC outside")
	}
}

func TestHourRangeWithoutZone(t *testing.T) {
	m, err := NewMatcher(Match{Hours: []HourRange{{2, 6}}}, nil)
	if err != nil || !m.Match(&Attrs{}, at(3, 0)) {
		t.Errorf("NewMatcher without a zone = %v, want hours in UTC", err)
	}
}

func TestHourRangeBounds(t *testing.T) {
	for _, r := range []HourRange{{-1, 5}, {24, 5}, {3, 25}, {3, -1}, {4, 4}} {
		if _, err := NewMatcher(Match{Hours: []HourRange{r}}, time.UTC); !errors.Is(err, ErrHours) {
			t.Errorf("NewMatcher(%v) = %v, want ErrHours", r, err)
		}
	}
}
