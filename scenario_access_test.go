package main

import (
	"strings"
	"testing"
	"time"

	"retryproxy/attempt"
)

// lays is the patch that puts keys before the rest of the configuration.
func lays(keys string) []string { return []string{"\nlisten:", "\n" + keys + "\nlisten:"} }

// wantLabels checks whose the last call was.
func (r *rig) wantLabels(shop, tier, task string) {
	r.t.Helper()
	if got, want := r.last().Labels, (attempt.Labels{Shop: shop, ShopTier: tier, TaskType: task}); got != want {
		r.t.Errorf("labels = %+v, want %+v", got, want)
	}
}

func TestListenersGiveLabels(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		text := func(headers ...string) string { return rawRequest("GET", "http://u1.test/x", "", headers...) }
		r.want(r.askAt("127.0.0.1:8117", text("X-Task-Type: report")), 200, u, 1)
		r.wantLabels("s17", "vip", "report")
		if h := u.seen()[0].Header; h.Get("X-Task-Type") != "" || h.Get("X-Shop-Id") != "" {
			t.Errorf("labels went upstream: %v", h)
		}
		r.want(r.askAt("127.0.0.1:8118", text("X-Task-Type: order_ship", "X-Shop-Id: s2")), 200, u, 2)
		r.wantLabels("s2", "", "order_ship")
		for _, contradiction := range []string{"X-Task-Type: report", "Proxy-Authorization: " + basic("task=report", "x")} {
			got := r.askAt("127.0.0.1:8118", text(contradiction))
			r.want(got, 403, u, 2)
			r.wantHeader(got, "X-Retry-Reason", "client_denied")
			if !strings.Contains(got.Body, "task type") || !strings.Contains(got.Body, "listeners") {
				t.Errorf("the answer is %s, want the label and the setting in it", got.Body)
			}
		}
		r.want(r.askAt("127.0.0.1:8117", text("X-Shop-Id: s17")), 200, u, 3) // the same is no contradiction
	}, lays(`listeners: [{addr: "127.0.0.1:8117", shop: s17}, {addr: "127.0.0.1:8118", task_type: order_ship}]
shops: {s17: {tier: vip}}`)...)
}

func TestLabelsInTheUserName(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		name := "Proxy-Authorization: " + basic("shop=17;task=order_ship;tier=vip", "x")
		r.want(r.get("http://u1.test/x", name), 200, u, 1)
		r.wantLabels("17", "vip", "order_ship")
		r.get("http://u1.test/x", name, "X-Shop-Id: 18") // the user name comes before the header
		r.wantLabels("17", "vip", "order_ship")
		r.get("http://u1.test/x", "Proxy-Authorization: Basic !!!")
		r.wantLabels("", "", "")
		for _, bad := range []string{"X-Shop-Id: a b", "X-Shop-Id: " + strings.Repeat("s", 129)} {
			r.want(r.get("http://u1.test/x", bad), 400, u, 3)
		}
	})
}

func TestForwardedLabels(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(503, ""), answer(200, "ok"))
		r.want(r.post("http://u1.test/x", "{}", keyed, "X-Shop-Id: s1", "X-Shop-Tier: vip", "X-Task-Type: t"), 200, u, 2)
		for _, q := range u.seen() {
			h := q.Header
			if h.Get("X-Shop-Id") != "s1" || h.Get("X-Task-Type") != "t" || h.Get("X-Shop-Tier") != "" || h.Get("X-Idempotency-Key") != "" || h.Get("X-Retry-Count") != "" {
				t.Errorf("upstream got %v, want what forward_headers names", h)
			}
		}
	}, with("forward_headers: [shop, task_type]")...)
}

// users is the patch with one user who is shop s1.
func users(t *testing.T) []string {
	return lays("clients: {users: {bot1: {hash: '" + bcryptOf(t, "secret") + "', shop: s1}, bot2: {hash: '" + bcryptOf(t, "other") + "'}}}\n" +
		"routes: [{name: u1, prefix: /u1, upstreams: ['http://u1.test']}]\nshops: {s1: {tier: vip}}")
}

func TestUsers(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", echo)
		proxy := func(user, password string) string { return "Proxy-Authorization: " + basic(user, password) }
		for _, missing := range [][]string{nil, {proxy("bot1", "wrong")}, {proxy("nobody", "secret")}, {"Proxy-Authorization: Bearer x"}} {
			got := r.get("http://u1.test/x", missing...)
			r.want(got, 407, u, 0)
			r.wantHeader(got, "Proxy-Authenticate", `Basic realm="retryproxy"`)
			r.wantHeader(got, "X-Retry-Reason", "auth_required")
			r.wantHeader(got, "X-Retry-Advice", "stop")
		}
		c, _, got := r.connect("u1.test:443")
		c.Close()
		r.want(got, 407, u, 0)
		r.ended() // its end may come after its answer

		r.want(r.get("http://u1.test/x", proxy("bot1;task=report", "secret")), 200, u, 1)
		r.wantLabels("s1", "vip", "report")
		if r.last().User != "bot1" {
			t.Errorf("user = %q, want bot1", r.last().User)
		}
		for _, contradiction := range []string{"X-Shop-Id: s2", "X-Shop-Tier: normal"} { // the shops table knows the tier
			denied := r.get("http://u1.test/x", proxy("bot1", "secret"), contradiction)
			r.want(denied, 403, u, 1)
			r.wantHeader(denied, "X-Retry-Reason", "client_denied")
		}
		r.want(r.get("http://u1.test/x", proxy("bot2", "other"), "X-Shop-Id: s2"), 200, u, 2)
		r.wantLabels("s2", "", "")

		// Reverse: we are the server, so it is 401 and Authorization.
		got = r.origin("GET", "localhost", "/u1/x", "")
		r.want(got, 401, u, 2)
		r.wantHeader(got, "WWW-Authenticate", `Basic realm="retryproxy"`)
		r.wantHeader(got, "Proxy-Authenticate", "")
		got = r.origin("GET", "localhost", "/u1/x", "", "Authorization: "+basic("bot1", "secret"))
		r.want(got, 200, u, 3)
		if strings.Contains(got.Body, "Authorization") {
			t.Errorf("our own credentials went upstream: %s", got.Body)
		}
		got = r.origin("GET", "localhost", "/u1/x", "", proxy("bot1", "secret"), "Authorization: Bearer theirs")
		r.want(got, 200, u, 4)
		if !strings.Contains(got.Body, "Authorization: Bearer theirs") {
			t.Errorf("the upstream's own credentials did not reach it: %s", got.Body)
		}
		r.wantMetric(8, "denied_total")
	}, users(t)...)
}

