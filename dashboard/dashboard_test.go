package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// pagesShown are all pages with what they have to say on a busy day.
var pagesShown = map[string][]string{
	"/trace?q=c1":            {"header_timeout|等不到答复|no answer in time", "<svg", "role=\"img\"", "bot-7", "&lt;b&gt;x&lt;/b&gt;", "trace/export"},
	"/trace?q=order-99":      {"c1"},
	"/trace":                 {"idempotency key|幂等键"},
	"/person":                {"pinduoduo", "70031", "50031", "proxy-a (1)", "letter-executed", "bulk-stop", "status_403|403"},
	"/person?id=r1":          {"letter-requeue"},
	"/person?dry=1&shop=s17": {"bulk-start", "in doubt"},
	"/now":                   {"data-until", "a.test", "<progress"},
	"/shops":                 {"s17", "2.5 / 5", "h3"},
	"/line":                  {"call-expedite", "w1", "3"},
	"/line?state=parked":     {"<b>"},
	"/policies":              {"order_ship", "timezone is UTC", "drain: want a duration", "95.0 %"},
	"/coverage":              {"10.0.0.7", "intercept: {hosts: [a.test]}", "30.0 %"},
	"/audit":                 {"it is well", "li", "href=\"/audit?after=x\""},
	"/nothing":               {"404|no page|没有这个页面"},
}

func TestPages(t *testing.T) {
	h := serverOf(t, busyDay())
	for path, wants := range pagesShown {
		for _, lang := range languages {
			w := fetch(t, h, path, "Accept-Language: "+lang)
			status := http.StatusOK
			if path == "/nothing" {
				status = http.StatusNotFound
			}
			if w.Code != status {
				t.Errorf("%s in %s: status %d", path, lang, w.Code)
				continue
			}
			body := w.Body.String()
			for _, want := range wants {
				if !anyOf(body, want) {
					t.Errorf("%s in %s does not say %q", path, lang, want)
				}
			}
			wellFormed(t, path, body)
			if want := map[string]string{english: `lang="en"`, chinese: `lang="zh-CN"`}[lang]; !strings.Contains(body, want) {
				t.Errorf("%s: want %s", path, want)
			}
			if m := regexp.MustCompile(`%!\w?\(|>(?:light|page|story|state|result|reason|letter|bulk|now|cause)\.[a-z_.]+<`).FindString(body); m != "" {
				t.Errorf("%s in %s has a broken text: %s", path, lang, m)
			}
		}
	}
}

func anyOf(body, alternatives string) bool {
	for one := range strings.SplitSeq(alternatives, "|") {
		if strings.Contains(body, one) {
			return true
		}
	}
	return false
}

// wellFormed wants every element closed, ids once, and no style or script in the text.
func wellFormed(t *testing.T, path, body string) {
	t.Helper()
	void := map[string]bool{"meta": true, "link": true, "input": true, "br": true, "rect": false}
	ids, open := map[string]bool{}, []string{}
	z := html.NewTokenizer(strings.NewReader(body))
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			break
		}
		token := z.Token()
		for _, a := range token.Attr {
			if a.Key == "id" && ids[a.Val] {
				t.Errorf("%s: the id %s is there twice", path, a.Val)
			} else if a.Key == "id" {
				ids[a.Val] = true
			}
			if a.Key == "style" || strings.HasPrefix(a.Key, "on") {
				t.Errorf("%s: the attribute %s does not pass the policy of the page", path, a.Key)
			}
		}
		switch {
		case kind == html.StartTagToken && !void[token.Data]:
			open = append(open, token.Data)
		case kind == html.EndTagToken:
			if n := len(open); n == 0 || open[n-1] != token.Data {
				t.Errorf("%s: </%s> closes %v", path, token.Data, open[max(0, n-4):])
				return
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		t.Errorf("%s: never closed: %v", path, open)
	}
}

