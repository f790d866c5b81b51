package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"retryproxy/admin"
	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/deadletter"
	"retryproxy/idempotency"
	"retryproxy/message"
	"retryproxy/redact"
)

// desk holds the letters of a running proxy.
type desk struct {
	letters []idempotency.Record
	asked   []string
	bulks   []deadletter.Bulk // how the bulk stands, look by look
	err     error
}

// someLetters are one that may run again, one that needs a look, one that was
// executed, one without a key, and one whose key goes along.
func someLetters() []idempotency.Record {
	try := func(v classify.Verdict, status int) attempt.History {
		return attempt.History{
			{N: 1, Started: began, Duration: 20 * time.Millisecond, Host: "a.test:80", Status: status, Verdict: v, UpstreamID: "u-1"},
			{N: 2, Started: began.Add(2 * time.Second), Delay: 2 * time.Second, Cause: "backoff", Duration: 20 * time.Millisecond, Host: "a.test:80", Status: status, Verdict: v},
		}
	}
	letter := func(id string, state idempotency.State, e classify.Executed, v classify.Verdict, status int) idempotency.Record {
		v.Executed = e
		return idempotency.Record{
			ID: idempotency.ID{Tenant: "-", Key: "order-" + id}, Receipt: id, State: state, Executed: e, Policy: "order_ship", Method: "POST", Host: "a.test:80", Path: "/orders",
			Labels: attempt.Labels{Shop: "17", ShopTier: "vip", TaskType: "order_ship"}, Reason: "attempts_exhausted", Attempts: 2, History: try(v, status),
			Runs: []idempotency.Run{
				{CallID: "c1", ClientID: "bot-7", Started: began, Ended: began.Add(time.Second), First: 1, Reason: "attempts_exhausted"},
				{CallID: "c2", Kind: idempotency.Requeued, Started: began.Add(2 * time.Second), Ended: began.Add(3 * time.Second), First: 2, Reason: "attempts_exhausted"},
			},
			Notes:   []idempotency.Note{{At: began.Add(2 * time.Second), By: "ann", Did: "requeued", Text: "the shop is \x1b[2Jback"}},
			Updated: began.Add(3 * time.Second), Expires: began.Add(720 * time.Hour), NextAt: began.Add(time.Hour),
			Answer: &idempotency.Answer{Status: status, Reason: "Service Unavailable", Kept: true, Body: []byte("later\n"), Fields: message.Fields{{Name: "Server", Value: "b"}}},
		}
	}
	list := []idempotency.Record{
		letter("e1", idempotency.StateDead, classify.ExecutedNo, classify.Verdict{Class: classify.Transient, Reason: "status_503", Basis: classify.BasisRefused}, 503),
		letter("e2", idempotency.StateInDoubt, classify.ExecutedMaybe, classify.Verdict{Class: classify.Unknown, Reason: "reset_after_send"}, 0),
		letter("e3", idempotency.StateDead, classify.ExecutedYes, classify.Verdict{Class: classify.Unknown, Reason: "truncated"}, 201),
		letter("e4", idempotency.StateDead, classify.ExecutedNo, classify.Verdict{Class: classify.Transient, Reason: "status_503", Basis: classify.BasisRefused}, 503),
		letter("e5", idempotency.StateDead, classify.ExecutedMaybe, classify.Verdict{Class: classify.Transient, Reason: "status_500", Basis: classify.BasisKey}, 500),
	}
	list[3].Keyless, list[4].Honoured = true, true
	return list
}

func (d *desk) note(format string, args ...any) error {
	d.asked = append(d.asked, fmt.Sprintf(format, args...))
	return d.err
}

func (d *desk) at(id string) *idempotency.Record {
	if i := slices.IndexFunc(d.letters, func(r idempotency.Record) bool { return r.Receipt == id }); i >= 0 {
		return &d.letters[i]
	}
	return nil
}

// move is what an order does to a letter.
func (d *desk) move(id string, to idempotency.State) error {
	if r := d.at(id); r != nil && d.err == nil {
		r.State = to
	}
	return d.err
}

func (d *desk) find(f deadletter.Filter) []idempotency.Record {
	q := f.Query(nil)
	return slices.DeleteFunc(slices.Clone(d.letters), func(r idempotency.Record) bool { return !q.Wants(&r) })
}

