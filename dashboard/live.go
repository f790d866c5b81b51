package dashboard

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Times and bounds of live views.
const (
	mostViews = 50 // at a time
	tick      = 2 * time.Second
	liveTime  = 10 * time.Second // to write an event
)

// live tells a browser what the light says as soon as that changes, and when to look
// again. Nobody looks: nothing is asked.
func (s *server) live(w http.ResponseWriter, r *http.Request) {
	select {
	case s.views <- struct{}{}:
		defer func() { <-s.views }()
	default:
		w.Header().Set("Retry-After", "30")
		http.Error(w, "too many live views", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx before us would hold it back
	control := http.NewResponseController(w)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last := ""
	for {
		v := s.visit(r)
		if err := v.get("/api/v1/session", &v.session); err != nil {
			_ = event(w, control, "gone", err.Error())
			return
		}
		text := s.light(v)
		if text != last && event(w, control, "light", text) != nil {
			return
		}
		last = text
		if event(w, control, "tick", v.now.Format(time.RFC3339)) != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		}
	}
}

// light is the sentence on top as HTML.
func (s *server) light(v *visit) string {
	out := show{Page: "person", Lang: v.words.lang}
	out.Status, out.Light = v.status()
	var text bytes.Buffer
	if err := s.pages()[out.Lang][out.Page].ExecuteTemplate(&text, "light", &out); err != nil {
		return ""
	}
	return text.String()
}

// event writes one event.
func event(w http.ResponseWriter, control *http.ResponseController, name, data string) error {
	if err := control.SetWriteDeadline(time.Now().Add(liveTime)); err != nil {
		return err
	}
	lines := strings.ReplaceAll(strings.ReplaceAll(data, "\r", ""), "\n", "\ndata: ")
	if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, lines); err != nil {
		return err
	}
	return control.Flush()
}
