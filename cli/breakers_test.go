package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const shownBreakers = `{
 "hosts":[
  {"host":"a.test:443","state":"open","until":"2026-03-04T13:00:20+08:00","in_flight":0,"limit":64,"capacity":0,"waiting":12,"waiting_backlog":9,"waiting_longest_ms":11400,"planned":3,
   "outage":{"since":"2026-03-04T13:00:00+08:00","reach":"several_shops","waiting":12,"waiting_most":14,"gave_up":2,"expected_release":"2026-03-04T13:00:25+08:00"}},
  {"host":"b.test:80","state":"closed","in_flight":4,"limit":64,"capacity":40,"outage":{"since":"2026-03-03T23:00:00+08:00","reach":"one_shop"}},
  {"host":"c.test:80","state":"half_open","limit":64,"capacity":1,"outage":{"since":"2026-03-04T12:59:10+08:00"}}],
 "shops":[{"shop":"s17","host":"d.test:443","reason":"status_401","identical_failures":3,"since":"2026-03-04T13:00:01+08:00","until":"2026-03-04T13:00:31+08:00"}],
 "egress":[{"name":"proxy-a","state":"open","reason":"consecutive_failures","since":"2026-03-04T13:00:05+08:00","until":"2026-03-04T13:00:06+08:00"},{"name":"proxy-b","state":"closed"}]}`

func TestBreakers(t *testing.T) {
	asked, shown := "", shownBreakers
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.EscapedPath()
		io.WriteString(w, shown)
	}))
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "http://")
	for _, tt := range []struct {
		args  []string
		code  int
		want  string
		asked string
	}{
		{nil, OK, "OUTAGE a.test:443, since ", "GET /api/v1/breakers"},
		{[]string{"-json"}, OK, `"reach":"several_shops"`, "GET /api/v1/breakers"},
		{[]string{"reset", "s/17@a.test:443"}, OK, "OUTAGE", "POST /api/v1/breakers/s%2F17@a.test:443/reset"},
		{[]string{"reset"}, Usage, "", ""},
		{[]string{"close", "a.test:443"}, Usage, "", ""},
	} {
		asked = ""
		code, stdout, stderr := typed(t, nil, append([]string{"breakers", "-admin", addr}, tt.args...)...)
		if code != tt.code || asked != tt.asked || !strings.Contains(stdout, tt.want) {
			t.Errorf("breakers %q = %d after %q, want %d after %q: %s%s", tt.args, code, asked, tt.code, tt.asked, stdout, stderr)
		}
	}
	shown = `{"hosts":[],"shops":[],"egress":[]}`
	if _, stdout, _ := typed(t, nil, "breakers", "-admin", addr); stdout != "nobody is cut off\n" {
		t.Errorf("without any: %q", stdout)
	}
}

func TestBreakersInWords(t *testing.T) {
	var out strings.Builder
	var v breakersView
	if err := json.Unmarshal([]byte(shownBreakers), &v); err != nil {
		t.Fatal(err)
	}
	local := time.Local
	time.Local = time.FixedZone("CST", 8*3600)
	defer func() { time.Local = local }()
	if err := v.print(&out, time.Date(2026, 3, 4, 5, 0, 12, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	want := `OUTAGE a.test:443, since 13:00:00 (12s): calls of several shops fail; 12 in line, 14 at most, 2 gave up; the next probe goes at 13:00:20, and if all goes well everybody has been let go at 13:00:25
OUTAGE b.test:80, since 2026-03-03 23:00:00 (14h0m12s): calls of one shop fail, others make none; 0 in line, 0 at most, 0 gave up; the host answers again
OUTAGE c.test:80, since 12:59:10 (1m2s): calls fail; 0 in line, 0 at most, 0 gave up; a probe is on its way, or goes with the next call
SHOP s17 at d.test:443 alone, since 13:00:01: 3 calls in a row failed by status_401; the next retry goes at 13:00:31
EGRESS proxy-a, since 13:00:05 (consecutive_failures); the next probe goes with the next call

HOST        STATE      IN FLIGHT  ALLOWED  LIMIT  FRESH  BACKLOG  LONGEST  LATER
a.test:443  open       0          0        64     3      9        11.4s    3
b.test:80   closed     4          40       64     0      0        -        0
c.test:80   half_open  0          1        64     0      0        -        0
`
	if out.String() != want {
		t.Errorf("print:\n%s\nwant:\n%s", &out, want)
	}
}
