package admin

import "net/http"

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
