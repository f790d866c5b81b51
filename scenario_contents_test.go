package main

import (
	"strings"
	"testing"
	"time"

	"retryproxy/deadletter"
)

// contentsOf are request and answer of a call, as somebody is shown them.
type contentsOf struct {
	Records []struct {
		Request *deadletter.RequestView
		Stored  *deadletter.AnswerView `json:"stored_answer"`
	}
}

// An admin who asks for it sees what a call said and was told, as of letters: secrets and
// cards hidden. Others see that there is an answer, and nobody sees it unnoted.
func TestContentsOfACall(t *testing.T) {
	const body = `{"order":"SN-1","card_no":"6222","note":"two books"}`
	lasting(t, func(r *rig, again func()) {
		r.upstream("u1.test:80", answer(503, `{"cards":"4711","why":"down"}`))
		r.upstream("u2.test:80", answer(201, `{"ok":1,"card_pwd":"4712"}`, "Set-Cookie: s=4713"))
		headers := []string{"Authorization: Bearer 4714", "X-Shop-Id: s1", "Content-Type: application/json"}
		ids := map[string]string{}
		for name, at := range map[string][2]string{"letter": {"u1.test/orders?sign=4715&n=1", keyed}, "keyless": {"u1.test/orders?sign=4715&n=1", ""}, "done": {"u2.test/", "X-Idempotency-Key: k2"}} {
			sent := headers
			if at[1] != "" {
				sent = append([]string{at[1]}, headers...)
			}
			ids[name] = r.post("http://"+at[0], body, sent...).Header.Get("X-Call-Id")
		}
		rest(time.Second)
		again()
		for name, id := range ids {
			path := "/api/v1/calls/" + id
			if got := r.statusesOf("GET", path+"?reveal=1", ""); got != "403 403 200" {
				t.Errorf("%s revealed to viewer, operator, admin = %s", name, got)
			}
			var v contentsOf
			got := r.adminAs(asViewer, "GET", path, "", &v)
			if len(v.Records) != 1 || v.Records[0].Stored == nil || v.Records[0].Stored.Bytes == 0 || v.Records[0].Request != nil || strings.Contains(got.Body, "471") || strings.Contains(got.Body, "down") {
				t.Errorf("%s to a viewer: %s", name, got.Body)
				continue
			}
			got = r.adminAs(asAdmin, "GET", path+"?reveal=1", "", &v)
			if strings.Contains(got.Body, "471") || strings.Contains(got.Body, "6222") {
				t.Errorf("%s shows a secret: %s", name, got.Body)
			}
			one := v.Records[0]
			if name == "done" {
				if one.Request != nil || one.Stored.Status != 201 || one.Stored.Body == nil || !strings.Contains(one.Stored.Body.Text, `"ok":1`) || len(one.Stored.Headers) == 0 {
					t.Errorf("%s: %s", name, got.Body)
				}
				continue
			}
			q := one.Request
			if q == nil || q.URL != "http://u1.test/orders?sign=***&n=1" || q.Body == nil || !strings.Contains(q.Body.Text, "two books") || !strings.Contains(q.Body.Text, `"card_no":"***"`) || len(q.Headers) == 0 ||
				one.Stored.Status != 503 || !strings.Contains(one.Stored.Body.Text, "down") {
				t.Errorf("%s: %s", name, got.Body)
			}
		}
		seen := 0
		for _, line := range r.auditLog() {
			if line == "admin (admin) call.reveal  ok" {
				seen++
			}
		}
		if seen != 6 {
			t.Errorf("%d reveals in the audit log, want 6: %v", seen, r.auditLog())
		}
	}, patches(quick, lays(team))...)
}