// What a call said is shown to admins who ask for it, and then the page does not ask again
// by itself.
func TestTraceWithContents(t *testing.T) {
	f := busyDay()
	whole := f.answers["/api/v1/calls/c1"]
	f.set("/api/v1/calls/c1?reveal=1", strings.ReplaceAll(whole, `{\"a\":1}`, `the whole order`))
	const live = `id="story" data-live`
	for _, tt := range []struct {
		role, path string
		says       string // of link, live and contents
	}{
		{"admin", "/trace?q=c1", "link live"},
		{"admin", "/trace?q=c1&reveal=1", "contents"},
		{"operator", "/trace?q=c1", "live"},
		{"viewer", "/trace?q=c1&reveal=1", "live"},
	} {
		f.set("/api/v1/session", `{"name":"x","role":"`+tt.role+`","tokens":true}`)
		body := fetch(t, serverOf(t, f), tt.path).Body.String()
		var says []string
		for _, x := range [][2]string{{"link", `&amp;reveal=1"`}, {"live", live}, {"contents", "the whole order"}} {
			if strings.Contains(body, x[1]) {
				says = append(says, x[0])
			}
		}
		if got := strings.Join(says, " "); got != tt.says {
			t.Errorf("%s by %s has %q, want %q", tt.path, tt.role, got, tt.says)
		}
		wellFormed(t, tt.path, body)
	}
}

func TestLightInWords(t *testing.T) {
	since := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	now := since.Add(3*time.Minute + 12*time.Second)
	down := func(n int) (out []hostDown) {
		for range n {
			out = append(out, hostDown{Host: "gw-api.pinduoduo.com:443", Since: since})
		}
		return out
	}
	well := overview{Retries: "on"}
	well.Store.Healthy = true
	with := func(change func(*overview)) overview { o := well; change(&o); return o }
	for _, c := range []struct {
		name   string
		o      overview
		en, zh string
	}{
		{"idle", well, "All is well: no calls in the last 10 minutes, 0 lost.", "一切正常：最近 10 分钟没有调用，丢失 0。"},
		{"well", with(func(o *overview) { o.Last.Calls, o.Last.Succeeded = 1234, 1233 }), "All is well: 1\u202f234 calls in 10 minutes, 99.9 % succeeded, 0 lost.", "一切正常：最近 10 分钟 1\u202f234 个调用，成功 99.9 %，丢失 0。"},
		{"outage", with(func(o *overview) { o.Down, o.Waiting = down(1), 132 }), "gw-api.pinduoduo.com down for 3 min 12 s, 132 calls waiting, 0 lost.", "gw-api.pinduoduo.com 已不可用 3 分 12 秒，132 个调用在等待，丢失 0。"},
		{"many", with(func(o *overview) { o.Down = down(4) }), "gw-api.pinduoduo.com down for 3 min 12 s, gw-api.pinduoduo.com down for 3 min 12 s, 2 more hosts down, 0 calls waiting, 0 lost.", ""},
		{"doubts", with(func(o *overview) { o.Doubts, o.Letters, o.Lost = 2, 5, 1 }), "2 may have been executed: look there, 3 dead letters, 1 lost.", ""},
		{"switch", with(func(o *overview) { o.Retries = "off" }), "retries are switched off, 0 lost.", ""},
		{"store", with(func(o *overview) { o.Store.Healthy, o.Store.Detail = false, "timeout" }), "the store does not answer (timeout), 0 lost.", ""},
	} {
		if got := (words{english}).light(&c.o, now); got != c.en {
			t.Errorf("%s: %q, want %q", c.name, got, c.en)
		}
		if got := (words{chinese}).light(&c.o, now); c.zh != "" && got != c.zh {
			t.Errorf("%s: %q, want %q", c.name, got, c.zh)
		}
	}
}

func TestDurationsInWords(t *testing.T) {
	for d, want := range map[time.Duration][2]string{
		-time.Second: {"0 ms", "0 毫秒"}, 250 * time.Millisecond: {"250 ms", "250 毫秒"}, 1500 * time.Millisecond: {"1.5 s", "1.5 秒"}, 59*time.Second + 700*time.Millisecond: {"1 min", "1 分"},
		3*time.Minute + 12*time.Second: {"3 min 12 s", "3 分 12 秒"}, 25 * time.Hour: {"1 d 1 h", "1 天 1 小时"}, 24*time.Hour + time.Second: {"1 d", "1 天"},
	} {
		for i, lang := range languages {
			if got := (words{lang}).lasts(d); got != want[i] {
				t.Errorf("lasts(%v) in %s = %q, want %q", d, lang, got, want[i])
			}
		}
	}
}

