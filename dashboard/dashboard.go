// Package dashboard answers one question: what does the person on duty see and press?
//
// It shows nothing of its own: each page is made of answers of the admin API, which it
// asks in the name of its viewer, and each button is a call of that API. Pages are HTML
// made here, diagrams SVG made here; the script only keeps them fresh, so that all of it
// works without. Nothing is asked of the network.
package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
)

// Deps are what the page needs. All but Zone are required.
type Deps struct {
	// API answers below /api/v1 and knows who asks by cookie or Authorization.
	API      http.Handler
	Instance string // its name, as in Via
	Log      *slog.Logger
	Zone     func() *time.Location // of dates; nil: of this machine
}

//go:embed templates static
var files embed.FS

// server answers the requests of browsers.
type server struct {
	Deps
	pages  func() map[string]map[string]*template.Template // by language and name
	assets map[string]asset                                // by the path they are asked for
	views  chan struct{}                                   // a place for each live view
}

// New returns the handler of the pages. It serves every path below / that the API does not.
func New(d Deps) http.Handler {
	s := &server{Deps: d, views: make(chan struct{}, mostViews)}
	s.assets = loadAssets()
	s.pages = sync.OnceValue(s.loadPages) // a proxy at which nobody looks needs none
	r := chi.NewRouter()
	r.Use(guarded)
	r.Get("/", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/person", http.StatusSeeOther) })
	r.Get("/static/{file}", s.showAsset)
	r.Get("/login", s.showLogin)
	r.Post("/login", s.login)
	r.Post("/logout", s.logout)
	r.Get("/settings", s.setPreference)
	r.Get("/live", s.live)
	r.Post("/do/{action}", s.act)
	for _, p := range s.all() {
		r.Get("/"+p.name, s.page(p))
	}
	r.Get("/trace/export", s.exportTrace)
	r.Post("/policies", s.page(page{name: "policies", fill: fillPolicies})) // its forms hold more than an address can
	r.NotFound(s.page(page{name: "missing", status: http.StatusNotFound, fill: func(*visit) (any, error) { return nil, nil }}))
	return r
}

// page is one of the pages: fill gets what its template shows.
type page struct {
	name   string
	fill   func(*visit) (any, error)
	status int // 0: 200
}

// all are the pages in the order of the menu, which is that of their worth.
func (s *server) all() []page {
	return []page{
		{name: "trace", fill: fillTrace},
		{name: "person", fill: fillPerson},
		{name: "now", fill: fillNow},
		{name: "shops", fill: fillShops},
		{name: "line", fill: fillLine},
		{name: "policies", fill: fillPolicies},
		{name: "coverage", fill: fillCoverage},
		{name: "audit", fill: fillAudit},
	}
}

// guarded sets what keeps a page to itself: it loads from here only, runs no text as
// script, and is shown in no frame.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("X-Frame-Options", "DENY")
		next.ServeHTTP(w, r)
	})
}

// visit is one request for a page.
type visit struct {
	*api
	r       *http.Request
	now     time.Time
	words   words
	session session
}

// show is what every template gets.
type show struct {
	Page     string
	Instance string
	Lang     string
	Theme    string
	Path     string // of this page, to come back to
	Query    string // that is looked for
	By       string // name given before
	Session  session
	Status   *overview
	Light    sentence
	Flash    *flash
	Fault    *problem // why the page has nothing to show
	V        any
}

func (s *server) visit(r *http.Request) *visit {
	now := time.Now()
	if s.Zone != nil {
		now = now.In(s.Zone())
	}
	return &visit{api: &api{s.API, r}, r: r, now: now, words: language(r)}
}

// page answers with a page, or sends to the login.
func (s *server) page(p page) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !readForm(w, r) {
			return
		}
		v := s.visit(r)
		err := v.get("/api/v1/session", &v.session)
		if isLogin(err) {
			http.Redirect(w, r, "/login?"+url.Values{"next": {r.URL.RequestURI()}}.Encode(), http.StatusSeeOther)
			return
		}
		out := show{Page: p.name, V: nil}
		if err == nil {
			out.V, err = p.fill(v)
		}
		out.Fault = faultOf(err)
		status := p.status
		if out.Fault != nil && status == 0 {
			status = out.Fault.Status
		}
		out.Flash = takeFlash(w, r)
		s.write(w, v, status, &out)
	}
}

// write renders a page for a visit.
func (s *server) write(w http.ResponseWriter, v *visit, status int, out *show) {
	r := v.r
	out.Instance, out.Lang, out.Theme, out.Path = s.Instance, v.words.lang, preference(r, "theme", "auto", "light", "dark"), r.URL.RequestURI()
	out.Query, out.Session, out.By = r.URL.Query().Get("q"), v.session, nameOf(r, &v.session)
	if out.Page != "login" {
		out.Status, out.Light = v.status()
	}
	var text bytes.Buffer
	if err := s.pages()[out.Lang][out.Page].ExecuteTemplate(&text, "base.html", out); err != nil {
		s.Log.Error("a page cannot be shown", "page", out.Page, "error", err.Error())
		http.Error(w, "this page cannot be shown; the log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if status == 0 {
		status = http.StatusOK
	}
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes()) // a browser that left is no fault of ours
}

// loadPages parses every page for every language. A broken template is a bug.
func (s *server) loadPages() map[string]map[string]*template.Template {
	out := map[string]map[string]*template.Template{}
	for _, lang := range languages {
		words := words{lang}
		base := template.Must(template.New("base.html").Funcs(s.funcs(words)).ParseFS(files, "templates/base.html", "templates/parts/*.html"))
		out[lang] = map[string]*template.Template{}
		names, _ := fs.Glob(files, "templates/*.html")
		for _, file := range names {
			name := strings.TrimSuffix(path.Base(file), ".html")
			if name != "base" {
				out[lang][name] = template.Must(template.Must(base.Clone()).ParseFS(files, file))
			}
		}
	}
	return out
}

// asset is a file that pages load. Its path holds a hash of it, so browsers may keep it.
type asset struct {
	kind string
	data []byte
}

// assetKinds are the types of what is in static.
var assetKinds = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

func loadAssets() map[string]asset {
	out := map[string]asset{}
	entries, _ := fs.ReadDir(files, "static")
	for _, e := range entries {
		data, err := files.ReadFile("static/" + e.Name())
		if err != nil {
			panic("bug: an embedded file that cannot be read: " + err.Error())
		}
		out[e.Name()] = asset{assetKinds[path.Ext(e.Name())], data}
	}
	return out
}

// assetURL is where a file is asked for.
func (s *server) assetURL(name string) string {
	sum := sha256.Sum256(s.assets[name].data)
	return "/static/" + name + "?v=" + hex.EncodeToString(sum[:6])
}

func (s *server) showAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := s.assets[chi.URLParam(r, "file")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(a.data)
}

// isLogin says whether an error is that nobody is logged in.
func isLogin(err error) bool {
	var p *problem
	return errors.As(err, &p) && p.Status == http.StatusUnauthorized
}
