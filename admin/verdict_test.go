package admin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"retryproxy/message"
)

func TestVerdict(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		status     int
		want       string
		asked      Answer
	}{
		{"all of it", `{"platform":"pdd","operation":"order.get","method":"GET","host":"h","shop":"s1","task_type":"ship","status":503,"headers":["Retry-After: 3"],"body":"{}"}`, 200, `"rule": "busy"`, Answer{
			"pdd", "order.get", "GET", "h", "s1", "ship", 503, message.Fields{{Name: "Retry-After", Value: "3"}}, []byte("{}"),
		}},
		{"as little as can be", `{"platform":"pdd"}`, 200, `"rule"`, Answer{Platform: "pdd", Method: "POST", Status: 200, Body: []byte{}}},
		{"no platform", `{"body":"{}"}`, 400, "platform: missing", Answer{}},
		{"an unknown one", `{"platform":"nobody"}`, 400, "no preset", Answer{Platform: "nobody", Method: "POST", Status: 200, Body: []byte{}}},
		{"no status", `{"platform":"pdd","status":99}`, 400, "status: want a number from 200 to 599", Answer{}},
		{"no header", `{"platform":"pdd","headers":["nonsense"]}`, 400, "headers: want", Answer{}},
		{"an unknown key", `{"platform":"pdd","code":1}`, 400, "unknown field", Answer{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			if status, _, body := exchange(t, New(f.deps()), "POST", "/api/v1/verdict", tt.body); status != tt.status || !strings.Contains(body, tt.want) {
				t.Errorf("%d %s, want %d and %s", status, body, tt.status, tt.want)
			}
			if diff := cmp.Diff(tt.asked, f.answer); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCoverage(t *testing.T) {
	d := newFake().deps()
	if status, _, body := exchange(t, New(d), "GET", "/api/v1/coverage", ""); status != 200 || !strings.Contains(body, `"clients"`) {
		t.Errorf("coverage = %d %s", status, body)
	}
	d.Coverage = nil
	if status, _, _ := exchange(t, New(d), "GET", "/api/v1/coverage", ""); status != 404 {
		t.Errorf("coverage where nobody counts = %d, want 404", status)
	}
}
