package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"retryproxy/intercept"
)

// Interception says which tunnels are opened, by which authority, and whose not.
// Without hosts it is off.
type Interception struct {
	Hosts       []string // patterns, as configured
	Fingerprint string   // SHA-256 of what clients have to trust
	Expires     time.Time
	Passed      []intercept.Pin // clients that refuse us
}

// interceptionView is an Interception in JSON.
type interceptionView struct {
	Hosts       []string  `json:"hosts"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	Expires     time.Time `json:"expires,omitzero"`
	Passed      []pinView `json:"passed_through"`
}

type pinView struct {
	Client string    `json:"client"`
	Host   string    `json:"host"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

// showCA gives the certificate that clients have to trust: it is public, hence
// for everyone who gets here.
func (s *server) showCA(w http.ResponseWriter, _ *http.Request) {
	var text []byte
	if s.CA != nil {
		text = s.CA()
	}
	if text == nil {
		fail(w, http.StatusNotFound, "not_found", "no tunnels are opened here: intercept.hosts is empty")
		return
	}
	w.Header().Set("Content-Type", "application/x-pem-file")
	w.Header().Set("Content-Disposition", `attachment; filename="retryproxy-ca.pem"`)
	_, _ = w.Write(text)
}

func (s *server) showIntercept(w http.ResponseWriter, _ *http.Request) {
	var i Interception
	if s.Intercept != nil {
		i = s.Intercept()
	}
	v := interceptionView{append([]string{}, i.Hosts...), i.Fingerprint, i.Expires, make([]pinView, len(i.Passed))}
	for n, p := range i.Passed {
		v.Passed[n] = pinView(p)
	}
	show(w, v)
}

// resetView says what a reset of pass-throughs did.
type resetView struct {
	Ended   int    `json:"ended"`
	Message string `json:"message"`
}

// resetPins opens tunnels again that clients had refused us. A query that is not
// understood must not end more than was meant.
func (s *server) resetPins(w http.ResponseWriter, r *http.Request) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", "the query: "+err.Error()+"; a ; in a client is written %3B")
		return
	}
	for key, values := range q {
		if key != "client" && key != "host" || len(values) > 1 || values[0] == "" {
			fail(w, http.StatusBadRequest, "bad_request", "want nothing, or one client= and one host=, as /api/v1/intercept shows them")
			return
		}
	}
	v := resetView{}
	if s.ResetPins != nil {
		v.Ended = s.ResetPins(q.Get("client"), q.Get("host"))
	}
	switch v.Ended {
	case 0:
		v.Message = "nothing is passed through there: all tunnels that are asked for are opened"
	case 1:
		v.Message = "1 pass-through ended: the next tunnel of this client is opened again"
	default:
		v.Message = fmt.Sprintf("%d pass-throughs ended: the next tunnels of these clients are opened again", v.Ended)
	}
	show(w, v)
}
