package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"retryproxy/deadletter"
	"retryproxy/idempotency"
	"retryproxy/pause"
)

// Every route that is no plain GET says who may use it, and what the log calls it.
func TestEveryDutyHasARole(t *testing.T) {
	r := chi.NewRouter()
	newServer(newFake().deps()).api(r)
	seen := map[string]bool{}
	_ = chi.Walk(r, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		name := method + " " + strings.TrimSuffix(strings.ReplaceAll(route, "/*", ""), "/")
		seen[name] = true
		if _, ok := duties[name]; !ok && method != http.MethodGet && method != http.MethodHead {
			t.Errorf("%s has no role in duties", name)
		}
		return nil
	})
	for name, o := range duties {
		if !seen[name] && !strings.Contains(name, "/expedite") && !strings.Contains(name, "/cancel") && !strings.Contains(name, "/verdict") {
			t.Errorf("duties has %s, which is no route", name)
		}
		if o.does == "" && o.role != Viewer {
			t.Errorf("%s is for %s and leaves no trace", name, o.role)
		}
	}
	for name := range revealed {
		if !seen[name] {
			t.Errorf("revealed has %s, which is no route", name)
		}
	}
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
		{"POST", "/api/v1/what", "", Admin, 404},
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
	for _, path := range []string{"/api/v1/deadletters/x?reveal=1", "/api/v1/deadletters/export?reveal=1", "/api/v1/deadletters/x?reveal=yes", "/api/v1/deadletters/export?reveal=true"} {
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
	f := newFake()
	h := New(team(f.deps()))
	as := []string{"Authorization", "Bearer operator-token"}
	for _, x := range []struct{ method, path, body, want string }{
		{"POST", "/api/v1/breakers/a.test:80/reset?by=li&note=it%20is%20well", "", "li (oleg) breaker.reset [a.test:80] it is well: ok"},
		{"POST", "/api/v1/breakers/none:1/reset", "", "oleg breaker.reset [none:1] : not_found"},
		{"POST", "/api/v1/shops/s1/resume", `{"platform":"pdd","by":"oleg","note":"captcha done"}`, `oleg shop.resume [s1 {"platform":"pdd"}] captcha done: ok`},
		{"POST", "/api/v1/shops/s1/resume", `{"note":"captcha done"}`, "oleg shop.resume [s1] captcha done: ok"},
		{"POST", "/api/v1/shops/s1/resume", `nonsense`, "oleg shop.resume [s1] : bad_request"},
		{"PUT", "/api/v1/retries?for=30m&by=li", `{"value":"off"}`, `li (oleg) retries.set [for=30m {"value":"off"}] : ok`},
	} {
		direct(h, x.method, x.path, x.body, as...)
		e := entriesOf(t, h)[0]
		if got := fmt.Sprintf("%v %v [%v] %v: %v", e["name"], e["action"], orEmpty(e["target"]), orEmpty(e["note"]), e["result"]); got != x.want {
			t.Errorf("%s %s is noted as %q, want %q", x.method, x.path, got, x.want)
		}
	}
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
		if status, _, _ := direct(h, "POST", "/api/v1/breakers/a.test:80/reset", "", "Cookie", value, "Sec-Fetch-Site", "cross-site"); status != 403 {
			t.Errorf("from another site: %d, want 403", status)
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
		time.Sleep(3 * time.Second)
		if status, _ := try("10.0.0.3:1", "operator-token"); status != 200 {
			t.Errorf("3 s later = %d, want 200", status)
		}
	})
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
