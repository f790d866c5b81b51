package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// secured sets what keeps browsers from making more of an answer than it is.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// checkHost refuses names that are not ours, or any page a browser shows could
// reach us by a name it controls (DNS rebinding).
func (s *server) checkHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.Hosts(r.Host) {
			fail(w, http.StatusForbidden, "client_denied", "this Host is not served here (listen.hosts)")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sameSite refuses orders that a browser sends from another site's page.
func sameSite() func(http.Handler) http.Handler {
	c := http.NewCrossOriginProtection()
	c.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusForbidden, "client_denied", "a browser sent this from another site")
	}))
	return c.Handler
}

// checkToken wants the token, if there is one, compared in constant time.
func (s *server) checkToken(next http.Handler) http.Handler {
	if s.Token == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secret := s.Token()
		if secret == "" {
			next.ServeHTTP(w, r)
			return
		}
		want := sha256.Sum256([]byte(secret))
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(token)))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="retryproxy admin"`)
			fail(w, http.StatusUnauthorized, "auth_required", "this needs the header Authorization: Bearer and the admin token (admin.token)")
			return
		}
		next.ServeHTTP(w, r)
	})
}
