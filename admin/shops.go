package admin

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"retryproxy/deadletter"
	"retryproxy/pause"
)

// noShop stands in paths for calls without a shop, and for what is about all of them.
const noShop = "-"

// pauseView is what a platform stopped.
type pauseView struct {
	Platform  string    `json:"platform"`
	Operation string    `json:"operation,omitempty"` // absent: all
	Reason    string    `json:"reason"`              // auth_expired, risk_control, quota_exhausted
	Since     time.Time `json:"since"`
	Until     time.Time `json:"until,omitzero"` // absent: until a new token or a person
	Code      string    `json:"code,omitempty"` // of the platform
	Message   string    `json:"message,omitempty"`
	Host      string    `json:"host"`
	Calls     int       `json:"turned_away"`
}

func viewOfPause(p *pause.Pause) pauseView {
	return pauseView{p.Platform, p.Operation, p.Reason, p.Since, p.Until, p.Code, p.Message, p.Host, p.Calls}
}

// addPauses adds what platforms stopped to the shops.
func (s *server) addPauses(shops map[string]*shopView) {
	list := s.Pauses()
	for i := range list {
		name := list[i].Shop
		if name == "" {
			name = noShop
		}
		v := shopOf(shops, name)
		v.Pauses = append(v.Pauses, viewOfPause(&list[i]))
	}
}

// resumeShop lets the calls of a shop go on that a platform stopped.
func (s *server) resumeShop(w http.ResponseWriter, r *http.Request) {
	var t struct {
		Platform string `json:"platform"` // empty: all
		deadletter.Signed
	}
	if !read(w, r, &t) {
		return
	}
	if err := t.Check(); err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	shop := chi.URLParam(r, "shop")
	if shop == noShop {
		shop = ""
	}
	ended := s.Resume(shop, t.Platform, t.By, t.Note)
	if len(ended) == 0 {
		fail(w, http.StatusNotFound, "not_found", "no platform stopped this shop; /api/v1/shops lists those that are stopped")
		return
	}
	list := make([]pauseView, len(ended))
	for i := range ended {
		list[i] = viewOfPause(&ended[i])
	}
	show(w, map[string][]pauseView{"resumed": list})
}
