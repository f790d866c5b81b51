package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"retryproxy/alert"
	"retryproxy/config"
	"retryproxy/idempotency"
)

// alerting lays rules over caseConfig; they are told to hook.test as JSON.
func alerting(rules string) []string {
	return []string{
		"idempotency: {ttl: 1h}",
		"idempotency: {ttl: 1h}\nalerts: [{name: ops, webhook: {url: 'http://hook.test/in?key=0123456789'}}, " + rules + "]",
	}
}

// alertsTold are the alerts that a hook got: rule, state, host, reason, shop and the id
// of the example call.
func alertsTold(t *testing.T, hook *scripted) (out []toldAlert) {
	t.Helper()
	rest(0)
	for _, req := range hook.seen() {
		var doc struct{ Alerts []toldAlert }
		if err := json.Unmarshal(req.Body, &doc); err != nil {
			t.Fatalf("%s: %v", req.Body, err)
		}
		out = append(out, doc.Alerts...)
	}
	return out
}

type toldAlert struct {
	Rule, State, What, Text string
	Labels                  alert.Labels
	Call                    string `json:"call_id"`
	Shops                   []string
}

func (r *rig) wantTold(hook *scripted, want ...string) []toldAlert {
	r.t.Helper()
	all := alertsTold(r.t, hook)
	var got []string
	for _, a := range all {
		got = append(got, a.Rule+" "+a.State)
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("told %q, want %q", got, want)
	}
	return all
}

func TestAlertOnBreaker(t *testing.T) {
	bubble(t, func(r *rig) {
		hook := r.upstream("hook.test:80", answer(204, ""))
		u := r.upstream("u1.test:80", answer(500, "no"))
		for range 3 {
			r.get("http://u1.test/x")
		}
		all := r.wantTold(hook, "breaker firing")
		if a := all[0]; a.Labels.Scope != "host" || a.Labels.Host != "u1.test:80" || !strings.Contains(a.Text, "detail: consecutive_failures") {
			t.Errorf("told %+v, want which host and why", a)
		}
		u.script = []step{answer(200, "ok")}
		rest(5 * time.Second)
		r.want(r.get("http://u1.test/x"), 200, nil, 0)
		rest(70 * time.Second)
		r.wantTold(hook, "breaker firing", "breaker recovered")
		r.wantMetric(2, "alerts_total", "rule=breaker", "result=sent")
		if r.metric("attempts_total", "host=hook.test:80") != 0 {
			t.Error("alerts go through the proxy's own path")
		}
	}, alerting("{on: breaker}")...)
}

// A hook that hangs delays no call.
func TestAlertHookThatHangs(t *testing.T) {
	took := func(hook step) (all time.Duration) {
		bubble(t, func(r *rig) {
			r.upstream("hook.test:80", hook)
			r.upstream("u1.test:80", answer(500, "no"))
			began := time.Now()
			for i := range 20 {
				r.post("http://u1.test/x", "{}", fmt.Sprintf("X-Shop-Id: s%d", i))
			}
			all = time.Since(began)
		}, alerting("{on: breaker}, {on: dead_letters, by: [shop]}, {on: reason, match: {reason: '*'}, by: [shop]}")...)
		return all
	}
	if well, hanging := took(answer(200, "")), took(silent); hanging != well {
		t.Errorf("20 calls took %v, and %v with a hook that hangs", well, hanging)
	}
}

func TestAlertOnDeadLetterAndReason(t *testing.T) {
	bubble(t, func(r *rig) {
		hook := r.upstream("hook.test:80", answer(200, ""))
		r.upstream("u1.test:80", reset)
		got := r.post("http://u1.test/order", "{}", "X-Shop-Id: 17", "X-Task-Type: order_ship")
		rest(0) // it is reported after the answer
		r.post("http://u1.test/order", "{}", "X-Shop-Id: 18", "X-Task-Type: order_ship")
		r.get("http://u1.test/x")
		all := r.wantTold(hook, "doubt firing", "pair firing")
		if a := all[0]; a.Call != got.Header.Get("X-Call-Id") || !slices.Equal(a.Shops, []string{"17"}) || a.Labels.TaskType != "order_ship" || a.Labels.Reason != "manual_review" {
			t.Errorf("told %+v, want the call, its shop, its task type and the reason", a)
		}
		if a := all[1]; !slices.Equal(a.Shops, []string{"17", "18"}) || a.What != "2 dead letters in 10m" {
			t.Errorf("told %+v, want both shops", a)
		}
	}, alerting("{name: pair, on: dead_letters, count: 2}, {name: doubt, on: reason, match: {reason: manual_review}}")...)
}

