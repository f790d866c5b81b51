package alert

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/internal/memnet"
)

const hookAddr = "10.1.1.1:80"

// bot is a chat service in memory: it answers from a script, then 200.
type bot struct {
	t      *testing.T
	net    *memnet.Network
	server http.Server

	mu     sync.Mutex
	script []reply
	got    []received
}

// reply is one scripted answer; a nil one never comes.
type reply func(w http.ResponseWriter)

type received struct {
	at     time.Duration // since the bubble's start
	url    string
	header http.Header
	body   string
}

func status(code int, body string, header ...string) reply {
	return func(w http.ResponseWriter) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

func newBot(t *testing.T, script ...reply) *bot {
	b := &bot{t: t, net: memnet.New(), script: script}
	l, err := b.net.Listen(hookAddr)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	b.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		answer := status(200, `{"errcode":0,"errmsg":"ok"}`)
		if len(b.script) > 0 {
			answer, b.script = b.script[0], b.script[1:]
		}
		b.got = append(b.got, received{time.Since(began), r.URL.String(), r.Header.Clone(), string(body)})
		b.mu.Unlock()
		if answer == nil {
			<-r.Context().Done()
			return
		}
		answer(w)
	})
	go b.server.Serve(l)
	return b
}

// requests are those that came so far.
func (b *bot) requests() []received {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]received(nil), b.got...)
}

// logged collects what is logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// running are alerts that run against a bot.
type running struct {
	*Alerts
	bot    *bot
	log    *logged
	counts map[string]int
	mu     sync.Mutex
	stop   func()
}

func run(t *testing.T, b *bot, c Config) *running {
	r := &running{bot: b, log: &logged{}, counts: map[string]int{}}
	d := Deps{
		Dial: func(ctx context.Context, _, addr string) (net.Conn, error) { return b.net.Dial(ctx, addr) },
		Log:  slog.New(slog.NewTextHandler(r.log, nil)),
		Count: func(rule, result string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.counts[rule+" "+result]++
		},
	}
	r.Alerts = New(d, c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	r.stop = func() {
		cancel()
		b.server.Close() // a hanging handler ends
		<-done
	}
	synctest.Wait()
	return r
}

func (r *running) count(key string) int {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[key]
}

const hookURL = "http://10.1.1.1/cgi-bin/webhook/send?key=0123456789-secret"

// config is one rule that tells every dead letter, grouped by shop.
func config(format, secret string) Config {
	r := counting("letters")
	r.Count, r.By = 1, []string{"shop"}
	return Config{Sender: sender, Rules: []Rule{r}, Targets: []Target{{Name: "ops", URL: hookURL, Format: format, Secret: secret}}}
}

func (r *running) letter(shop string) {
	r.DeadLetter(DeadLetter{Reason: "attempts_exhausted", Host: "a.test:443", Shop: shop, CallID: "c-" + shop})
}

func TestDelivers(t *testing.T) {
	for _, format := range []string{"wecom", "dingtalk", "feishu", "slack", "json"} {
		t.Run(format, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				secret := ""
				if format == "dingtalk" || format == "feishu" || format == "json" {
					secret = "SEC-of-the-bot"
				}
				b := newBot(t, status(200, `{"errcode":0,"code":0}`))
				r := run(t, b, config(format, secret))
				defer r.stop()
				r.letter("17")
				got := b.requests()
				if len(got) != 1 || got[0].at != 0 || !strings.Contains(got[0].body, "a.test:443") || !json.Valid([]byte(got[0].body)) {
					t.Fatalf("requests %+v, want one at once", got)
				}
				if !strings.Contains(got[0].url, "key=0123456789-secret") || got[0].header.Get("Content-Type") != "application/json; charset=utf-8" {
					t.Errorf("url %s, header %v", got[0].url, got[0].header)
				}
				if format == "dingtalk" && !strings.Contains(got[0].url, "&sign=") || format == "json" && got[0].header.Get("Webhook-Signature") == "" {
					t.Errorf("not signed: %s %v", got[0].url, got[0].header)
				}
				if r.count("letters sent") != 1 {
					t.Errorf("counts %v, want one sent", r.counts)
				}
			})
		})
	}
}

// gaps are the times between requests, rounded: jitter is a fifth.
func gaps(list []received) (out []time.Duration) {
	for i := 1; i < len(list); i++ {
		out = append(out, list[i].at-list[i-1].at)
	}
	return out
}

