package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/admin"
	"retryproxy/cli"
	"retryproxy/message"
	"retryproxy/proxy"
)

// explainable are outcomes as explain names them, and how an upstream brings
// each about; nil: nobody listens.
var explainable = map[string]step{
	"the name does not exist":             nil,
	"connection refused":                  nil,
	"connection reset after sending":      reset,
	"connection closed without an answer": hangUp,
	"no answer in time":                   silent,
	"answer cut off":                      raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"),
	"answer makes no sense":               raw("HTTP/1.1 2x0 OK\r\n\r\n"),
	"200":                                 answer(200, ""),
	"200 whose JSON says failure":         answer(200, `{"success":false}`, "Content-Type: application/json"),
	"400":                                 answer(400, ""),
	"404":                                 answer(404, ""),
	"408":                                 answer(408, ""),
	"425":                                 answer(425, ""),
	"429":                                 answer(429, ""),
	"429 with Retry-After: 10":            answer(429, "", "Retry-After: 10"),
	"500":                                 answer(500, ""),
	"501":                                 answer(501, ""),
	"502":                                 answer(502, ""),
	"503":                                 answer(503, ""),
	"503 with Retry-After: 3600":          answer(503, "", "Retry-After: 3600"),
	"504":                                 answer(504, ""),
}

// TestExplainAgreesWithTheWire makes the calls that explain is about: number of
// attempts, time, and what the client gets must be the same.
func TestExplainAgreesWithTheWire(t *testing.T) {
	kinds := []struct{ name, method, header string }{
		{"GET", "GET", ""}, {"POST", "POST", ""}, {"keyed POST", "POST", "X-Idempotency-Key: k"}, {"GET with patience", "GET", "X-Request-Timeout: 2"},
	}
	for _, kind := range kinds {
		for outcome, does := range explainable {
			t.Run(kind.name+"/"+outcome, func(t *testing.T) {
				bubble(t, func(r *rig) {
					if outcome == "connection refused" {
						r.hosts["u1.test"] = netip.MustParseAddr("127.0.1.1")
					} else if does != nil {
						r.upstream("u1.test:80", does)
					}
					want := r.explained(kind.method, kind.header, outcome)
					var lines []string
					if kind.header != "" {
						lines = []string{kind.header}
					}
					got := r.do(kind.method, "http://u1.test/x", "", lines...)
					if got := r.happened(got); got != want {
						t.Errorf("the wire: %s, explain: %s", got, want)
					}
				}, "max_retries: 3,", "max_retries: 3, jitter: none,")
			})
		}
	}
}

// Where the store is durable, keyed calls are parked and their clients let go, as
// explain says, and no others.
func TestExplainAgreesWithTheWireOfDurableCalls(t *testing.T) {
	kinds := []struct{ name, method, header, keys string }{
		{"keyed POST", "POST", keyed, "retry_after_over_cap: park"},
		{"answered by 503", "POST", keyed, "retry_after_over_cap: park, on_park: 503"},
		{"not parked", "POST", keyed, "retry_after_over_cap: cap"},
		{"without a key", "GET", "Prefer: wait=0", "retry_after_over_cap: park, client_hold: 1s"},
		{"held", "POST", keyed, "retry_after_over_cap: park, client_hold: 250ms"},
	}
	outcomes := []string{"connection refused", "connection reset after sending", "no answer in time", "200", "404", "429 with Retry-After: 10", "503", "503 with Retry-After: 3600"}
	for _, kind := range kinds {
		for _, outcome := range outcomes {
			t.Run(kind.name+"/"+outcome, func(t *testing.T) {
				lasting(t, func(r *rig, _ func()) {
					if does := explainable[outcome]; does != nil {
						r.upstream("u1.test:80", does)
					} else {
						r.hosts["u1.test"] = netip.MustParseAddr("127.0.1.1")
					}
					o, want := r.foretold(kind.method, kind.header, outcome), r.explained(kind.method, kind.header, outcome)
					got := r.do(kind.method, "http://u1.test/x", "", kind.header)
					if o.LetGo == nil {
						if got := r.happened(got); got != want {
							t.Errorf("the wire: %s, explain: %s", got, want)
						}
						return
					}
					r.want(got, o.LetGo.Status, nil, 0)
					r.wantHeader(got, "X-Retry-Reason", o.LetGo.Reason)
					r.wantHeader(got, "X-Retry-Executed", o.LetGo.Executed)
					r.wantHeader(got, "X-Retry-Advice", o.LetGo.Advice)
					r.between("the time to the answer", got.Took, time.Duration(o.LetGo.AfterMS)*time.Millisecond, time.Duration(o.LetGo.AfterMS)*time.Millisecond)
					rest(time.Duration(o.AfterMS) * time.Millisecond)
					if n := len(r.last().Attempts); n != o.Attempts {
						t.Errorf("attempts without the client = %d, explain: %d", n, o.Attempts)
					}
				}, patches(with("jitter: none, jitter_ratio: 0, "+kind.keys), []string{"{ttl: 1h}", "{ttl: 3h}"})...)
			})
		}
	}
}

