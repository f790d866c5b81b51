package main

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// promised are the metrics of the contract and their labels.
var promised = map[string]string{
	"calls_total": "mode policy result", "call_attempts": "policy result", "attempts_total": "class host policy reason",
	"retries_total": "host policy", "retries_denied_total": "dimension", "call_duration_seconds": "policy result",
	"attempt_duration_seconds": "class host", "retry_wait_seconds": "cause", "overhead_seconds": "", "waiting": "cause", "in_flight": "host",
	"breaker_state": "host scope", "idempotency_total": "result", "records": "", "records_by_state": "state", "store_up": "", "records_bytes": "", "records_evicted_total": "",
	"dead_letters_total": "reason", "dead_letters_stored": "", "tunnels_total": "host", "suspect_answers_total": "host",
	"key_only_repeats_total": "host", "config_last_reload_successful": "", "config_last_reload_success_timestamp_seconds": "",
	"stops_total": "reason", "ignored_values_total": "field", "denied_total": "reason", "build_info": "goversion version",

	"line": "host lane", "line_longest_seconds": "host", "token_line": "dimension", "limit": "host", "capacity": "host",
	"outage": "host", "outage_since_timestamp_seconds": "host", "shed_total": "reason", "client_gone_seconds": "task_type",
}

// one of each: what makes every metric have a value.
func (r *rig) oneOfEach() {
	r.upstream("u1.test:80", byPath(map[string]step{
		"/ok": answer(200, "ok"), "/suspect": answer(200, `{"success":false}`, "Content-Type: application/json"),
		"/bad": answer(500, ""), "/later": answer(503, "", "Retry-After: 1"),
	}))
	r.tunnelEnd("u2.test:443", silentEnd)
	r.get("http://u1.test/ok", "X-Retry-Count: many")
	r.post("http://u1.test/suspect", "{}", "X-Idempotency-Key: s")
	r.post("http://u1.test/bad", "{}", "X-Idempotency-Key: b", "X-Shop-Id: A")
	r.get("http://u1.test/bad", "X-Shop-Id: A") // no token left
	r.get("http://169.254.169.254/")
	c, _, _ := r.connect("u2.test:443")
	c.Close()
	r.upstream("u4.test:80", answer(500, ""))
	for range 5 {
		r.get("http://u4.test/", "X-Retry-Count: 3") // no retries left
	}
	r.get("http://u4.test/", "X-Request-Timeout: 1") // it is cut off for longer
	r.upstream("u3.test:80", silent)
	r.leaves("http://u3.test/", 100*time.Millisecond)
}

// leaves calls and closes the connection after a while.
func (r *rig) leaves(url string, after time.Duration, header ...string) {
	c := r.dial()
	io.WriteString(c, rawRequest("GET", url, "", header...))
	rest(after)
	c.Close()
	rest(0)
}

func TestMetricsOfTheContract(t *testing.T) {
	bubble(t, func(r *rig) {
		r.oneOfEach()
		waiting := r.async(func() reply { return r.get("http://u1.test/later") })
		rest(500 * time.Millisecond)
		families, err := r.app.metrics.Gatherer().Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, f := range families {
			name, ours := strings.CutPrefix(f.GetName(), "retryproxy_")
			if !ours {
				continue
			}
			found[name] = true
			var labels []string
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, l.GetName())
			}
			slices.Sort(labels)
			if want, known := promised[name]; !known || strings.Join(labels, " ") != want {
				t.Errorf("metric %s%v, want labels %q", name, labels, want)
			}
		}
		for name := range promised {
			if !found[name] {
				t.Errorf("metric %s has no value", name)
			}
		}
		r.wantMetric(1, "waiting", "cause=retry_after")
		<-waiting
		r.wantMetric(0, "waiting")
		r.wantMetric(0, "in_flight")
	}, "shop: off", "shop: {rate: 1/h, burst: 3, share: 0}")
}