func near(d, want time.Duration) bool {
	return d >= want*8/10-time.Second && d <= want*12/10+time.Second
}

func TestRetries(t *testing.T) {
	ok := `{"errcode":0}`
	for _, tt := range []struct {
		name   string
		script []reply
		waits  []time.Duration
		result string
		logs   string
	}{
		{"5xx", []reply{status(503, ""), status(500, ""), status(502, "")}, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, "sent", ""},
		{"Retry-After", []reply{status(429, "", "Retry-After", "40")}, []time.Duration{40 * time.Second}, "sent", ""},
		{"Retry-After without end", []reply{status(429, "", "Retry-After", "999999")}, []time.Duration{longestWait}, "sent", ""},
		{"too fast in a 200", []reply{status(200, `{"errcode":45009,"errmsg":"api freq out of limit"}`)}, []time.Duration{busyFor}, "sent", ""},
		{"stalled", []reply{nil}, []time.Duration{onceFor + time.Second}, "sent", ""},
		{"refused in a 200", []reply{status(200, `{"errcode":93000,"errmsg":"invalid webhook url"}`)}, nil, "failed", "errcode 93000: invalid webhook url"},
		{"404", []reply{status(404, "no such bot")}, nil, "failed", "answered 404: no such bot"},
		{"redirect", []reply{status(302, "", "Location", "http://10.1.1.1/elsewhere")}, nil, "failed", "redirects are not followed"},
		{"its own token in the answer", []reply{status(403, "bad key 0123456789-secret")}, nil, "failed", "bad key <secret>"},
		{"down for good", []reply{status(500, ""), status(500, ""), status(500, ""), status(500, ""), status(500, ""), status(500, ""), status(500, ""), status(500, "")}, []time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute}, "failed", "tries=8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBot(t, append(tt.script, status(200, ok))...)
				r := run(t, b, config("wecom", ""))
				defer r.stop()
				r.letter("17")
				time.Sleep(9 * time.Minute) // the letter's own recovery comes after ten
				waits := gaps(b.requests())
				if len(waits) != len(tt.waits) {
					t.Fatalf("waits %v, want %v", waits, tt.waits)
				}
				for i := range waits {
					if !near(waits[i], tt.waits[i]) {
						t.Errorf("waits %v, want about %v", waits, tt.waits)
					}
				}
				if r.count("letters "+tt.result) != 1 || !strings.Contains(r.log.String(), tt.logs) {
					t.Errorf("counts %v, log %s; want %s and %q", r.counts, r.log, tt.result, tt.logs)
				}
				if strings.Contains(r.log.String(), "0123456789-secret") || strings.Contains(fmt.Sprintf("%+v", r.View()), "0123456789-secret") {
					t.Error("the URL's token is told")
				}
			})
		})
	}
}

// A service that hangs holds up nobody; what comes meanwhile waits, is bounded,
// and is told together.
func TestHangingTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil)
		r := run(t, b, config("wecom", ""))
		defer r.stop()
		began := time.Now()
		for i := range 3 * mostWaiting {
			r.letter(fmt.Sprint(i))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("%v passed while letters were reported, want none", took)
		}
		dropped := r.count("letters dropped")
		if dropped < 2*mostWaiting-20 || dropped > 2*mostWaiting {
			t.Errorf("%d messages dropped of %d, want all beyond %d", dropped, 3*mostWaiting, mostWaiting)
		}
		time.Sleep(5 * time.Minute)
		got := b.requests()
		last := got[len(got)-1].body
		if !strings.Contains(last, "c-299") {
			t.Errorf("the newest message is missing: %s", last)
		}
		if n := r.count("letters sent"); n+dropped != 3*mostWaiting {
			t.Errorf("%d sent and %d dropped, want %d in all", n, dropped, 3*mostWaiting)
		}
		told := false
		for i := range got {
			told = told || strings.Contains(got[i].body, "older messages were dropped")
		}
		if !told {
			t.Error("nobody is told that messages were dropped")
		}
		if !strings.Contains(r.log.String(), "alerts were dropped") {
			t.Error("the log does not say that messages were dropped")
		}
		inMinute(t, got)
	})
}