// foretold is what explain says of one outcome.
func (r *rig) foretold(method, header, outcome string) *proxy.WouldLeadTo {
	r.t.Helper()
	q := admin.Question{Method: method, URL: "http://u1.test/x"}
	if name, value, ok := strings.Cut(header, ": "); ok {
		q.Fields = message.Fields{{Name: name, Value: value}}
	}
	e, err := r.app.explain(q)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, o := range e.(proxy.Explanation).Outcomes {
		if o.Outcome == outcome {
			return &o
		}
	}
	r.t.Fatalf("explain does not speak of %q", outcome)
	return nil
}

// explained is foretold in the words of happened.
func (r *rig) explained(method, header, outcome string) string {
	r.t.Helper()
	o := r.foretold(method, header, outcome)
	end := &o.InTheEnd
	if end.Cut { // whether the header is seen before the reset is chance
		end.Status = 0
	}
	return fmt.Sprintf("%d attempts in %v, first %s %s, %d %s %s %s", o.Attempts, time.Duration(o.AfterMS)*time.Millisecond,
		o.Class, o.Reason, end.Status, end.Reason, end.Executed, end.Advice)
}

// happened is what really became of the only call.
func (r *rig) happened(got reply) string {
	r.t.Helper()
	synctest.Wait() // until the call is booked
	calls := r.app.proxy.Calls()
	text, err := json.Marshal(calls)
	if err != nil || len(calls) != 1 {
		r.t.Fatalf("calls = %s %v, want one", text, err)
	}
	if got.Err != nil {
		got.Status = 0
	}
	first := &calls[0].Attempts[0]
	return fmt.Sprintf("%d attempts in %v, first %s %s, %d %s %s %s", len(calls[0].Attempts), got.Took,
		first.Verdict.Class, first.Verdict.Reason, got.Status,
		got.Header.Get("X-Retry-Reason"), got.Header.Get("X-Retry-Executed"), got.Header.Get("X-Retry-Advice"))
}

// Without a running proxy explain knows by the configuration that calls are parked; the
// store is not opened for that.
func TestExplainOpensNoStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	for kind, want := range map[string]string{"sqlite, path: '" + dir + "'": "park", "memory": "stop"} {
		cfg, err := parseText("store: {kind: " + kind + "}\nretry_policies: [{name: default, retry_after_over_cap: park}]\n")
		if err != nil {
			t.Fatal(err)
		}
		answer, err := explainOffline(cfg, cli.Question{Method: "POST", URL: "http://u1.test/", Fields: message.Fields{{Name: "X-Idempotency-Key", Value: "k"}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range answer.(proxy.Explanation).Outcomes {
			if o.Outcome == "503 with Retry-After: 3600" && o.Next != want {
				t.Errorf("with store %s explain says %s, want %s", kind, o.Next, want)
			}
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the store's directory: %v, want that it was not made", err)
	}
}

// A URL of our own with the Host of a route is explained as the call that curl
// then makes: straight to us.
func TestExplainOfARequestToOurselves(t *testing.T) {
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", answer(200, "one"))
		r.upstream("u2.test:80", answer(200, "two"))
		for _, tt := range []struct{ host, path, body string }{{"api.example.com", "/v9/x", "two"}, {"localhost", "/pdd/x", "one"}} {
			at := "http://" + r.app.proxies[0].Addr().String()
			answer, err := r.app.explain(admin.Question{Method: "GET", URL: at + tt.path, Fields: message.Fields{{Name: "Host", Value: tt.host}}})
			if err != nil {
				t.Fatal(err)
			}
			got := r.origin("GET", tt.host, tt.path, "")
			e, call := answer.(proxy.Explanation), r.last()
			if got.Body != tt.body || e.Refused != nil || e.Mode != call.Mode || len(e.Hops) != 1 || e.Hops[0].Host != call.Host {
				t.Errorf("Explain with Host %s = %s %+v, refused %v; the call: %s to %s, %q", tt.host, e.Mode, e.Hops, e.Refused, call.Mode, call.Host, got.Body)
			}
		}
		offline, err := explainOffline(r.app.config(), cli.Question{Method: "GET", URL: "http://127.0.0.1:8080/x", Fields: message.Fields{{Name: "Host", Value: "api.example.com"}}})
		if e, ok := offline.(proxy.Explanation); err != nil || !ok || e.Mode != "reverse" {
			t.Errorf("explain without a running proxy = %+v %v, want reverse", offline, err)
		}
	}, lays(twoRoutes)...)
}
