package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"retryproxy/report"
)

// someReport is what a proxy has counted after 2 hours: ship with two variants of
// which quick loses calls, rest without, idle without any call.
func someReport(t *testing.T) string {
	t.Helper()
	started := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	groups := func(weight int) []report.Group {
		return []report.Group{
			{Policy: "ship", Arms: []report.Arm{{Name: "ship/now", Variant: "now", Weight: 90}, {Name: "ship/quick", Variant: "quick", Weight: weight}}},
			{Policy: "rest", Arms: []report.Arm{{Name: "rest"}}},
			{Policy: "idle", Arms: []report.Arm{{Name: "idle"}}},
		}
	}
	r := report.New(groups(5), started)
	for i := range 1000 {
		r.Count("ship/now", report.Call{Succeeded: true, Attempts: 1 + i%2, Sent: 1 + i%2, Added: time.Duration(i%2) * 2 * time.Second})
		r.Count("ship/quick", report.Call{Succeeded: i%5 > 0, Attempts: 1, Sent: 1})
	}
	r.Count("rest", report.Call{Attempts: 4, Sent: 3, Added: 7 * time.Second})
	r.Count("rest", report.Call{Left: true})
	r.Configure(groups(10), started.Add(time.Hour))
	v, _ := r.View("", started.Add(2*time.Hour))
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReport(t *testing.T) {
	asked, answer := "", someReport(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.String()
		if r.URL.Query().Get("policy") == "nope" {
			w.WriteHeader(404)
			io.WriteString(w, `{"detail":"no policy has this name"}`)
			return
		}
		io.WriteString(w, answer)
	}))
	defer server.Close()
	for _, tt := range []struct {
		args  []string
		code  int
		asked string
		want  []string
	}{
		{nil, OK, "GET /api/v1/report?policy=", []string{
			"policy ship now, weight 90 quick, weight 10 quick against now\n",
			"counted for 2h0m ", "calls 1000 1000 ", "saved by a retry 500 0 ",
			"success 100.00 % (99.62 to 100.00) 80.00 % (77.41 to 82.36) worse: -20.00 points (-22.59 to -17.61)\n",
			"attempts/call 1.500 (1.469 to 1.531) 1.000 (1.000 to 1.000) better: -0.500 (-0.531 to -0.469)\n",
			"added latency 1s (938ms to 1.062s) 0s (0s to 0s) better: -1s (-1.062s to -938ms)\n",
			"variants or weights changed at 2026-03-0", "retryproxy report -reset -policy ship\n",
			"POLICY FOR CALLS SUCCESS SAVED ATTEMPTS/CALL ADDED LATENCY\n",
			"rest 2h0m 1 0.00 % (0.00 to 79.35) 0 4.000 (?) 7s (?)\n",
			"no calls yet: idle\n", "95 % confidence",
		}},
		{[]string{"-policy", "a b"}, OK, "GET /api/v1/report?policy=a+b", []string{"policy ship"}},
		{[]string{"-json"}, OK, "GET /api/v1/report?policy=", []string{`"confidence":0.95`}},
		{[]string{"-reset", "-policy", "ship"}, OK, "POST /api/v1/report/reset?policy=ship", []string{"counting anew\n"}},
		{[]string{"-reset", "-json"}, OK, "POST /api/v1/report/reset?policy=", []string{`"confidence":0.95`}},
		{[]string{"-policy", "nope"}, Failure, "GET /api/v1/report?policy=nope", nil},
		{[]string{"ship"}, Usage, "", nil},
	} {
		asked = ""
		code, stdout, stderr := typed(t, nil, append([]string{"report", "-admin", strings.TrimPrefix(server.URL, "http://")}, tt.args...)...)
		if code != tt.code || asked != tt.asked {
			t.Errorf("report %q = %d after %q, want %d after %q; %s", tt.args, code, asked, tt.code, tt.asked, stderr)
		}
		tight := regexp.MustCompile(" +").ReplaceAllString(stdout, " ") // columns apart
		for _, want := range tt.want {
			if !strings.Contains(tight, want) {
				t.Errorf("report %q prints\n%s\nwant %q", tt.args, stdout, want)
			}
		}
	}
}

// A difference that is shown as nothing has no sign.
func TestSigned(t *testing.T) {
	for x, want := range map[float64]string{-0.4: "+0s", 0: "+0s", 0.4: "+0s", -1500: "-1.5s", 20: "+20ms"} {
		if got := millis.signed(x); got != want {
			t.Errorf("signed(%v) = %s, want %s", x, got, want)
		}
	}
}
