package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"retryproxy/audit"
	"retryproxy/deadletter"
)

// team are one of each role.
const team = `admin: {token: anna-token, tokens: [{name: vera, role: viewer, token: vera-token}, {name: oleg, role: operator, token: oleg-token}]}`

const (
	asViewer   = "Authorization: Bearer vera-token"
	asOperator = "Authorization: Bearer oleg-token"
	asAdmin    = "Authorization: Bearer anna-token"
)

// logsIn begins a session and gives the header that goes on with it.
func (r *rig) logsIn(token string) string {
	r.t.Helper()
	got := r.admin("POST", "/api/v1/session", `{"token":"`+token+`"}`, nil)
	cookie, _, ok := strings.Cut(got.Header.Get("Set-Cookie"), ";")
	if got.Status != 200 || !ok {
		r.t.Fatalf("login = %d %s %v", got.Status, got.Body, got.Header)
	}
	return "Cookie: " + cookie
}

// statusesOf are those of an order by a viewer, an operator and an admin.
func (r *rig) statusesOf(method, path, body string) string {
	r.t.Helper()
	var out []string
	for _, who := range []string{asViewer, asOperator, asAdmin} {
		out = append(out, fmt.Sprint(r.adminAs(who, method, path, body, nil).Status))
	}
	return strings.Join(out, " ")
}

// auditLog is the audit log, the latest first, in words.
func (r *rig) auditLog() (lines []string) {
	r.t.Helper()
	var v struct{ Entries []audit.Entry }
	r.adminAs(asViewer, "GET", "/api/v1/audit", "", &v)
	for _, e := range v.Entries {
		lines = append(lines, fmt.Sprintf("%s (%s) %s %s %s", e.Name, e.Role, e.Action, e.Note, e.Result))
	}
	return lines
}

// A viewer looks, an operator acts in their own name, an admin sees what may be secret;
// and what they did is known after a restart.
func TestRoles(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		u := r.upstream("u1.test:80", answer(503, "down"), answer(503, "down"), answer(201, "order 1"))
		r.want(r.post("http://u1.test/", "{}", keyed, "X-Shop-Id: s1"), 503, u, 2)
		rest(time.Second)
		var list struct{ Letters []deadletter.View }
		if r.adminAs(asViewer, "GET", lettersAPI, "", &list); len(list.Letters) != 1 {
			t.Fatalf("letters = %+v, want one", list)
		}
		letter := lettersAPI + "/" + list.Letters[0].ID
		for _, x := range [][4]string{
			{"GET", "/api/v1/overview", "", "200 200 200"},
			{"GET", letter, "", "200 200 200"},
			{"GET", letter + "?reveal=1", "", "403 403 200"},
			{"PUT", "/api/v1/retries?note=drill", `{"value":"observe","match":{"host":"u9.test"}}`, "403 200 200"},
			{"POST", "/api/v1/config/reload", "", "403 403 422"}, // there is no file
		} {
			if got := r.statusesOf(x[0], x[1], x[2]); got != x[3] {
				t.Errorf("%s %s by viewer, operator, admin = %s, want %s", x[0], x[1], got, x[3])
			}
		}
		viewer, operator := r.logsIn("vera-token"), r.logsIn("oleg-token")
		order := `{"note":"upstream is back"}`
		if got := r.adminAs(viewer, "POST", letter+"/requeue", order, nil); got.Status != 403 || !strings.Contains(got.Body, "needs the role operator") {
			t.Errorf("a viewer's requeue = %d %s, want 403 and the role", got.Status, got.Body)
		}
		if got := r.adminAs(operator, "POST", letter+"/requeue", order, nil); got.Status != 202 {
			t.Fatalf("an operator's requeue = %d %s, want 202", got.Status, got.Body)
		}
		rest(time.Second)
		r.want(reply{}, 0, u, 3)
		want := []string{
			"oleg (operator) letter.requeue upstream is back ok", "vera (viewer) letter.requeue  forbidden",
			"admin (admin) config.reload  bad_config", "oleg (operator) config.reload  forbidden", "vera (viewer) config.reload  forbidden",
			"admin (admin) retries.set drill ok", "oleg (operator) retries.set drill ok", "vera (viewer) retries.set  forbidden",
			"admin (admin) letter.reveal  ok", "oleg (operator) letter.reveal  forbidden", "vera (viewer) letter.reveal  forbidden",
		}
		again()
		if got := r.auditLog(); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("after a restart the audit log says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		file, err := os.ReadFile(filepath.Join(r.app.config().Store.Path, "audit.jsonl"))
		if err != nil || strings.Count(string(file), "\n") != len(want) || strings.Contains(string(file), "-token") {
			t.Errorf("the file: %v, %s", err, file)
		}
		if got := r.adminAs(operator, "GET", "/api/v1/session", "", nil); got.Status != 401 {
			t.Errorf("the session after a restart = %d, want 401", got.Status)
		}
	}, patches(quick, lays(team))...)
}