// The admin API on a running proxy shows what happens and takes orders.
func TestAdminAPI(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, "", "Retry-After: 2"), answer(200, "ok"))
		waiting := r.async(func() reply {
			return r.post("http://u1.test/x?secret=1", "{}", keyed, "X-Shop-Id: A", "X-Task-Type: report", "X-Request-Id: req-7")
		})
		rest(time.Second)
		type call struct {
			ID, Mode, Policy, State, Cause, Reason, Method, Host, Path, Executed string
			Labels                                                               map[string]string
			ClientID                                                             string     `json:"client_request_id"`
			NextAt                                                               *time.Time `json:"next_at"`
			Attempts                                                             []struct {
				N      int
				Class  string
				Reason string
				Status int
			}
		}
		var list []call
		r.admin("GET", "/api/v1/calls", "", &list)
		if len(list) != 1 {
			t.Fatalf("calls = %+v, want one", list)
		}
		c := list[0]
		if c.Mode != "forward" || c.Policy != "default" || c.State != "waiting" || c.Cause != "retry_after" || c.Method != "POST" || c.Host != "u1.test:80" ||
			c.Path != "/x" || c.Labels["shop"] != "A" || c.Labels["task_type"] != "report" || c.ClientID != "req-7" || c.NextAt == nil || len(c.Attempts) != 1 ||
			c.Attempts[0].Status != 503 || c.Attempts[0].Reason != "status_503" || c.Attempts[0].Class != "transient" {
			t.Errorf("call = %+v", c)
		}
		var one call
		r.admin("GET", "/api/v1/calls/"+c.ID, "", &one)
		if one.ID != c.ID {
			t.Errorf("call by id = %+v", one)
		}
		got := <-waiting
		r.want(got, 200, u, 2)
		r.wantHeader(got, "X-Call-Id", c.ID)
		synctest.Wait()
		r.admin("GET", "/api/v1/calls/"+c.ID, "", &one)
		if one.State != "done" || one.Reason != "ok" || one.Executed != "yes" || len(one.Attempts) != 2 {
			t.Errorf("call that ended = %+v", one)
		}
		if got := r.admin("GET", "/api/v1/calls/none", "", nil); got.Status != 404 {
			t.Errorf("unknown call = %d, want 404", got.Status)
		}
		for path, wants := range map[string]string{
			"/livez": "ok", "/healthz": "ok", "/readyz": "ok", "/metrics": "retryproxy_build_info",
			"/api/v1/limits": `"dimension": "global"`, "/api/v1/policies": `"max_retries":`, "/api/v1/config": `"retry_policies":`,
			"/api/v1/config?format=yaml": "retry_policies:", "/api/v1/retries": `"default": "on"`, "/api/v1/shops": `"shop": "A"`, "/api/v1/breakers": `"u1.test:80"`, "/api": "/api/v1/calls", "/person": "<main",
		} {
			if got := r.admin("GET", path, "", nil); got.Status != 200 || !strings.Contains(got.Body, wants) {
				t.Errorf("GET %s = %d %.300s, want %s", path, got.Status, got.Body, wants)
			}
		}
		if got := r.admin("POST", "/api/v1/config/reload", "", nil); got.Status != 422 || !strings.Contains(got.Body, "-config") {
			t.Errorf("reload without a file = %d %s, want 422 that says how", got.Status, got.Body)
		}
	})
}

func TestAdminResetsABreaker(t *testing.T) {
	bubble(t, func(r *rig) {
		fail := answer(503, "")
		u := r.upstream("u1.test:80", fail, fail, fail, fail, fail, answer(200, "ok"))
		for range 5 {
			r.get("http://u1.test/x", "X-Retry-Count: 3")
		}
		waiting := r.async(func() reply { return r.get("http://u1.test/x") })
		rest(100 * time.Millisecond)
		if got := r.admin("POST", "/api/v1/breakers/"+url.PathEscape("u1.test:80")+"/reset", "", nil); got.Status != 200 || !strings.Contains(got.Body, `"closed"`) {
			t.Errorf("reset = %d %s", got.Status, got.Body)
		}
		got := <-waiting
		r.want(got, 200, u, 6)
		r.between("the waiting call", got.Took, 100*time.Millisecond, 100*time.Millisecond)
	})
}

