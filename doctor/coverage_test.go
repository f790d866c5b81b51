package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/attempt"
)

var someSetup = &Setup{Proxy: "127.0.0.1:8080", Upgrade: []string{"known.test"}}

// coverageOf is what is said of the clients of these calls.
func coverageOf(calls ...*attempt.Summary) []ClientCovered {
	o := NewObserver()
	for _, s := range calls {
		o.Call(s)
	}
	return o.Coverage(someSetup, "127.0.0.1:9090").Clients
}

func opaqueTo(host string) func(*attempt.Summary) {
	return func(s *attempt.Summary) { s.Mode, s.Method, s.Host, s.Bytes = "connect", "CONNECT", host, 9 }
}

func from(client string) func(*attempt.Summary) {
	return func(s *attempt.Summary) { s.Client = client }
}

func TestCoverageOfAClient(t *testing.T) {
	agent := func(name string) func(*attempt.Summary) { return func(s *attempt.Summary) { s.Agent = name } }
	got := coverageOf(
		call(0, agent("curl/8")), call(10, agent("curl/8")),
		call(20, func(s *attempt.Summary) { s.Mode, s.Labels = "reverse", attempt.Labels{} }),
		call(30, func(s *attempt.Summary) { s.Mode, s.Left, s.Labels.TaskType = "intercept", 30*time.Second, "" }),
		call(40, both(opaqueTo("a.test:443"), agent("python"))),
		call(50, func(s *attempt.Summary) { s.Mode, s.Method, s.Attempts = "connect", "CONNECT", nil }), // opened
		call(60, func(s *attempt.Summary) { s.Left, s.Origin = time.Hour, attempt.OriginParked }),       // nobody waited
	)
	for i := range got {
		got[i].Advice = nil
	}
	if diff := cmp.Diff([]ClientCovered{{
		Client: "10.0.0.7", Agents: []string{"curl/8", "python"}, Modes: map[string]int64{"forward": 3, "reverse": 1, "intercept": 1, "opaque": 1},
		Calls: 6, Opaque: 1.0 / 6, NoShop: 0.2, NoTask: 0.4, PatienceP50: 30_000,
	}}, got, cmp.Transformer("about", func(n int64) int64 {
		if n > 27_000 && n < 33_000 { // a time is known to a tenth
			return 30_000
		}
		return n
	})); diff != "" {
		t.Errorf("clients (-want +got):\n%s", diff)
	}
}

func TestCoverageAdvises(t *testing.T) {
	repeat := func(n int, change func(*attempt.Summary)) (calls []*attempt.Summary) {
		for i := range n {
			calls = append(calls, call(float64(100*i), change))
		}
		return calls
	}
	var stormy []*attempt.Summary
	for i := range 6 {
		stormy = append(stormy, call(float64(100*i), failed), call(float64(100*i)+2, nil))
	}
	for _, tt := range []struct {
		name  string
		calls []*attempt.Summary
		want  string // finding
		fix   string // in one of its lines
		own   int64
	}{
		{"all is well", repeat(30, nil), "", "", 0},
		{"a tunnel", []*attempt.Summary{call(0, opaqueTo("a.test:443"))}, "traffic.tunnels", `upgrade_to_https: ["known.test", "a.test"]`, 0},
		{"a tunnel to a host that is upgraded", []*attempt.Summary{call(0, opaqueTo("known.test:443"))}, "traffic.tunnels", "curl -x http://127.0.0.1:8080 http://known.test/", 0},
		{"no labels", repeat(20, func(s *attempt.Summary) { s.Labels = attempt.Labels{} }), "traffic.labels", "shop=17;task=order_ship:x@127.0.0.1:8080", 0},
		{"few calls without labels", repeat(19, func(s *attempt.Summary) { s.Labels = attempt.Labels{} }), "", "", 0},
		{"retries of its own", stormy, "traffic.own_retries", "max_retries=0", 6},
		{"a count without a key", []*attempt.Summary{call(0, func(s *attempt.Summary) { s.Attempts[0].Count = 2 })}, "traffic.count_without_key", "X-Idempotency-Key", 1},
		{"a doubled order", []*attempt.Summary{call(0, inDoubt), call(1, post)}, "traffic.doubled_posts", "X-Idempotency-Key", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := coverageOf(tt.calls...)
			if len(got) != 1 {
				t.Fatalf("clients = %+v, want one", got)
			}
			c := got[0]
			if c.OwnRetries != tt.own {
				t.Errorf("own retries = %d, want %d", c.OwnRetries, tt.own)
			}
			if tt.want == "" {
				if len(c.Advice) > 0 {
					t.Errorf("advice = %+v, want none", c.Advice)
				}
				return
			}
			i := slices.IndexFunc(c.Advice, func(a Advice) bool { return a.ID == tt.want })
			if i < 0 || c.Advice[i].Finding == "" || !slices.ContainsFunc(c.Advice[i].Fix, func(f Fix) bool { return strings.Contains(f.Line, tt.fix) }) {
				t.Errorf("advice = %+v, want %s with %s", c.Advice, tt.want, tt.fix)
			}
		})
	}
}

// Each client is judged by itself, and who needs advice comes first.
func TestCoverageOfMany(t *testing.T) {
	calls := []*attempt.Summary{call(0, both(from("10.0.0.1:1"), opaqueTo("a.test:443")))}
	for i := range 3 {
		calls = append(calls, call(float64(10*i), from("10.0.0.2:1")))
	}
	calls = append(calls, call(50, both(from("10.0.0.3:1"), nothing)))
	got := coverageOf(calls...)
	if len(got) != 3 || got[0].Client != "10.0.0.1" || got[0].Opaque != 1 || got[1].Client != "10.0.0.2" || got[1].Opaque != 0 || len(got[1].Advice) != 0 {
		t.Errorf("clients = %+v, want the one with tunnels first, then by calls", got)
	}
}

func nothing(*attempt.Summary) {}

func TestCoverageIsBounded(t *testing.T) {
	o := NewObserver()
	for i := range 2 * mostClients {
		o.Call(call(0, both(from(fmt.Sprintf("10.1.%d.%d:1", i/250, i%250)), opaqueTo("a.test:443"))))
	}
	for i := range 3 * mostOpaque {
		s := call(0, opaqueTo(fmt.Sprintf("h%d.test:443", i)))
		s.Agent = strings.Repeat("x", i+1)
		o.Call(s)
	}
	if n := o.clients.Len(); n != mostClients {
		t.Errorf("%d clients, want %d", n, mostClients)
	}
	c, _ := o.clients.Get("10.0.0.7")
	if len(c.opaque) != mostOpaque || len(c.agents) != mostAgents || c.tunnels != 3*mostOpaque {
		t.Errorf("%d hosts, %d agents, %d tunnels of a client", len(c.opaque), len(c.agents), c.tunnels)
	}
	if n := len(o.Coverage(someSetup, "").Clients); n != mostCovered {
		t.Errorf("%d clients shown, want %d", n, mostCovered)
	}
}
