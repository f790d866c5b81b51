package admin

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// health are the routes that need no token.
func (s *server) health(r chi.Router) {
	r.Get("/livez", text("ok\n"))
	r.Get("/healthz", text("ok\n"))
	r.Get("/readyz", s.ready)
	r.Method(http.MethodGet, "/metrics", promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, ErrorHandling: promhttp.ContinueOnError,
	}))
}

// ready is 503 while no calls are taken.
func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	ok, why := s.Ready()
	if ok {
		text("ok\n")(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(why + "\n"))
}
