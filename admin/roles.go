package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
)

// Role is what somebody may do.
type Role int

// Roles, each of which may do what those before it may.
const (
	Viewer   Role = iota // look, but not at what may be secret
	Operator             // act on calls, letters, breakers, shops, limits and the switch
	Admin                // read the configuration again, see what may be secret
)

var roleNames = [...]string{"viewer", "operator", "admin"}

// String is the name that the configuration has.
func (r Role) String() string { return roleNames[r] }

// ParseRole reads the name of a role.
func ParseRole(name string) (Role, bool) {
	for i, n := range roleNames {
		if n == name {
			return Role(i), true
		}
	}
	return Viewer, false
}

// Account lets somebody in by a token.
type Account struct {
	Name  string
	Role  Role
	Token string
}

// duty is a route that changes something, or shows what may be secret.
type duty struct {
	role Role
	does string // as the audit log has it; empty: nothing that is to be noted
}

// duties are all routes of the API that are no plain GET, which every viewer may ask. A
// new one has its line here, or only admins may use it and the log has it by its path;
// TestEveryDutyHasARole names those that are missing.
var duties = map[string]duty{
	"POST /deadletters/{id}/requeue": {Operator, "letter.requeue"},
	"POST /deadletters/{id}/resolve": {Operator, "letter.resolve"},
	"POST /deadletters/{id}/drop":    {Operator, "letter.drop"},
	"POST /deadletters/requeue":      {Operator, "letters.requeue"},
	"POST /deadletters/drop":         {Operator, "letters.drop"},
	"DELETE /deadletters/bulk":       {Operator, "bulk.stop"},
	"POST /calls/{id}/expedite":      {Operator, "call.expedite"},
	"POST /calls/{id}/cancel":        {Operator, "call.cancel"},
	"POST /breakers/{scope}/reset":   {Operator, "breaker.reset"},
	"POST /report/reset":             {Operator, "report.reset"},
	"POST /shops/{shop}/resume":      {Operator, "shop.resume"},
	"POST /intercept/reset":          {Operator, "pins.reset"},
	"POST /alerts/test":              {Operator, "alerts.test"},
	"DELETE /newcodes":               {Operator, "newcodes.seen"},
	"PUT /retries":                   {Operator, "retries.set"},
	"POST /config/reload":            {Admin, "config.reload"},
	"POST /explain":                  {Viewer, ""},
	"POST /verdict":                  {Viewer, ""},
	"POST /session":                  {Viewer, ""},
	"DELETE /session":                {Viewer, ""},
}

// revealed are routes that show what may be secret when they are asked to.
var revealed = map[string]duty{
	"GET /deadletters/{id}":   {Admin, "letter.reveal"},
	"GET /deadletters/export": {Admin, "letters.reveal"},
}

// dutyOf says what a request is, by the routes of the API.
func dutyOf(api chi.Router, r *http.Request) duty {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	method := r.Method
	if method == http.MethodHead { // is served as a GET
		method = http.MethodGet
	}
	pattern := api.Find(chi.NewRouteContext(), method, strings.TrimPrefix(path, "/api/v1"))
	name := method + " " + strings.TrimSuffix(pattern, "/")
	if reveal := r.URL.Query().Get("reveal"); reveal != "" && reveal != "0" && reveal != "false" {
		if o, ok := revealed[name]; ok {
			return o
		}
	}
	if method == http.MethodGet {
		return duty{}
	}
	if o, ok := duties[name]; ok {
		return o
	}
	return duty{Admin, strings.ToLower(name)}
}

// actor is who asks.
type actor struct {
	name   string // of the token; empty: no tokens are wanted here
	role   Role
	tokens bool      // a token is wanted here
	until  time.Time // of a session: when it ends
}

type actorKey struct{}

// who asks: without tokens everybody, who may do everything.
func who(r *http.Request) actor {
	a, ok := r.Context().Value(actorKey{}).(actor)
	if !ok {
		return actor{role: Admin}
	}
	return a
}

// accounts are those who are let in; none: everybody is.
func (s *server) accounts() []Account {
	if s.Accounts == nil {
		return nil
	}
	return s.Accounts()
}

// byToken is whose token it is. All are compared, each in constant time.
func byToken(all []Account, token string) (found *Account) {
	got := sha256.Sum256([]byte(token))
	for i := range all {
		want := sha256.Sum256([]byte(all[i].Token))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 && found == nil {
			found = &all[i]
		}
	}
	return found
}

// bearer is the token of a request; false: it has none.
func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(scheme, "Bearer")
}

// checkActor lets in who has a token, or a session that one began; where no token is
// configured, everybody.
func (s *server) checkActor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all := s.accounts()
		if len(all) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		a, ok := s.identify(w, r, all)
		if !ok {
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), actorKey{}, a)))
	})
}

// identify finds out who asks; false: it was answered.
func (s *server) identify(w http.ResponseWriter, r *http.Request, all []Account) (actor, bool) {
	token, given := bearer(r)
	if !given {
		if a, ok := s.sessions.find(r, all, time.Now()); ok {
			return a, true
		}
		if isLogin(r) {
			return actor{role: Viewer, tokens: true}, true
		}
		challenge(w)
		return actor{}, false
	}
	found, ok := s.try(w, r, all, token)
	if !ok {
		return actor{}, false
	}
	return actor{name: found.Name, role: found.Role, tokens: true}, true
}

// isLogin says whether a request begins or ends a session, for which none is needed.
func isLogin(r *http.Request) bool {
	return r.URL.Path == "/api/v1/session" && (r.Method == http.MethodPost || r.Method == http.MethodDelete)
}

func challenge(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="retryproxy admin"`)
	fail(w, http.StatusUnauthorized, "auth_required", "this needs the header Authorization: Bearer and an admin token (admin.token, admin.tokens), or a session")
}

// try checks a token, unless too many were wrong; false: it was answered.
func (s *server) try(w http.ResponseWriter, r *http.Request, all []Account, token string) (*Account, bool) {
	now := time.Now()
	if wait := s.guesses.wait(r.RemoteAddr, now); wait > 0 {
		w.Header().Set("Retry-After", seconds(wait))
		fail(w, http.StatusTooManyRequests, "auth_limited", "too many wrong tokens; wait, or use the session that you have")
		return nil, false
	}
	if found := byToken(all, token); found != nil {
		return found, true
	}
	s.guesses.wrong(r.RemoteAddr, now)
	challenge(w)
	return nil, false
}

// checkRole refuses what the role of the one who asks is not for.
func (s *server) checkRole(api chi.Router) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			o := dutyOf(api, r)
			if a := who(r); a.role < o.role {
				s.note(r, o, "", "", "", "forbidden")
				fail(w, http.StatusForbidden, "forbidden", "this needs the role "+o.role.String()+"; the token of "+a.name+" is that of a "+a.role.String())
				return
			}
			if o.does == "" {
				next.ServeHTTP(w, r)
				return
			}
			s.audited(w, r, o, next)
		})
	}
}
