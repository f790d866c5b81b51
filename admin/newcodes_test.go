package admin

import (
	"strings"
	"testing"
)

func TestSeeNewCode(t *testing.T) {
	f := newFake()
	for _, tt := range []struct {
		query  string
		status int
		want   string
	}{
		{"platform=pdd&code=10019&by=ann", 200, `"codes"`},
		{"platform=pdd&code=", 404, "no such code"}, // some have none
		{"platform=pdd", 400, "code: missing"},
		{"code=10019", 400, "platform: missing"},
	} {
		if status, _, body := exchange(t, New(f.deps()), "DELETE", "/api/v1/newcodes?"+tt.query, ""); status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("DELETE ?%s = %d %s, want %d and %s", tt.query, status, body, tt.status, tt.want)
		}
	}
	if got := strings.Join(f.resets, " "); got != "pdd|10019|ann pdd||" {
		t.Errorf("seen were %q", got)
	}
}
