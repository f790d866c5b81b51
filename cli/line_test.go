package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestOrdersAboutCalls(t *testing.T) {
	var got string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.EscapedPath() + " " + string(body)
		if strings.HasSuffix(r.URL.Path, "/expedite") {
			w.WriteHeader(http.StatusConflict)
			_ = json.NewEncoder(w).Encode(map[string]string{"reason": "not_waiting", "detail": "its wait cannot be ended: attempt 2 is on the wire"})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"detail": "it ended without another attempt", "executed": "no", "record": "dead"})
	}))
	defer s.Close()
	at := strings.TrimPrefix(s.URL, "http://")
	for _, tt := range []struct {
		args  []string
		code  int
		asked string
		says  string
	}{
		{[]string{"calls", "cancel", "-admin", at, "-by", "li", "c 1"}, OK, `POST /api/v1/calls/c%201/cancel {"by":"li","note":""}`, "it ended without another attempt; executed: no; its record is dead\nwhat became of it: retryproxy why -admin " + at + " c 1\n"},
		{[]string{"calls", "expedite", "-admin", at, "-by", "li", "-note", "why", "c1"}, Failure, `POST /api/v1/calls/c1/expedite {"by":"li","note":"why"}`, "attempt 2 is on the wire"},
		{[]string{"calls", "cancel", "-admin", at, "c1"}, Usage, "", "-by NAME is needed"},
		{[]string{"calls", "cancel", "-admin", at, "-by", "li"}, Usage, "", ""},
	} {
		got = ""
		code, out, errs := typed(t, nil, tt.args...)
		if code != tt.code || strings.TrimSpace(got) != tt.asked || !strings.Contains(out+errs, tt.says) {
			t.Errorf("%v = %d, asked %q, says %q; want %d, %q, %q", tt.args, code, got, out+errs, tt.code, tt.asked, tt.says)
		}
	}
}