// inMinute checks the budget: at most 20 requests in any minute.
func inMinute(t *testing.T, got []received) {
	t.Helper()
	for i := range got {
		if j := i + 20; j < len(got) && got[j].at-got[i].at < time.Minute {
			t.Errorf("more than 20 requests within a minute from %v", got[i].at)
		}
	}
}

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t)
		r := run(t, b, config("wecom", ""))
		defer r.stop()
		for i := range 300 {
			r.letter(fmt.Sprint(i))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		got := b.requests()
		inMinute(t, got)
		if n := r.count("letters sent"); n != 300 {
			t.Errorf("%d messages sent, want all 300, several in one request", n)
		}
	})
}

func TestReloadOfTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, status(503, "", "Retry-After", "200"))
		c := config("wecom", "")
		r := run(t, b, c)
		defer r.stop()
		r.letter("1") // is to be repeated, in a while
		synctest.Wait()
		r.letter("2")
		moved := c
		moved.Targets = []Target{{Name: "ops", URL: "http://10.1.1.1/moved", Format: "slack"}}
		r.Configure(moved)
		got := b.requests()
		if last := got[len(got)-1]; last.at != 0 || last.url != "/moved" || !strings.Contains(last.body, "c-1") || !strings.Contains(last.body, "c-2") {
			t.Errorf("the newest request is %+v, want what waited at the new place", last)
		}
		r.bot.script = []reply{nil}
		r.letter("3") // hangs
		synctest.Wait()
		r.letter("4")
		gone := c
		gone.Targets = []Target{{Name: "night", URL: hookURL, Format: "wecom"}}
		gone.Rules = []Rule{c.Rules[0]}
		gone.Rules[0].To = []string{"night"}
		r.Configure(gone)
		if r.count("letters failed") != 1 || r.count("letters dropped") != 1 {
			t.Errorf("counts %v, want what a removed target had: one failed, one dropped", r.counts)
		}
		r.letter("1") // known: it is firing
		r.letter("5")
		got = b.requests()
		if last := got[len(got)-1]; !strings.Contains(last.body, "c-5") {
			t.Errorf("the newest request is %+v, want the new target's", last)
		}
		if v := r.View(); len(v.Firing) != 5 {
			t.Errorf("%d groups are firing after the reload, want all 5", len(v.Firing))
		}
	})
}

func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, status(503, ""))
		r := run(t, b, config("wecom", ""))
		for i := range 50 {
			r.letter(fmt.Sprint(i))
		}
		synctest.Wait()
		began := time.Now()
		r.Flush(t.Context())
		if n := r.count("letters sent"); n != 50 || time.Since(began) > flushFor {
			t.Errorf("%d of 50 sent within %v", n, time.Since(began))
		}
		r.letter("late")
		if r.count("letters dropped") != 1 {
			t.Error("what comes after the flush is not counted as dropped")
		}
		r.stop()
	})
}

func TestFlushIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, nil, nil, nil)
		r := run(t, b, config("wecom", ""))
		r.letter("1")
		synctest.Wait()
		r.letter("2")
		began := time.Now()
		r.Flush(t.Context())
		if took := time.Since(began); took != flushFor {
			t.Errorf("the flush took %v, want %v", took, flushFor)
		}
		if r.count("letters failed") != 1 || r.count("letters dropped") != 1 {
			t.Errorf("counts %v, want one failed and one dropped", r.counts)
		}
		r.stop()
	})
}

func TestNobodyListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t)
		b.server.Close()
		r := run(t, b, config("wecom", ""))
		defer r.stop()
		r.letter("1")
		synctest.Wait()
		if v := r.View().Targets[0]; v.Waiting != 1 || v.Last == nil || v.Last.Tries != 1 || !strings.Contains(v.Last.Error, "refused") {
			t.Errorf("target %+v after the first try, want to see that and why it waits", v)
		}
		time.Sleep(5 * time.Minute)
		v := r.View().Targets[0]
		if v.Failed != 1 || v.Last.Tries != tries || !strings.Contains(v.Last.Error, "refused") {
			t.Errorf("target %+v, last %+v, want %d refused connections", v, v.Last, tries)
		}
	})
}

func TestTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t, status(200, `{"errcode":93000,"errmsg":"invalid webhook url, hint: x"}`))
		c := config("wecom", "")
		c.Targets = append(c.Targets, Target{Name: "other", URL: "http://10.9.9.9/x", Format: "json"})
		r := run(t, b, c)
		defer r.stop()
		said, err := r.Test(t.Context(), "letters")
		if err != nil || len(said) != 1 || said[0].OK || said[0].Status != 200 || said[0].Error != "errcode 93000: invalid webhook url, hint: x" {
			t.Errorf("Test(letters) = %+v, %v, want what the target said", said, err)
		}
		said, err = r.Test(t.Context(), "")
		if err != nil || len(said) != 2 || !said[0].OK || said[1].OK || said[1].Target != "other" {
			t.Errorf("Test of all = %+v, %v", said, err)
		}
		if _, err := r.Test(t.Context(), "nope"); err == nil {
			t.Error("a rule that is not there can be tested")
		}
		if got := b.requests(); len(got) != 2 || !strings.Contains(got[1].body, "TEST") {
			t.Errorf("requests %+v, want two tests", got)
		}
		b.mu.Lock()
		b.script = []reply{nil}
		b.mu.Unlock()
		began := time.Now()
		if said, _ = r.Test(t.Context(), "letters"); said[0].OK || time.Since(began) != testFor {
			t.Errorf("a test of a hanging target = %+v after %v, want %v", said, time.Since(began), testFor)
		}
	})
}

// The store's success costs nothing, and is not looked at, while it is well.
func TestStoreTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBot(t)
		c := config("json", "")
		c.Rules = []Rule{{Name: "store", On: StoreFails, KeepFiringFor: time.Minute, Quiet: time.Hour, To: []string{"ops"}}}
		r := run(t, b, c)
		defer r.stop()
		if n := testing.AllocsPerRun(100, func() { r.StoreWorked(true) }); n != 0 {
			t.Errorf("StoreWorked allocates %v times", n)
		}
		r.StoreFailed("store_unavailable", "disk I/O error")
		r.StoreFailed("store_unavailable", "disk I/O error")
		time.Sleep(5 * time.Minute)
		r.StoreWorked(false)
		time.Sleep(2 * time.Minute)
		got := b.requests()
		if len(got) != 2 || !strings.Contains(got[0].body, "disk I/O error") || !strings.Contains(got[1].body, `"recovered"`) {
			t.Errorf("requests %+v, want the trouble and its end", got)
		}
	})
}

// A success between a failure and its rule must not count: no other one would be
// looked at, and the alarm would never end.
func TestStoreTroubleIsNotTakenForSeen(t *testing.T) {
	a := New(Deps{}, Config{Rules: []Rule{{Name: "store", On: StoreFails, KeepFiringFor: time.Hour, Quiet: time.Hour}}})
	a.mu.Lock()
	done := make(chan struct{})
	go func() { defer close(done); a.StoreFailed("store_full", "") }()
	for range 10_000 { // the failure is on its way to the rules
		runtime.Gosched()
	}
	if a.trouble.Load() {
		t.Error("a success now would be taken for the end of what the rules do not know yet")
	}
	a.mu.Unlock()
	<-done
	if a.StoreWorked(true); a.View().Firing[0].Ended.IsZero() {
		t.Error("a success after it is not seen")
	}
}

// A store that does not answer does not hold up the end of the process.
func TestRunEndsWhileTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Deps{Expiring: func(ctx context.Context, _ time.Duration, _ time.Time) Expiring {
			<-ctx.Done()
			return Expiring{}
		}}, Config{Rules: []Rule{{Name: "going", On: Retention, Before: time.Hour, Quiet: time.Hour}}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); a.Run(ctx) }()
		synctest.Wait()
		cancel()
		<-done
	})
}

func TestMeasures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		a := New(Deps{
			Measure: func(time.Time) Measured { return Measured{Parked: 1, OldestParked: began} },
			Expiring: func(_ context.Context, within time.Duration, _ time.Time) Expiring {
				return Expiring{Letters: int(within.Hours())}
			},
		}, Config{Rules: []Rule{
			{Name: "parked", On: Parked, OlderThan: time.Minute, Quiet: time.Hour},
			{Name: "going", On: Retention, Before: 3 * time.Hour, Quiet: time.Hour},
		}})
		ctx, cancel := context.WithCancel(t.Context())
		go a.Run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		v := a.View()
		if len(v.Firing) != 2 || v.Firing[0].What != "1 call is parked, the oldest for 1m" || v.Firing[1].What != "3 dead letters will be removed within 3h" {
			t.Errorf("firing %+v, want both measures", v.Firing)
		}
		cancel()
		synctest.Wait()
	})
}