func (d *desk) view() deadletter.Bulk {
	if len(d.bulks) == 0 {
		return deadletter.Bulk{State: deadletter.BulkNone}
	}
	b := d.bulks[0]
	if len(d.bulks) > 1 {
		d.bulks = d.bulks[1:]
	}
	return b
}

// running is the admin listener over d.
func (d *desk) running(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(admin.New(admin.Deps{
		Metrics: prometheus.NewRegistry(), Hosts: func(h string) bool { return strings.HasPrefix(h, "127.0.0.1") },
		Letters: admin.Letters{
			List: func(_ context.Context, f deadletter.Filter, _ string, limit int) ([]idempotency.Record, string, error) {
				found := d.find(f)
				if limit < len(found) {
					return found[:limit], "more", d.err
				}
				return found, "", d.err
			},
			Each: func(_ context.Context, f deadletter.Filter, do func(*idempotency.Record) error) error {
				if d.err != nil {
					return d.err
				}
				for _, r := range d.find(f) {
					if err := do(&r); err != nil {
						return err
					}
				}
				return nil
			},
			Show: func(_ context.Context, id string) (idempotency.Record, *idempotency.Request, error) {
				r := d.at(id)
				if r == nil {
					return idempotency.Record{}, nil, deadletter.ErrNotFound
				}
				return *r, &idempotency.Request{Place: idempotency.Place{Scheme: "http", Authority: "a.test", Target: "/orders?sign=secret"}, Body: []byte("\x00\x01")}, d.err
			},
			Requeue: func(_ context.Context, id string, o deadletter.Order) (string, error) {
				err := d.note("requeue %s unknown %v by %s", id, o.ExecutedUnknown, o.By)
				if id == "e2" && !o.ExecutedUnknown {
					return "", fmt.Errorf("%w: look there first", deadletter.ErrRefused)
				}
				if id == "e1" || o.ExecutedUnknown {
					_ = d.move(id, idempotency.StateDone)
				}
				return "c9", err
			},
			Later: func(_ context.Context, id string, o deadletter.Order) error {
				r := d.at(id)
				now := time.Now()
				note := o.LaterNote(r, now)
				moved, err := idempotency.Apply(*r, r.State, r.State, idempotency.Change{Now: now, NextAt: o.At, Note: note})
				if err == nil {
					*r = moved
				}
				return cmp.Or(err, d.note("later %s in %v unknown %v by %s", id, o.At.Sub(now).Round(time.Minute), o.ExecutedUnknown, o.By))
			},
			Resolve: func(_ context.Context, id string, executed bool, s deadletter.Signed) error {
				_ = d.note("resolve %s %v by %s: %s", id, executed, s.By, s.Note)
				return d.move(id, idempotency.StateDone)
			},
			Drop: func(_ context.Context, id string, s deadletter.Signed) error {
				_ = d.note("drop %s by %s: %s", id, s.By, s.Note)
				return d.move(id, idempotency.StateFailed)
			},
			DropAll: func(_ context.Context, f deadletter.Filter, all bool, s deadletter.Signed) (int, int, bool, error) {
				err := d.note("drop %v all %v", f.Values(), all)
				return 2, 1, len(d.asked) < 2, err
			},
			Preview: func(_ context.Context, o deadletter.BulkOrder) (deadletter.Preview, error) {
				p := deadletter.NewPreview()
				for i := range d.letters {
					p.Add(deadletter.NewView(&d.letters[i]), o.At, deadletter.MayRequeue(&d.letters[i], &deadletter.Order{Kind: idempotency.Requeued, Bulk: true}))
				}
				return p, d.note("preview %v", o.Filter.Values())
			},
			StartBulk: func(o deadletter.BulkOrder) (deadletter.Bulk, error) {
				return d.view(), d.note("bulk %v all %v every %v canary %d by %s", o.Filter.Values(), o.All, o.Every, o.Canary, o.By)
			},
			Bulk:     d.view,
			StopBulk: func(by string) deadletter.Bulk { _ = d.note("stop by %s", by); return d.view() },
			Hide:     func() *redact.Names { return redact.New(nil) },
			Revealed: func(what, _ string) { _ = d.note("revealed %s", what) },
		},
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// typedAt types a command about the letters of d, by a user called bob.
func (d *desk) typedAt(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	addr := d.running(t)
	code, stdout, stderr = typed(t, func(e *Env) {
		e.Getenv = func(name string) string { return map[string]string{"USER": "bob"}[name] }
	}, append([]string{"deadletters", args[0], "-admin", addr}, args[1:]...)...)
	return code, strings.ReplaceAll(stdout, addr, "ADMIN"), stderr
}

// A letter that is to run later says so wherever it is shown.
func TestLaterIsTold(t *testing.T) {
	d := &desk{letters: someLetters()}
	if code, _, stderr := d.typedAt(t, "requeue", "e2", "-executed-unknown", "-at", "90m", "-by", "ann"); code != OK {
		t.Fatal(stderr)
	}
	at := d.at("e2").NextAt.Local().Format(time.DateTime)
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"ls"}, []string{"runs " + at, "1 to run later"}},
		{[]string{"show", "e2"}, []string{"ann had it run again at " + at + ", executed or not.", "requeue -admin ADMIN e2 -executed-unknown\n", "-executed-unknown -at 2h\n", "later_executed_unknown"}},
		{[]string{"show", "e2", "-json"}, []string{`"todo": "later"`, `"later": {`}},
		{[]string{"summary"}, []string{"1 to run later"}},
	} {
		_, stdout, _ := d.typedAt(t, tt.args...)
		for _, want := range tt.want {
			if !strings.Contains(stdout, want) {
				t.Errorf("%v = %s, want %q", tt.args, stdout, want)
			}
		}
	}
	r := record{State: "dead", Receipt: "e1", Executed: "no", Later: &deadletter.LaterView{At: began, By: "ann"}}
	if told := r.stands(began); !strings.Contains(told, "; ann had it run again at ") {
		t.Errorf("why = %s", told)
	}
}

func TestLetterCommands(t *testing.T) {
	signed := []string{"-by", "ann", "-note", "seen in the shop"}
	with := func(args ...string) []string { return append(args, signed...) }
	tests := []struct {
		name   string
		args   []string
		code   int
		asked  string
		stdout []string
		stderr string
	}{
		{"ls", []string{"ls"}, OK, "", []string{"ID  SINCE (" + time.Now().Format("-07:00") + ")  ", "5 letters: 1 to ask, 1 to check, 2 to requeue, 1 to resolve.", "retryproxy deadletters show -admin ADMIN e1", "requeue -admin ADMIN -dry-run -all"}, ""},
		{"ls some", []string{"ls", "-state", "in_doubt"}, OK, "", []string{"1 letter: 1 to check."}, ""},
		{"ls of no reason", []string{"ls", "-reason", "foo"}, OK, "", []string{"no such dead letters; reasons there are: attempts_exhausted\n"}, ""},
		{"summary", []string{"summary"}, OK, "", []string{
			"5 letters: 1 to ask, 1 to check, 2 to requeue, 1 to resolve; the oldest of " + began.Add(3*time.Second).Local().Format("2006-01-02 15:04:05 -07:00") + "\n",
			"REASON              LETTERS\nattempts_exhausted  5\n", "HOST       LETTERS\na.test:80  5\n", "SHOP  LETTERS\n17    5\n",
		}, ""},
		{"summary of some", []string{"summary", "-state", "in_doubt"}, OK, "", []string{"1 letter: 1 to check;"}, ""},
		{"summary of none", []string{"summary", "-shop", "18"}, OK, "", []string{"no such dead letters\n"}, ""},
		{"summary json", []string{"summary", "-json"}, OK, "", []string{`"by_shop": {`}, ""},
		{"ls none", []string{"ls", "-shop", "18"}, OK, "", []string{"no such dead letters\n"}, ""},
		{"ls of more", []string{"ls", "-limit", "1"}, OK, "", []string{"The latest 1 letter, there are more (-limit up to 1000, or deadletters export)"}, ""},
		{"ls by key", []string{"ls", "-key", "order-e2", "-json"}, OK, "", []string{`"id": "e2"`}, ""},
		{"ls by nonsense", []string{"ls", "-since", "yesterday"}, Usage, "", nil, "since: want a time"},
		{"show", []string{"show", "e1"}, OK, "", []string{
			"Dead letter e1: POST a.test:80/orders", "Given up " + began.Add(3*time.Second).Local().Format(time.DateTime), "attempts_exhausted", "Executed: no.",
			"The client asked as its bot-7 (call c1).", "Attempt 1 went to a.test:80 and brought status 503", "Upstream request id u-1.",
			"It was requeued (call c2).", "Attempt 2, after 2s of backoff,", "ann: requeued. the shop is ?[2Jback", "The last answer was 503 Service Unavailable with 6 bytes.",
			"It is tried again by itself at", "It is removed at", "What to do: Nothing was executed", "retryproxy deadletters requeue -admin ADMIN e1\n", "drop -admin ADMIN e1 -by NAME",
		}, ""},
		{"show in doubt", []string{"show", "e2"}, OK, "", []string{
			"Call in doubt e2", "Executed: maybe.", "the upstream does not go by the key", "show -admin ADMIN e2 -reveal\n      shows which order it is", "resolve -admin ADMIN e2 -executed -by NAME", "resolve -admin ADMIN e2 -not-executed -by NAME", "requeue -admin ADMIN e2 -executed-unknown",
		}, ""},
		{"show without a key", []string{"show", "e4"}, OK, "", []string{
			"no key", "What to do: Nothing was executed, but it had no key, so its bot may have repeated it since", "show -admin ADMIN e4 -reveal",
			"resolve -admin ADMIN e4 -executed -by NAME", "requeue -admin ADMIN e4 -executed-unknown\n", "drop -admin ADMIN e4",
		}, ""},
		{"show honoured", []string{"show", "e5"}, OK, "", []string{"its key goes to the upstream", "one that ignores them acts twice", "requeue -admin ADMIN e5\n", "resolve -admin ADMIN e5 -executed"}, ""},
		{"show executed", []string{"show", "e3"}, OK, "", []string{"Executed: yes.", "resolve -admin ADMIN e3 -executed"}, ""},
		{"show json", []string{"show", "e1", "-json"}, OK, "", []string{`"todo": "requeue"`}, ""},
		{"show revealed", []string{"show", "-reveal", "e1"}, OK, "revealed e1", []string{"key order-e1", "Request:\n  POST http://a.test/orders?sign=***", "(binary, as base64) AAE=", "Last answer:\n  503 Service Unavailable\n  Server: b\n\n  later\n"}, ""},
		{"show unknown", []string{"show", "ff"}, Failure, "", nil, "there is no dead letter of this id"},
		{"show nothing", []string{"show", ""}, Usage, "", nil, `"" is no id of a letter`},
		{"show no id", []string{"show", "summary"}, Usage, "", nil, `"summary" is no id of a letter`},
		{"requeue no id", []string{"requeue", ""}, Usage, "", nil, `"" is no id of a letter`},
		{"drop no id", with("drop", "bulk"), Usage, "", nil, `"bulk" is no id of a letter`},
		{"resolve no id", with("resolve", "../e2", "-executed"), Usage, "", nil, `"../e2" is no id of a letter`},
		{"show what", []string{"show"}, Usage, "", nil, "want one argument"},
		{"requeue", []string{"requeue", "e1"}, OK, "requeue e1 unknown false by bob", []string{"requeued as call c9", "done: the upstream answered 503, the letter is closed"}, ""},
		{"requeue that fails again", []string{"requeue", "e3", "-by", "ann"}, Failure, "requeue e3 unknown false by ann", []string{"it failed again: ", "What to do: The upstream acted"}, ""},
		{"requeue in doubt", []string{"requeue", "e2", "-executed-unknown"}, OK, "requeue e2 unknown true by bob", []string{"the letter is closed"}, ""},
		{"requeue later", []string{"requeue", "e2", "-executed-unknown", "-at", "90m"}, OK, "later e2 in 1h30m0s unknown true by bob", []string{"it runs at 20", "by itself: retryproxy deadletters show -admin ADMIN e2"}, ""},
		{"requeue at no time", []string{"requeue", "e1", "-at", "tonight"}, Usage, "", nil, "at: want a time such as"},
		{"requeue which", []string{"requeue"}, Usage, "", nil, "which letters?"},
		{"requeue both", []string{"requeue", "e1", "-shop", "17"}, Usage, "", nil, "not both"},
		{"requeue many unknown", []string{"requeue", "-all", "-executed-unknown"}, Usage, "", nil, "goes with one id"},
		{"requeue at a wrong rate", []string{"requeue", "-all", "-rate", "fast"}, Usage, "", nil, "rate: want a rate"},
		{"dry run", []string{"requeue", "-shop", "17", "-dry-run"}, OK, "preview map[shop:17]", []string{
			"5 letters: 2 would run again, 3 would be refused\n  1 refused: it may have been executed, ", "\n  1 refused: the upstream acted", "\n  1 refused: it has no key, ",
			"TO DO    RUNS\n", "requeue  yes\n", "check    no\n", "ask      no\n",
			"Run the 2:                retryproxy deadletters requeue -admin ADMIN -shop 17 -rate 1/s -canary 1\n", "retryproxy deadletters show -admin ADMIN e2\n",
		}, ""},
		{"dry run of all", []string{"requeue", "-all", "-dry-run", "-rate", "5/s"}, OK, "preview map[]", []string{"requeue -admin ADMIN -all -rate 5/s -canary 1\n"}, ""},
		{"dry run of later", []string{"requeue", "-all", "-dry-run", "-at", "2h"}, OK, "preview map[]", []string{
			"The first would run at " + time.Now().Add(2*time.Hour).Local().Format("2006-01-02"), "requeue -admin ADMIN -all -rate 1/s -canary 1 -at 2h\n",
		}, ""},
		{"dry run of one", []string{"requeue", "e1", "-dry-run"}, Usage, "", nil, "-dry-run goes with conditions"},
		{"resolve", with("resolve", "e2", "-executed"), OK, "resolve e2 true by ann: seen in the shop", []string{"resolved as executed"}, ""},
		{"resolve in long", with("resolve", "e2", "--not-executed"), OK, "resolve e2 false by ann: seen in the shop", []string{"resolved as not executed: closes it, its key is free"}, ""},
		{"resolve how", with("resolve", "e2"), Usage, "", nil, "want either -executed or -not-executed"},
		{"resolve both", with("resolve", "e2", "-executed", "-not-executed"), Usage, "", nil, "want either -executed or -not-executed"},
		{"resolve unsigned", []string{"resolve", "e2", "-executed", "-by", "ann"}, Usage, "", nil, "-note TEXT is needed"},
		{"drop", with("drop", "e1"), OK, "drop e1 by ann: seen in the shop", []string{"dropped"}, ""},
		{"drop unsigned", []string{"drop", "e1"}, Usage, "", nil, "-by NAME is needed"},
		{"drop many", with("drop", "-host", "a.test"), OK, "drop map[host:a.test] all false; drop map[host:a.test] all false", []string{"4 letters dropped, 1 refused"}, ""},
		{"drop which", with("drop"), Usage, "", nil, "which letters?"},
		{"drop dry", []string{"drop", "-all", "-dry-run"}, OK, "", []string{"4 would be dropped, 1 are in doubt and would stay"}, ""},
		{"export", []string{"export"}, OK, "", []string{`"id":"e1"`, `"id":"e3"`}, ""},
		{"export csv", []string{"export", "-format", "csv", "-state", "dead"}, OK, "", []string{"id,state,since", "\ne1,dead,", "\ne3,dead,"}, ""},
		{"export revealed", []string{"export", "-reveal"}, OK, "revealed export", []string{`"key":"order-e1"`}, ""},
		{"export csv revealed", []string{"export", "-format", "csv", "-reveal"}, OK, "revealed export", []string{"request_url,request_body\n", ",http://a.test/orders?sign=***,base64:AAE=\n"}, ""},
		{"export nonsense", []string{"export", "-format", "xml"}, Usage, "", nil, "want jsonl or csv"},
		{"requeue refused", []string{"requeue", "e2"}, Failure, "requeue e2 unknown false by bob", []string{"What to do: The upstream may have acted"}, "look there first"},
		{"help", []string{"requeue", "-h"}, OK, "", nil, "usage: retryproxy deadletters requeue [flags] [ID]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := &desk{letters: someLetters()}
			code, stdout, stderr := d.typedAt(t, test.args...)
			if asked := strings.Join(d.asked, "; "); code != test.code || asked != test.asked || !strings.Contains(stderr, test.stderr) {
				t.Errorf("%d, asked %q, stderr %q; want %d, %q, %q", code, asked, stderr, test.code, test.asked, test.stderr)
			}
			for _, want := range test.stdout {
				if !strings.Contains(stdout, want) {
					t.Errorf("printed %q, want %q in it", stdout, want)
				}
			}
			if strings.Contains(stdout, "secret") && test.asked == "" || strings.Contains(stdout, "\x1b") {
				t.Errorf("printed what it should not: %q", stdout)
			}
		})
	}
}