// A recovery tells of letters that wait, where they are kept.
func TestAlertNamesLettersThatWait(t *testing.T) {
	told := func(want string) func(*rig) {
		return func(r *rig) {
			hook := r.upstream("hook.test:80", answer(200, ""))
			r.upstream("u1.test:80", reset)
			r.post("http://u1.test/order", "{}")
			rest(11 * time.Minute)
			all := r.wantTold(hook, "dead_letters firing", "dead_letters recovered")
			if last := all[len(all)-1].What; last != "no new dead letters for 10m, after 1"+want {
				t.Errorf("told %q, want %q behind it", last, want)
			}
		}
	}
	patch := alerting("{on: dead_letters}")
	bubble(t, told(""), patch...)
	lasting(t, func(r *rig, _ func()) { told("; 1 letter still waits to be settled")(r) }, patch...)
}

func TestAlertOnStore(t *testing.T) {
	bubble(t, func(r *rig) {
		hook := r.upstream("hook.test:80", answer(200, ""))
		r.upstream("u1.test:80", after(500*time.Millisecond, answer(201, "made")))
		post := func(i int) reply {
			return r.post("http://u1.test/x", "{}", fmt.Sprintf("X-Idempotency-Key: k%d", i), fmt.Sprintf("X-Shop-Id: s%d", i))
		}
		first := r.async(func() reply { return post(0) })
		rest(100 * time.Millisecond)
		second := r.async(func() reply { return post(1) })
		rest(100 * time.Millisecond)
		r.want(post(2), 503, nil, 0)
		r.wantTold(hook, "store firing")
		<-first
		<-second
		rest(10 * time.Minute)
		r.wantTold(hook, "store firing") // nobody has tried since
		r.want(post(3), 201, nil, 0)
		rest(70 * time.Second)
		r.wantTold(hook, "store firing", "store recovered")
	}, patches([]string{"idempotency: {ttl: 1h}", "idempotency: {ttl: 1h, entries: 2}"},
		[]string{"{ttl: 1h, entries: 2}", "{ttl: 1h, entries: 2}\nalerts: [{on: store, webhook: {url: 'http://hook.test/'}}]"})...)
}

// ailing is a store that can be away for a while.
type ailing struct {
	idempotency.Store
	away *atomic.Bool
}

func (s ailing) Begin(ctx context.Context, c idempotency.Claim, now time.Time) (idempotency.Begun, error) {
	if s.away.Load() {
		return away{}.Begin(ctx, c, now)
	}
	return s.Store.Begin(ctx, c, now)
}

func TestMetricOfTheStore(t *testing.T) {
	var gone atomic.Bool
	durably(t, func(a *app) {
		kept := a.proxy.Store.(recordStore)
		seen := kept.Store.(watched)
		seen.Store = ailing{seen.Store, &gone}
		kept.Store = seen
		a.proxy.Store = kept
	}, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "fine"))
		r.wantMetric(1, "store_up")
		gone.Store(true)
		r.want(r.post("http://u1.test/x", "b", keyed), 503, u, 0)
		r.wantMetric(0, "store_up")
		gone.Store(false)
		r.want(r.post("http://u1.test/x", "b", keyed), 200, u, 1)
		r.wantMetric(1, "store_up")
	}, plain...)
}

// Who leaves before the store has answered says nothing of the store.
func TestAlertOnStoreThatNobodyWaitsFor(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		hook := r.upstream("hook.test:80", answer(200, ""))
		gone, leave := context.WithCancel(r.t.Context())
		leave()
		refused := 0
		for i := range 30 { // a change that is queued before that is looked at is made
			now := time.Now()
			_, err := r.app.store.Begin(gone, idempotency.Claim{ID: idempotency.ID{Tenant: "t", Key: fmt.Sprint(i)}, Owner: "o", Deadline: now.Add(time.Minute), TTL: time.Hour}, now)
			if errors.Is(err, idempotency.ErrUnavailable) {
				refused++
			}
		}
		if refused == 0 {
			t.Error("the store took all, want some given up")
		}
		r.wantTold(hook)
	}, alerting("{on: store}")...)
}

// What waits and what goes is read from the store.
func TestAlertOnParkedAndExpiring(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		hook := r.upstream("hook.test:80", answer(200, ""))
		r.keep("waits", idempotency.StateParked)
		r.keep("goes", idempotency.StateDead)
		rest(9 * time.Minute)
		r.wantTold(hook)
		rest(2 * time.Minute)
		all := r.wantTold(hook, "parked firing")
		if !strings.HasPrefix(all[0].What, "1 call is parked, the oldest for 10m") {
			t.Errorf("told %q, want number and age", all[0].What)
		}
		rest(22 * time.Minute)
		all = r.wantTold(hook, "parked firing", "retention firing")
		if all[1].What != "1 dead letter will be removed within 30m" {
			t.Errorf("told %q, want how many", all[1].What)
		}
		rest(40 * time.Minute)
		r.wantTold(hook, "parked firing", "retention firing", "parked still", "retention recovered")
	}, patches(alerting("{on: parked, older_than: 10m, quiet: 40m}, {on: retention, before: 30m}"), lays("dead_letters: {keep: 1h}"))...)
}

