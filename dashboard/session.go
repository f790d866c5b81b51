package dashboard

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// session is who looks at the page.
type session struct {
	Name   string `json:"name"`
	Role   string `json:"role"`   // viewer, operator, admin
	Tokens bool   `json:"tokens"` // a token is wanted here
}

// MayAct says whether the viewer may change anything.
func (s session) MayAct() bool { return s.Role == "operator" || s.Role == "admin" }

// IsAdmin says whether the viewer may do everything.
func (s session) IsAdmin() bool { return s.Role == "admin" }

// Named says whether the token tells who it is.
func (s session) Named() bool { return s.Tokens && s.Name != "" }

func (s *server) showLogin(w http.ResponseWriter, r *http.Request) {
	s.write(w, s.visit(r), 0, &show{Page: "login", V: localPath(r.URL.Query().Get("next"))})
}

// login gives the token to the API, whose cookie goes to the browser.
func (s *server) login(w http.ResponseWriter, r *http.Request) {
	v := s.visit(r)
	if !readForm(w, r) {
		return
	}
	next := localPath(r.PostForm.Get("next"))
	h, err := v.send(http.MethodPost, "/api/v1/session", map[string]string{"token": strings.TrimSpace(r.PostForm.Get("token"))}, nil)
	if err != nil {
		fault := faultOf(err)
		if after := h.Get("Retry-After"); after != "" {
			w.Header().Set("Retry-After", after)
		}
		s.write(w, v, fault.Status, &show{Page: "login", Fault: fault, V: next})
		return
	}
	passCookies(w, h)
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (s *server) logout(w http.ResponseWriter, r *http.Request) {
	h, _ := s.visit(r).send(http.MethodDelete, "/api/v1/session", nil, nil) // who is not logged in wanted just that
	passCookies(w, h)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// passCookies hands on the cookies that the API set.
func passCookies(w http.ResponseWriter, h http.Header) {
	for _, c := range h.Values("Set-Cookie") {
		w.Header().Add("Set-Cookie", c)
	}
}

// mostForm bounds a form in bytes: a pasted answer of a platform is in it.
const mostForm = 1 << 20

// readForm reads a form; false: it was answered.
func readForm(w http.ResponseWriter, r *http.Request) bool {
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the form cannot be read: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

// localPath is a path of ours to go to; everything else leads home.
func localPath(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") || strings.Contains(text, `\`) {
		return "/person"
	}
	return text
}

// preference is the value of a cookie among those that are known, the first if none is.
func preference(r *http.Request, name string, known ...string) string {
	if c, err := r.Cookie(name); err == nil && slices.Contains(known, c.Value) {
		return c.Value
	}
	return known[0]
}

// preferences are what viewers may choose.
var preferences = map[string][]string{"lang": languages, "theme": {"auto", "light", "dark"}}

// setPreference keeps a choice of the viewer.
func (s *server) setPreference(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	for name, known := range preferences {
		if value := q.Get(name); slices.Contains(known, value) {
			keep(w, name, value, yearly)
		}
	}
	http.Redirect(w, r, localPath(q.Get("back")), http.StatusSeeOther)
}

// keep sets a cookie of ours; below 0 removes it.
func keep(w http.ResponseWriter, name, value string, lasts time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(lasts.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}

// nameOf is the name by which the viewer acts: that of the token, or the one given before.
func nameOf(r *http.Request, s *session) string {
	if s.Named() {
		return s.Name
	}
	if c, err := r.Cookie("by"); err == nil {
		name, _ := url.QueryUnescape(c.Value)
		return name
	}
	return ""
}

// flash says once what came of an action.
type flash struct {
	OK   bool
	Key  string // of the text
	Text string // in addition, as the API said it
}

// How long cookies of ours last.
const (
	flashTime = time.Minute
	yearly    = 365 * 24 * time.Hour
)

func setFlash(w http.ResponseWriter, f flash) {
	f.Text = f.Text[:min(len(f.Text), 1000)]
	text, err := json.Marshal(f)
	if err == nil {
		keep(w, "flash", base64.RawURLEncoding.EncodeToString(text), flashTime)
	}
}

// takeFlash is what is to be said once; nil: nothing.
func takeFlash(w http.ResponseWriter, r *http.Request) *flash {
	c, err := r.Cookie("flash")
	if err != nil || c.Value == "" || r.Header.Get("X-Live") != "" {
		return nil
	}
	keep(w, "flash", "", -time.Second)
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	var f flash
	if err != nil || json.Unmarshal(text, &f) != nil {
		return nil
	}
	return &f
}
