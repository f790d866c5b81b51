package admin

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"retryproxy/breaker"
)

// kept are the breakers of egress proxies in these tests, by name.
func kept() map[string]breaker.State {
	return map[string]breaker.State{
		"dead (10.0.0.1:1080)": breaker.Open, "dead (10.0.0.5:1080)": breaker.Closed, "deadly (10.0.0.6:1080)": breaker.Open,
		"half (10.0.0.4:1080)": breaker.HalfOpen, "well (10.0.0.7:1080)": breaker.Closed,
		"two (10.0.0.2:1080)": breaker.Open, "two (10.0.0.3:1080, shop 100%41)": breaker.HalfOpen,
	}
}

func TestResetEgress(t *testing.T) {
	tests := []struct {
		scope  string
		status int
		want   string // closed, or in the answer
	}{
		{"egress:dead", 200, "dead (10.0.0.1:1080)"},
		{"egress:half", 200, "half (10.0.0.4:1080)"},
		{"egress:half (10.0.0.4:1080)", 200, "half (10.0.0.4:1080)"},
		{"egress:two", 409, "two (10.0.0.2:1080)"},
		{"egress:two (10.0.0.2:1080)", 200, "two (10.0.0.2:1080)"},
		{"egress:two (10.0.0.3:1080, shop 100%41)", 200, "two (10.0.0.3:1080, shop 100%41)"},
		{"egress:well", 404, "no open breaker"},
		{"egress:dea", 404, "no open breaker"},
		{"egress:", 404, "no open breaker"},
		{"dead", 400, "egress:NAME"},
	}
	for _, test := range tests {
		for name, escaped := range map[string]string{"as little as must be": (&url.URL{Path: test.scope}).EscapedPath(), "all": url.PathEscape(test.scope)} {
			escaped = strings.ReplaceAll(strings.TrimPrefix(escaped, "./"), "/", "%2F")
			exits := kept()
			d := newFake().deps()
			d.Exits = func() (list []breaker.ExitStatus) {
				for name, state := range exits {
					list = append(list, breaker.ExitStatus{Name: name, Status: breaker.Status{State: state}})
				}
				return list
			}
			d.ResetExit = func(name string) bool {
				tripped := exits[name] != breaker.Closed
				if tripped {
					exits[name] = breaker.Closed
				}
				return tripped
			}
			status, _, body := exchange(t, New(d), http.MethodPost, "/api/v1/breakers/"+escaped+"/reset", "")
			if status != test.status || !strings.Contains(body, test.want) {
				t.Errorf("reset of %s, escaped %s = %d %s, want %d and %s", test.scope, name, status, body, test.status, test.want)
			}
			if state, known := exits[test.want]; known && (state == breaker.Closed) != (status == 200) {
				t.Errorf("after the reset of %s, %s is %v", test.scope, test.want, state)
			}
		}
	}
}

func TestResetPins(t *testing.T) {
	tests := []struct {
		query, want string
		status      int
		answer      string
	}{
		{"", "|", 200, "2 pass-throughs ended"},
		{"?client=192.0.2.1%3Buser%3Dbot&host=a.test:443", "192.0.2.1;user=bot|a.test:443", 200, "1 pass-through ended"},
		{"?host=none", "|none", 200, "\"ended\": 0"},
		{"?client=192.0.2.1;user=bot", "", 400, "%3B"},
		{"?hosts=a.test", "", 400, "want nothing, or one client= and one host="},
		{"?host=", "", 400, "want nothing"},
		{"?host=a&host=b", "", 400, "want nothing"},
	}
	for _, test := range tests {
		asked := ""
		d := newFake().deps()
		d.ResetPins = func(client, host string) int {
			asked = client + "|" + host
			return map[string]int{"|": 2, "|none": 0}[asked] + len(client)/len("192.0.2.1;user=bot")
		}
		status, _, body := exchange(t, New(d), http.MethodPost, "/api/v1/intercept/reset"+test.query, "")
		if asked != test.want || status != test.status || !strings.Contains(body, test.answer) {
			t.Errorf("reset%s = %d %s, asked for %q, want %d, %q and %q", test.query, status, body, asked, test.status, test.answer, test.want)
		}
	}
	d := newFake().deps()
	if status, _, body := exchange(t, New(d), http.MethodPost, "/api/v1/intercept/reset", ""); status != 200 || !strings.Contains(body, "nothing is passed through") {
		t.Errorf("reset without interception = %d %s, want 200 and that nothing is passed through", status, body)
	}
	if status, _, _ := exchange(t, New(d), http.MethodGet, "/api/v1/intercept/reset", ""); status != 405 {
		t.Errorf("GET of the reset = %d, want 405", status)
	}
	d.Accounts = func() []Account { return []Account{{"admin", Admin, "hush"}} }
	if status, _, _ := exchange(t, New(d), http.MethodPost, "/api/v1/intercept/reset", ""); status != 401 {
		t.Errorf("reset without token = %d, want 401", status)
	}
}
