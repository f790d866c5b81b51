package admin

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestAlerts(t *testing.T) {
	d := newFake().deps()
	if status, _, body := exchange(t, New(d), "GET", "/api/v1/alerts", ""); status != 200 || strings.TrimSpace(body) != "{}" {
		t.Errorf("without alerts: %d %s, want an empty object", status, body)
	}
	if status, _, _ := exchange(t, New(d), "POST", "/api/v1/alerts/test", ""); status != 404 {
		t.Errorf("a test without alerts = %d, want 404", status)
	}
	d.Alerts = func() any { return map[string][]string{"rules": {"letters"}} }
	d.TestAlerts = func(_ context.Context, rule string) (any, error) {
		if rule == "nope" {
			return nil, errors.New("no such rule")
		}
		return []string{"tested " + rule}, nil
	}
	for _, tt := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/api/v1/alerts", 200, `"letters"`},
		{"POST", "/api/v1/alerts/test", 200, `"tested "`},
		{"POST", "/api/v1/alerts/test?rule=letters", 200, `"tested letters"`},
		{"POST", "/api/v1/alerts/test?rule=nope", 404, "no such rule"},
		{"GET", "/api/v1/alerts/test", 405, "wrong_method"},
	} {
		if status, _, body := exchange(t, New(d), tt.method, tt.path, ""); status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s %s = %d %s, want %d and %s", tt.method, tt.path, status, body, tt.status, tt.want)
		}
	}
	if status, _, _ := exchange(t, New(d), "POST", "/api/v1/alerts/test", "", "Sec-Fetch-Site", "cross-site"); status != 403 {
		t.Errorf("a test sent by another site's page = %d, want 403", status)
	}
}
