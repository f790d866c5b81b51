package dashboard

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
)

// signed is whose wish an action is.
type signed struct {
	By   string `json:"by"`
	Note string `json:"note,omitempty"`
}

// action is a button: the call of the API that it stands for.
type action struct {
	method string
	// path and body make the call of what the form says; body nil: there is none,
	// and who and why go as parameters of the path.
	path func(f url.Values) string
	body func(f url.Values, s signed) any
	asks bool // who and why go as parameters though there is a body
}

// item is the path of one thing under id, escaped.
func item(before, after string) func(url.Values) string {
	return func(f url.Values) string { return before + url.PathEscape(f.Get("id")) + after }
}

// always is one and the same path.
func always(path string) func(url.Values) string { return func(url.Values) string { return path } }

func onlySigned(_ url.Values, s signed) any { return s }

// actions are all buttons by the name their forms go to.
var actions = map[string]action{
	"letter-requeue": {http.MethodPost, item("/api/v1/deadletters/", "/requeue"), requeueOf, false},
	"letter-executed": {http.MethodPost, item("/api/v1/deadletters/", "/resolve"), func(_ url.Values, s signed) any {
		return resolution{true, s}
	}, false},
	"letter-not-executed": {http.MethodPost, item("/api/v1/deadletters/", "/resolve"), func(_ url.Values, s signed) any {
		return resolution{false, s}
	}, false},
	"letter-drop":   {http.MethodPost, item("/api/v1/deadletters/", "/drop"), onlySigned, false},
	"bulk-start":    {http.MethodPost, always("/api/v1/deadletters/requeue"), func(f url.Values, s signed) any { return bulkOf(f, s, false) }, false},
	"bulk-stop":     {http.MethodDelete, always("/api/v1/deadletters/bulk"), nil, true},
	"call-expedite": {http.MethodPost, item("/api/v1/calls/", "/expedite"), onlySigned, false},
	"call-cancel":   {http.MethodPost, item("/api/v1/calls/", "/cancel"), onlySigned, false},
	"shop-resume": {http.MethodPost, item("/api/v1/shops/", "/resume"), func(f url.Values, s signed) any {
		return struct {
			Platform string `json:"platform,omitempty"`
			signed
		}{f.Get("platform"), s}
	}, false},
	"breaker-reset": {http.MethodPost, item("/api/v1/breakers/", "/reset"), nil, true},
	"code-seen": {http.MethodDelete, func(f url.Values) string {
		return "/api/v1/newcodes?" + query([]any{"platform", f.Get("platform"), "code", f.Get("code"), "sub_code", f.Get("sub_code"), "operation", f.Get("operation")})
	}, nil, true},
	"config-reload": {http.MethodPost, always("/api/v1/config/reload"), nil, true},
	"report-reset":  {http.MethodPost, func(f url.Values) string { return "/api/v1/report/reset?" + query([]any{"policy", f.Get("policy")}) }, nil, true},
	"pins-reset":    {http.MethodPost, always("/api/v1/intercept/reset"), nil, true},
	"alerts-test":   {http.MethodPost, always("/api/v1/alerts/test"), nil, true},
	"retries-set": {http.MethodPut, func(f url.Values) string { return "/api/v1/retries?" + query([]any{"for", f.Get("for")}) }, func(f url.Values, _ signed) any {
		return struct {
			Value string `json:"value"`
		}{f.Get("value")}
	}, true},
}

// resolution says that a person looked.
type resolution struct {
	Executed bool `json:"executed"`
	signed
}

// requeueOf runs one letter again, now or later.
func requeueOf(f url.Values, s signed) any {
	return struct {
		Unknown bool   `json:"executed_unknown"`
		At      string `json:"at,omitempty"`
		signed
	}{f.Get("executed_unknown") != "", strings.TrimSpace(f.Get("at")), s}
}

// bulkOrder runs many letters again.
type bulkOrder struct {
	Filter map[string]string `json:"filter"`
	All    bool              `json:"all,omitempty"`
	Dry    bool              `json:"dry_run,omitempty"`
	Rate   string            `json:"rate,omitempty"`
	Canary int               `json:"canary,omitempty"`
	At     string            `json:"at,omitempty"`
	signed
}

// bulkKeys are the conditions of a bulk that its form has.
var bulkKeys = []string{"reason", "host", "shop", "task_type"}

func bulkOf(f url.Values, s signed, dry bool) bulkOrder {
	o := bulkOrder{Filter: map[string]string{}, Dry: dry, Rate: strings.TrimSpace(f.Get("rate")), At: strings.TrimSpace(f.Get("at")), signed: s}
	for _, key := range bulkKeys {
		if value := strings.TrimSpace(f.Get(key)); value != "" {
			o.Filter[key] = value
		}
	}
	o.All = len(o.Filter) == 0 && f.Get("all") != ""
	o.Canary, _ = strconv.Atoi(f.Get("canary")) // no number: none
	return o
}

// act does what a button says, in the name of the viewer, and goes back.
func (s *server) act(w http.ResponseWriter, r *http.Request) {
	a, ok := actions[chi.URLParam(r, "action")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if !readForm(w, r) {
		return
	}
	f := r.PostForm
	back := localPath(f.Get("back"))
	who := signed{strings.TrimSpace(f.Get("by")), strings.TrimSpace(f.Get("note"))}
	v := s.visit(r)
	err := v.get("/api/v1/session", &v.session)
	switch {
	case isLogin(err):
		http.Redirect(w, r, "/login?"+url.Values{"next": {back}}.Encode(), http.StatusSeeOther)
		return
	case v.session.Named():
		who.By = v.session.Name
	case who.By == "":
		setFlash(w, flash{false, "do.name", ""})
		http.Redirect(w, r, back, http.StatusSeeOther)
		return
	default:
		keep(w, "by", url.QueryEscape(who.By), yearly)
	}
	if err == nil {
		err = v.do(&a, f, who)
	}
	if err != nil {
		setFlash(w, flash{false, "do.failed", err.Error()})
	} else {
		setFlash(w, flash{true, "do.ok", ""})
	}
	http.Redirect(w, r, back, http.StatusSeeOther)
}

// do makes the call of an action.
func (v *visit) do(a *action, f url.Values, who signed) error {
	path := a.path(f)
	if a.asks {
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		path += sep + query([]any{"by", who.By, "note", who.Note})
	}
	var body any
	if a.body != nil {
		body = a.body(f, who)
	}
	_, err := v.send(a.method, path, body, nil)
	return err
}
