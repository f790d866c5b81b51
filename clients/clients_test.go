//go:build unix

// Package clients answers one question: does a bot get what we promise, whichever
// client it is written with?
//
// Real clients call a misbehaving upstream through the real binary. Each plays
// the same steps in one process, so that its connections are reused as in life.
package clients

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// which says what to do about clients: all fails when one is missing, off runs
// none, anything else runs those that are here.
var which = os.Getenv("RETRYPROXY_CLIENTS")

// way is how a call reaches an https or http platform through the proxy.
type way struct {
	name     string // a domain under .test, too
	scheme   string // that the client calls
	upstream string // that we speak there
}

var (
	plain     = way{"plain", "http", "http"}
	upgrade   = way{"upgrade", "http", "https"}
	intercept = way{"intercept", "https", "https"}
	absolute  = way{"absolute", "https", "https"}
)

// step is one call of a client.
type step struct {
	method, path, key, body string
}

// steps are what every client plays; /cut twice, since most clients leave the
// repeat to their caller.
var steps = []step{
	{"GET", "/heal", "", ""},
	{"GET", "/after", "", ""},
	{"POST", "/warm", "", "order"},
	{"POST", "/die", "", "order"},
	{"POST", "/warm", "", "order"},
	{"POST", "/die", "key-die", "order"},
	{"POST", "/warm", "", "order"},
	{"POST", "/cut", "key-cut", "order"},
	{"POST", "/cut", "key-cut", "order"},
	{"POST", "/warm", "", "order"},
	{"POST", "/cut", "", "order"},
}

// result is what the client saw of a step.
type result struct {
	status, count, reason, replayed, body string
}

func (r result) String() string {
	return fmt.Sprintf("%s count=%q reason=%q replayed=%q %.200s", r.status, r.count, r.reason, r.replayed, r.body)
}

// job is one client on one way.
type job struct {
	client *client
	way    way
	host   string
	shop   string
	named  bool // it sends a user name; else it has a listener of its own
	relay  *relay
	report chan string // from a page
}

// taskType is the label that every job sends beside its shop.
const taskType = "report"

// jobs are all clients on all their ways.
func jobs() (list []*job) {
	for i := range clients {
		c := &clients[i]
		for _, w := range c.ways {
			n := len(list) + 1
			list = append(list, &job{
				client: c, way: w, named: !slices.Contains(c.unnamed, w),
				host: fmt.Sprintf("j%d.%s.test", n, w.name), shop: fmt.Sprintf("s%d", n), report: make(chan string, 1),
			})
		}
	}
	return list
}

func (j *job) url(path string) string { return j.way.scheme + "://" + j.host + path }

// steps are the lines that a client reads.
func (j *job) steps() string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", s.method, j.url(s.path), s.key, s.body)
	}
	return b.String()
}

// user is the proxy user name.
func (j *job) user() string { return "shop=" + j.shop + ";task=" + taskType }

// proxy is the URL of the proxy as the client gets it.
func (j *job) proxy() string {
	if !j.named {
		return "http://" + j.relay.addr
	}
	return "http://" + j.user() + ":x@" + j.relay.addr
}

func TestClients(t *testing.T) {
	if which == "off" {
		t.Skip("RETRYPROXY_CLIENTS=off; make clients runs them")
	}
	list, up := jobs(), newUpstream(t)
	var listeners []string
	for _, j := range list {
		up.add(j)
		if !j.named {
			listeners = append(listeners, fmt.Sprintf(`{addr: "127.0.0.1:0", shop: %s, task_type: %s}`, j.shop, taskType))
		}
	}
	p := start(t, up, listeners)
	tools := newTools(t, p.ca)
	t.Run("client", func(t *testing.T) { // ends when all are done
		for _, j := range list {
			t.Run(j.client.name+"/"+j.way.name, func(t *testing.T) {
				t.Parallel()
				j.client.here(t)
				j.play(t, p, up, tools)
			})
		}
	})
	t.Run("trap", func(t *testing.T) { fallInto(t, p, up, tools) })
}

// clientNamed is one of the suite.
func clientNamed(name string) *client {
	return &clients[slices.IndexFunc(clients, func(c client) bool { return c.name == name })]
}

// here skips or fails a test whose client is not installed.
func (c *client) here(t *testing.T) {
	t.Helper()
	missing := c.missing()
	switch {
	case missing == "":
	case which == "all" || os.Getenv("CI") != "":
		t.Fatalf("%s is not here: %s", c.name, missing)
	default:
		t.Skipf("%s is not here: %s", c.name, missing)
	}
}

