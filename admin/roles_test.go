package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"retryproxy/deadletter"
	"retryproxy/idempotency"
	"retryproxy/pause"
)

// harmless are the routes that change nothing though they are no GET.
var harmless = []string{"POST /explain", "POST /verdict", "POST /session", "DELETE /session"}

// Every way into the API has its role, its name in the audit log, and a place in the list.
func TestEveryRouteHasARole(t *testing.T) {
	h := newServer(newFake().deps())
	known, names := map[string]bool{}, map[string]string{}
	for _, o := range h.routes() {
		name := o.method + " " + o.path
		known["/api/v1 "+name] = true
		switch {
		case o.method == http.MethodGet:
			if o.does != "" && !strings.HasSuffix(o.does, ".reveal") {
				t.Errorf("%s is called %s, though it changes nothing", name, o.does)
			}
		case slices.Contains(harmless, name):
			if o.role != Viewer || o.does != "" {
				t.Errorf("%s is for %s and called %q, though it changes nothing", name, o.role, o.does)
			}
		case o.role < Operator || o.does == "":
			t.Errorf("%s changes something; it is for %s and called %q", name, o.role, o.does)
		}
		if other := names[o.does]; o.does != "" && other != "" {
			t.Errorf("%s and %s are both called %s", name, other, o.does)
		}
		names[o.does] = name
		if !strings.Contains(index, "/api/v1"+o.path) {
			t.Errorf("/api does not list %s", o.path)
		}
	}
	open := []string{"/", "/api", "/ca.pem", "/livez", "/healthz", "/readyz", "/metrics"}
	err := chi.Walk(New(newFake().deps()).(chi.Router), func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		below, api := strings.CutPrefix(path, "/api/v1")
		if api && !known["/api/v1 "+method+" "+below] || !api && (method != http.MethodGet || !slices.Contains(open, path)) {
			t.Errorf("%s %s is not among routes: it has no role", method, path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The table of the documentation is that of the program.
func TestDocumentedRoutes(t *testing.T) {
	text, err := os.ReadFile("../docs/admin.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range newServer(newFake().deps()).routes() {
		line := fmt.Sprintf("| `%s %s` | %s | %s |", o.method, o.path, o.role, inCode(o.does))
		if !strings.Contains(string(text), line) {
			t.Errorf("docs/admin.md misses %s", line)
		}
	}
}

func inCode(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// Nobody gets past the role of a route.
func TestEveryRouteAsksForItsRole(t *testing.T) {
	d := team(newFake().deps())
	h := New(d)
	for _, o := range newServer(d).routes() {
		for role, token := range []string{"viewer-token", "operator-token", "admin-token"} {
			if got, want := refuses(h, o.method, o.path, token), Role(role) < o.role; got != want {
				t.Errorf("%s %s refuses %s: %t, want %t", o.method, o.path, Role(role), got, want)
			}
		}
		if status, _, _ := direct(h, o.method, "/api/v1"+o.path, ""); status != http.StatusUnauthorized && o.path != "/session" {
			t.Errorf("%s %s without a token = %d, want 401", o.method, o.path, status)
		}
	}
}

// No spelling of a path and no method leads past a role, nor does a header that names
// another client past the bound of wrong tokens.
func TestWaysAroundARole(t *testing.T) {
	f := newFake()
	reloads := 0
	d := team(f.deps())
	d.Reload = func() error { reloads++; return nil }
	h := New(d)
	for _, path := range []string{
		"/api/v1/config/reload/", "/api/v1//config/reload", "//api/v1/config/reload", "/api/v1/config%2Freload", "/api/v1/config/%72eload", "/%61pi/v1/config/reload",
		"/api/v1/./config/reload", "/api/v1/x/../config/reload", "/API/v1/config/reload", "/api/v1/config/reload;x", "/api/v1/config/reload?reveal=0", "/api/v1/config/reload%00",
	} {
		for _, method := range []string{"POST", "GET", "HEAD", "PUT", "post", "CONNECT"} {
			direct(h, method, path, "", "Authorization", "Bearer viewer-token", "X-HTTP-Method-Override", "POST")
		}
	}
	if reloads > 0 {
		t.Errorf("a viewer's requests reloaded the configuration %d times", reloads)
	}
	for i := range guessesEach + 1 {
		direct(h, "GET", "/api/v1/calls", "", "Authorization", "Bearer wrong", "X-Forwarded-For", fmt.Sprintf("10.0.0.%d", i), "Forwarded", fmt.Sprintf("for=10.0.0.%d", i))
	}
	if status, _, _ := direct(h, "GET", "/api/v1/calls", "", "Authorization", "Bearer wrong", "X-Forwarded-For", "10.1.1.1"); status != http.StatusTooManyRequests {
		t.Errorf("wrong tokens with a forged address = %d, want 429", status)
	}
}

// refuses says whether a request gets 403. Handlers whose parts are missing here were reached.
func refuses(h http.Handler, method, path, token string) (forbidden bool) {
	defer func() { _ = recover() }()
	status, _, _ := direct(h, method, "/api/v1"+path, "", "Authorization", "Bearer "+token)
	return status == http.StatusForbidden
}

// team is one of each role.
func team(d Deps) Deps {
	d.Accounts = func() []Account {
		return []Account{{"vera", Viewer, "viewer-token"}, {"oleg", Operator, "operator-token"}, {"anna", Admin, "admin-token"}}
	}
	d.Resume = func(shop, platform, by, _ string) []pause.Pause {
		return []pause.Pause{{Key: pause.Key{Shop: shop, Platform: platform}, Message: "for " + by}}
	}
	return d
}

func TestRoles(t *testing.T) {
	tests := []struct {
		method, path, body string
		least              Role
		ok                 int
	}{
		{"GET", "/api/v1/calls", "", Viewer, 200},
		{"GET", "/api/v1/config", "", Viewer, 200},
		{"GET", "/api/v1/audit", "", Viewer, 200},
		{"POST", "/api/v1/explain", `{"url":"http://a.test/"}`, Viewer, 200},
		{"POST", "/api/v1/breakers/a.test:80/reset", "", Operator, 200},
		{"POST", "/api/v1/shops/s1/resume", `{"by":"li","note":"n"}`, Operator, 200},
		{"PUT", "/api/v1/retries", `{"value":"off"}`, Operator, 200},
		{"POST", "/api/v1/config/reload", "", Admin, 422},
		{"POST", "/api/v1/what", "", Viewer, 404},
		{"GET", "/api/v1/config/reload", "", Viewer, 405},
	}
	f := newFake()
	f.reload = fmt.Errorf("no")
	h := New(team(f.deps()))
	for _, x := range tests {
		for role, token := range []string{"viewer-token", "operator-token", "admin-token"} {
			status, _, body := direct(h, x.method, x.path, x.body, "Authorization", "Bearer "+token)
			want := x.ok
			if Role(role) < x.least {
				want = http.StatusForbidden
			}
			if status != want {
				t.Errorf("%s %s as %s = %d, want %d: %s", x.method, x.path, Role(role), status, want, body)
			}
			if status == http.StatusForbidden && !strings.Contains(body, "needs the role "+x.least.String()) {
				t.Errorf("%s %s as %s does not say what is needed: %s", x.method, x.path, Role(role), body)
			}
		}
	}
}

// What may be secret is for admins, also by HEAD, and it is noted that they saw it.
func TestRevealIsForAdmins(t *testing.T) {
	d := newFake().deps()
	d.Letters.Each = func(context.Context, deadletter.Filter, func(*idempotency.Record) error) error { return nil }
	d.Letters.Revealed = func(string, string) {}
	h := New(team(d))
	for _, path := range []string{"/api/v1/deadletters/x?reveal=1", "/api/v1/deadletters/export?reveal=1", "/api/v1/deadletters/x?reveal=yes", "/api/v1/deadletters/export?reveal=true", "/api/v1/calls/x?reveal=1", "/api/v1/calls/x?reveal=maybe"} {
		for _, method := range []string{"GET", "HEAD"} {
			if status, _, _ := direct(h, method, path, "", "Authorization", "Bearer operator-token"); status != http.StatusForbidden {
				t.Errorf("%s %s as operator = %d, want 403", method, path, status)
			}
		}
	}
	direct(h, "GET", "/api/v1/deadletters/export?reveal=1", "", "Authorization", "Bearer admin-token")
	if e := entriesOf(t, h); e[0]["action"] != "letters.reveal" || e[0]["name"] != "anna" || e[1]["result"] != "forbidden" || e[1]["name"] != "oleg" {
		t.Errorf("the log says %v", e)
	}
}

// direct asks a handler without a network; RemoteAddr is no field.
func direct(h http.Handler, method, path, body string, fields ...string) (int, http.Header, string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:9090"
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "RemoteAddr" {
			r.RemoteAddr = fields[i+1]
			continue
		}
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Header(), w.Body.String()
}

// entriesOf are the entries of the audit log, the newest first.
func entriesOf(t *testing.T, h http.Handler) (list []map[string]any) {
	t.Helper()
	_, _, body := direct(h, "GET", "/api/v1/audit", "", "Authorization", "Bearer admin-token")
	var v struct{ Entries []map[string]any }
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("audit: %v: %s", err, body)
	}
	return v.Entries
}

func TestAuditSaysWhoDidWhat(t *testing.T) {
	d := newFake().deps()
	d.Letters.DropAll = func(context.Context, deadletter.Filter, bool, deadletter.Signed) (int, int, bool, error) {
		return 0, 0, false, nil
	}
	d.Letters.Preview = func(_ context.Context, o deadletter.BulkOrder) (deadletter.Preview, error) {
		return deadletter.Preview{}, o.CheckOptional()
	}
	h := New(team(d))
	as := []string{"Authorization", "Bearer operator-token"}
	for _, x := range []struct{ method, path, body, want string }{
		{"POST", "/api/v1/breakers/a.test:80/reset?by=li&note=it%20is%20well", "", "li (oleg) breaker.reset [a.test:80] it is well: ok"},
		{"POST", "/api/v1/breakers/none:1/reset", "", "oleg breaker.reset [none:1] : not_found"},
		{"POST", "/api/v1/shops/s1/resume", `{"platform":"pdd","by":"oleg","note":"captcha done"}`, `oleg shop.resume [s1 {"platform":"pdd"}] captcha done: ok`},
		{"POST", "/api/v1/shops/s1/resume", `{"note":"captcha done"}`, "oleg shop.resume [s1] captcha done: ok"},
		{"POST", "/api/v1/breakers/a.test:80/reset", `{"dry_run":true}`, `oleg breaker.reset [a.test:80 {"dry_run":true}] : ok`},
		{"POST", "/api/v1/shops/s1/resume", `nonsense`, "oleg shop.resume [s1] : bad_request"},
		{"PUT", "/api/v1/retries?for=30m&by=li", `{"value":"off"}`, `li (oleg) retries.set [for=30m {"value":"off"}] : ok`},
		{"PUT", "/api/v1/retries?by=oleg", `{"value":"on"}`, `oleg retries.set [{"value":"on"}] : ok`},
		{"DELETE", "/api/v1/newcodes?platform=pdd&code=10019", "", "oleg newcodes.seen [code=10019&platform=pdd] : ok"},
		{"POST", "/api/v1/deadletters/drop", `{"filter":{"key":"order-12345"},"by":"li\u0007","note":"n"}`, `li (oleg) letters.drop [{"filter":{"key_hash":"HASH"}}] n: ok`},
		{"POST", "/api/v1/deadletters/requeue", `{"all":true,"dry_run":true}`, `li (oleg) letters.drop [{"filter":{"key_hash":"HASH"}}] n: ok`}, // that only looked: the last one is still the one before
		{"POST", "/api/v1/deadletters/requeue", `{"all":true,"dry_run":true,"by":"li\u0007"}`, `li (oleg) letters.requeue [{"all":true,"dry_run":true}] : bad_request`},
	} {
		direct(h, x.method, x.path, x.body, as...)
		e := entriesOf(t, h)[0]
		if got := fmt.Sprintf("%v %v [%v] %v: %v", e["name"], e["action"], orEmpty(e["target"]), orEmpty(e["note"]), e["result"]); got != strings.ReplaceAll(x.want, "HASH", idempotency.KeyHash("order-12345")) {
			t.Errorf("%s %s is noted as %q, want %q", x.method, x.path, got, x.want)
		}
	}
}

// A name that no log should have is refused before anything happens.
func TestSignatureInTheQuery(t *testing.T) {
	f := newFake()
	h := New(f.deps())
	for _, query := range []string{"?by=a%0Ab", "?note=%FF", "?by=" + strings.Repeat("x", 101)} {
		if status, _, body := direct(h, "POST", "/api/v1/breakers/a.test:80/reset"+query, ""); status != 400 || len(f.resets) > 0 {
			t.Errorf("%s = %d %s, resets %v, want 400 and none", query, status, body, f.resets)
		}
	}
}

// Whoever is refused again and again cannot push out what others did.
func TestRefusalsAreNotedSparingly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(team(newFake().deps()))
		for range 10 * mostRefusals {
			direct(h, "POST", "/api/v1/config/reload", "", "Authorization", "Bearer viewer-token")
		}
		if n := len(entriesOf(t, h)); n != mostRefusals {
			t.Errorf("%d entries, want %d", n, mostRefusals)
		}
		time.Sleep(time.Minute)
		direct(h, "PUT", "/api/v1/retries", "{}", "Authorization", "Bearer viewer-token")
		if e := entriesOf(t, h); len(e) != mostRefusals+1 || e[0]["action"] != "retries.set" || e[0]["name"] != "vera" || e[0]["result"] != "forbidden" {
			t.Errorf("a minute later: %d entries, the last %v", len(e), e[0])
		}
	})
}

func TestTokenSigns(t *testing.T) {
	h := New(team(newFake().deps()))
	for body, want := range map[string]string{`{"note":"n"}`: "for oleg", `{"by":"oleg","note":"n"}`: "for oleg", `{"by":"li","note":"n"}`: "for li (oleg)"} {
		if _, _, got := direct(h, "POST", "/api/v1/shops/s1/resume", body, "Authorization", "Bearer operator-token"); !strings.Contains(got, `"`+want+`"`) {
			t.Errorf("%s is signed as %s, want %q", body, got, want)
		}
	}
	d := newFake().deps()
	d.Resume = team(d).Resume
	if status, _, body := direct(New(d), "POST", "/api/v1/shops/s1/resume", `{"note":"n"}`); status != 400 || !strings.Contains(body, "by: is missing") {
		t.Errorf("without tokens and by = %d %s, want 400", status, body)
	}
}

func orEmpty(v any) any {
	if v == nil {
		return ""
	}
	return v
}

func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accounts := []Account{{"vera", Viewer, "viewer-token"}, {"anna", Admin, "admin-token"}}
		d := newFake().deps()
		d.Accounts = func() []Account { return accounts }
		h := New(d)
		if status, _, _ := direct(h, "GET", "/api/v1/session", ""); status != 401 {
			t.Fatalf("without a session: %d, want 401", status)
		}
		status, fields, body := direct(h, "POST", "/api/v1/session", `{"token":"viewer-token"}`)
		cookie := fields.Get("Set-Cookie")
		if status != 200 || !strings.Contains(body, `"role": "viewer"`) || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Strict") {
			t.Fatalf("login = %d %s, cookie %q", status, body, cookie)
		}
		value, _, _ := strings.Cut(cookie, ";")
		ask := func(method, path string) int {
			status, _, _ := direct(h, method, path, "", "Cookie", value)
			return status
		}
		if got := ask("GET", "/api/v1/calls"); got != 200 {
			t.Errorf("with a session: %d, want 200", got)
		}
		if got := ask("POST", "/api/v1/breakers/a.test:80/reset"); got != 403 {
			t.Errorf("a viewer's session resets a breaker: %d, want 403", got)
		}
		accounts[0].Role = Operator
		if got := ask("POST", "/api/v1/breakers/a.test:80/reset"); got != 200 {
			t.Errorf("after a promotion: %d, want 200", got)
		}
		for _, from := range [][3]string{
			{"Sec-Fetch-Site", "cross-site", "403 401"},
			{"Sec-Fetch-Site", "same-site", "403 401"},
			{"Origin", "http://127.0.0.1:8080", "403 401"},
			{"Origin", "null", "403 401"},
			{"Sec-Fetch-Site", "same-origin", "200 200"},
			{"Sec-Fetch-Site", "none", "200 200"},
			{"Origin", "http://127.0.0.1:9090", "200 200"},
		} {
			post, _, _ := direct(h, "POST", "/api/v1/breakers/a.test:80/reset", "", "Cookie", value, from[0], from[1])
			get, _, _ := direct(h, "GET", "/api/v1/calls", "", "Cookie", value, from[0], from[1])
			if got := fmt.Sprint(post, get); got != from[2] {
				t.Errorf("POST and GET with %s: %s = %s, want %s", from[0], from[1], got, from[2])
			}
		}
		time.Sleep(sessionTime)
		if got := ask("GET", "/api/v1/calls"); got != 401 {
			t.Errorf("after 12 hours: %d, want 401", got)
		}
		_, fields, _ = direct(h, "POST", "/api/v1/session", `{"token":"viewer-token"}`)
		value, _, _ = strings.Cut(fields.Get("Set-Cookie"), ";")
		old := accounts[0]
		accounts[0].Token = "new-token!"
		if got := ask("GET", "/api/v1/calls"); got != 401 {
			t.Errorf("after its token went: %d, want 401", got)
		}
		accounts[0] = old
		if got := ask("DELETE", "/api/v1/session"); got != 204 {
			t.Errorf("logout = %d, want 204", got)
		}
		if got := ask("GET", "/api/v1/calls"); got != 401 {
			t.Errorf("after the logout: %d, want 401", got)
		}
	})
}