func TestLetterBulkCommand(t *testing.T) {
	running := deadletter.Bulk{State: deadletter.BulkRunning, Requeued: 1, Done: 1}
	ended := deadletter.Bulk{State: deadletter.BulkEnded, Requeued: 2, Done: 2}
	stopped := deadletter.Bulk{State: deadletter.BulkStopped, Requeued: 1, Failed: 1, Why: "canary 1 of 1 did not end done: e1"}
	tests := []struct {
		name  string
		args  []string
		bulks []deadletter.Bulk
		code  int
		asked string
		last  string // line
	}{
		{"to its end", []string{"-all", "-rate", "5/s"}, []deadletter.Bulk{running, running, ended}, OK, "bulk map[] all true every 200ms canary 1 by bob", "ended: 2 requeued, 2 done, 0 failed, 0 refused"},
		{"stopped", []string{"-shop", "17", "-canary", "3"}, []deadletter.Bulk{stopped}, Failure, "bulk map[shop:17] all false every 1s canary 3 by bob", "stopped: 1 requeued, 0 done, 1 failed, 0 refused; canary 1 of 1 did not end done: e1"},
		{"detached", []string{"-all", "-detach"}, []deadletter.Bulk{running}, OK, "bulk map[] all true every 1s canary 1 by bob", "running: 1 requeued, 1 done, 0 failed, 0 refused"},
		{"status", []string{"-status"}, []deadletter.Bulk{running}, OK, "", "running: 1 requeued, 1 done, 0 failed, 0 refused"},
		{"status of none", []string{"-status"}, nil, OK, "", "no requeue of many since the proxy started"},
		{"stop", []string{"-stop", "-by", "ann"}, []deadletter.Bulk{stopped}, OK, "stop by ann", "stopped: 1 requeued, 0 done, 1 failed, 0 refused; canary 1 of 1 did not end done: e1"},
		{"stop of some", []string{"-stop", "-all"}, nil, Usage, "", ""},
	}
	for _, test := range tests {
		d := &desk{bulks: test.bulks}
		code, stdout, _ := d.typedAt(t, append([]string{"requeue"}, test.args...)...)
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		if asked := strings.Join(d.asked, "; "); code != test.code || asked != test.asked || lines[len(lines)-1] != test.last {
			t.Errorf("%s: %d, asked %q, printed %q; want %d, %q, %q", test.name, code, asked, stdout, test.code, test.asked, test.last)
		}
	}
}

