package admin

import (
	"fmt"
	"net/http"
	"strconv"

	"retryproxy/trend"
)

// Trend is how the last hour went, per minute.
type Trend struct {
	Hosts func(minutes int) trend.Hosts
	Shops func(minutes int) trend.Shops
}

func (s *server) trendOfHosts(w http.ResponseWriter, r *http.Request) {
	if minutes, ok := wholeNumber(w, r, "minutes", trend.Minutes, trend.Minutes); ok {
		show(w, s.Trend.Hosts(minutes))
	}
}

func (s *server) trendOfShops(w http.ResponseWriter, r *http.Request) {
	if minutes, ok := wholeNumber(w, r, "minutes", trend.Minutes, trend.Minutes); ok {
		show(w, s.Trend.Shops(minutes))
	}
}

// wholeNumber reads a number from 1 to most from the query; false: it was answered.
func wholeNumber(w http.ResponseWriter, r *http.Request, name string, usual, most int) (n int, ok bool) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return usual, true
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		fail(w, http.StatusBadRequest, "bad_request", fmt.Sprintf("%s: want a number from 1 to %d, not %q", name, most, text))
		return 0, false
	}
	return n, true
}
