package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/deadletter"
	"retryproxy/idempotency"
	"retryproxy/message"
	"retryproxy/redact"
)

// desk is what holds the letters behind the listener.
type desk struct {
	letters []idempotency.Record // the latest first
	asked   []string             // what was ordered
	err     error                // of everything
	breaks  int                  // Each fails after so many; 0: not
}

// sampleLetters are one that may run again and one that needs a look.
func sampleLetters() []idempotency.Record {
	lost := attempt.Attempt{
		N: 1, Started: began, Duration: 1500 * time.Millisecond, Host: "a.test:443", UpstreamID: "u-1", Detail: "connection reset",
		Verdict: classify.Verdict{Class: classify.Unknown, Reason: "reset_after_send", Executed: classify.ExecutedMaybe},
	}
	refused := attempt.Attempt{
		N: 1, Started: began, Host: "b.test:80", Status: 503, Verdict: classify.Verdict{Class: classify.Transient, Reason: "status_503", Basis: classify.BasisRefused},
	}
	return []idempotency.Record{
		{
			ID: idempotency.ID{Tenant: "-", Key: "order-1"}, State: idempotency.StateInDoubt, Receipt: "aa", Policy: "order_ship", Method: "POST",
			Labels: attempt.Labels{Shop: "17", TaskType: "order_ship"}, Host: "a.test:443", Path: "/orders", Reason: "manual_review", Executed: classify.ExecutedMaybe,
			Attempts: 1, History: attempt.History{lost}, Updated: began.Add(time.Minute), NextAt: began.Add(24 * time.Hour), Expires: began.Add(24 * time.Hour),
			Runs: []idempotency.Run{{CallID: "aa", ClientID: "bot-1", Started: began, Ended: began.Add(time.Second), First: 1, Reason: "manual_review"}},
		},
		{
			ID: idempotency.ID{Tenant: "-", Key: "keyless-bb"}, Keyless: true, State: idempotency.StateDead, Receipt: "bb", Policy: "default", Method: "POST",
			Host: "b.test:80", Path: "/x", Reason: "attempts_exhausted", Attempts: 1, History: attempt.History{refused}, Updated: began, Expires: began.Add(720 * time.Hour),
			Runs:   []idempotency.Run{{CallID: "bb", Started: began, Ended: began.Add(time.Second), First: 1, Reason: "attempts_exhausted"}},
			Notes:  []idempotency.Note{{At: began, By: "ann", Did: "requeued", Text: "it is back"}},
			Answer: &idempotency.Answer{Status: 503, Reason: "Service Unavailable", Kept: true, Body: []byte("later"), Fields: message.Fields{{Name: "Server", Value: "b"}}},
		},
	}
}

func newDesk() *desk { return &desk{letters: sampleLetters()} }

func (d *desk) note(format string, args ...any) error {
	d.asked = append(d.asked, fmt.Sprintf(format, args...))
	return d.err
}

func (d *desk) find(f deadletter.Filter) []idempotency.Record {
	q := f.Query(nil)
	return slices.DeleteFunc(slices.Clone(d.letters), func(r idempotency.Record) bool { return !q.Wants(&r) })
}