// A reload is at once what holds for tokens and the sessions that they began.
func TestReloadOfTokens(t *testing.T) {
	bubble(t, func(r *rig) {
		viewer, operator := r.logsIn("vera-token"), r.logsIn("oleg-token")
		r.applies(lays(`admin: {tokens: [{name: vera, role: operator, token: vera-token}]}`)...)
		for who, want := range map[string]int{viewer: 200, asViewer: 200, operator: 401, asOperator: 401, asAdmin: 401, "X-Nobody: 1": 401} {
			if got := r.adminAs(who, "POST", "/api/v1/report/reset", "", nil); got.Status != want {
				t.Errorf("after the reload, %.20s = %d %s, want %d", who, got.Status, got.Body, want)
			}
		}
	}, lays(team)...)
}

// submits sends a form of the page.
func (r *rig) submits(who, path, form string) reply {
	r.t.Helper()
	return r.adminAs(who+"\r\nSec-Fetch-Site: same-origin\r\nContent-Type: application/x-www-form-urlencoded", "POST", path, form, nil)
}

// The page asks for the token that the API wants, and acts in the role that it has.
func TestPageHasRoles(t *testing.T) {
	bubble(t, func(r *rig) {
		if got := r.admin("GET", "/now", "", nil); got.Status != 303 || !strings.HasPrefix(got.Header.Get("Location"), "/login") {
			t.Errorf("the page without a session = %d to %q, want the login", got.Status, got.Header.Get("Location"))
		}
		if got := r.submits("X-Nobody: 1", "/login", "token=wrong-token&next=/now"); got.Status != 401 || got.Header.Get("Set-Cookie") != "" {
			t.Errorf("the login with a wrong token = %d %v, want 401 and no cookie", got.Status, got.Header)
		}
		cookies := map[string]string{}
		for _, name := range []string{"vera", "oleg"} {
			got := r.submits("X-Nobody: 1", "/login", "token="+name+"-token&next=/now")
			cookie, _, ok := strings.Cut(got.Header.Get("Set-Cookie"), ";")
			if got.Status != 303 || got.Header.Get("Location") != "/now" || !ok {
				t.Fatalf("the login of %s = %d %v, want 303 to /now and a cookie", name, got.Status, got.Header)
			}
			cookies[name] = "Cookie: " + cookie
			if got := r.adminAs(cookies[name], "GET", "/now", "", nil); got.Status != 200 || !strings.Contains(got.Body, name) {
				t.Errorf("the page of %s = %d, want 200 and the name", name, got.Status)
			}
			r.submits(cookies[name], "/do/retries-set", "value=observe&note="+name+"&by=somebody&back=/now")
		}
		want := "oleg (operator) retries.set oleg ok\nvera (viewer) retries.set  forbidden"
		if got := strings.Join(r.auditLog(), "\n"); got != want {
			t.Errorf("the audit log says\n%s\nwant\n%s", got, want)
		}
		other := cookies["oleg"] + "\r\nSec-Fetch-Site: cross-site\r\nContent-Type: application/x-www-form-urlencoded"
		if got := r.adminAs(other, "POST", "/do/retries-set", "value=off&back=/now", nil); got.Status != 403 {
			t.Errorf("a form of another site = %d, want 403", got.Status)
		}
		r.submits(cookies["oleg"], "/logout", "")
		if got := r.adminAs(cookies["oleg"], "GET", "/api/v1/session", "", nil); got.Status != 401 {
			t.Errorf("the session after the logout = %d, want 401", got.Status)
		}
		for path, want := range map[string]int{"/api": 200, "/livez": 200, "/metrics": 200, "/api/v1/nothing": 401} {
			if got := r.admin("GET", path, "", nil); got.Status != want {
				t.Errorf("%s without a token = %d, want %d", path, got.Status, want)
			}
		}
	}, lays(team)...)
}
