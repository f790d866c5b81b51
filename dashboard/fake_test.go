package dashboard

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake is an admin API that answers from a table and notes what it is told.
type fake struct {
	mu      sync.Mutex
	answers map[string]string // by path, with its query where that is in the table
	told    []string          // METHOD path body
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodGet {
		f.told = append(f.told, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	}
	text, ok := f.answers[r.URL.RequestURI()]
	if !ok {
		text, ok = f.answers[r.URL.Path]
	}
	w.Header().Set("Content-Type", "application/json")
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		text = `{"status":404,"reason":"not_found","detail":"no such thing"}`
	} else if strings.HasPrefix(text, `{"status":4`) || strings.HasPrefix(text, `{"status":5`) {
		var p problem
		_ = json.Unmarshal([]byte(text), &p)
		w.WriteHeader(p.Status)
	}
	_, _ = io.WriteString(w, text)
}

func (f *fake) set(path, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[path] = text
}

func (f *fake) orders() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.told...)
}

// busyDay is an API on which much is going on.
func busyDay() *fake {
	now := time.Now()
	at := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339Nano) }
	zeros := "[" + strings.TrimSuffix(strings.Repeat("0,", 57), ",") + ",5,7,3]"
	some := "[" + strings.TrimSuffix(strings.Repeat("0,", 57), ",") + ",2,1,0]"
	one := `{"id":"c1","mode":"forward","policy":"order_ship","state":"done","result":"failed","reason":"manual_review","status":502,"executed":"maybe","labels":{"shop":"s17","task_type":"order_ship"},
		"client":"127.0.0.1","method":"POST","scheme":"http","host":"gw-api.pinduoduo.com:443","path":"/api/router","key_hash":"0123456789abcdef","client_request_id":"bot-7","started":"` + at(-90*time.Second) + `","ended":"` + at(-80*time.Second) + `","duration_ms":10000,
		"waits":[{"cause":"backoff","duration_ms":2000}],"attempts":[{"n":1,"started":"` + at(-90*time.Second) + `","duration_ms":20,"class":"transient","reason":"connect_refused","status":0,"host":"gw-api.pinduoduo.com:443","executed":"no","basis":"not_sent"},
		{"n":2,"started":"` + at(-85*time.Second) + `","duration_ms":5000,"class":"unknown","reason":"header_timeout","status":0,"delay_ms":2000,"cause":"backoff","host":"gw-api.pinduoduo.com:443","executed":"maybe"}],
		"records":[{"state":"in_doubt","reason":"manual_review","call_id":"c1","receipt":"r1","policy":"order_ship","executed":"maybe","attempts":2,"todo":"check","advice":"Look there.","notes":[{"at":"` + at(-time.Second) + `","by":"li","did":"requeue","text":"<b>x</b>"}],
		"request":{"url":"http://gw-api.pinduoduo.com/api/router","bytes":12,"headers":[{"name":"X","value":"<i>"}],"body":{"text":"{\"a\":1}"}}}]}`
	waiting := `[{"id":"w1","state":"waiting","reason":"","cause":"tokens","dimension":"shop","lane":"fresh","place":3,"labels":{"shop":"s2"},"method":"POST","host":"a.test:443","path":"/x","started":"` + at(-time.Minute) + `","next_at":"` + at(time.Minute) + `","attempts":[]}]`
	letter := `{"id":"r1","state":"in_doubt","since":"` + at(-time.Hour) + `","reason":"manual_review","executed":"maybe","todo":"check","advice":"Look there.","labels":{"shop":"s17","task_type":"order_ship"},"method":"POST","host":"gw-api.pinduoduo.com:443","path":"/api/router","attempts_made":2,"last_status":0,"notes":[],"runs":[{"call_id":"c1"}]}`
	return &fake{answers: map[string]string{
		"/api/v1/session":                       `{"name":"","role":"admin","tokens":false}`,
		"/api/v1/overview":                      `{"at":"` + at(0) + `","version":"v1","level":"bad","hosts_down":[{"host":"gw-api.pinduoduo.com:443","state":"open","since":"` + at(-192*time.Second) + `","waiting":132}],"waiting":132,"waiting_by_cause":{"breaker":132},"parked":3,"lost":0,"doubts":2,"letters":5,"shops_paused":1,"new_codes":1,"retries":"on","store":{"kind":"sqlite","durable":true,"healthy":true},"last_10m":{"calls":10,"succeeded":9}}`,
		"/api/v1/calls/c1":                      one,
		"/api/v1/calls":                         `[` + one + `]`,
		"/api/v1/calls?limit=100&state=waiting": waiting,
		"/api/v1/calls?limit=100&state=parked":  `[]`,
		"/api/v1/calls/waiting/histogram":       `{"start":"` + at(0) + `","step_s":10,"by_cause":{"backoff":[1,2],"parked":[0,4]},"later":2,"undated":1}`,
		"/api/v1/deadletters":                   `{"letters":[` + letter + `],"next":"n1"}`,
		"/api/v1/deadletters/r1":                letter,
		"/api/v1/deadletters/hours":             `{"start":"` + at(-48*time.Hour) + `","step_s":3600,"reasons":{"manual_review":[1,0,2],"attempts_exhausted":[0,1,0]}}`,
		"/api/v1/deadletters/bulk":              `{"state":"running","requeued":5,"done":3,"failed":1,"refused":1,"by":"li","rate":"1s"}`,
		"/api/v1/deadletters/requeue":           `{"letters":9,"would_requeue":5,"would_refuse":4,"refusals":[{"why":"in doubt","letters":4}],"first":[` + letter + `]}`,
		"/api/v1/shops":                         `[{"shop":"s17","tiers":["vip"],"task_types":["order_ship"],"calls":9,"failed":3,"retries":4,"waiting":1,"bucket":{"per_second":0.08,"burst":5,"tokens":2.5,"next_at":"` + at(9*time.Second) + `"},"breakers":[{"shop":"s17","host":"a.test:443","reason":"status_403","identical_failures":3,"since":"` + at(-time.Minute) + `","until":"` + at(time.Second) + `"}],"pauses":[{"platform":"pdd","reason":"risk_control","since":"` + at(-time.Minute) + `","code":"70031","message":"captcha","turned_away":4}]}]`,
		"/api/v1/breakers":                      `{"hosts":[{"host":"gw-api.pinduoduo.com:443","state":"open","reason":"status_503","since":"` + at(-192*time.Second) + `","until":"` + at(4*time.Second) + `","in_flight":0,"limit":256,"capacity":0,"waiting":132,"outage":{"since":"` + at(-192*time.Second) + `","waiting":132,"waiting_most":140,"gave_up":3,"expected_release":"` + at(30*time.Second) + `"}},{"host":"a.test:443","state":"closed","limit":256,"capacity":256}],"shops":[],"egress":[{"name":"proxy-a (1)","state":"open","since":"` + at(-time.Minute) + `","reason":"egress_timeout"}]}`,
		"/api/v1/newcodes":                      `{"codes":[{"platform":"pdd","code":"50031","message":"新错误","host":"gw-api.pinduoduo.com:443","call_id":"c1","first":"` + at(-time.Hour) + `","last":"` + at(-time.Minute) + `","count":3}]}`,
		"/api/v1/trend/hosts":                   `{"start":"` + at(-time.Hour) + `","step_s":60,"hosts":[{"host":"a.test:443","calls":` + zeros + `,"succeeded":` + zeros + `,"recovered":` + some + `,"attempts":` + zeros + `}],"waiting":{"breaker":` + zeros + `}}`,
		"/api/v1/trend/shops":                   `{"start":"` + at(-time.Hour) + `","step_s":60,"shops":[{"shop":"s17","calls":` + zeros + `,"failed":` + some + `}]}`,
		"/api/v1/policies":                      `[{"name":"order_ship","match":{"task_type":"order_ship"},"max_retries":3,"delays_ms":[2000,3000,4500],"longest_ms":9500,"safe":"auto"},{"name":"default","match":{},"max_retries":0,"delays_ms":[]}]`,
		"/api/v1/report":                        `{"policies":[{"policy":"order_ship","arms":[{"name":"order_ship","calls":200,"succeeded":190,"healed":[150,30,10],"success":{"value":0.95,"low":0.91,"high":0.98},"amplification":{"value":1.3,"low":null,"high":null},"added_latency_ms":{"value":12,"low":10,"high":15}}]}]}`,
		"/api/v1/config/problems":               `{"file":"/etc/r.yaml","warnings":["timezone is UTC"],"last_reload":{"at":"` + at(-time.Hour) + `","ok":false,"error":"drain: want a duration"}}`,
		"/api/v1/retries":                       `{"default":"on","scopes":[{"match":{"host":"a.test"},"value":"off","until":"` + at(time.Hour) + `"}]}`,
		"/api/v1/explain":                       `{"mode":"forward","policy":"order_ship","policy_why":"task_type","retries":3,"outcomes":[{"outcome":"503","executed":"no","next":"retry","why":"status_503","wait_ms":2000,"attempts":4,"after_ms":9000}]}`,
		"/api/v1/verdict":                       `{"preset":"pdd","is":"throttled","rule":"limit","class":"transient","reason":"throttled","executed":"no","next":"retried"}`,
		"/api/v1/coverage":                      `{"since":"` + at(-time.Hour) + `","clients":[{"client":"10.0.0.7","user_agents":["rpa/1"],"modes":{"forward":70,"opaque":30},"calls":100,"opaque_share":0.3,"no_shop_share":0.5,"no_task_share":0.2,"own_retries":7,"patience_p50_ms":30000,"advice":[{"id":"traffic.tunnels","severity":"warning","finding":"opaque tunnels","why":"only the connection","fix":[{"into":"config","line":"intercept: {hosts: [a.test]}"}]}]}]}`,
		"/api/v1/audit":                         `{"entries":[{"at":"` + at(-time.Minute) + `","name":"li","role":"operator","client":"127.0.0.1","action":"breaker.reset","target":"a.test:443","note":"it is well","result":"ok"}],"next":"x"}`,
	}}
}

func serverOf(t *testing.T, f *fake) http.Handler {
	t.Helper()
	return New(Deps{API: f, Instance: "retryproxy", Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

// fetch gets a page.
func fetch(t *testing.T, h http.Handler, path string, fields ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// press sends a form.
func press(h http.Handler, path string, form url.Values, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