// keep puts a record of that state into the store.
func (r *rig) keep(key string, state idempotency.State) {
	r.t.Helper()
	id, now := idempotency.ID{Tenant: "t", Key: key}, time.Now()
	claim := idempotency.Claim{ID: id, Owner: key, Deadline: now.Add(time.Minute), TTL: time.Hour}
	if _, err := r.app.store.Begin(r.t.Context(), claim, now); err != nil {
		r.t.Fatal(err)
	}
	_, err := r.app.store.Advance(r.t.Context(), id, idempotency.StateRunning, state, idempotency.Change{Now: now, Owner: key, NextAt: now.Add(24 * time.Hour)})
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestAlertsAreReloadedAndShown(t *testing.T) {
	bubble(t, func(r *rig) {
		hook, other := r.upstream("hook.test:80", answer(200, "")), r.upstream("other.test:80", answer(200, ""))
		r.upstream("u1.test:80", reset)
		post := func() { r.post("http://u1.test/order", "{}") }
		post()
		patch := alerting("{on: dead_letters, count: 2}")
		patch[1] = strings.ReplaceAll(patch[1], "hook.test", "other.test")
		r.applies(patch...)
		post()
		r.wantTold(hook)
		r.wantTold(other, "dead_letters firing") // the first one was not forgotten
		var v alert.View
		r.admin("GET", "/api/v1/alerts", "", &v)
		if len(v.Firing) != 1 || v.Firing[0].What != "2 dead letters in 10m" || v.Targets[0].Sent != 1 || v.Targets[0].Last.Status != 200 {
			t.Errorf("shown %+v, want what is firing and the delivery", v)
		}
		got := r.admin("POST", "/api/v1/alerts/test?rule=dead_letters", "", nil)
		r.wantTold(other, "dead_letters firing", "dead_letters test")
		if got.Status != 200 || !strings.Contains(got.Body, `"ok": true`) {
			t.Errorf("test = %d %s", got.Status, got.Body)
		}
		r.want(r.admin("POST", "/api/v1/alerts/test?rule=nope", "", nil), 404, nil, 0)
		if shown := r.admin("GET", "/api/v1/config", "", nil).Body; strings.Contains(shown, "0123456789") {
			t.Errorf("the configuration shows the hook's key: %s", shown)
		}
	}, alerting("{on: dead_letters, count: 2}")...)
}

// What happens during the drain is told before the process ends.
func TestAlertsAreFlushed(t *testing.T) {
	bubble(t, func(r *rig) {
		hook := r.upstream("hook.test:80", after(100*time.Millisecond, answer(200, "")))
		r.upstream("u1.test:80", after(300*time.Millisecond, reset))
		call := r.async(func() reply { return r.post("http://u1.test/order", "{}") })
		rest(100 * time.Millisecond)
		r.end()
		<-call
		r.stop = func() { hook.l.Close() }
		r.wantTold(hook, "dead_letters firing")
	}, alerting("{on: dead_letters}")...)
}

// Every reason that docs/outcomes.md lists for a call can be alarmed on.
func TestEveryReasonCanBeAlarmedOn(t *testing.T) {
	text, err := os.ReadFile("docs/outcomes.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [^|]*\\| [^|]*\\| [^|]*\\| [^|]*\\|$")
	before, _, _ := strings.Cut(string(text), "`status_2xx`")
	names := row.FindAllStringSubmatch(before, -1)
	if len(names) < 25 {
		t.Fatalf("docs/outcomes.md lists %d reasons, want all of them", len(names))
	}
	for _, m := range names {
		if m[1] == "ok" {
			continue
		}
		text := "alerts: [{on: reason, match: {reason: " + m[1] + "}, webhook: {url: 'http://a.test/'}}]"
		if _, err := config.Parse("test.yaml", []byte(text), config.Options{}); err != nil {
			t.Errorf("no rule can be about %s: %v", m[1], err)
		}
	}
}

// TestAlertExamplesLoad reads the examples that people copy.
func TestAlertExamplesLoad(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(alerts:.*?)```")
	texts := map[string]string{}
	for _, name := range []string{"README.md", "README.zh-CN.md", "docs/alerts.md"} {
		m := block.FindStringSubmatch(readShipped(t, name))
		if m == nil {
			t.Fatalf("%s has no example of alerts", name)
		}
		texts[name] = m[1]
	}
	_, after, _ := strings.Cut(readShipped(t, "config.yaml"), "\nalerts: []")
	_, lines, _ := strings.Cut(after, "\n")
	lines, _, _ = strings.Cut(lines, "\n\n")
	texts["config.yaml"] = "alerts:\n" + strings.ReplaceAll("\n"+lines, "\n#", "\n") + "\n"
	opt := config.Options{
		Getenv:   func(string) string { return "https://hook.test/secret" },
		ReadFile: func(string) ([]byte, error) { return []byte("https://hook.test/secret"), nil },
	}
	for name, text := range texts {
		c, err := config.Parse(name, []byte(text), opt)
		if err != nil || len(c.Alerts) < 7 {
			t.Errorf("%s: %v, want no fault in\n%s", name, err, text)
		}
	}
}
