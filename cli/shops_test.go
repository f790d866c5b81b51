package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestShops(t *testing.T) {
	var asked, body string
	shown := `[{"shop":"s1","calls":4,"failed":3,"pauses":[{"platform":"pdd","reason":"risk_control","since":"2026-12-01T02:00:00Z","turned_away":3,"message":"code 70034"}]},
		{"shop":"s2","calls":1,"breakers":[{"shop":"s2","host":"h:443"}],"pauses":[]},{"shop":"s3","calls":9}]`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.EscapedPath()
		if r.Method == "POST" {
			var b [200]byte
			n, _ := r.Body.Read(b[:])
			body = string(b[:n])
			_, _ = w.Write([]byte(`{"resumed":[{"platform":"pdd","operation":"list","reason":"quota_exhausted","since":"2026-12-01T02:00:00Z","until":"2026-12-01T03:00:00Z"}]}`))
			return
		}
		_, _ = w.Write([]byte(shown))
	}))
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "http://")
	by := []string{"-by", "ann", "-note", "checked"}
	for _, tt := range []struct {
		args  []string
		code  int
		want  []string
		asked string
	}{
		{nil, OK, []string{"s1    4", "risk_control", "breaker h:443", "s3    9", "ok", "until a person resumes it; 3 calls turned away; the platform said: code 70034", "shops resume SHOP"}, "GET /api/v1/shops"},
		{[]string{"-json"}, OK, []string{`"turned_away":3`}, "GET /api/v1/shops"},
		{append(by, "-platform", "pdd", "resume", "a/1"), OK, []string{"shop a/1 goes on at pdd: quota_exhausted of list since"}, "POST /api/v1/shops/a%2F1/resume"},
		{[]string{"resume", "s1"}, Usage, nil, ""},
		{append(by, "resume"), Usage, nil, ""},
		{[]string{"stop", "s1"}, Usage, nil, ""},
	} {
		asked = ""
		code, stdout, stderr := typed(t, nil, append([]string{"shops", "-admin", addr}, tt.args...)...)
		if code != tt.code || asked != tt.asked {
			t.Errorf("shops %q = %d after %q, want %d after %q: %s%s", tt.args, code, asked, tt.code, tt.asked, stdout, stderr)
		}
		for _, want := range tt.want {
			if !strings.Contains(stdout, want) {
				t.Errorf("shops %q does not print %q: %s", tt.args, want, stdout)
			}
		}
	}
	if body != `{"platform":"pdd","by":"ann","note":"checked"}` {
		t.Errorf("the order is %s", body)
	}
	shown = "[]"
	if _, stdout, _ := typed(t, nil, "shops", "-admin", addr); stdout != "no call named a shop yet\n" {
		t.Errorf("without any: %q", stdout)
	}
}
