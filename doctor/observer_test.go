package doctor

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/attempt"
	"retryproxy/classify"
)

var began = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// call is a finished GET of http://a.test/x that began so many seconds later.
func call(after float64, change func(*attempt.Summary)) *attempt.Summary {
	s := &attempt.Summary{
		Mode: "forward", Client: "10.0.0.7:5000", Method: "GET", Host: "a.test:80", Path: "/x", State: "done", Result: "success",
		Reason: "ok", Status: 200, Labels: attempt.Labels{Shop: "17", TaskType: "order_ship"},
		Started: began.Add(time.Duration(after * float64(time.Second))), Duration: time.Second, Attempts: attempt.History{{N: 1}},
	}
	if change != nil {
		change(s)
	}
	return s
}

func failed(s *attempt.Summary) { s.Result, s.Reason, s.Status = "failed", "attempts_exhausted", 503 }

// both applies two changes.
func both(a, b func(*attempt.Summary)) func(*attempt.Summary) {
	return func(s *attempt.Summary) { a(s); b(s) }
}

func inDoubt(s *attempt.Summary) {
	failed(s)
	s.Method, s.Reason, s.Status, s.Executed = "POST", "manual_review", 502, classify.ExecutedMaybe
}

func post(s *attempt.Summary) { s.Method = "POST" }

func TestObserverClients(t *testing.T) {
	tests := []struct {
		name  string
		calls []*attempt.Summary
		want  ClientView
	}{
		{"successes in a row are normal", []*attempt.Summary{call(0, nil), call(2, nil)}, ClientView{Calls: 2, AfterSuccess: 1}},
		{"a repeat right after a failure", []*attempt.Summary{call(0, failed), call(1, nil)}, ClientView{Calls: 2, Failures: 1, AfterFailure: 1, Example: "GET a.test:80/x"}},
		{"a repeat at the limit", []*attempt.Summary{call(0, failed), call(6, nil)}, ClientView{Calls: 2, Failures: 1, AfterFailure: 1, Example: "GET a.test:80/x"}},
		{"a repeat too late to be one", []*attempt.Summary{call(0, failed), call(6.1, nil)}, ClientView{Calls: 2, Failures: 1}},
		{"calls at the same time are no repeats", []*attempt.Summary{call(0, failed), call(0.5, nil)}, ClientView{Calls: 2, Failures: 1}},
		{"another path is no repeat", []*attempt.Summary{call(0, failed), call(1, func(s *attempt.Summary) { s.Path = "/y" })}, ClientView{Calls: 2, Failures: 1}},
		{"another method is no repeat", []*attempt.Summary{call(0, failed), call(1, post)}, ClientView{Calls: 2, Failures: 1}},
		{"another connection is the same client", []*attempt.Summary{call(0, failed), call(1, func(s *attempt.Summary) { s.Client = "10.0.0.7:6000" })}, ClientView{Calls: 2, Failures: 1, AfterFailure: 1, Example: "GET a.test:80/x"}},
		{"a keyless POST after a doubt", []*attempt.Summary{call(0, inDoubt), call(1, post)}, ClientView{Calls: 2, Failures: 1, AfterFailure: 1, Doubled: 1, Reviews: 1, Example: "POST a.test:80/x"}},
		{"a keyed POST after a doubt is safe", []*attempt.Summary{call(0, inDoubt), call(1, both(post, func(s *attempt.Summary) { s.KeyHash = "00" }))}, ClientView{Calls: 2, Failures: 1, AfterFailure: 1, Reviews: 1, Example: "POST a.test:80/x"}},
		{"a 404 is no reason to repeat", []*attempt.Summary{call(0, func(s *attempt.Summary) { failed(s); s.Status = 404 }), call(1, nil)}, ClientView{Calls: 2, AfterSuccess: 1}},
		{"a count without a key", []*attempt.Summary{call(0, func(s *attempt.Summary) { s.Attempts[0].Count = 2 })}, ClientView{Calls: 1, Counting: 1}},
		{"a count that is ours", []*attempt.Summary{call(0, func(s *attempt.Summary) { s.Attempts[0].N, s.Attempts[0].Count = 3, 2 })}, ClientView{Calls: 1}},
		{"a count with a key", []*attempt.Summary{call(0, func(s *attempt.Summary) { s.Attempts[0].Count, s.KeyHash = 2, "00" })}, ClientView{Calls: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := NewObserver()
			for _, s := range test.calls {
				o.Call(s)
			}
			test.want.Client = "10.0.0.7"
			if diff := cmp.Diff([]ClientView{test.want}, o.View().Clients); diff != "" {
				t.Errorf("clients (-want +got):\n%s", diff)
			}
		})
	}
}