func TestTenants(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(201, "one"), answer(201, "two"), answer(201, "three"))
		bot := func(user, password string) string { return "Proxy-Authorization: " + basic(user, password) }
		first := r.post("http://u1.test/x", "{}", keyed, bot("bot1", "secret"))
		r.want(first, 201, u, 1)
		other := r.post("http://u1.test/x", "{}", keyed, bot("bot2", "other"))
		r.want(other, 201, u, 2)
		r.wantHeader(other, "Idempotency-Replayed", "")
		again := r.post("http://u1.test/x", "{}", keyed, bot("bot1", "secret"), "Authorization: Bearer new", "Cookie: a=1")
		r.want(again, 201, u, 2) // a token or a cookie that changed makes no other tenant
		r.wantBody(again, "one")
		r.want(r.post("http://u1.test/x", "{}", keyed, bot("bot2", "other"), "X-Shop-Id: s9"), 201, u, 3)
	}, users(t)...)
}

// In the tenant without a name Authorization keeps strangers apart.
func TestTenantWithoutAName(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(201, "secret of A"))
		a := r.post("http://u1.test/private", "{}", keyed, "Authorization: Bearer A")
		r.want(a, 201, u, 1)
		for _, headers := range [][]string{{keyed}, {keyed, "Authorization: Bearer B"}, {keyed, "Authorization: Bearer A", "Authorization: Bearer A"}} {
			got := r.post("http://u1.test/private", "{}", headers...)
			r.want(got, 422, u, 1)
			r.wantHeader(got, "X-Retry-Reason", "key_mismatch")
			if strings.Contains(got.Body, "secret") || strings.Contains(got.Body, "private") || strings.Contains(got.Body, "u1.test") {
				t.Errorf("a stranger is shown %s", got.Body)
			}
		}
		got := r.post("http://u1.test/private", "{}", keyed, "Authorization: Bearer A", "Cookie: other")
		r.want(got, 201, u, 1)
		r.wantHeader(got, "Idempotency-Replayed", "true")
		// A user name that holds labels and no configured user is no tenant but by its shop.
		r.want(r.post("http://u1.test/private", "{}", keyed, "Authorization: Bearer A", "Proxy-Authorization: "+basic("anybody", "x")), 201, u, 1)
	})
}

func TestListenerIsATenant(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(201, "one"), answer(201, "two"))
		text := rawRequest("POST", "http://u1.test/x", "{}", keyed)
		r.want(r.ask(text), 201, u, 1)
		r.want(r.askAt("127.0.0.1:8117", text), 201, u, 2)
		r.want(r.askAt("127.0.0.1:8117", text), 201, u, 2)
	}, lays(`listeners: [{addr: "127.0.0.1:8117", task_type: t}]`)...)
}

func TestClientAddresses(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		ask := func(from string) reply {
			c := r.dialFrom(from, proxyAddr)
			defer c.Close()
			return r.exchange(c, rawRequest("GET", "http://u1.test/x", ""), "GET")
		}
		r.want(ask("127.0.0.1"), 200, u, 1)
		r.want(ask("::1"), 200, u, 2)
		r.want(ask("10.1.2.3"), 200, u, 3)
		got := ask("10.1.3.3")
		r.want(got, 403, u, 3)
		r.wantHeader(got, "X-Retry-Reason", "client_denied")
		if !strings.Contains(got.Body, "10.1.3.3") || !strings.Contains(got.Body, "clients.allow") {
			t.Errorf("the answer is %s, want the address and the setting in it", got.Body)
		}
		r.wantMetric(1, "denied_total", "reason=client_denied")
	}, lays(`clients: {allow: [127.0.0.0/8, "::1/128", 10.1.2.0/24]}`)...)
}

// Slow and huge clients.
func TestClientsAreBounded(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.dial()
		defer c.Close()
		c.Write([]byte("GET http://u1.test/x HTTP/1.1\r\nHost: "))
		start := time.Now()
		got := r.exchange(c, "", "GET")
		r.want(got, 400, nil, 0)
		r.between("a header that does not end", time.Since(start), 10*time.Second, 10*time.Second)
		got = r.get("http://u1.test/"+strings.Repeat("x", 70<<10), "A: b")
		r.want(got, 414, nil, 0)
		r.wantHeader(got, "X-Retry-Reason", "bad_request")
		r.want(r.get("http://u1.test/x", "A: "+strings.Repeat("x", 70<<10)), 431, nil, 0)
	})
}