// deps are the Letters of d.
func (d *desk) deps() Letters {
	return Letters{
		List: func(_ context.Context, f deadletter.Filter, after string, limit int) ([]idempotency.Record, string, error) {
			found := d.find(f)
			if limit < len(found) {
				return found[:limit], "more", d.err
			}
			return found, "", d.note("list after %q limit %d", after, limit)
		},
		Each: func(_ context.Context, f deadletter.Filter, do func(*idempotency.Record) error) error {
			found := d.find(f)
			for i := range found {
				if d.breaks > 0 && i == d.breaks {
					return errors.New("the disk is gone")
				}
				if err := do(&found[i]); err != nil {
					return err
				}
			}
			return d.err
		},
		Show: func(_ context.Context, id string) (idempotency.Record, *idempotency.Request, error) {
			i := slices.IndexFunc(d.letters, func(r idempotency.Record) bool { return r.Receipt == id })
			if i < 0 {
				return idempotency.Record{}, nil, deadletter.ErrNotFound
			}
			return d.letters[i], &idempotency.Request{
				Place:  idempotency.Place{Scheme: "http", Authority: "b.test", Target: "/x?sign=secret"},
				Fields: message.Fields{{Name: "Authorization", Value: "secret"}}, Body: []byte("secret"),
			}, d.err
		},
		Requeue: func(_ context.Context, id string, o deadletter.Order) (string, error) {
			return "call-9", d.note("requeue %s unknown %v bulk %v %s by %q: %q", id, o.ExecutedUnknown, o.Bulk, o.Kind, o.By, o.Note)
		},
		Later: func(_ context.Context, id string, o deadletter.Order) error {
			return d.note("later %s in %v unknown %v by %q: %q", id, time.Until(o.At).Round(time.Minute), o.ExecutedUnknown, o.By, o.Note)
		},
		Resolve: func(_ context.Context, id string, executed bool, s deadletter.Signed) error {
			return d.note("resolve %s executed %v by %q: %q", id, executed, s.By, s.Note)
		},
		Drop: func(_ context.Context, id string, s deadletter.Signed) error {
			return d.note("drop %s by %q: %q", id, s.By, s.Note)
		},
		DropAll: func(_ context.Context, f deadletter.Filter, all bool, s deadletter.Signed) (int, int, bool, error) {
			return 1, 2, true, d.note("drop %v all %v by %q: %q", f.Values(), all, s.By, s.Note)
		},
		Preview: func(_ context.Context, o deadletter.BulkOrder) (deadletter.Preview, error) {
			return deadletter.Preview{Letters: 2, Would: 1, Refused: 1}, d.note("preview %v all %v", o.Filter.Values(), o.All)
		},
		StartBulk: func(o deadletter.BulkOrder) (deadletter.Bulk, error) {
			return deadletter.Bulk{State: "running"}, d.note("bulk %v all %v every %v canary %d by %q", o.Filter.Values(), o.All, o.Every, o.Canary, o.By)
		},
		Bulk: func() deadletter.Bulk { return deadletter.Bulk{State: "ended", Requeued: 3} },
		StopBulk: func(by string) deadletter.Bulk {
			_ = d.note("stop by %s", by)
			return deadletter.Bulk{State: "cancelled"}
		},
		Hide: func() *redact.Names { return redact.New(nil) },
		Revealed: func(what, client string) {
			_ = d.note("revealed %s to %s", what, client[:strings.LastIndexByte(client, ':')])
		},
	}
}

// handler is a listener over d.
func (d *desk) handler() http.Handler {
	deps := newFake().deps()
	deps.Letters = d.deps()
	return New(deps)
}

func TestLetterShapes(t *testing.T) {
	for name, path := range map[string]string{
		"letters": "/api/v1/deadletters", "letter": "/api/v1/deadletters/bb", "letter_revealed": "/api/v1/deadletters/bb?reveal=1",
		"letters_summary": "/api/v1/deadletters/summary", "letters_bulk": "/api/v1/deadletters/bulk",
	} {
		_, _, got := exchange(t, newDesk().handler(), "GET", path, "")
		golden(t, name, got)
		if strings.Contains(got, "secret") != (name == "letter_revealed") || strings.Contains(got, "order-1") || strings.Contains(got, "keyless-bb") {
			t.Errorf("%s shows what is secret, or not what it should: %s", name, got)
		}
	}
}