func TestAdminToken(t *testing.T) {
	bubble(t, func(r *rig) {
		ask := func(path string, headers ...string) int {
			return r.askAt(adminAddr, rawOrigin("GET", adminAddr, path, "", headers...)).Status
		}
		for _, tt := range []struct {
			path, header string
			status       int
		}{
			{"/api/v1/calls", "X: y", 401},
			{"/api/v1/calls", "Authorization: Bearer wrong", 401},
			{"/api/v1/calls", "Authorization: Bearer s3cret", 200},
			{"/livez", "X: y", 200},
			{"/metrics", "X: y", 200},
		} {
			if got := ask(tt.path, tt.header); got != tt.status {
				t.Errorf("%s with %s = %d, want %d", tt.path, tt.header, got, tt.status)
			}
		}
		if c := r.askAt(adminAddr, rawOrigin("GET", adminAddr, "/api/v1/config", "", "Authorization: Bearer s3cret")); strings.Contains(c.Body, "s3cret") {
			t.Errorf("the configuration shows the token: %s", c.Body)
		}
	}, lays("admin: {token: s3cret}")...)
}

// Explain tells the truth about the call that then is made.
func TestExplainAndTheCall(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(500, ""))
		var e struct {
			Mode, Policy string
			Keyed        bool
			Labels       []struct{ Name, Value string }
			Outcomes     []struct {
				Outcome, Reason, Next, Why string
				Attempts                   int
			}
		}
		r.admin("POST", "/api/v1/explain", `{"method":"POST","url":"http://u1.test/x","headers":["X-Idempotency-Key: k","X-Task-Type: report"]}`, &e)
		if e.Mode != "forward" || e.Policy != "default" || !e.Keyed {
			t.Errorf("explain = %+v", e)
		}
		for _, o := range e.Outcomes {
			if o.Outcome == "500" {
				r.post("http://u1.test/x", "{}", keyed, "X-Task-Type: report")
				if got := u.count(); o.Next != "retry" || o.Attempts != got {
					t.Errorf("explain says %+v, the call made %d attempts", o, got)
				}
			}
		}
		r.admin("GET", "/api/v1/explain?method=GET&url="+url.QueryEscape("http://169.254.169.254/"), "", nil)
		if n := u.count(); n != 4 {
			t.Errorf("requests = %d, want 4: explain sends nothing", n)
		}
	})
}

// Draining: not ready, calls that wait get 503 with Retry-After or their last
// answer, those in flight end well, each with Connection: close; nobody new.
func TestDrain(t *testing.T) {
	bubble(t, func(r *rig) {
		fail := answer(503, "")
		r.upstream("u1.test:80", byPath(map[string]step{"/later": answer(429, "later", "Retry-After: 5"), "/slow": after(2*time.Second, answer(200, "done"))}))
		r.upstream("u2.test:80", fail)
		for range 5 {
			r.get("http://u2.test/x", "X-Retry-Count: 3")
		}
		raw := func(target string) <-chan string {
			out := make(chan string, 1)
			go func() {
				c := r.dial()
				defer c.Close()
				c.Write([]byte(rawRequest("GET", target, "")))
				out <- responseHead(t, bufio.NewReader(c))
			}()
			return out
		}
		gate, later, slow := raw("http://u2.test/x"), raw("http://u1.test/later"), raw("http://u1.test/slow")
		idle := r.dial()
		defer idle.Close()
		rest(time.Second)
		start := time.Now()
		stopped := make(chan struct{})
		stop := r.stop
		r.stop = nil
		go func() { stop(); close(stopped) }()
		synctest.Wait()
		for name, want := range map[string]struct {
			from   <-chan string
			status string
			says   []string
		}{
			"at the gate":  {gate, "503", []string{"X-Retry-Reason: shutting_down", "Retry-After: ", "Connection: close", "X-Retry-Executed: no"}},
			"in a backoff": {later, "429", []string{"X-Retry-Reason: shutting_down", "Retry-After: 5", "Connection: close"}},
			"in flight":    {slow, "200", []string{"Connection: close"}},
		} {
			got := <-want.from
			if !strings.HasPrefix(got, "HTTP/1.1 "+want.status) {
				t.Errorf("%s: %q, want %s", name, got, want.status)
			}
			for _, text := range want.says {
				if !strings.Contains(got, text) {
					t.Errorf("%s: %q lacks %q", name, got, text)
				}
			}
		}
		<-stopped
		r.between("the drain", time.Since(start), time.Second, time.Second)
		if _, err := r.net.Dial(t.Context(), proxyAddr); err == nil {
			t.Error("the proxy still listens")
		}
		if n, err := idle.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("an idle connection read %d, %v, want its end", n, err)
		}
	}, "per_try_timeout: 1s", "per_try_timeout: 5s")
}

