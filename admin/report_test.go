package admin

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	d, reset := newFake().deps(), []string(nil)
	known := func(policy string) bool { return policy == "" || policy == "order ship" }
	d.Report = func(policy string) (any, bool) { return map[string]string{"of": policy}, known(policy) }
	d.ResetReport = func(policy string) bool {
		reset = append(reset, policy)
		return known(policy)
	}
	for _, tt := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/api/v1/report", 200, `"of": ""`},
		{"GET", "/api/v1/report?policy=order+ship", 200, `"of": "order ship"`},
		{"GET", "/api/v1/report?policy=nope", 404, "no policy has this name"},
		{"POST", "/api/v1/report/reset?policy=order+ship", 200, `"of": "order ship"`},
		{"POST", "/api/v1/report/reset", 200, `"of": ""`},
		{"POST", "/api/v1/report/reset?policy=nope", 404, "no policy has this name"},
		{"GET", "/api/v1/report/reset", 405, "wrong_method"},
	} {
		if status, _, body := exchange(t, New(d), tt.method, tt.path, ""); status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s %s = %d %s, want %d and %s", tt.method, tt.path, status, body, tt.status, tt.want)
		}
	}
	if got := strings.Join(reset, "|"); got != "order ship||nope" {
		t.Errorf("reset were %q, want the three that were asked for", got)
	}
	if status, _, _ := exchange(t, New(d), "POST", "/api/v1/report/reset", "", "Sec-Fetch-Site", "cross-site"); status != 403 {
		t.Errorf("a reset sent by another site's page = %d, want 403", status)
	}
}
