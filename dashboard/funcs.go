package dashboard

import (
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// funcs are what templates of a language may call.
func (s *server) funcs(w words) template.FuncMap {
	return template.FuncMap{
		"t": w.say, "reason": w.reason, "cause": w.cause, "known": w.known, "asset": s.assetURL, "menu": func() []page { return s.all()[:len(s.all())-1] },
		"name":  func(p page) string { return p.name },
		"lasts": func(d time.Duration) string { return w.lasts(d) },
		"ms":    func(n int64) string { return w.lasts(time.Duration(n) * time.Millisecond) },
		"ago":   func(t time.Time) string { return w.say("ago", w.lasts(time.Since(t))) },
		"since": func(t time.Time) string { return w.lasts(time.Since(t)) },
		"in":    func(t time.Time) string { return w.lasts(time.Until(t)) },
		"clock": s.clock, "date": func(t time.Time) string { return s.local(t).Format("2006-01-02 15:04:05") },
		"iso":     func(t time.Time) string { return t.Format(time.RFC3339) },
		"percent": percent, "share": func(x float64) string { return percent(ofShare(x, 1000), 1000) }, "host": hostName, "query": address,
		"join": func(list []string) string { return strings.Join(list, w.pick(", ", "、")) },
		"path": url.PathEscape, "list": func(items ...string) []string { return items }, "num": number, "dict": dict, "set": func(t time.Time) bool { return !t.IsZero() },
	}
}

func (s *server) local(t time.Time) time.Time {
	if s.Zone == nil {
		return t.Local()
	}
	return t.In(s.Zone())
}

// clock is a time of day; with the date where that is not today's.
func (s *server) clock(t time.Time) string {
	t, now := s.local(t), s.local(time.Now())
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("01-02 15:04:05")
}

// percent is k of n; of nothing it is a dash.
func percent(k, n int) string {
	if n == 0 {
		return "–"
	}
	p := 100 * float64(k) / float64(n)
	if k != n && p > 99.9 {
		p = 99.9 // never a round hundred that is none
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + " %"
}

// hostName is a host without the port that goes without saying.
func hostName(host string) string {
	return strings.TrimSuffix(strings.TrimSuffix(host, ":443"), ":80")
}

// number groups the digits of n by three.
func number(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u202f" + text[i:] // a narrow blank, as in both languages
	}
	return text
}

// query makes a query of names and values; empty values are left out.
func query(pairs []any) string {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if value := fmt.Sprint(pairs[i+1]); value != "" {
			values.Set(fmt.Sprint(pairs[i]), value)
		}
	}
	return values.Encode()
}

// address is a query for a link, which is not to be escaped again.
func address(pairs ...any) template.URL {
	return template.URL(query(pairs)) //nolint:gosec // url.Values escapes what matters
}

// dict gives a template that is called several values by name.
func dict(pairs ...any) (map[string]any, error) {
	out := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is no name", pairs[i])
		}
		out[name] = pairs[i+1]
	}
	return out, nil
}
