package admin

import (
	"net/http"

	"retryproxy/newcode"
)

// NewCodes are the answers that no preset knows.
type NewCodes struct {
	List func() []newcode.Code
	// See takes a code off the list; by is who looked at it. It says how many there were.
	See func(platform, code, by string) int
}

func (s *server) showNewCodes(w http.ResponseWriter, _ *http.Request) {
	show(w, map[string][]newcode.Code{"codes": s.NewCodes.List()})
}

// seeNewCode takes a code off the list that a person has looked at.
func (s *server) seeNewCode(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	for _, name := range []string{"platform", "code"} {
		if !q.Has(name) {
			fail(w, http.StatusBadRequest, "bad_request", name+": missing; GET /api/v1/newcodes has both")
			return
		}
	}
	if s.NewCodes.See(q.Get("platform"), q.Get("code"), q.Get("by")) == 0 {
		fail(w, http.StatusNotFound, "not_found", "no such code is on the list")
		return
	}
	s.showNewCodes(w, r)
}
