package admin

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
)

// Breakers are the breakers that an operator may want to look at.
type Breakers struct {
	Hosts []HostBreaker `json:"hosts"`
	Shops []ShopBreaker `json:"shops"`
}

// HostBreaker is the breaker and the gate of one host.
type HostBreaker struct {
	Host     string    `json:"host"`             // host:port
	State    string    `json:"state"`            // closed, half_open, open
	Reason   string    `json:"reason,omitempty"` // of the last change
	Since    time.Time `json:"since,omitzero"`   // of the last change
	Until    time.Time `json:"until,omitzero"`   // open: when the next probe may go
	Row      int       `json:"consecutive_failures"`
	Calls    int       `json:"calls"` // within the window
	Failures int       `json:"failures"`
	InFlight int       `json:"in_flight"`
	Waiting  int       `json:"waiting"`
}

// ShopBreaker is a tripped breaker of a shop at a host: it needs a person.
type ShopBreaker struct {
	Shop   string    `json:"shop"`
	Host   string    `json:"host"`
	Reason string    `json:"reason"` // the failure that its calls shared
	Row    int       `json:"identical_failures"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"` // when the next retry is let through
}

// breakers never gives null for a list.
func (s *server) breakers() Breakers {
	b := s.Breakers()
	if b.Hosts == nil {
		b.Hosts = []HostBreaker{}
	}
	if b.Shops == nil {
		b.Shops = []ShopBreaker{}
	}
	return b
}

func (s *server) showBreakers(w http.ResponseWriter, _ *http.Request) { show(w, s.breakers()) }

// resetBreaker closes one breaker by hand and shows what is left.
func (s *server) resetBreaker(w http.ResponseWriter, r *http.Request) {
	shop, host, ok := parseScope(chi.URLParam(r, "scope"))
	if !ok {
		fail(w, http.StatusBadRequest, "bad_request", "scope: want host:port or shop@host:port, URL-escaped")
		return
	}
	if !s.Reset(shop, host) {
		fail(w, http.StatusNotFound, "not_found", "no breaker is kept for this scope")
		return
	}
	show(w, s.breakers())
}

// parseScope reads host:port or shop@host:port. A shop's name may hold an @, a
// host cannot.
func parseScope(escaped string) (shop, host string, ok bool) {
	scope, err := url.PathUnescape(escaped)
	if err != nil {
		return "", "", false
	}
	host = scope
	if i := strings.LastIndexByte(scope, '@'); i >= 0 {
		shop, host = scope[:i], scope[i+1:]
		if shop == "" {
			return "", "", false
		}
	}
	name, port, found := cutPort(host)
	return shop, strings.ToLower(host), found && name != "" && port != ""
}
