package admin

import "net/http"

// showObserved shows what finished calls told about clients and hosts.
func (s *server) showObserved(w http.ResponseWriter, r *http.Request) {
	if s.Observed == nil {
		notFound(w, r)
		return
	}
	show(w, s.Observed())
}

// showCoverage shows how much of what clients send gets the full treatment.
func (s *server) showCoverage(w http.ResponseWriter, r *http.Request) {
	if s.Coverage == nil {
		notFound(w, r)
		return
	}
	show(w, s.Coverage())
}