func TestLogin(t *testing.T) {
	f := busyDay()
	f.set("/api/v1/session", `{"status":401,"reason":"auth_required","detail":"log in"}`)
	h := serverOf(t, f)
	w := fetch(t, h, "/shops?x=1")
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/login?next=%2Fshops%3Fx%3D1" {
		t.Fatalf("without a session: %d to %s", w.Code, w.Header().Get("Location"))
	}
	w = fetch(t, h, w.Header().Get("Location"))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `value="/shops?x=1"`) || strings.Contains(w.Body.String(), "pinduoduo") {
		t.Errorf("the login says %d %s", w.Code, w.Body)
	}
	wellFormed(t, "/login", w.Body.String())
	if w := press(h, "/login", url.Values{"token": {"wrong"}, "next": {"/shops"}}); w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "log in") {
		t.Errorf("a wrong token = %d", w.Code)
	}
	if w := press(h, "/do/bulk-stop", url.Values{"by": {"li"}, "back": {"/person"}}); w.Code != http.StatusSeeOther || !strings.HasPrefix(w.Header().Get("Location"), "/login?") {
		t.Errorf("an action without a session = %d to %s", w.Code, w.Header().Get("Location"))
	}
	f.set("/api/v1/session", `{"name":"li","role":"operator","tokens":true}`)
	if w := press(h, "/login", url.Values{"token": {" right "}, "next": {"//evil.test/"}}); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/person" {
		t.Errorf("a login that is to lead elsewhere leads to %s", w.Header().Get("Location"))
	}
	if got := f.orders(); got[len(got)-1] != `POST /api/v1/session {"token":"right"}` {
		t.Errorf("the API was told %q", got)
	}
}

func TestPathsOfOurOwn(t *testing.T) {
	for text, want := range map[string]string{
		"/person?x=1#y": "/person?x=1#y", "": "/person", "//evil.test": "/person", `/\evil.test`: "/person", "https://evil.test/": "/person", "javascript:alert(1)": "/person", "person": "/person", "/%zz": "/person",
	} {
		if got := localPath(text); got != want {
			t.Errorf("localPath(%q) = %q, want %q", text, got, want)
		}
	}
}

// Each button is the call of the API that it says.
func TestActions(t *testing.T) {
	for _, c := range []struct {
		action string
		form   url.Values
		want   string
	}{
		{"letter-requeue", url.Values{"id": {"r/1"}, "at": {"2h"}}, `POST /api/v1/deadletters/r%2F1/requeue {"executed_unknown":false,"at":"2h","by":"li","note":"n"}`},
		{"letter-requeue", url.Values{"id": {"r1"}, "executed_unknown": {"1"}}, `POST /api/v1/deadletters/r1/requeue {"executed_unknown":true,"by":"li","note":"n"}`},
		{"letter-executed", url.Values{"id": {"r1"}}, `POST /api/v1/deadletters/r1/resolve {"executed":true,"by":"li","note":"n"}`},
		{"letter-not-executed", url.Values{"id": {"r1"}}, `POST /api/v1/deadletters/r1/resolve {"executed":false,"by":"li","note":"n"}`},
		{"letter-drop", url.Values{"id": {"r1"}}, `POST /api/v1/deadletters/r1/drop {"by":"li","note":"n"}`},
		{"bulk-start", url.Values{"shop": {"s1"}, "rate": {"2/s"}, "canary": {"1"}}, `POST /api/v1/deadletters/requeue {"filter":{"shop":"s1"},"rate":"2/s","canary":1,"by":"li","note":"n"}`},
		{"bulk-start", url.Values{"all": {"1"}}, `POST /api/v1/deadletters/requeue {"filter":{},"all":true,"by":"li","note":"n"}`},
		{"bulk-stop", nil, `DELETE /api/v1/deadletters/bulk?by=li&note=n `},
		{"call-expedite", url.Values{"id": {"c1"}}, `POST /api/v1/calls/c1/expedite {"by":"li","note":"n"}`},
		{"call-cancel", url.Values{"id": {"c1"}}, `POST /api/v1/calls/c1/cancel {"by":"li","note":"n"}`},
		{"shop-resume", url.Values{"id": {"s 1"}, "platform": {"pdd"}}, `POST /api/v1/shops/s%201/resume {"platform":"pdd","by":"li","note":"n"}`},
		{"breaker-reset", url.Values{"id": {"s1@a.test:443"}}, `POST /api/v1/breakers/s1@a.test:443/reset?by=li&note=n `},
		{"code-seen", url.Values{"platform": {"pdd"}, "code": {"7"}}, `DELETE /api/v1/newcodes?code=7&platform=pdd&by=li&note=n `},
		{"config-reload", nil, `POST /api/v1/config/reload?by=li&note=n `},
		{"retries-set", url.Values{"value": {"off"}, "for": {"30m"}}, `PUT /api/v1/retries?for=30m&by=li&note=n {"value":"off"}`},
		{"report-reset", url.Values{"policy": {"p"}}, `POST /api/v1/report/reset?policy=p&by=li&note=n `},
		{"pins-reset", nil, `POST /api/v1/intercept/reset?by=li&note=n `},
		{"alerts-test", nil, `POST /api/v1/alerts/test?by=li&note=n `},
	} {
		f := busyDay()
		for _, path := range []string{"/api/v1/deadletters/r1/resolve", "/api/v1/deadletters/r1/drop"} {
			f.set(path, `{}`)
		}
		form := url.Values{"by": {" li "}, "note": {"n"}, "back": {"/line"}}
		for k, v := range c.form {
			form[k] = v
		}
		w := press(serverOf(t, f), "/do/"+c.action, form)
		if got := f.orders(); len(got) != 1 || got[0] != c.want || w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/line" {
			t.Errorf("%s: the API was told %q, want %q; %d to %s", c.action, got, c.want, w.Code, w.Header().Get("Location"))
		}
	}
	f := busyDay()
	if w := press(serverOf(t, f), "/do/letter-drop", url.Values{"id": {"r1"}, "by": {"  "}, "back": {"/person"}}); len(f.orders()) > 0 || w.Code != http.StatusSeeOther {
		t.Errorf("without a name the API was told %q", f.orders())
	}
	if w := press(serverOf(t, f), "/do/everything", url.Values{"by": {"li"}}); w.Code != http.StatusNotFound {
		t.Errorf("an unknown action = %d", w.Code)
	}
}