func (j *job) play(t *testing.T, p *product, up *upstream, tools *tools) {
	j.relay = newRelay(t, cmp.Or(p.listeners[j.shop], p.proxy))
	got := j.client.play(t, j, tools)
	if len(got) != len(steps) {
		t.Fatalf("%d results of %d steps: %v; log of the product:\n%s", len(got), len(steps), got, p.logOf(j.host))
	}
	calls := p.calls(j.host)
	t.Logf("%s calls %s: mode %s", j.client.name, j.url(""), modes(calls))
	for i, r := range got {
		t.Logf("%-4s %-6s key=%-8s -> %v", steps[i].method, steps[i].path, steps[i].key, r)
	}
	j.healed(t, got[0], got[1], up)
	j.died(t, got[3], got[5], up)
	j.cut(t, got[7], got[8], up)
	j.doubled(t, up)
	j.labelled(t, calls)
	j.asked(t, calls)
	if t.Failed() {
		t.Logf("log of the product:\n%s", p.logOf(j.host))
	}
	for _, a := range up.arrivals(j.host, "/warm") {
		if a.tls != (j.way.upstream == "https") {
			t.Errorf("the upstream was called with TLS = %t, want %s", a.tls, j.way.upstream)
		}
	}
}

// modes are those that calls came in by.
func modes(calls []call) (list []string) {
	for _, c := range calls {
		if mode := c.Method + " by " + c.Mode; !slices.Contains(list, mode) {
			list = append(list, mode)
		}
	}
	return list
}

// healed: success after two 503s, and after the time that the upstream asks for.
func (j *job) healed(t *testing.T, heal, after result, up *upstream) {
	t.Helper()
	if heal.status != "200" || heal.count != "2" || heal.body != "heal 3" {
		t.Errorf("after two 503s = %v, want 200 by the second retry", heal)
	}
	if after.status != "200" || after.count != "1" || after.body != "after 2" {
		t.Errorf("after Retry-After = %v, want 200 by the first retry", after)
	}
	at := up.arrivals(j.host, "/after")
	if len(at) != 2 || at[1].at.Sub(at[0].at) < time.Second {
		t.Errorf("arrivals with Retry-After: 1 = %v, want two, a second apart", at)
	}
}

// died: the upstream's connection dies under an order. Without a key it is not
// repeated, with one it is, under the same key.
func (j *job) died(t *testing.T, keyless, keyed result, up *upstream) {
	t.Helper()
	if keyless.status != "502" || keyless.reason != "manual_review" {
		t.Errorf("a POST without key = %v, want 502 manual_review", keyless)
	}
	if keyed.status != "200" || keyed.count != "1" {
		t.Errorf("a POST with a key = %v, want 200 by the first retry", keyed)
	}
	var keys []string
	for _, a := range up.arrivals(j.host, "/die") {
		keys = append(keys, a.key)
	}
	if want := []string{"", "key-die", "key-die"}; !slices.Equal(keys, want) {
		t.Errorf("keys at the upstream = %q, want %q", keys, want)
	}
}

// cut: the client's connection dies under an order with a key. Whoever repeats
// it, client or caller, it is executed once.
func (j *job) cut(t *testing.T, first, again result, up *upstream) {
	t.Helper()
	want := "0"
	if j.resends() != none {
		want = "200"
	}
	if first.status != want {
		t.Errorf("the order whose connection died = %v, want status %s (0: not re-sent by the client)", first, want)
	}
	if again.status != "200" || again.replayed != "true" || again.body != "cut 1" {
		t.Errorf("its repeat = %v, want the first answer again", again)
	}
	if n := up.count(j.host, "/cut", "key-cut"); n != 1 {
		t.Errorf("executed %d times, want once", n)
	}
}

func (j *job) resends() resend {
	if j.way == intercept {
		return j.client.inside
	}
	return j.client.resends
}

// doubled: what a key is for. Without one, nobody can tell a client's re-send
// from a second order.
func (j *job) doubled(t *testing.T, up *upstream) {
	t.Helper()
	want := 1
	if j.resends() == every {
		want = 2
	}
	if n := up.count(j.host, "/cut", ""); n != want {
		t.Errorf("without a key executed %d times, want %d", n, want)
	}
}

// labelled: every call has the labels.
func (j *job) labelled(t *testing.T, calls []call) {
	t.Helper()
	if len(calls) < len(steps) {
		t.Errorf("%d calls to %s, want at least %d", len(calls), j.host, len(steps))
	}
	for _, c := range calls {
		if c.Labels.Shop != j.shop || c.Labels.TaskType != taskType {
			t.Errorf("%s %s has the labels %+v, want %s and %s", c.Method, c.Path, c.Labels, j.shop, taskType)
		}
		if c.Method != "CONNECT" && c.Scheme != j.way.upstream {
			t.Errorf("%s %s went by %s, want %s", c.Method, c.Path, c.Scheme, j.way.upstream)
		}
	}
}

// asked: CONNECT came where the client is known to send it, and there only.
func (j *job) asked(t *testing.T, calls []call) {
	t.Helper()
	want := j.way == intercept || j.client.tunnels
	if got := slices.ContainsFunc(calls, func(c call) bool { return c.Method == "CONNECT" }); got != want {
		t.Errorf("it sent CONNECT = %t, want %t", got, want)
	}
}
