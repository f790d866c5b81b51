package proxy

import (
	"testing"
	"time"
)

func TestPrefer(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		values []string
		limit  time.Duration
		hold   time.Duration
		says   string
		ok     bool
		bad    bool
	}{
		{nil, 0, 0, "", false, false},
		{nil, 5 * s, 5 * s, "", true, false},
		{[]string{"respond-async"}, 0, 0, "respond-async", true, false},
		{[]string{"Respond-Async"}, 5 * s, 0, "respond-async", true, false},
		{[]string{"wait=10"}, 0, 10 * s, "wait=10", true, false},
		{[]string{"wait = \"10\""}, 0, 10 * s, "wait=10", true, false},
		{[]string{"wait=10"}, 5 * s, 5 * s, "", true, false},
		{[]string{"respond-async, wait=10"}, 0, 10 * s, "respond-async, wait=10", true, false},
		{[]string{"wait=10;x=1", "respond-async;y"}, 0, 10 * s, "respond-async, wait=10", true, false},
		{[]string{"wait=1, wait=2"}, 0, s, "wait=1", true, false},
		{[]string{"wait=999999999"}, 0, longestWait, "wait=86400", true, false},
		{[]string{"wait=-1"}, 0, 0, "", false, true},
		{[]string{"wait=1.5"}, 3 * s, 3 * s, "", true, true},
		{[]string{"wait"}, 0, 0, "", false, true},
		{[]string{"return=minimal, handling=lenient"}, 0, 0, "", false, false},
		{[]string{"waiting=1, xrespond-async", ",;,"}, 0, 0, "", false, false},
	} {
		p := parsePrefer(tt.values)
		hold, says, ok := p.hold(tt.limit)
		if hold != tt.hold || says != tt.says || ok != tt.ok || p.bad != tt.bad {
			t.Errorf("Prefer %q with limit %v: %v %q %v, bad %v; want %v %q %v, bad %v", tt.values, tt.limit, hold, says, ok, p.bad, tt.hold, tt.says, tt.ok, tt.bad)
		}
	}
}

func FuzzPrefer(f *testing.F) {
	f.Add("respond-async, wait=10")
	f.Add(`wait="1";a=b, x`)
	f.Fuzz(func(t *testing.T, value string) {
		p := parsePrefer([]string{value})
		if d, _, _ := p.hold(time.Second); d < 0 || d > longestWait || p.wait < 0 || p.wait > longestWait {
			t.Errorf("Prefer %q holds for %v (%v)", value, d, p.wait)
		}
	})
}