// While it drains it says so where it is asked.
func TestNotReadyWhileDraining(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", after(2*time.Second, answer(200, "done")))
		slow := r.async(func() reply { return r.get("http://u1.test/x") })
		rest(time.Second)
		stop := r.stop
		r.stop = nil
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		synctest.Wait()
		if got := r.admin("GET", "/readyz", "", nil); got.Status != 503 {
			t.Errorf("/readyz = %d, want 503", got.Status)
		}
		if got := r.admin("GET", "/livez", "", nil); got.Status != 200 {
			t.Errorf("/livez = %d, want 200", got.Status)
		}
		if got := <-slow; got.Status != 200 || got.Body != "done" {
			t.Errorf("the call in flight got %d %q, want its answer", got.Status, got.Body)
		}
		<-stopped
	}, "per_try_timeout: 1s", "per_try_timeout: 5s")
}

// The time to drain is bounded: what is still in flight then is cut.
func TestDrainIsBounded(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", after(5*time.Second, answer(200, "done")))
		slow := r.async(func() reply { return r.get("http://u1.test/x") })
		rest(time.Second)
		start := time.Now()
		stop := r.stop
		r.stop = nil
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		if got := <-slow; got.Status == 200 {
			t.Errorf("a call that takes too long got %d", got.Status)
		}
		<-stopped
		r.between("the drain", time.Since(start), 2*time.Second, 2*time.Second)
		if !strings.Contains(r.log.String(), "still in flight") {
			t.Errorf("the log does not tell: %s", r.log)
		}
	}, patches([]string{"per_try_timeout: 1s", "per_try_timeout: 5500ms"}, lays("drain: 2s"))...)
}

// The health listener shows health and metrics to anybody, and nothing else.
func TestHealthListener(t *testing.T) {
	bubble(t, func(r *rig) {
		for path, status := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 200, "/api/v1/calls": 404, "/": 404} {
			got := r.askAt("127.0.0.1:18091", fmt.Sprintf("GET %s HTTP/1.1\r\nHost: anything.example\r\nConnection: close\r\n\r\n", path))
			if got.Status != status {
				t.Errorf("%s = %d, want %d", path, got.Status, status)
			}
		}
	}, `admin: "127.0.0.1:18090"`, `admin: "127.0.0.1:18090", health: "127.0.0.1:18091"`)
}

// One line per call tells all of it, and nothing that must not be told.
func TestTheLineOfACall(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", answer(503, "", "X-Request-Id: up-1"), answer(200, "hello", "X-Request-Id: up-2"))
		r.post("http://u1.test/pay?card=hush-hush", "{}", "X-Idempotency-Key: very-secret-key", "X-Request-Id: req-7", "traceparent: 00-abc-def-01", "X-Shop-Id: A", "X-Task-Type: pay")
		lines := r.logged("call")
		if len(lines) != 1 {
			t.Fatalf("lines = %v, want one", lines)
		}
		l := lines[0]
		for name, want := range map[string]any{
			"level": "INFO", "result": "recovered", "reason": "ok", "status": 200.0, "executed": "yes", "method": "POST", "scheme": "http", "host": "u1.test:80",
			"path": "/pay", "mode": "forward", "policy": "default", "shop": "A", "task_type": "pay", "client_request_id": "req-7", "traceparent": "00-abc-def-01", "bytes": 5.0,
		} {
			if l[name] != want {
				t.Errorf("%s = %v, want %v", name, l[name], want)
			}
		}
		attempts := l["attempts"].([]any)
		for i, want := range []map[string]any{
			{"n": 1.0, "retry_count": 0.0, "status": 503.0, "class": "transient", "reason": "status_503", "basis": "refused", "upstream_request_id": "up-1"},
			{"n": 2.0, "retry_count": 1.0, "status": 200.0, "class": "success", "cause": "backoff", "reused": true, "upstream_request_id": "up-2"},
		} {
			for name, value := range want {
				if got := attempts[i].(map[string]any)[name]; got != value {
					t.Errorf("attempt %d: %s = %v, want %v", i+1, name, got, value)
				}
			}
		}
		if strings.Contains(r.log.String(), "very-secret-key") || strings.Contains(r.log.String(), "hush-hush") {
			t.Errorf("the log shows key or query: %s", r.log)
		}
	})
}
