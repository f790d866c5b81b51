package telemetry

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"retryproxy/attempt"
)

// logged is what LogCall writes.
func logged(format string, s *attempt.Summary) string {
	var out bytes.Buffer
	LogCall(NewLogger(&out, slog.LevelInfo, format, false), s)
	return out.String()
}

func TestLogCallJSON(t *testing.T) {
	text := logged("json", recovered())
	var got map[string]any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	delete(got, "time")
	want := map[string]any{
		"level": "INFO", "msg": "call", "call_id": "c1", "result": "recovered", "reason": "ok", "status": 200.0,
		"executed": "yes", "method": "POST", "scheme": "http", "host": "u1.test:80", "path": "/x", "mode": "forward",
		"policy": "default", "client": "127.0.0.1:5000", "duration_ms": 1500.0, "waited_ms": 1000.0, "overhead_ms": 0.15, "bytes": 2.0,
		"attempts": []any{
			map[string]any{
				"n": 1.0, "retry_count": 0.0, "started": "2026-10-21T07:28:00.000Z", "duration_ms": 12.0, "delay_ms": 0.0,
				"host": "u1.test:80", "status": 503.0, "class": "transient", "reason": "status_503", "basis": "refused", "detail": "busy",
			},
			map[string]any{
				"n": 2.0, "retry_count": 1.0, "started": "2026-10-21T07:28:01.000Z", "duration_ms": 9.0, "delay_ms": 1000.0,
				"cause": "backoff", "host": "u1.test:80", "status": 200.0, "class": "success", "reason": "status_200",
				"executed": "yes", "reused": true, "upstream_request_id": "r2",
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

func TestLogCallText(t *testing.T) {
	_, got, _ := strings.Cut(logged("text", recovered()), " ") // less the time
	want := `level=INFO msg=call call_id=c1 result=recovered reason=ok status=200 executed=yes method=POST scheme=http ` +
		`host=u1.test:80 path=/x mode=forward policy=default client=127.0.0.1:5000 duration_ms=1500 waited_ms=1000 ` +
		`overhead_ms=0.150 bytes=2 attempts="1 status_503 12ms, 2 status_200 9ms after 1s backoff"` + "\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

func TestLogFormats(t *testing.T) {
	tests := []struct {
		format   string
		terminal bool
		json     bool
	}{
		{"auto", true, false}, {"auto", false, true}, {"json", true, true}, {"text", false, false},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		l := NewLogger(&out, slog.LevelInfo, tt.format, tt.terminal)
		l.With("a", 1).WithGroup("g").Info("hello", "b", 2)
		LogCall(l, recovered())
		for line := range strings.Lines(out.String()) {
			if got := json.Valid([]byte(line)); got != tt.json {
				t.Errorf("format %s, terminal %v: %s", tt.format, tt.terminal, line)
			}
		}
	}
}

func TestLogLevels(t *testing.T) {
	for result, want := range map[string]string{
		"success": "", "recovered": "", "replay": "", "cancelled": "", "failed": "WARN", "rejected": "WARN",
	} {
		var out bytes.Buffer
		s := recovered()
		s.Result = result
		LogCall(NewLogger(&out, slog.LevelWarn, "json", false), s)
		if got := out.String(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s at level warn: %q, want %q", result, got, want)
		}
	}
}

// hostile is a call in which everything from outside tries to forge lines.
func hostile(evil string) *attempt.Summary {
	s := recovered()
	s.Method, s.Host, s.Path, s.Client, s.User = evil, evil, "/x"+evil, evil, evil
	s.Labels = attempt.Labels{Shop: evil, ShopTier: evil, TaskType: evil}
	s.ClientID, s.Trace, s.Detail, s.Policy = evil, evil, evil, evil
	s.Attempts[0].Detail, s.Attempts[0].UpstreamID, s.Attempts[0].Host = evil, evil, evil
	return s
}

func TestCase_OB_01_no_forged_log_lines(t *testing.T) {
	evils := []string{
		"%0d%0a{\"level\":\"info\",\"msg\":\"paid\"}", "\r\n{\"level\":\"info\",\"msg\":\"paid\"}\n", "k\x1b[2J", "a\x1b]0;x\x07",
		"order\"}", `back\slash`, "\x9b2J", "\u009b2J", "\u2028", "\u202eabc", "\xff\xfe", "\x00", "\x7f", "名前", "😀\U000e0001", "{", "a=b c=d",
	}
	for _, evil := range evils {
		for _, format := range []string{"json", "text"} {
			text := logged(format, hostile(evil))
			if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
				t.Errorf("%s: %q makes %d lines: %q", format, evil, strings.Count(text, "\n"), text)
			}
			if i := strings.IndexFunc(strings.TrimSuffix(text, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%s: %q leaves a raw character at %d in %q", format, evil, i, text)
			}
			var got struct{ Detail, Msg string }
			if format == "json" {
				if err := json.Unmarshal([]byte(text), &got); err != nil || got.Msg != "call" {
					t.Errorf("%q: %v in %q", evil, err, text)
				}
				if want := evil; got.Detail != want && utf8.ValidString(evil) {
					t.Errorf("detail = %q, want %q", got.Detail, want)
				}
			}
		}
	}
}

func TestCase_OB_04_only_the_hash_of_a_key(t *testing.T) {
	s := recovered()
	s.KeyHash = "0123456789abcdef"
	if text := logged("json", s); !strings.Contains(text, `"key_hash":"0123456789abcdef"`) {
		t.Errorf("no key_hash in %s", text)
	}
}

func TestLongValuesAreClipped(t *testing.T) {
	s := recovered()
	s.Path = "/" + strings.Repeat("é", 25<<10)
	for _, format := range []string{"json", "text"} {
		if text := logged(format, s); len(text) > 2000 || !strings.Contains(text, "é…") {
			t.Errorf("%s: a line of %d bytes", format, len(text))
		}
	}
}

func FuzzLogCall(f *testing.F) {
	f.Add("\x1b[2J", true)
	f.Add("a\"b\\c\u2028", false)
	f.Fuzz(func(t *testing.T, evil string, js bool) {
		format := map[bool]string{true: "json", false: "text"}[js]
		text := logged(format, hostile(evil))
		if strings.ContainsAny(strings.TrimSuffix(text, "\n"), "\r\n\x1b\x00\x7f") || js && !json.Valid([]byte(text)) {
			t.Errorf("%q gives %q", evil, text)
		}
	})
}

// onceWriter checks that every Write is one whole line.
type onceWriter struct{ bad []string }

func (w *onceWriter) Write(p []byte) (int, error) {
	if !json.Valid(p) || bytes.Count(p, []byte("\n")) != 1 {
		w.bad = append(w.bad, string(p))
	}
	return len(p), nil
}

func TestOneWritePerLine(t *testing.T) {
	w := &onceWriter{}
	l := NewLogger(w, slog.LevelInfo, "json", false)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				LogCall(l, recovered())
				l.Info("other", "host", "u1.test:80")
			}
		})
	}
	wg.Wait()
	if len(w.bad) > 0 {
		t.Errorf("broken lines: %q", w.bad)
	}
}

func BenchmarkLogCall(b *testing.B) {
	for _, format := range []string{"json", "text"} {
		b.Run(format, func(b *testing.B) {
			l, s := NewLogger(io.Discard, slog.LevelInfo, format, false), plainSuccess()
			b.ReportAllocs()
			for b.Loop() {
				LogCall(l, s)
			}
		})
	}
}
