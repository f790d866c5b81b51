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
