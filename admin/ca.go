package admin

import (
	"net/http"
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
