package admin

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"retryproxy/attempt"
	"retryproxy/idempotency"
	"retryproxy/journal"
)

// past is a history of n calls; a place is how many come before what follows it.
type past struct {
	n   int
	ill error
}

func (p past) Note(context.Context, []*attempt.Summary) error { return errors.New("not asked here") }

func (p past) Find(_ context.Context, q journal.Query) (found []journal.Entry, more bool, err error) {
	from := 0
	if q.After != "" {
		if from, err = strconv.Atoi(q.After); err != nil {
			return nil, false, journal.ErrCursor
		}
	}
	for n := from; n < p.n; n++ {
		if len(found) == q.Most() {
			return found, true, p.ill
		}
		c := &attempt.Summary{ID: fmt.Sprint("p", n), State: "done", Started: began, Ended: began.Add(-time.Duration(n) * time.Second), Path: "=cmd()", Detail: "+1\x1b[2J"}
		if q.Wants(c, began) {
			found = append(found, journal.Entry{Summary: c, Place: strconv.Itoa(n + 1)})
		}
	}
	return found, false, p.ill
}

func TestQueryOfCalls(t *testing.T) {
	zone := time.FixedZone("CST", 8*3600)
	long := strings.Repeat("x", 20)
	tests := []struct {
		query string
		want  journal.Query
	}{
		{"", journal.Query{}},
		{"key=" + long, journal.Query{KeyHash: idempotency.KeyHash(long)}},
		{"key=0123456789ABCDEF", journal.Query{KeyHash: idempotency.KeyHash("0123456789ABCDEF")}},
		{"key=x&key_hash=0123456789abcdef", journal.Query{KeyHash: "0123456789abcdef"}},
		{"since=2026-03-01&until=2026-03-02T00:00:00Z", journal.Query{Since: time.Date(2026, 3, 1, 0, 0, 0, 0, zone), Until: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)}},
		{"shop=17&host=A.test&task_type=t&state=done&result=failed&reason=ok&limit=7&after=x&id=c", journal.Query{
			Shop: "17", Host: "a.test", TaskType: "t", State: "done", Result: "failed", Reason: "ok", Limit: 7, After: "x", CallID: "c",
		}},
		{"text=order-1+of", journal.Query{Words: salts.Words("order-1")}},
	}
	for _, test := range tests {
		f := newFake()
		d := f.deps()
		d.Find = func(_ context.Context, q journal.Query) ([]*attempt.Summary, string, error) {
			f.query = q
			return nil, "", nil
		}
		if status, _, body := exchange(t, New(d), "GET", "/api/v1/calls?"+test.query, ""); status != 200 {
			t.Errorf("%s = %d %s", test.query, status, body)
		}
		got, want := f.query, test.want
		if !got.Since.Equal(want.Since) || !got.Until.Equal(want.Until) {
			t.Errorf("%s: since %v until %v, want %v, %v", test.query, got.Since, got.Until, want.Since, want.Until)
		}
		got.Since, got.Until, want.Since, want.Until = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %+v, want %+v", test.query, got, want)
		}
	}
}

func TestWrongQueriesOfCalls(t *testing.T) {
	f := newFake()
	f.history = past{n: 3}
	for query, want := range map[string]string{
		"limit=0": "limit: want a number above 0", "limit=many": "limit: want a number", "since=soon": "since: want a time such as", "until=-3d": "until: want a time",
		"text=a+17": "text: want a word of at least 4", "after=what": "after: ",
	} {
		if status, _, body := exchange(t, New(f.deps()), "GET", "/api/v1/calls?"+query, ""); status != 400 || !strings.Contains(body, want) {
			t.Errorf("%s = %d %s, want 400 and %s", query, status, body, want)
		}
	}
	d := newFake().deps()
	d.Words = nil
	if status, _, body := exchange(t, New(d), "GET", "/api/v1/calls?text=order-1", ""); status != 400 || !strings.Contains(body, "-data DIR") {
		t.Errorf("text without a history = %d %s, want 400 and what is missing", status, body)
	}
}

// next is the address in Link.
func next(t *testing.T, h http.Header) string {
	t.Helper()
	link := h.Get("Link")
	if link == "" {
		return ""
	}
	address, ok := strings.CutSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	if !ok {
		t.Fatalf("Link: %s", link)
	}
	return address
}

