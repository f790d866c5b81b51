package admin

import (
	"net/http"
)

// showAlerts shows rules, what is firing, and how deliveries went.
func (s *server) showAlerts(w http.ResponseWriter, _ *http.Request) {
	if s.Alerts == nil {
		show(w, struct{}{})
		return
	}
	show(w, s.Alerts())
}

// testAlerts sends a test message to each target of ?rule=, or of all, and shows
// what each said.
func (s *server) testAlerts(w http.ResponseWriter, r *http.Request) {
	if s.TestAlerts == nil {
		fail(w, http.StatusNotFound, "not_found", "nothing is told to anybody here")
		return
	}
	said, err := s.TestAlerts(r.Context(), r.URL.Query().Get("rule"))
	if err != nil {
		fail(w, http.StatusNotFound, "not_found", err.Error())
		return
	}
	show(w, said)
}
