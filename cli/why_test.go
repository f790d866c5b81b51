package cli

import (
	"strings"
	"testing"
	"time"

	"retryproxy/attempt"
)

func TestAttemptsThatAreAlike(t *testing.T) {
	first := tried{View: attempt.View{N: 1, Class: "transient", Reason: "status_503", Status: 503, DurationMS: 2}, Host: "a.test:80", Basis: "method"}
	next := func(n int, delay int64, cause string) tried {
		a := first
		a.N, a.Started, a.DelayMS, a.Cause = n, time.Unix(int64(n), 0), delay, cause
		a.RetryCount, a.Reused = n-1, true
		return a
	}
	other := next(3, 4000, "backoff")
	other.Host = "b.test:80"
	const tail = " went to a.test:80 and brought status 503 in 2ms: a repeat may mend that and is safe, because its method is one that may be repeated."
	tests := []struct {
		name string
		list []tried
		n    int
		want string
	}{
		{"one", []tried{first}, 1, "Attempt 1" + tail},
		{"one with a wait", []tried{next(2, 1500, "backoff"), other}, 1, "Attempt 2, after 1.5s of backoff," + tail},
		{"all", []tried{first, next(2, 1000, "backoff"), next(3, 2000, "backoff")}, 3, "Attempts 1 to 3, the later ones after 1s to 2s of backoff," + tail},
		{"until another host", []tried{first, next(2, 1000, "backoff"), other}, 2, "Attempts 1 to 2, the later ones after 1s of backoff," + tail},
		{"until another cause", []tried{first, next(2, 1000, "backoff"), next(3, 2000, "gate")}, 2, "Attempts 1 to 2, the later ones after 1s of backoff," + tail},
		{"later ones", []tried{next(3, 2000, "backoff"), next(4, 2000, "backoff")}, 2, "Attempts 3 to 4, after 2s of backoff," + tail},
		{"another cause first", []tried{next(2, 1000, "gate"), next(3, 2000, "backoff")}, 2, "Attempts 2 to 3, the first after 1s of waiting for a slot, the others after 2s of backoff," + tail},
		{"without waits", []tried{first, next(2, 0, "")}, 2, "Attempts 1 to 2" + tail},
	}
	for _, test := range tests {
		n := alike(test.list)
		if got := sentence(test.list[:n]); n != test.n || got != test.want {
			t.Errorf("%s: %d alike, %q, want %d, %q", test.name, n, got, test.n, test.want)
		}
	}
}

func TestParkedCallInATable(t *testing.T) {
	inShanghai(t)
	const path = "/api/v1/calls?limit=50&state=parked"
	addr, _ := asked(t, map[string]string{path: `[{"id":"c1","state":"parked","reason":"breaker_open","next_at":"2026-03-01T04:03:04Z","method":"POST","host":"a.test:80","path":"/","started":"2026-03-01T04:00:00Z"}]`})
	code, stdout, stderr := typed(t, nil, "calls", "-admin", addr, "-state", "parked")
	if want := "until 2026-03-01 12:03:04 (breaker_open)"; code != OK || !strings.Contains(stdout, want) || !strings.Contains(stdout, "parked") {
		t.Errorf("calls -state parked = %d %s%s, want %q", code, stdout, stderr, want)
	}
}
