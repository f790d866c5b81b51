package admin

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Sessions of browsers.
const (
	sessionCookie = "retryproxy_session"
	sessionTime   = 12 * time.Hour
	mostSessions  = 1000 // the one that was used longest ago gives way
)

// session is somebody who is logged in.
type session struct {
	token [sha256.Size]byte // hash of the one that it was begun with
	until time.Time
}

// sessions knows who is logged in, by the hash of their cookie. It is safe for
// concurrent use; a restart logs everybody out.
type sessions struct {
	mu   sync.Mutex
	open *simplelru.LRU[[sha256.Size]byte, session]
}

func newSessions() *sessions {
	open, _ := simplelru.NewLRU[[sha256.Size]byte, session](mostSessions, nil) // fails on sizes below 1 only
	return &sessions{open: open}
}

// begin logs somebody in and gives the value of their cookie.
func (s *sessions) begin(a *Account, now time.Time) (cookie string, until time.Time) {
	cookie, until = rand.Text(), now.Add(sessionTime)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open.Add(sha256.Sum256([]byte(cookie)), session{sha256.Sum256([]byte(a.Token)), until})
	return cookie, until
}

// find is who sent a request by its cookie: an account that there still is, in the role
// that it has now.
func (s *sessions) find(r *http.Request, all []Account, now time.Time) (actor, bool) {
	c, err := r.Cookie(sessionCookie)
	if err != nil {
		return actor{}, false
	}
	s.mu.Lock()
	one, ok := s.open.Get(sha256.Sum256([]byte(c.Value)))
	s.mu.Unlock()
	if !ok || !now.Before(one.until) {
		return actor{}, false
	}
	for i := range all {
		if sha256.Sum256([]byte(all[i].Token)) == one.token {
			return actor{all[i].Name, all[i].Role, true, one.until}, true
		}
	}
	return actor{}, false
}

// end logs out who sent a request.
func (s *sessions) end(r *http.Request) {
	if c, err := r.Cookie(sessionCookie); err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open.Remove(sha256.Sum256([]byte(c.Value)))
	}
}

// sessionView is who asks, as the API says it.
type sessionView struct {
	Name   string    `json:"name"` // of the token; empty: none is wanted here
	Role   string    `json:"role"`
	Tokens bool      `json:"tokens"` // one is wanted
	Until  time.Time `json:"until,omitzero"`
}

func (s *server) showSession(w http.ResponseWriter, r *http.Request) {
	a := who(r)
	show(w, sessionView{a.name, a.role.String(), a.tokens, a.until})
}

// login begins a session by a token, for browsers, which cannot send one.
func (s *server) login(w http.ResponseWriter, r *http.Request) {
	var t struct {
		Token string `json:"token"`
	}
	if !read(w, r, &t) {
		return
	}
	all := s.accounts()
	if len(all) == 0 {
		show(w, sessionView{Role: Admin.String()})
		return
	}
	found, ok := s.try(w, r, all, t.Token)
	if !ok {
		return
	}
	cookie, until := s.sessions.begin(found, time.Now())
	setSession(w, cookie, sessionTime)
	show(w, sessionView{found.Name, found.Role.String(), true, until})
}

func (s *server) logout(w http.ResponseWriter, r *http.Request) {
	s.sessions.end(r)
	setSession(w, "", -time.Second)
	w.WriteHeader(http.StatusNoContent)
}

// setSession sets the cookie. No script reads it, and no other site's page sends it
// along. It is not marked Secure: the listener speaks HTTP, on loopback or behind
// something that speaks TLS.
func setSession(w http.ResponseWriter, value string, lasts time.Duration) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // see above
		Name: sessionCookie, Value: value, Path: "/", MaxAge: int(lasts.Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}
