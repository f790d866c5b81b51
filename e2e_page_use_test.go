//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// What a person does at the page, by mouse and keys, in a real Chromium.

// wait waits until a script says something other than nothing about the page that is open,
// which may be loading.
func (s *stage) wait(script string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.browser, 30*time.Second)
	defer cancel()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("(async () => Boolean(await ("+script+")))()", chromedp.EvalAwaitPromise))
		if ok {
			return
		}
		if ctx.Err() != nil {
			text, _ := chromedp.Run(s.browser, chromedp.Evaluate[string](`location.href + "\n" + document.body?.innerText`))
			s.t.Fatalf("%s is not so after 30 s (%v); the page says:\n%s", script, err, text)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// click clicks what a selector finds first; once more where the page put something new in
// its place in between.
func (s *stage) click(selector string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.browser, 30*time.Second)
	defer cancel()
	for {
		_, err := chromedp.Run(ctx, chromedp.Click(chromedp.CSS(selector)))
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "Could not find node") {
			s.t.Fatalf("click %s: %v", selector, err)
		}
	}
}

// fill types into a field.
func (s *stage) fill(selector, text string) {
	s.t.Helper()
	do(s, "select "+selector, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelector(%q).select()`, selector)))
	do(s, "type into "+selector, chromedp.SendKeys(chromedp.CSS(selector), text))
}

// key presses keys.
func (s *stage) key(keys string) {
	s.t.Helper()
	do(s, fmt.Sprintf("keys %q", keys), chromedp.KeyEvent(keys))
}

// done waits for the page to say that what was pressed was done.
func (s *stage) done() {
	s.t.Helper()
	s.wait(`!window.old && document.querySelector(".flash")`)
	if text := eval[string](s, `window.old = true, document.querySelector(".flash").className + ": " + document.querySelector(".flash").textContent`); !strings.HasPrefix(text, "flash ok") {
		s.t.Fatalf("the page says %q", text)
	}
}

// audited are the actions in the audit log by one name, the oldest first.
func (s *stage) audited(by, token string) []string {
	s.t.Helper()
	var list struct {
		Entries []struct{ Name, Action, Result string }
	}
	s.api("GET", "/api/v1/audit", token, &list)
	var out []string
	for _, e := range slices.Backward(list.Entries) {
		if e.Name == by {
			out = append(out, e.Action+" "+e.Result)
		}
	}
	return out
}

// api asks the admin API.
func (s *stage) api(method, path, token string, into any) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.at(path), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if err := json.Unmarshal(text, into); err != nil || answer.StatusCode != 200 {
		s.t.Fatalf("%s %s = %d %s", method, path, answer.StatusCode, text)
	}
}

// doubt leaves an order behind of which nobody knows whether it was executed.
func (s *stage) doubt(id string) {
	s.t.Helper()
	if got := s.send("POST", s.doubtful.URL+"/order", `{"order":"`+id+`"}`, "X-Shop-Id: s1", "X-Task-Type: order_ship", "X-Request-Id: bot-"+id); got != 500 {
		s.t.Fatalf("the doubtful upstream answered %d", got)
	}
}

// letter is the first one that the page shows, opened.
const letter = `#list .item`

func TestPageActions(t *testing.T) {
	t.Parallel()
	s := onStage(t, "")
	s.look("en", "light", 1280)
	s.troubles(12)

	// A doubt is settled, once there is a name.
	s.open("/person?executed=maybe")
	s.click(letter + ` summary`)
	s.click(letter + ` [formaction="/do/letter-executed"]`)
	if eval[bool](s, `document.querySelector("`+letter+` [name=by]").validity.valid`) {
		t.Error("a letter can be settled by nobody")
	}
	s.fill(letter+` [name=by]`, "li")
	s.fill(letter+` [name=note]`, "seen at the platform")
	s.click(letter + ` [formaction="/do/letter-executed"]`)
	s.done()
	// The name is remembered. By keys alone, from the field to the button.
	s.wait(`document.querySelectorAll("` + letter + ` [formaction='/do/letter-executed']").length === 2`)
	s.click(letter + ` summary`)
	if by := eval[string](s, `document.querySelector("`+letter+` [name=by]").value`); by != "li" {
		t.Errorf("the name is %q the next time, want li", by)
	}
	s.fill(letter+` [name=note]`, "not there")
	do(s, "focus", chromedp.Focus(chromedp.CSS(letter+` [formaction="/do/letter-not-executed"]`)))
	s.key(kb.Enter)
	s.done()
	// One runs again later, after a look at what that may cost.
	s.wait(`document.querySelectorAll("` + letter + ` [formaction='/do/letter-requeue']").length > 0`)
	s.click(letter + ` summary`)
	s.click(letter + ` [name=executed_unknown]`)
	s.fill(letter+` [name=note]`, "when the shop is open")
	s.fill(letter+` [name=at]`, "2h")
	s.click(letter + ` [formaction="/do/letter-requeue"]`)
	s.done()

	// The dead host is well again: its breaker is reset, its letters go again, and are stopped.
	s.revived.Store(true)
	s.open("/person")
	s.click(`#stopped details:has([action="/do/breaker-reset"]) summary`)
	s.click(`#stopped [action="/do/breaker-reset"] button`)
	s.done()
	s.open("/person#many")
	s.fill(`[action="/person#many"] [name=shop]`, "s3")
	s.key(kb.Enter)
	s.wait(`document.querySelector("[action='/do/bulk-start']")`)
	s.fill(`[action="/do/bulk-start"] [name=rate]`, "10/m")
	s.fill(`[action="/do/bulk-start"] [name=note]`, "it is well again")
	s.click(`[action="/do/bulk-start"] button`)
	s.done()
	s.wait(`document.querySelector("#bulk progress")?.value > 0`) // by itself
	s.click(`#bulk button`)
	s.done()
	s.wait(`document.querySelector("#bulk progress") && !document.querySelector("#bulk button")`)

	// A shop was stopped by its platform, and goes on.
	for _, said := range []string{`{"error_response":{"error_code":99991,"error_msg":"new"}}`, `{"error_response":{"error_code":10019,"error_msg":"token"}}`} {
		s.said.Store(&said)
		s.send("POST", s.pdd.URL+"/api/router", "type=pdd.order.ship", "X-Shop-Id: s7", "X-Task-Type: pdd", "Content-Type: application/x-www-form-urlencoded")
	}
	s.open("/shops")
	s.click(`#stopped details:has([action="/do/shop-resume"]) summary`)
	s.fill(`#stopped [action="/do/shop-resume"] [name=note]`, "it has a new token")
	s.click(`#stopped [action="/do/shop-resume"] button`)
	s.done()
	s.open("/person")
	s.wait(`document.querySelector("[action='/do/code-seen']")`)
	s.click(`#stopped details:has([action="/do/code-seen"]) summary`)
	s.click(`[action="/do/code-seen"] button`)
	s.done()

	// Of those that wait one hurries, one ends.
	s.open("/line")
	s.click(`#calls summary`)
	s.click(`#calls [action="/do/call-expedite"] button`)
	s.done()
	s.click(`#calls summary`)
	s.click(`#calls [action="/do/call-cancel"] button`)
	s.done()

	want := []string{
		"letter.resolve ok", "letter.resolve ok", "letter.requeue ok", "breaker.reset ok", "letters.requeue ok", "bulk.stop ok",
		"shop.resume ok", "newcodes.seen ok", "call.expedite ok", "call.cancel ok",
	}
	if got := s.audited("li", ""); !slices.Equal(got, want) {
		t.Errorf("the audit log has\n%q, want\n%q", got, want)
	}
	s.open("/audit")
	if text := eval[string](s, `document.querySelector("main").innerText`); !strings.Contains(text, "seen at the platform") || strings.Count(text, "li\n") < 5 {
		t.Errorf("the page of the audit log says\n%s", text)
	}
	s.keepShot("actions-audit")
}

// Without a mouse one gets everywhere.
func TestPageByKeys(t *testing.T) {
	t.Parallel()
	s := onStage(t, "")
	s.doubt("key-0001")
	s.open("/now")
	s.key(kb.Tab)
	if got := eval[string](s, `document.activeElement.className`); got != "skip" {
		t.Errorf("the first thing that Tab comes to is %q, want the link past the menu", got)
	}
	s.key(kb.Enter)
	s.wait(`document.activeElement.id === "main"`)
	s.key("/")
	s.wait(`document.activeElement.id === "q"`)
	s.key("bot-key-0001" + kb.Enter)
	s.wait(`location.pathname === "/trace" && document.querySelector("#story svg")`)
	if text := eval[string](s, `document.querySelector("#story").innerText`); !strings.Contains(text, "/order") {
		t.Errorf("the trace says\n%s", text)
	}
	s.key("g2")
	s.wait(`location.pathname === "/person" && document.querySelector("#list summary")`)
	for range 60 { // from the top to the letter's form
		if s.key(kb.Tab); eval[bool](s, `document.activeElement.closest("#list") !== null && document.activeElement.tagName === "SUMMARY"`) {
			break
		}
		if outline := eval[string](s, `getComputedStyle(document.activeElement).outlineStyle`); outline == "none" {
			t.Errorf("what has the focus is not seen: %s", eval[string](s, `document.activeElement.outerHTML`))
		}
	}
	s.key(kb.Enter + kb.Tab + "zhang" + kb.Tab + "by keys" + kb.Tab + " " + kb.Tab + kb.Enter)
	s.done()
	if got := s.audited("zhang", ""); len(got) != 1 || got[0] != "letter.resolve ok" {
		t.Errorf("the audit log has %q, want that a letter was resolved", got)
	}
}

// What happens is seen without loading the page again, and nothing that is typed is lost.
func TestPageIsLive(t *testing.T) {
	t.Parallel()
	s := onStage(t, "")
	s.look("en", "light", 1280)
	s.open("/person")
	eval[bool](s, `window.same = true`)
	if eval[int](s, `document.querySelectorAll("#list .item").length`) != 0 {
		t.Fatal("there are letters already")
	}
	s.doubt("live-0001")
	s.wait(`document.querySelectorAll("#list .item").length === 1`)

	s.click(letter + ` summary`)
	s.fill(letter+` [name=note]`, "half a sen")
	s.doubt("live-0002")
	for i := range 8 { // of several shops: one alone would be cut off for longer
		s.send("GET", s.dead.URL+"/", "", fmt.Sprintf("X-Shop-Id: s%d", i), "X-Request-Timeout: 1")
	}
	host, _, _ := strings.Cut(strings.TrimPrefix(s.dead.URL, "http://"), ":")
	s.wait(`document.querySelector("#light .bad")?.textContent.includes("` + host + `")`)
	const looks = `performance.getEntriesByName(location.href, "resource").length`
	s.wait(fmt.Sprintf(`%s > %d`, looks, eval[int](s, looks)+1)) // the list was looked at again since
	if got := eval[string](s, `document.querySelector("`+letter+` [name=note]").value`); got != "half a sen" {
		t.Errorf("what was typed is now %q", got)
	}
	s.revived.Store(true)
	end := time.Now().Add(20 * time.Second)
	for s.send("GET", s.dead.URL+"/", "", "X-Shop-Id: s2", "X-Request-Timeout: 1") != 200 && time.Now().Before(end) {
		continue
	}
	s.wait(`!document.querySelector("#light .bad")`)

	// The proxy goes, and comes again.
	_ = s.cmd.Process.Kill()
	<-s.process.done
	s.wait(`!stale.hidden`)
	_, port, _ := strings.Cut(s.admin, ":")
	var at int
	_, _ = fmt.Sscan(port, &at)
	s.start(filepath.Dir(s.file), at, "")
	s.wait(`stale.hidden`)
	if !eval[bool](s, `window.same === true`) {
		t.Error("the page was loaded again")
	}
	for _, to := range eval[[]string](s, `performance.getEntries().map((e) => e.name).filter((n) => n.includes("://"))`) {
		if !strings.HasPrefix(to, s.at("/")) {
			t.Errorf("the page asked %s", to)
		}
	}
}

// Where scripts do not run, all of it works, only not by itself.
func TestPageWithoutScript(t *testing.T) {
	t.Parallel()
	s := onStage(t, "")
	s.doubt("plain-0001")
	do(s, "no scripts", func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return chromedp.Void{}, err
	})
	s.open("/person")
	s.click(letter + ` summary`)
	do(s, "name", chromedp.SendKeys(chromedp.CSS(letter+` [name=by]`), "wang"))
	do(s, "note", chromedp.SendKeys(chromedp.CSS(letter+` [name=note]`), "no scripts here"))
	s.click(letter + ` [formaction="/do/letter-executed"]`)
	do(s, "answer", chromedp.WaitVisible(chromedp.CSS(".flash.ok")))
	if got := s.audited("wang", ""); len(got) != 1 {
		t.Errorf("the audit log has %q", got)
	}
}

// Where there are tokens, what one sees and may do goes by one's role.
func TestPageRoles(t *testing.T) {
	t.Parallel()
	s := onStage(t, `admin: {tokens: [{name: vera, role: viewer, token: viewer-token-0123456789}, {name: otto, role: operator, token: operator-token-0123456789}]}`)
	s.doubt("role-0001")
	login := func(token string) {
		t.Helper()
		s.open("/person")
		s.wait(`location.pathname === "/login" && document.querySelector("[name=token]")`)
		do(s, "token", chromedp.SendKeys(chromedp.CSS(`[name=token]`), token+kb.Enter))
	}
	login("wrong-token-0123456789")
	s.wait(`location.pathname === "/login" && document.querySelector(".fault, .flash")`)
	login("viewer-token-0123456789")
	s.wait(`location.pathname === "/person" && document.querySelector("` + letter + `")`)
	if eval[int](s, `document.querySelectorAll("form[action^='/do/'], [formaction^='/do/']").length`) != 0 {
		t.Error("a viewer has buttons")
	}
	s.click(`[action="/logout"] button`)
	s.wait(`location.pathname === "/login"`)
	login("operator-token-0123456789")
	s.wait(`location.pathname === "/person" && document.querySelector("` + letter + `")`)
	s.click(letter + ` summary`)
	if eval[int](s, `document.querySelectorAll("[name=by]").length`) != 0 {
		t.Error("an operator with a token is asked for a name")
	}
	s.fill(letter+` [name=note]`, "looked")
	s.click(letter + ` [formaction="/do/letter-executed"]`)
	s.done()
	if got := s.audited("otto", "operator-token-0123456789"); !slices.Contains(got, "letter.resolve ok") {
		t.Errorf("the audit log has %q", got)
	}
	// Another site's form is not obeyed, though the browser has the cookie.
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<form method="post" action=%q><button>win</button></form>`, s.at("/do/retries-set?value=off"))
	}))
	defer evil.Close()
	do(s, "another site", chromedp.Navigate(evil.URL))
	s.click("button")
	s.wait(`location.pathname.startsWith("/do/")`)
	if text := eval[string](s, `document.body.innerText`); !strings.Contains(text, "another site") {
		t.Errorf("another site's form was answered %q", text)
	}
	if got := s.audited("otto", "operator-token-0123456789"); slices.Contains(got, "retries.set ok") {
		t.Errorf("another site's form was obeyed: %q", got)
	}
}

// A page behind another one asks for nothing, until it is seen again.
func TestPageUnseen(t *testing.T) {
	t.Parallel()
	s := onStage(t, "")
	s.open("/now")
	s.wait(`seen > 0`)
	tab, front := chromedp.NewContext(s.browser, chromedp.WithNewWindow(false))
	defer front()
	if _, err := chromedp.Run(tab, chromedp.Navigate(s.at("/now"))); err != nil {
		t.Fatal(err)
	}
	s.wait(`document.hidden && events.readyState === EventSource.CLOSED`)
	const asked = `performance.getEntriesByType("resource").length`
	before := eval[int](s, asked)
	(&stage{t: t, browser: tab}).wait(`seen > 2`)
	if now := eval[int](s, asked); now != before {
		t.Errorf("a page that nobody sees asked %d times", now-before)
	}
	front()
	s.wait(fmt.Sprintf(`!document.hidden && seen > %d`, eval[int](s, `seen`)))
}