// Logins of one token never end the sessions of another.
func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(team(newFake().deps()))
		login := func(token string) string {
			_, fields, _ := direct(h, "POST", "/api/v1/session", `{"token":"`+token+`"}`)
			cookie, _, _ := strings.Cut(fields.Get("Set-Cookie"), ";")
			return cookie
		}
		ask := func(cookie string) int {
			status, _, _ := direct(h, "GET", "/api/v1/calls", "", "Cookie", cookie)
			return status
		}
		anna, first := login("admin-token"), login("viewer-token")
		second := login("viewer-token")
		for range mostOfToken - 1 {
			login("viewer-token")
		}
		if got := fmt.Sprint(ask(anna), ask(first), ask(second)); got != "200 401 200" {
			t.Errorf("anna, and vera's first and second session = %s, want 200 401 200", got)
		}
		s := newSessions()
		for range 3 {
			s.begin(&Account{Token: "t"}, time.Now())
			time.Sleep(sessionTime)
		}
		if n := s.open.Len(); n != 1 {
			t.Errorf("%d sessions are kept of 2 that are over and one, want 1", n)
		}
	})
}

func TestSessionWithoutTokens(t *testing.T) {
	h := New(newFake().deps())
	_, _, body := direct(h, "GET", "/api/v1/session", "")
	if !strings.Contains(body, `"role": "admin"`) || !strings.Contains(body, `"tokens": false`) {
		t.Errorf("session = %s, want an admin without tokens", body)
	}
	direct(h, "POST", "/api/v1/breakers/a.test:80/reset", "")
	if e := entriesOf(t, h)[0]; e["name"] != "-" {
		t.Errorf("what nobody signed is noted as by %v, want -", e["name"])
	}
}

