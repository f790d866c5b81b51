package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const shownAlerts = `{
 "rules":[{"name":"letters","on":"dead_letters","groups":3,"firing":1,"to":["ops","night"]},{"name":"spike","on":"dead_letters","to":["ops"],"learning_until":"2026-03-04T11:00:00Z"}],
 "firing":[{"rule":"letters","labels":{"host":"a.test:443","reason":"manual_review","others":false},"what":"5 dead letters in 10m","since":"2026-03-04T05:06:07Z","call_id":"0af3\u001b[2J"}],
 "targets":[{"name":"ops","format":"wecom","waiting":2,"sent":7,"failed":1,"dropped":4,"last":{"at":"2026-03-04T05:06:07Z","messages":1,"tries":8,"status":200,"error":"errcode 93000: invalid webhook url"}},{"name":"night","format":"json","last":null}]}`

func TestAlerts(t *testing.T) {
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.String()
		switch r.URL.String() {
		case "/api/v1/alerts":
			io.WriteString(w, shownAlerts)
		case "/api/v1/alerts/test?rule=":
			io.WriteString(w, `[{"target":"ops","format":"wecom","ok":true,"status":200,"answer":"{\"errcode\":0}","duration_ms":12},{"target":"night","format":"json","ok":false,"status":0,"error":"connection refused","duration_ms":3}]`)
		case "/api/v1/alerts/test?rule=a+b":
			io.WriteString(w, `[{"target":"ops","format":"wecom","ok":true,"status":200,"duration_ms":12}]`)
		case "/api/v1/alerts/test?rule=none":
			io.WriteString(w, `[]`)
		default:
			w.WriteHeader(404)
			io.WriteString(w, `{"detail":"alert: no such rule"}`)
		}
	}))
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "http://")
	for _, tt := range []struct {
		args  []string
		code  int
		want  []string
		asked string
	}{
		{nil, OK, []string{
			"FIRING letters: 5 dead letters in 10m (host a.test:443, reason manual_review), since 2026-03-04 ", "example 0af3?[2J",
			"letters  dead_letters  3       1       ops,night", "(learns the usual until ",
			"ops     wecom   2        7     1       4        2026-03-04 ", "failed: errcode 93000: invalid webhook url", "night   json    0        0     0       0        -",
		}, "GET /api/v1/alerts"},
		{[]string{"-json"}, OK, []string{`"learning_until":"2026-03-04T11:00:00Z"`}, "GET /api/v1/alerts"},
		{[]string{"test"}, Failure, []string{"ops (wecom): ok: 200 {\"errcode\":0}, 12 ms\nnight (json): failed: connection refused, 3 ms\n"}, "POST /api/v1/alerts/test?rule="},
		{[]string{"test", "-rule", "a b"}, OK, []string{"ops (wecom): ok: 200, 12 ms\n"}, "POST /api/v1/alerts/test?rule=a+b"},
		{[]string{"test", "-json"}, Failure, []string{`"error":"connection refused"`}, "POST /api/v1/alerts/test?rule="},
		{[]string{"test", "-rule", "none"}, OK, []string{"no targets are configured"}, "POST /api/v1/alerts/test?rule=none"},
		{[]string{"test", "-rule", "nope"}, Failure, []string{""}, "POST /api/v1/alerts/test?rule=nope"},
		{[]string{"tset"}, Usage, []string{""}, ""},
		{[]string{"-rule", "letters"}, Usage, []string{""}, ""},
	} {
		asked = ""
		code, stdout, stderr := typed(t, nil, append([]string{"alerts", "-admin", addr}, tt.args...)...)
		if code != tt.code || asked != tt.asked {
			t.Errorf("alerts %q = %d after %q, want %d after %q; %s", tt.args, code, asked, tt.code, tt.asked, stderr)
		}
		for _, want := range tt.want {
			if !strings.Contains(stdout, want) {
				t.Errorf("alerts %q prints %s, want %q", tt.args, stdout, want)
			}
		}
	}
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }))
	defer empty.Close()
	if _, stdout, _ := typed(t, nil, "alerts", "-admin", strings.TrimPrefix(empty.URL, "http://")); !strings.Contains(stdout, "no alerts are configured") {
		t.Errorf("without alerts it prints %q", stdout)
	}
}