// What came of an action is said once, with the words of the API, and the name is kept.
func TestFlash(t *testing.T) {
	f := busyDay()
	h := serverOf(t, f)
	w := press(h, "/do/call-cancel", url.Values{"id": {"c9"}, "by": {"小李"}, "back": {"/line"}})
	var cookies []string
	for _, c := range w.Result().Cookies() {
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
			t.Errorf("the cookie %s is not ours alone", c.Name)
		}
		cookies = append(cookies, c.Name+"="+c.Value)
	}
	w = fetch(t, h, "/line", "Cookie: "+strings.Join(cookies, "; "))
	if body := w.Body.String(); !strings.Contains(body, "no such thing") || !strings.Contains(body, `value="小李"`) {
		t.Errorf("the page does not say what came of it, or forgot the name:\n%s", body)
	}
	if !strings.Contains(w.Header().Get("Set-Cookie"), "flash=;") {
		t.Errorf("the flash stays: %v", w.Header()["Set-Cookie"])
	}
	f.set("/api/v1/session", `{"name":"zhang","role":"operator","tokens":true}`)
	press(h, "/do/call-cancel", url.Values{"id": {"c9"}, "by": {"somebody else"}})
	if got := f.orders(); got[len(got)-1] != `POST /api/v1/calls/c9/cancel {"by":"zhang"}` {
		t.Errorf("with a token of one's own the API was told %q", got)
	}
}

// A viewer is shown no button that the API would refuse.
func TestViewerHasNoButtons(t *testing.T) {
	f := busyDay()
	f.set("/api/v1/session", `{"name":"v","role":"viewer","tokens":true}`)
	h := serverOf(t, f)
	for path := range pagesShown {
		if body := fetch(t, h, path).Body.String(); strings.Contains(body, "/do/") {
			t.Errorf("%s shows a viewer a button", path)
		}
	}
	f.set("/api/v1/session", `{"name":"o","role":"operator","tokens":true}`)
	if body := fetch(t, h, "/policies").Body.String(); strings.Contains(body, "config-reload") || !strings.Contains(body, "retries-set") {
		t.Error("an operator may turn the switch but not reload")
	}
}

// A part of the API that fails is said so; the rest of the page stays.
func TestFaultsAreShown(t *testing.T) {
	f := busyDay()
	f.set("/api/v1/deadletters", `{"status":503,"reason":"store_unavailable","detail":"redis is away"}`)
	w := fetch(t, serverOf(t, f), "/person")
	if body := w.Body.String(); w.Code != http.StatusOK || !strings.Contains(body, "redis is away") || !strings.Contains(body, "70031") {
		t.Errorf("letters that cannot be had = %d", w.Code)
	}
	f.set("/api/v1/calls/c1", `{"status":503,"reason":"store_unavailable","detail":"redis is away"}`)
	if w := fetch(t, serverOf(t, f), "/trace?q=c1"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "redis is away") {
		t.Errorf("a trace that cannot be had = %d", w.Code)
	}
	f.set("/api/v1/overview", `{"status":500,"reason":"internal","detail":"broken"}`)
	if body := fetch(t, serverOf(t, f), "/line").Body.String(); !strings.Contains(body, `class="light unknown"`) {
		t.Error("an unknown state is not shown as such")
	}
}