func TestPagesOfCalls(t *testing.T) {
	f := newFake()
	f.history = past{n: 5}
	h := New(f.deps())
	var ids []string
	for path := "/api/v1/calls?limit=2&state=done"; path != ""; {
		_, header, body := exchange(t, h, "GET", path, "")
		var calls []struct{ ID string }
		if err := json.Unmarshal([]byte(body), &calls); err != nil || len(calls) > 2 {
			t.Fatalf("%s = %s, %v", path, body, err)
		}
		for _, c := range calls {
			ids = append(ids, c.ID)
		}
		path = next(t, header)
	}
	// What is known only fills the first page, the history begins on the next.
	if got, want := strings.Join(ids, " "), "aa bb p0 p1 p2 p3 p4"; got != want {
		t.Errorf("pages = %s, want %s", got, want)
	}
}

func TestHistoryThatCannotBeRead(t *testing.T) {
	f := newFake()
	f.history = past{n: 5, ill: journal.ErrUnavailable}
	for _, path := range []string{"/api/v1/calls", "/api/v1/calls/aa", "/api/v1/calls?format=csv"} {
		if status, _, body := exchange(t, New(f.deps()), "GET", path, ""); status != 503 || !strings.Contains(body, `"store_unavailable"`) {
			t.Errorf("%s = %d %s, want 503", path, status, body)
		}
	}
}

func TestExport(t *testing.T) {
	f := newFake()
	f.history = past{n: 2*journal.MostLimit + 5}
	status, h, body := exchange(t, New(f.deps()), "GET", "/api/v1/calls?format=csv", "")
	if status != 200 || h.Get("Content-Type") != "text/csv; charset=utf-8; header=present" {
		t.Fatalf("export = %d %v", status, h)
	}
	rows, err := csv.NewReader(strings.NewReader(body)).ReadAll()
	if want := 1 + 3 + 2*journal.MostLimit + 5; err != nil || len(rows) != want {
		t.Fatalf("%d lines, %v, want %d", len(rows), err, want)
	}
	at := map[string]int{}
	for i, name := range rows[0] {
		at[name] = i
	}
	var aa, p0 []string
	for _, row := range rows {
		switch row[at["call_id"]] {
		case "aa":
			aa = row
		case "p0":
			p0 = row
		}
	}
	for name, want := range map[string]string{
		"started": "2026-03-04T13:06:07.000+08:00", "ended": "2026-03-04T13:06:11.020+08:00", "result": "recovered", "status": "200", "attempts": "2", "shop": "17",
		"upstream_request_ids": "u-9", "key_hash": "0123456789abcdef", "duration_ms": "4020",
		"story": "1 2026-03-04T13:06:07.000+08:00 status_503; 2 2026-03-04T13:06:11.000+08:00 status_200",
	} {
		if aa[at[name]] != want {
			t.Errorf("%s = %q, want %q", name, aa[at[name]], want)
		}
	}
	if p0[at["path"]] != "'=cmd()" || p0[at["detail"]] != "'+1 [2J" {
		t.Errorf("path %q, detail %q: a spreadsheet would run them", p0[at["path"]], p0[at["detail"]])
	}
	_, _, body = exchange(t, New(f.deps()), "GET", "/api/v1/calls?format=csv&limit=4", "")
	if rows, err := csv.NewReader(strings.NewReader(body)).ReadAll(); err != nil || len(rows) != 5 {
		t.Errorf("limit 4 gives %d lines, %v, want 5", len(rows), err)
	}
}

// An export that breaks off must not look like a whole one.
func TestExportThatBreaksOff(t *testing.T) {
	f := newFake()
	d := f.deps()
	pages := 0
	d.Find = func(context.Context, journal.Query) ([]*attempt.Summary, string, error) {
		if pages++; pages > 1 {
			return nil, "", journal.ErrUnavailable
		}
		return sampleCalls(), "1", nil
	}
	server := httptest.NewServer(New(d))
	defer server.Close()
	server.Config.ErrorLog = nil
	res, err := server.Client().Get(server.URL + "/api/v1/calls?format=csv")
	if err != nil {
		return // cut off before the header came
	}
	defer res.Body.Close()
	if _, err := csv.NewReader(res.Body).ReadAll(); err == nil {
		t.Error("half an export was read without an error")
	}
}