// Each order is handed on with what it says, and answered.
func TestLetterOrders(t *testing.T) {
	const base = "/api/v1/deadletters"
	tests := []struct {
		name, method, path, body string
		status                   int
		asked, answer            string
	}{
		{"list", "GET", base + "?limit=5&after=x", "", 200, `list after "x" limit 5`, `"next": ""`},
		{"list one", "GET", base + "?limit=1", "", 200, "", `"next": "more"`},
		{"list all at once", "GET", base + "?limit=5000", "", 200, `list after "" limit 1000`, ""},
		{"list by condition", "GET", base + "?state=dead&since=99999d", "", 400, "", "since: want"},
		{"list some", "GET", base + "?state=dead", "", 200, `list after "" limit 100`, `"id": "bb"`},
		{"list nothing", "GET", base + "?shop=18", "", 200, `list after "" limit 100`, `"letters": []`},
		{"list by nonsense", "GET", base + "?colour=red", "", 400, "", "colour: there is no such condition"},
		{"twice", "GET", base + "?shop=1&shop=2", "", 400, "", "shop: is given 2 times"},
		{"limit", "GET", base + "?limit=x", "", 400, "", "limit: want a number"},
		{"summary", "GET", base + "/summary?host=a.test", "", 200, "", `"letters": 1`},
		{"unknown id", "GET", base + "/zz", "", 404, "", "there is no dead letter of this id"},
		{"reveal", "GET", base + "/aa?reveal=1", "", 200, "revealed aa to 127.0.0.1", `"key": "order-1"`},
		{"reveal nonsense", "GET", base + "/aa?reveal=please", "", 400, "", "reveal: want 1 or 0"},
		{"requeue", "POST", base + "/bb/requeue", "", 202, `requeue bb unknown false bulk false requeue by "": ""`, `"call_id": "call-9"`},
		{"requeue unknown", "POST", base + "/bb/requeue", `{"executed_unknown":true,"by":"ann","note":"n"}`, 202, `requeue bb unknown true bulk false requeue by "ann": "n"`, ""},
		{"requeue later", "POST", base + "/bb/requeue", `{"at":"90m","executed_unknown":true,"by":"ann","note":"n"}`, 202, `later bb in 1h30m0s unknown true by "ann": "n"`, `"at": "20`},
		{"requeue at a time that is over", "POST", base + "/bb/requeue", `{"at":"1999-03-04T13:00:00+08:00"}`, 202, `requeue bb unknown false bulk false requeue by "": ""`, `"call_id": "call-9"`},
		{"requeue at no time", "POST", base + "/bb/requeue", `{"at":"tonight"}`, 400, "", "at: want a time such as"},
		{"bulk at no time", "POST", base + "/requeue", `{"all":true,"at":"31d"}`, 400, "", "at: "},
		{"requeue nonsense", "POST", base + "/bb/requeue", `{"force":true}`, 400, "", "unknown field"},
		{"resolve", "POST", base + "/bb/resolve", `{"executed":true,"by":"ann","note":"seen"}`, 200, `resolve bb executed true by "ann": "seen"`, `"id": "bb"`},
		{"resolve not", "POST", base + "/bb/resolve", `{"executed":false,"by":"ann","note":"seen"}`, 200, `resolve bb executed false by "ann": "seen"`, ""},
		{"resolve what", "POST", base + "/bb/resolve", `{"by":"ann","note":"seen"}`, 400, "", "executed: is missing"},
		{"drop", "POST", base + "/bb/drop", `{"by":"ann","note":"old"}`, 200, `drop bb by "ann": "old"`, `"id": "bb"`},
		{"drop many", "POST", base + "/drop", `{"filter":{"shop":"17"},"by":"ann","note":"old"}`, 200, `drop map[shop:17] all false by "ann": "old"`, `"more": true`},
		{"drop by a date of here", "POST", base + "/drop", `{"filter":{"since":"2026-03-04"},"by":"ann","note":"old"}`, 200, `drop map[since:2026-03-04T00:00:00+08:00] all false by "ann": "old"`, ""},
		{"bulk by a date of here", "POST", base + "/requeue", `{"filter":{"until":"2026-03-04"}}`, 202, `bulk map[until:2026-03-04T00:00:00+08:00] all false every 1s canary 1 by ""`, ""},
		{"drop by nonsense", "POST", base + "/drop", `{"filter":{"shop":""},"by":"ann","note":"old"}`, 400, "", "shop: is empty"},
		{"bulk", "POST", base + "/requeue", `{"filter":{"host":"a.test"},"rate":"5/s","canary":3,"by":"ann"}`, 202, `bulk map[host:a.test] all false every 200ms canary 3 by "ann"`, `"state": "running"`},
		{"bulk as usual", "POST", base + "/requeue", `{"all":true}`, 202, `bulk map[] all true every 1s canary 1 by ""`, ""},
		{"bulk of what", "POST", base + "/requeue", `{}`, 400, "", "filter: no condition is given"},
		{"bulk too fast", "POST", base + "/requeue", `{"all":true,"rate":"1000/s"}`, 400, "", "rate: 1000/s is more than"},
		{"bulk canary", "POST", base + "/requeue", `{"all":true,"canary":-1}`, 400, "", "canary: -1 must be"},
		{"dry run", "POST", base + "/requeue", `{"all":true,"dry_run":true}`, 200, "preview map[] all true", `"would_requeue": 1`},
		{"stop", "DELETE", base + "/bulk?by=ann", "", 200, "stop by ann", `"state": "cancelled"`},
		{"export nonsense", "GET", base + "/export?format=xml", "", 400, "", "format: want"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := newDesk()
			status, header, got := exchange(t, d.handler(), test.method, test.path, test.body)
			if asked := strings.Join(d.asked, "; "); status != test.status || asked != test.asked || !strings.Contains(got, test.answer) {
				t.Errorf("%d, asked %q: %s; want %d, %q, %q", status, asked, got, test.status, test.asked, test.answer)
			}
			if status > 299 && header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("Content-Type = %s", header.Get("Content-Type"))
			}
		})
	}
}