func TestObserverTotals(t *testing.T) {
	o := NewObserver()
	o.Call(call(5, func(s *attempt.Summary) { s.Labels = attempt.Labels{} }))
	o.Call(call(0, func(s *attempt.Summary) { s.Labels.TaskType = ""; s.Attempts[0].Verdict.Reason = "suspect" }))
	connect := func(change func(*attempt.Summary)) {
		o.Call(call(9, func(s *attempt.Summary) { s.Mode, s.Method, s.Host = "connect", "CONNECT", "b.test:443"; change(s) }))
	}
	connect(func(*attempt.Summary) {})
	connect(func(s *attempt.Summary) { s.Attempts = nil })                                   // opened
	connect(func(s *attempt.Summary) { s.Host = "b.test:80" })                               // plain http was found in it
	connect(func(s *attempt.Summary) { s.Host, s.Status = "b.test:8443", 502; s.Bytes = 9 }) // no tunnel came about
	connect(func(s *attempt.Summary) {
		s.ID, s.Attempts, s.Result, s.Reason, s.Status, s.Detail = "c9", nil, "cancelled", "client_gone", 499, "TLS with the client: EOF"
	})
	o.Call(call(0, func(s *attempt.Summary) { s.Mode, s.Host = "local", "retryproxy.internal:80" }))
	o.Reloaded(errors.New("c.yaml:1: a\nc.yaml:2: b"))
	o.Call(call(1, func(s *attempt.Summary) {
		s.ID, s.Result, s.Reason, s.Attempts, s.Host = "c8", "rejected", "auth_required", nil, "evil.test:80"
	}))
	want := View{
		Since: began, Until: began.Add(10 * time.Second), Calls: 2, Tunnels: 1, NoShop: 1, NoTask: 2,
		Hosts:    []HostView{{Host: "b.test:443", Tunnels: 1}, {Host: "a.test:80", Calls: 2, Suspect: 1}},
		Clients:  []ClientView{{Client: "10.0.0.7", Calls: 2}},
		Reasons:  map[string]int64{"auth_required": 1},
		Failures: []FailureView{{Reason: "auth_required", Host: "evil.test:80", Calls: 1, ID: "c8"}},
		Refused:  []FailureView{{Reason: "client_gone", Cause: causeClientTLS, Host: "b.test:443", Client: "10.0.0.7", Calls: 1, ID: "c9", Detail: "TLS with the client: EOF"}},
		Reload:   "c.yaml:1: a; c.yaml:2: b",
	}
	if diff := cmp.Diff(want, o.View()); diff != "" {
		t.Errorf("View (-want +got):\n%s", diff)
	}
}

func TestObserverCauses(t *testing.T) {
	tests := []struct{ reason, detail, want string }{
		{"client_denied", "client denied: address 10.0.0.9 is not in clients.allow", causeAddress},
		{"client_denied", "client denied: the shop in X-Shop-Id contradicts the one configured in clients.users", causeLabels},
		{"client_denied", `Host "a" is not served here (listen.hosts)`, causeOwnName},
		{"client_denied", "cross-site browser request (routes.cross_site)", causeCrossSite},
		{"destination_denied", "egress: denied: egress_default is deny and no egress rule is meant for this call", causeNoRule},
		{"destination_denied", `egress: denied: egress rule "x" names {shop} and the call has none`, causeNoShop},
		{"destination_denied", `egress: denied: egress rule "x" names {task_type} and the call has none`, causeNoTaskType},
		{"destination_denied", "CONNECT to port 25 is not allowed (destinations.connect_ports)", causePort},
		{"destination_denied", "destination denied: 10.0.0.1 is in destinations.deny", causeListed},
		{"destination_denied", "destination denied: 169.254.169.254 is a metadata address; those are never allowed", causeNever},
		{"destination_denied", "destination denied: 10.0.0.1 is a private address (destinations.private: deny)", causePrivate},
		{"attempts_exhausted", "clients.allow", "status_5xx"},
	}
	for _, test := range tests {
		s := call(0, func(s *attempt.Summary) {
			failed(s)
			s.Reason, s.Detail, s.Attempts[0].Verdict.Reason = test.reason, test.detail, "status_5xx"
		})
		if got := causeOf(s); got != test.want {
			t.Errorf("causeOf(%s, %s) = %s, want %s", test.reason, test.detail, got, test.want)
		}
	}
}

