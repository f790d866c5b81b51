package admin

import "net/http"

// showReport shows how policies and their variants do.
func (s *server) showReport(w http.ResponseWriter, r *http.Request) {
	v, ok := s.Report(r.URL.Query().Get("policy"))
	if !ok {
		noPolicy(w)
		return
	}
	show(w, v)
}

// resetReport begins to count anew, and shows what is left.
func (s *server) resetReport(w http.ResponseWriter, r *http.Request) {
	if !s.ResetReport(r.URL.Query().Get("policy")) {
		noPolicy(w)
		return
	}
	s.showReport(w, r)
}

func noPolicy(w http.ResponseWriter) {
	fail(w, http.StatusNotFound, "not_found", "no policy has this name; /api/v1/policies lists them, without their variants")
}
