package admin

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"retryproxy/breaker"
)

// breakersView are the breakers that an operator may want to look at.
type breakersView struct {
	Hosts []hostView `json:"hosts"`
	Shops []shopTrip `json:"shops"`
	// Egress are the egress proxies in use.
	Egress []exitView `json:"egress"`
}

// exitView is the breaker of one egress identity.
type exitView struct {
	Name     string    `json:"name"`
	State    string    `json:"state"`
	Reason   string    `json:"reason,omitempty"` // of the last change
	Since    time.Time `json:"since,omitzero"`
	Until    time.Time `json:"until,omitzero"` // open: when the next probe may go
	Row      int       `json:"consecutive_failures"`
	Calls    int       `json:"calls"` // within the window
	Failures int       `json:"failures"`
}

// hostView is the breaker and the gate of one host.
type hostView struct {
	Host      string    `json:"host"`             // host:port
	State     string    `json:"state"`            // closed, half_open, open
	Reason    string    `json:"reason,omitempty"` // of the last change
	Since     time.Time `json:"since,omitzero"`   // of the last change
	Until     time.Time `json:"until,omitzero"`   // open: when the next probe may go
	Row       int       `json:"consecutive_failures"`
	Calls     int       `json:"calls"` // within the window
	Failures  int       `json:"failures"`
	Probes    int       `json:"probes"` // in flight
	InFlight  int       `json:"in_flight"`
	Backlog   int       `json:"in_flight_backlog"`  // of these: of calls that failed or waited for long before
	Limit     int       `json:"limit"`              // slots at full capacity
	Capacity  int       `json:"capacity"`           // slots at present
	Waiting   int       `json:"waiting"`            // in line
	Late      int       `json:"waiting_backlog"`    // of these: in the lane of the backlog
	LongestMS int64     `json:"waiting_longest_ms"` // for which one of those in line has stood there
	Planned   int       `json:"planned"`            // waiting for their own date
	Outage    *outage   `json:"outage,omitempty"`
}

// outage is a host that is cut off, or on its way back.
type outage struct {
	Since   time.Time `json:"since"`
	Reach   string    `json:"reach"`        // whose calls failed: several_shops, one_shop, unlabelled
	Waiting int       `json:"waiting"`      // in line
	Most    int       `json:"waiting_most"` // of them at a time, so far
	GaveUp  int       `json:"gave_up"`      // calls that ended without a success meanwhile
	// Release is when all of them have started, if the next probe succeeds.
	Release time.Time `json:"expected_release,omitzero"`
}

// shopTrip is a tripped breaker of a shop at a host: it needs a person.
type shopTrip struct {
	Shop   string    `json:"shop"`
	Host   string    `json:"host"`
	Reason string    `json:"reason"` // the failure that its calls shared
	Row    int       `json:"identical_failures"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"` // when the next retry is let through
}

func (s *server) showBreakers(w http.ResponseWriter, _ *http.Request) {
	gates := s.Gates()
	v := breakersView{make([]hostView, len(gates)), s.trips(), s.exits()}
	for i := range gates {
		g := &gates[i]
		v.Hosts[i] = hostView{
			g.Host, g.Breaker.State.String(), g.Breaker.Reason, g.Breaker.Since, g.Breaker.Until,
			g.Breaker.Row, g.Breaker.Calls, g.Breaker.Failures, g.Breaker.Probes, g.InFlight, g.Backlog, g.Limit, g.Capacity, g.Waiting, g.Late, g.Longest.Milliseconds(), g.Planned, (*outage)(g.Outage),
		}
	}
	show(w, v)
}

func (s *server) trips() []shopTrip {
	shops := s.Shops()
	out := make([]shopTrip, len(shops))
	for i, t := range shops {
		out[i] = shopTrip{t.Shop, t.Host, t.Reason, t.Row, t.Since, t.Probe}
	}
	return out
}

func (s *server) exits() []exitView {
	out := []exitView{}
	if s.Exits == nil {
		return out
	}
	for _, e := range s.Exits() {
		out = append(out, exitView{e.Name, e.State.String(), e.Reason, e.Since, e.Until, e.Row, e.Calls, e.Failures})
	}
	return out
}

// egressScope begins the scope of an egress proxy's breaker.
const egressScope = "egress:"

// resetBreaker closes one breaker by hand and shows what is left.
func (s *server) resetBreaker(w http.ResponseWriter, r *http.Request) {
	scope, ok := scopeOf(r)
	if name, exit := strings.CutPrefix(scope, egressScope); exit && ok {
		s.resetExit(w, r, name)
		return
	}
	shop, host, valid := parseScope(scope)
	if !ok || !valid {
		fail(w, http.StatusBadRequest, "bad_request", "scope: want host:port, shop@host:port or egress:NAME, where NAME is a rule or an egress as GET /api/v1/breakers names it, URL-escaped")
		return
	}
	if !s.Reset(shop, host) {
		fail(w, http.StatusNotFound, "not_found", "no breaker is kept for this scope")
		return
	}
	s.showBreakers(w, r)
}

// resetExit closes the breaker of an egress proxy by hand. The name of a rule
// stands for its exit that is cut off, when it is the only one.
func (s *server) resetExit(w http.ResponseWriter, r *http.Request, name string) {
	tripped := s.trippedExits(name)
	switch {
	case len(tripped) > 1:
		fail(w, http.StatusConflict, "ambiguous", "this rule has several open breakers; name one", tripped...)
		return
	case len(tripped) == 1:
		name = tripped[0]
	}
	if s.ResetExit == nil || !s.ResetExit(name) {
		fail(w, http.StatusNotFound, "not_found", "no open breaker is kept for this egress proxy")
		return
	}
	s.showBreakers(w, r)
}

// trippedExits are those of a rule that are cut off. The name of an exit goes on
// with a blank, which that of a rule cannot hold.
func (s *server) trippedExits(rule string) (names []string) {
	if s.Exits == nil {
		return nil
	}
	for _, e := range s.Exits() {
		if e.State != breaker.Closed && strings.HasPrefix(e.Name, rule+" (") {
			names = append(names, e.Name)
		}
	}
	return names
}

// scopeOf is the scope in the path. The router gives it as it was escaped only
// where that makes a difference.
func scopeOf(r *http.Request) (scope string, ok bool) {
	scope = chi.URLParam(r, "scope")
	if r.URL.RawPath == "" {
		return scope, true
	}
	scope, err := url.PathUnescape(scope)
	return scope, err == nil
}

// parseScope reads host:port or shop@host:port. A shop's name may hold an @, a
// host cannot.
func parseScope(scope string) (shop, host string, ok bool) {
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