// The newest call of a kind is the one that is named.
func TestObserverFailures(t *testing.T) {
	o := NewObserver()
	for _, id := range []string{"a-long-id", "b"} {
		o.Call(call(0, func(s *attempt.Summary) {
			failed(s)
			s.ID, s.Detail, s.Attempts[0].Egress, s.Attempts[0].Verdict.Reason = id, "of "+id, "proxy-a", "egress_auth"
		}))
	}
	want := []FailureView{{Reason: "attempts_exhausted", Cause: "egress_auth", Host: "a.test:80", Egress: "proxy-a", Calls: 2, ID: "b", Detail: "of b"}}
	if diff := cmp.Diff(want, o.View().Failures); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}

func TestAddressOnly(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.7:5000": "10.0.0.7", "10.0.0.7": "10.0.0.7", "[::1]:80": "[::1]", "::1": "::1", "[fe80::1%eth0]:9": "[fe80::1%eth0]", "": "",
	} {
		if got := addressOnly(in); got != want {
			t.Errorf("addressOnly(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestObserverIsBounded(t *testing.T) {
	o := NewObserver()
	long := string(make([]byte, 1000))
	for i := range 3000 {
		o.Call(call(0, func(s *attempt.Summary) {
			s.Client, s.Host, s.Result = fmt.Sprintf("10.0.%d.%d:1", i/250, i%250), fmt.Sprintf("h%d.test:80", i), "failed"
			s.Reason, s.Path = fmt.Sprintf("reason_%d", i), long
		}))
	}
	v := o.View()
	if len(v.Hosts) != mostShown || len(v.Clients) != mostShown || len(v.Reasons) != mostReasons {
		t.Errorf("a View has %d hosts, %d clients, %d reasons", len(v.Hosts), len(v.Clients), len(v.Reasons))
	}
	if o.hosts.Len() != mostHosts || o.clients.Len() != mostClients {
		t.Errorf("remembered %d hosts and %d clients", o.hosts.Len(), o.clients.Len())
	}
}

// A name beyond the bound is still one host.
func TestObserverLongNames(t *testing.T) {
	o := NewObserver()
	name := string(make([]byte, 300))
	for range 3 {
		o.Call(call(0, func(s *attempt.Summary) { s.Host = name }))
	}
	if v := o.View(); len(v.Hosts) != 1 || v.Hosts[0].Calls != 3 {
		t.Errorf("hosts = %v, want one with 3 calls", v.Hosts)
	}
}

func TestObserverIsSafeForConcurrentUse(t *testing.T) {
	o := NewObserver()
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			for i := range 200 {
				o.Call(call(float64(i), nil))
				_ = o.View()
			}
		})
	}
	g.Wait()
	if v := o.View(); v.Calls != 800 {
		t.Errorf("Calls = %d, want 800", v.Calls)
	}
}

func TestObserverAllocatesNothing(t *testing.T) {
	o := NewObserver()
	good, bad := call(0, nil), call(0, failed)
	o.Call(bad)
	o.Call(good)
	if n := testing.AllocsPerRun(100, func() { o.Call(good); o.Call(bad) }); n != 0 {
		t.Errorf("Call allocates %v times, want 0", n)
	}
}

func BenchmarkObserver(b *testing.B) {
	o := NewObserver()
	s := call(0, nil)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			o.Call(s)
		}
	})
}
