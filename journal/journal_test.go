package journal

import (
	"testing"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func sample() *attempt.Summary {
	return &attempt.Summary{
		ID: "c1", State: "done", Result: "recovered", Reason: "ok", KeyHash: "0123456789abcdef",
		Labels: attempt.Labels{Shop: "17", TaskType: "order_ship"}, Host: "a.test:443", Started: noon.Add(-time.Minute), Ended: noon,
		Attempts: attempt.History{{Verdict: classify.Verdict{Reason: "status_503"}}, {Verdict: classify.Verdict{Reason: "status_200"}}},
		Terms:    salts.Terms([]byte("order-77"), "/path"),
	}
}

func TestWants(t *testing.T) {
	tests := []struct {
		name string
		q    Query
		want bool
	}{
		{"all", Query{}, true},
		{"id", Query{CallID: "c1"}, true},
		{"another id", Query{CallID: "c2"}, false},
		{"key", Query{KeyHash: "0123456789abcdef"}, true},
		{"another key", Query{KeyHash: "0"}, false},
		{"shop", Query{Shop: "17"}, true},
		{"a part of the shop", Query{Shop: "1"}, false},
		{"task type", Query{TaskType: "order_ship"}, true},
		{"another task type", Query{TaskType: "report"}, false},
		{"host with its port", Query{Host: "a.test:443"}, true},
		{"host without", Query{Host: "a.test"}, true},
		{"another port", Query{Host: "a.test:44"}, false},
		{"a part of the host", Query{Host: "a.tes"}, false},
		{"state", Query{State: "done"}, true},
		{"another state", Query{State: "waiting"}, false},
		{"result", Query{Result: "recovered"}, true},
		{"another result", Query{Result: "failed"}, false},
		{"reason of the end", Query{Reason: "ok"}, true},
		{"reason of an attempt", Query{Reason: "status_503"}, true},
		{"another reason", Query{Reason: "status_502"}, false},
		{"text", Query{Words: salts.Words("ORDER-77 path")}, true},
		{"one word of two", Query{Words: salts.Words("order-77 order-78")}, false},
		{"since its end", Query{Since: noon}, true},
		{"since later", Query{Since: noon.Add(1)}, false},
		{"until its end", Query{Until: noon}, false},
		{"until later", Query{Until: noon.Add(1)}, true},
		{"all of these", Query{CallID: "c1", Shop: "17", Host: "a.test", Reason: "ok", Since: noon, Until: noon.Add(1), Words: salts.Words("order-77")}, true},
		{"all but one", Query{CallID: "c1", Shop: "18", Host: "a.test", Reason: "ok"}, false},
	}
	for _, tt := range tests {
		if got := tt.q.Wants(sample(), noon.Add(time.Hour)); got != tt.want {
			t.Errorf("%s: Wants = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestACallThatIsNotOverCountsAsNow(t *testing.T) {
	s := sample()
	s.State, s.Ended = "waiting", time.Time{}
	now := noon.Add(time.Hour)
	for _, tt := range []struct {
		q    Query
		want bool
	}{{Query{Since: now}, true}, {Query{Since: now.Add(1)}, false}, {Query{Until: now}, false}, {Query{State: "waiting"}, true}} {
		if got := tt.q.Wants(s, now); got != tt.want {
			t.Errorf("%+v: Wants = %v, want %v", tt.q, got, tt.want)
		}
	}
}

func TestHostsWithBrackets(t *testing.T) {
	s := sample()
	s.Host = "[::1]:80"
	for host, want := range map[string]bool{"[::1]": true, "[::1]:80": true, "[:": false, "[::": false, "": true} {
		q := Query{Host: host}
		if got := q.Wants(s, noon); got != want {
			t.Errorf("host %s: Wants = %v, want %v", host, got, want)
		}
	}
}

func TestMost(t *testing.T) {
	for limit, want := range map[int]int{-1: DefaultLimit, 0: DefaultLimit, 7: 7, MostLimit + 1: MostLimit} {
		if got := (&Query{Limit: limit}).Most(); got != want {
			t.Errorf("Limit %d: Most = %d, want %d", limit, got, want)
		}
	}
}