func TestLettersOfAProxyWithoutAStore(t *testing.T) {
	for _, args := range [][]string{{"ls"}, {"show", "e1"}, {"requeue", "e1"}, {"requeue", "-all"}, {"export"}} {
		d := &desk{letters: someLetters(), err: deadletter.ErrNotKept}
		code, _, stderr := d.typedAt(t, args...)
		if code != Failure || !strings.Contains(stderr, "start the proxy with -data DIR") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: %d %q, want one line that says how to keep them", args, code, stderr)
		}
	}
}

func TestHalfACommand(t *testing.T) {
	for args, want := range map[string]int{"deadletters": Usage, "deadletters list": Usage, "deadletters -h": OK, "help deadletters": OK} {
		code, stdout, stderr := typed(t, nil, strings.Fields(args)...)
		if text := stdout + stderr; code != want || !strings.Contains(text, "\n  deadletters show [-reveal]") || strings.Contains(text, "  serve [") {
			t.Errorf("%s = %d %s, want %d and the commands of two words", args, code, text, want)
		}
	}
}

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "just now", 59 * time.Second: "just now", 5 * time.Minute: "5 min ago", 47 * time.Hour: "47 h ago", 72 * time.Hour: "3 days ago",
	} {
		if got := ago(d); got != want {
			t.Errorf("ago(%v) = %q, want %q", d, got, want)
		}
	}
}
