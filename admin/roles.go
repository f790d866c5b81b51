package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
	"time"
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

// route is one way into the API. All of them are in routes; a new one is a line there, in
// /api (index) and in docs/admin.md, and tests name what is missing. What depends on who
// asks inside of a handler goes by who(r).
type route struct {
	method, path string
	role         Role // the least that may
	// does is what the audit log calls it; empty: it changes nothing. Of a GET it is what
	// ?reveal=1 makes of it, which is for admins.
	does   string
	handle http.HandlerFunc
}

// routes are all ways into the API.
func (s *server) routes() []route {
	return slices.Concat(s.lookRoutes(), s.letterRoutes(), []route{
		{"POST", "/session", Viewer, "", s.login},
		{"DELETE", "/session", Viewer, "", s.logout},
		{"POST", "/explain", Viewer, "", s.explain},
		{"POST", "/verdict", Viewer, "", s.judgeAnswer},
		{"POST", "/calls/{id}/expedite", Operator, "call.expedite", s.expediteCall},
		{"POST", "/calls/{id}/cancel", Operator, "call.cancel", s.cancelCall},
		{"DELETE", "/newcodes", Operator, "newcodes.seen", s.seeNewCode},
		{"POST", "/breakers/{scope}/reset", Operator, "breaker.reset", s.resetBreaker},
		{"POST", "/report/reset", Operator, "report.reset", s.resetReport},
		{"PUT", "/retries", Operator, "retries.set", s.setRetries},
		{"POST", "/shops/{shop}/resume", Operator, "shop.resume", s.resumeShop},
		{"POST", "/alerts/test", Operator, "alerts.test", s.testAlerts},
		{"POST", "/intercept/reset", Operator, "pins.reset", s.resetPins},
		{"POST", "/config/reload", Admin, "config.reload", s.reloadConfig},
	})
}

// lookRoutes are those that show something.
func (s *server) lookRoutes() []route {
	return []route{
		{"GET", "/session", Viewer, "", s.showSession},
		{"GET", "/audit", Viewer, "", s.showAudit},
		{"GET", "/overview", Viewer, "", s.showOverview},
		{"GET", "/trend/hosts", Viewer, "", s.trendOfHosts},
		{"GET", "/trend/shops", Viewer, "", s.trendOfShops},
		{"GET", "/newcodes", Viewer, "", s.showNewCodes},
		{"GET", "/calls", Viewer, "", s.listCalls},
		{"GET", "/calls/waiting/histogram", Viewer, "", s.showWakeups},
		{"GET", "/calls/{id}", Viewer, "call.reveal", s.showCall},
		{"GET", "/breakers", Viewer, "", s.showBreakers},
		{"GET", "/limits", Viewer, "", s.showLimits},
		{"GET", "/policies", Viewer, "", s.showPolicies},
		{"GET", "/report", Viewer, "", s.showReport},
		{"GET", "/patience", Viewer, "", s.showPatience},
		{"GET", "/config", Viewer, "", s.showConfig},
		{"GET", "/config/problems", Viewer, "", s.showProblems},
		{"GET", "/retries", Viewer, "", s.showRetries},
		{"GET", "/shops", Viewer, "", s.showShops},
		{"GET", "/observed", Viewer, "", s.showObserved},
		{"GET", "/coverage", Viewer, "", s.showCoverage},
		{"GET", "/alerts", Viewer, "", s.showAlerts},
		{"GET", "/intercept", Viewer, "", s.showIntercept},
		{"GET", "/explain", Viewer, "", s.explain},
	}
}

// letterRoutes are those about letters.
func (s *server) letterRoutes() []route {
	return []route{
		{"GET", "/deadletters", Viewer, "", s.listLetters},
		{"GET", "/deadletters/summary", Viewer, "", s.countLetters},
		{"GET", "/deadletters/hours", Viewer, "", s.hourLetters},
		{"GET", "/deadletters/export", Viewer, "letters.reveal", s.exportLetters},
		{"POST", "/deadletters/requeue", Operator, "letters.requeue", s.requeueLetters},
		{"POST", "/deadletters/drop", Operator, "letters.drop", s.dropLetters},
		{"GET", "/deadletters/bulk", Viewer, "", s.showBulk},
		{"DELETE", "/deadletters/bulk", Operator, "bulk.stop", s.stopBulk},
		{"GET", "/deadletters/{id}", Viewer, "letter.reveal", s.showLetter},
		{"POST", "/deadletters/{id}/requeue", Operator, "letter.requeue", s.requeueLetter},
		{"POST", "/deadletters/{id}/resolve", Operator, "letter.resolve", s.resolveLetter},
		{"POST", "/deadletters/{id}/drop", Operator, "letter.drop", s.dropLetter},
	}
}

// duty is what a request is.
type duty struct {
	role Role
	does string // empty: nothing that is to be noted
}

// dutyOf says what a request to a route is.
func (o *route) dutyOf(r *http.Request) duty {
	if o.method != http.MethodGet {
		return duty{o.role, o.does}
	}
	if reveal := r.URL.Query().Get("reveal"); o.does != "" && reveal != "" && reveal != "0" && reveal != "false" {
		return duty{Admin, o.does}
	}
	return duty{o.role, ""}
}

// guarded is the handler of a route for those whose role it is for.
func (s *server) guarded(o route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d := o.dutyOf(r)
		switch a := who(r); {
		case a.role < d.role:
			s.refused(r, d, "forbidden")
			fail(w, http.StatusForbidden, "forbidden", "this needs the role "+d.role.String()+"; the token of "+a.name+" is that of a "+a.role.String())
		case d.does == "":
			o.handle(w, r)
		default:
			s.audited(w, r, d, o.handle)
		}
	}
}

// actor is who asks.
type actor struct {
	name   string // of the token; empty: no tokens are wanted here
	role   Role
	tokens bool      // a token is wanted here
	until  time.Time // of a session: when it ends
}

type actorKey struct{}

// who asks: without tokens everybody, who may do everything. Its name signs orders.
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
func (s *server) try(w http.ResponseWriter, r *http.Request, all []Account, token string) (found *Account, ok bool) {
	wait, last := s.guesses.try(r.RemoteAddr, time.Now(), func() bool {
		found = byToken(all, token)
		return found != nil
	})
	if last {
		s.refused(r, duty{does: "token.guess"}, "auth_limited")
	}
	switch {
	case found != nil:
		return found, true
	case wait > 0:
		w.Header().Set("Retry-After", seconds(wait))
		fail(w, http.StatusTooManyRequests, "auth_limited", "too many wrong tokens; wait, or use the session that you have")
	default:
		challenge(w)
	}
	return nil, false
}