// Wrong tokens are counted by address; who is right, or has a session, is not.
func TestTokensCannotBeGuessed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(team(newFake().deps()))
		_, fields, _ := direct(h, "POST", "/api/v1/session", `{"token":"operator-token"}`)
		cookie, _, _ := strings.Cut(fields.Get("Set-Cookie"), ";")
		try := func(from, token string) (int, string) {
			status, fields, _ := direct(h, "GET", "/api/v1/calls", "", "Authorization", "Bearer "+token, "RemoteAddr", from)
			return status, fields.Get("Retry-After")
		}
		for i := range guessesEach {
			if status, _ := try("10.0.0.1:1", "wrong"); status != 401 {
				t.Fatalf("guess %d = %d, want 401", i, status)
			}
			if status, _ := try("10.0.0.2:1", "operator-token"); status != 200 {
				t.Fatalf("the right token from elsewhere = %d", status)
			}
		}
		if status, after := try("10.0.0.1:9", "operator-token"); status != 429 || after != "30" {
			t.Errorf("after %d wrong ones = %d, Retry-After %s, want 429 and 30", guessesEach, status, after)
		}
		if status, _, _ := direct(h, "POST", "/api/v1/session", `{"token":"operator-token"}`, "RemoteAddr", "10.0.0.1:9"); status != 429 {
			t.Errorf("a login = %d, want 429", status)
		}
		if status, _, _ := direct(h, "GET", "/api/v1/calls", "", "Cookie", cookie, "RemoteAddr", "10.0.0.1:9"); status != 200 {
			t.Errorf("a session = %d, want 200", status)
		}
		time.Sleep(30 * time.Second)
		if status, _ := try("10.0.0.1:9", "operator-token"); status != 200 {
			t.Errorf("after 30 s = %d, want 200", status)
		}
		for i := range 200 {
			try(fmt.Sprintf("[2001:db8:%x::1]:1", i), "wrong")
		}
		if status, _ := try("10.0.0.3:1", "operator-token"); status != 429 {
			t.Errorf("after wrong ones from many addresses = %d, want 429", status)
		}
		if status, _ := try("10.0.0.2:1", "operator-token"); status != 200 {
			t.Errorf("where a right token came from before = %d, want 200", status)
		}
		if e := entriesOf(t, h); e[len(e)-1]["action"] != "token.guess" || e[len(e)-1]["client"] != "10.0.0.1" || len(e) > mostRefusals+1 {
			t.Errorf("the log has %d entries, the first %v", len(e), e[len(e)-1])
		}
		time.Sleep(3 * time.Second)
		if status, _ := try("10.0.0.3:1", "operator-token"); status != 200 {
			t.Errorf("3 s later = %d, want 200", status)
		}
	})
}

// Many at once are no way around the bound.
func TestGuessesAtOnce(t *testing.T) {
	g, now := newGuesses(), time.Now()
	var looked atomic.Int32
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			g.try("10.0.0.1:1", now, func() bool { looked.Add(1); return false })
		})
	}
	all.Wait()
	if n := looked.Load(); n != guessesEach {
		t.Errorf("%d tokens were looked at, want %d", n, guessesEach)
	}
}

func TestAddresses(t *testing.T) {
	for remote, want := range map[string]string{
		"10.0.0.1:99": "10.0.0.1", "[2001:db8::1]:1": "2001:db8::", "[2001:db8::ffff:1]:2": "2001:db8::", "[::ffff:10.0.0.1]:3": "::ffff:10.0.0.1", "@": "@",
	} {
		if got := addressOf(remote); got != want {
			t.Errorf("addressOf(%q) = %q, want %q", remote, got, want)
		}
	}
}
