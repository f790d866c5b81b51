package telemetry

import (
	"log/slog"
	"strconv"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"retryproxy/attempt"
	"retryproxy/classify"
)

// longestValue bounds what a client or an upstream can put into one value.
const longestValue = 512

var lines = sync.Pool{New: func() any { return new(line) }}

// line is one line of the log under construction, JSON or key=value.
type line struct {
	buf  []byte
	json bool
}

// record writes the whole line of a call.
func (l *line) record(r *slog.Record, s *attempt.Summary) {
	if l.json {
		l.buf = append(l.buf, '{')
	}
	l.time("time", r.Time)
	l.text("level", r.Level.String())
	l.text("msg", r.Message)
	l.outcome(s)
	l.origin(s)
	l.cost(s)
	if l.json {
		l.attempts(s.Attempts)
		l.buf = append(l.buf, '}')
	} else {
		l.story(s.Attempts)
	}
	l.buf = append(l.buf, '\n')
}

// outcome says how it ended.
func (l *line) outcome(s *attempt.Summary) {
	l.text("call_id", s.ID)
	l.text("result", s.Result)
	l.text("reason", s.Reason)
	l.number("status", int64(s.Status))
	l.text("executed", s.Executed.String())
	l.text("method", s.Method)
	l.text("scheme", s.Scheme)
	l.text("host", s.Host)
	l.text("path", s.Path)
	l.text("detail", s.Detail)
}

// origin says whose call it was and by what rules it lived.
func (l *line) origin(s *attempt.Summary) {
	l.text("mode", s.Mode)
	l.text("policy", s.Policy)
	l.text("client", s.Client)
	l.text("user", s.User)
	l.text("shop", s.Labels.Shop)
	l.text("shop_tier", s.Labels.ShopTier)
	l.text("task_type", s.Labels.TaskType)
	l.text("key_hash", s.KeyHash)
	l.text("client_request_id", s.ClientID)
	l.text("traceparent", s.Trace)
}

// cost says what it took.
func (l *line) cost(s *attempt.Summary) {
	var waited time.Duration
	for i := range s.Waits {
		waited += s.Waits[i].For
	}
	l.millis("duration_ms", s.Duration)
	l.millis("waited_ms", waited)
	l.millis("overhead_ms", s.Overhead)
	l.number("bytes", s.Bytes)
	if s.Previous > 0 {
		l.number("previous_attempts", int64(s.Previous))
	}
}

// attempts writes the list for JSON.
func (l *line) attempts(h attempt.History) {
	l.key("attempts")
	l.buf = append(l.buf, '[')
	for i := range h {
		if i > 0 {
			l.buf = append(l.buf, ',')
		}
		l.buf = append(l.buf, '{')
		l.attempt(&h[i])
		l.buf = append(l.buf, '}')
	}
	l.buf = append(l.buf, ']')
}

func (l *line) attempt(a *attempt.Attempt) {
	l.number("n", int64(a.N))
	l.number("retry_count", int64(a.Count))
	l.time("started", a.Started)
	l.millis("duration_ms", a.Duration)
	l.millis("delay_ms", a.Delay)
	l.text("cause", a.Cause)
	l.text("host", a.Host)
	l.text("supplier", a.Supplier)
	l.text("egress", a.Egress)
	l.number("status", int64(a.Status))
	l.text("class", a.Verdict.Class.String())
	l.text("reason", a.Verdict.Reason)
	l.text("basis", string(a.Verdict.Basis))
	if a.Verdict.Executed != classify.ExecutedNo {
		l.text("executed", a.Verdict.Executed.String())
	}
	if a.Reused {
		l.key("reused")
		l.buf = append(l.buf, "true"...)
	}
	l.text("upstream_request_id", a.UpstreamID)
	l.text("detail", a.Detail)
}

// story writes the attempts for people: "1 status_503 12ms, 2 status_200 9ms after 1s backoff".
func (l *line) story(h attempt.History) {
	if len(h) == 0 {
		return
	}
	var room [256]byte
	told := room[:0]
	for i := range h {
		if i > 0 {
			told = append(told, ", "...)
		}
		told = append(strconv.AppendInt(told, int64(h[i].N), 10), ' ')
		if h[i].Supplier != "" {
			told = append(append(append(told, "at "...), h[i].Supplier...), ' ')
		}
		told = append(append(told, h[i].Verdict.Reason...), ' ')
		told = append(told, h[i].Duration.Round(time.Microsecond).String()...)
		if h[i].Delay > 0 {
			told = append(append(told, " after "...), h[i].Delay.Round(time.Millisecond).String()...)
			told = append(append(told, ' '), h[i].Cause...)
		}
	}
	l.key("attempts")
	l.quote(string(told))
}

// key starts a member.
func (l *line) key(name string) {
	if l.json {
		if l.buf[len(l.buf)-1] != '{' {
			l.buf = append(l.buf, ',')
		}
		l.buf = append(append(append(l.buf, '"'), name...), '"', ':')
		return
	}
	if len(l.buf) > 0 {
		l.buf = append(l.buf, ' ')
	}
	l.buf = append(append(l.buf, name...), '=')
}

// text writes a member, unless it is empty.
func (l *line) text(name, value string) {
	if value == "" {
		return
	}
	l.key(name)
	if len(value) > longestValue {
		l.quote(clip(value) + "…")
		return
	}
	if !l.json && isPlain(value) {
		l.buf = append(l.buf, value...)
		return
	}
	l.quote(value)
}

// clip cuts a value to the bound, at the end of a character.
func clip(value string) string {
	end := longestValue
	for end > 0 && !utf8.RuneStart(value[end]) {
		end--
	}
	return value[:end]
}

func (l *line) number(name string, n int64) {
	l.key(name)
	l.buf = strconv.AppendInt(l.buf, n, 10)
}

// millis writes milliseconds with three places.
func (l *line) millis(name string, d time.Duration) {
	l.key(name)
	us := d.Microseconds()
	l.buf = strconv.AppendInt(l.buf, us/1000, 10)
	if part := us % 1000; part > 0 {
		l.buf = append(l.buf, '.', byte('0'+part/100), byte('0'+part/10%10), byte('0'+part%10))
	}
}

func (l *line) time(name string, t time.Time) {
	l.key(name)
	if l.json {
		l.buf = append(l.buf, '"')
	}
	l.buf = t.AppendFormat(l.buf, "2006-01-02T15:04:05.000Z07:00")
	if l.json {
		l.buf = append(l.buf, '"')
	}
}

// quote writes a string of JSON in which every character that does not print is
// escaped: nothing from outside can end the line or speak to a terminal.
func (l *line) quote(s string) {
	l.buf = append(l.buf, '"')
	start := 0
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf && c >= ' ' && c != '"' && c != '\\' && c != 0x7f {
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r >= utf8.RuneSelf && unicode.IsPrint(r) && (r != utf8.RuneError || size > 1) {
			i += size
			continue
		}
		l.buf = appendEscape(append(l.buf, s[start:i]...), r)
		i += size
		start = i
	}
	l.buf = append(append(l.buf, s[start:]...), '"')
}

// appendEscape writes one character as an escape of JSON.
func appendEscape(b []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	switch {
	case r == '"' || r == '\\':
		return append(b, '\\', byte(r))
	case r > 0xffff: // a pair of surrogates
		r -= 0x10000
		return appendEscape(appendEscape(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
	}
	return append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}

// isPlain says whether a value needs no quotes in key=value.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == '"' || c == '\\' || c == '=' || c >= 0x7f {
			return false
		}
	}
	return true
}