func TestPolicyOfThePage(t *testing.T) {
	h := serverOf(t, busyDay())
	w := fetch(t, h, "/now")
	csp := w.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(csp, want) {
			t.Errorf("Content-Security-Policy = %q, want %s", csp, want)
		}
	}
	for _, m := range regexp.MustCompile(`(?:href|src|action)="([^"]+)"`).FindAllStringSubmatch(w.Body.String(), -1) {
		if !strings.HasPrefix(m[1], "/") && !strings.HasPrefix(m[1], "#") {
			t.Errorf("the page asks for %s", m[1])
		}
		if strings.HasPrefix(m[1], "/static/") {
			if a := fetch(t, h, m[1]); a.Code != http.StatusOK || !strings.Contains(a.Header().Get("Cache-Control"), "immutable") {
				t.Errorf("%s = %d, %v", m[1], a.Code, a.Header())
			}
		}
	}
	if w := fetch(t, h, "/static/../dashboard.go"); w.Code != http.StatusNotFound {
		t.Errorf("a file that is none of the page = %d", w.Code)
	}
}

// A live view says how things stand at once, and again when that changes.
func TestLive(t *testing.T) {
	f := busyDay()
	server := httptest.NewServer(serverOf(t, f))
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if got := answer.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("Content-Type = %q", got)
	}
	buf := make([]byte, 64<<10)
	n, _ := answer.Body.Read(buf)
	for text := string(buf[:n]); !strings.Contains(text, "event: tick"); text = string(buf[:n]) {
		m, err := answer.Body.Read(buf[n:])
		if n += m; err != nil {
			t.Fatalf("the stream ended with %v after %q", err, text)
		}
	}
	if text := string(buf[:n]); !strings.HasPrefix(text, "event: light\ndata: <p class=\"light bad\">") || !strings.Contains(text, "132 calls waiting") {
		t.Errorf("the stream begins with %q", text)
	}
}

// What may have been executed stands before all else, and only there.
func TestDoubtsComeFirst(t *testing.T) {
	f := busyDay()
	one := func(id, executed string) string {
		return `{"id":"` + id + `","state":"dead","executed":"` + executed + `","todo":"check","method":"POST","host":"a.test:443","path":"/"}`
	}
	f.set("/api/v1/deadletters", `{"letters":[`+one("new", "no")+`,`+one("old", "maybe")+`]}`)
	f.set("/api/v1/deadletters?executed=maybe&limit=10", `{"letters":[`+one("old", "maybe")+`]}`)
	h := serverOf(t, f)
	body := fetch(t, h, "/person").Body.String()
	if old, recent := strings.Index(body, `id="l-old"`), strings.Index(body, `id="l-new"`); old < 0 || recent < old || strings.Count(body, `id="l-old"`) != 1 {
		t.Errorf("the doubt is at %d, %d times, the other letter at %d", old, strings.Count(body, `id="l-old"`), recent)
	}
	if body = fetch(t, h, "/person?shop=s1").Body.String(); strings.Index(body, `id="l-new"`) > strings.Index(body, `id="l-old"`) {
		t.Error("where letters are looked for they are not in their order")
	}
}

// What is kept fresh is not what is dear: no preview, no hours.
func TestFreshPageOfPerson(t *testing.T) {
	f := busyDay()
	h := serverOf(t, f)
	body := fetch(t, h, "/person?dry=1&shop=s17", "X-Live: 1").Body.String()
	if told := f.orders(); len(told) > 0 || strings.Contains(body, "bulk-start") || strings.Contains(body, "Letters by hour") {
		t.Errorf("a page that is kept fresh asked for %q", told)
	}
	if body = fetch(t, h, "/person?dry=1&shop=s17").Body.String(); len(f.orders()) != 1 || !strings.Contains(body, "Letters by hour") {
		t.Errorf("a page that is opened asked for %q", f.orders())
	}
}