func TestLetterFaults(t *testing.T) {
	for err, want := range map[error]string{
		deadletter.ErrNotKept: "409 not_kept", deadletter.ErrNotFound: "404 not_found", deadletter.ErrClosed: "409 closed", deadletter.ErrBusy: "409 busy",
		fmt.Errorf("%w: look first", deadletter.ErrRefused): "409 refused", deadletter.ErrNoRequest: "409 request_not_kept", deadletter.ErrDraining: "503 shutting_down",
		idempotency.ErrUnavailable: "503 store_unavailable", idempotency.ErrFull: "503 store_full", errors.New("odd"): "500 internal",
	} {
		d := newDesk()
		d.err = err
		for _, order := range [][3]string{
			{"POST", "/bb/requeue", ""},
			{"POST", "/bb/resolve", `{"executed":true,"by":"a","note":"b"}`},
			{"POST", "/bb/drop", `{"by":"a","note":"b"}`},
			{"POST", "/drop", `{"all":true,"by":"a","note":"b"}`},
			{"POST", "/requeue", `{"all":true}`},
			{"POST", "/requeue", `{"all":true,"dry_run":true}`},
			{"GET", "", ""},
			{"GET", "/summary", ""},
			{"GET", "/bb", ""},
		} {
			_, _, got := exchange(t, d.handler(), order[0], "/api/v1/deadletters"+order[1], order[2])
			var p problem
			if json.Unmarshal([]byte(got), &p) != nil || fmt.Sprint(p.Status, " ", p.Reason) != want || p.Detail != err.Error() {
				t.Errorf("%v: %s = %s, want %s", err, order[1], got, want)
			}
		}
	}
	if _, _, got := exchange(t, (&desk{err: deadletter.ErrBulk}).handler(), "POST", "/api/v1/deadletters/requeue", `{"all":true}`); !strings.Contains(got, "bulk_running") {
		t.Errorf("a second bulk = %s", got)
	}
}

func TestLetterExport(t *testing.T) {
	d := newDesk()
	_, header, got := exchange(t, d.handler(), "GET", "/api/v1/deadletters/export", "")
	if strings.Count(got, "\n") != 2 || strings.Contains(got, "secret") || header.Get("Content-Type") != "application/jsonl" {
		t.Errorf("export = %s %s", header.Get("Content-Type"), got)
	}
	for line := range strings.Lines(got) {
		var v deadletter.View
		if err := json.Unmarshal([]byte(line), &v); err != nil || v.ID == "" {
			t.Errorf("line %s: %v", line, err)
		}
	}
	_, header, got = exchange(t, d.handler(), "GET", "/api/v1/deadletters/export?format=csv&state=dead", "")
	if lines := strings.Split(got, "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "id,state,since") || !strings.HasPrefix(lines[1], "bb,dead,") || header.Get("Content-Type") != "text/csv; charset=utf-8" {
		t.Errorf("csv = %s %s", header.Get("Content-Type"), got)
	}
	_, _, got = exchange(t, d.handler(), "GET", "/api/v1/deadletters/export?reveal=1&shop=18", "")
	if got != "" || strings.Join(d.asked, ";") != "revealed export to 127.0.0.1" {
		t.Errorf("an empty export = %q, asked %v", got, d.asked)
	}
	_, _, got = exchange(t, d.handler(), "GET", "/api/v1/deadletters/export?reveal=1&state=dead", "")
	if !strings.Contains(got, "secret") || !strings.Contains(got, `"text":"later"`) {
		t.Errorf("the revealed export = %s", got)
	}
}

// An export that cannot be completed must not look like a whole one.
func TestLetterExportBreaksOff(t *testing.T) {
	d := newDesk()
	d.breaks = 1
	server := httptest.NewServer(d.handler())
	defer server.Close()
	res, err := http.Get(server.URL + "/api/v1/deadletters/export")
	if err == nil {
		defer res.Body.Close()
		var text strings.Builder
		buf := make([]byte, 1<<10)
		for err == nil {
			var n int
			n, err = res.Body.Read(buf)
			text.Write(buf[:n])
		}
	}
	if err == nil || err.Error() == "EOF" {
		t.Errorf("the export ended with %v, want a broken connection", err)
	}
}
