package inspect

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"retryproxy/message"
)

func coded(t testing.TB, name, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch name {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zlib":
		w = zlib.NewWriter(&b)
	case "flate":
		w, _ = flate.NewWriter(&b, 6)
	case "br":
		w = brotli.NewWriter(&b)
	case "zstd":
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	default:
		return []byte(text)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPlain(t *testing.T) {
	text := `{"success":false,"errorCode":4000004}` + strings.Repeat(" ", 5000)
	for _, tt := range []struct {
		name, coding, how string
		cut, limit        int
		want              string
	}{
		{"plain", "", "", 0, 1 << 20, text},
		{"identity", "identity", "", 0, 1 << 20, text},
		{"limit", "", "", 0, 9, text[:9]},
		{"gzip", "gzip", "gzip", 0, 1 << 20, text},
		{"gzip in capitals", " GZIP ", "gzip", 0, 1 << 20, text},
		{"gzip to the limit", "gzip", "gzip", 0, 12, text[:12]},
		{"deflate", "deflate", "zlib", 0, 1 << 20, text},
		{"bare deflate", "deflate", "flate", 0, 1 << 20, text},
		{"not gzip at all", "gzip", "", 0, 1 << 20, ""},
		{"not br at all", "br", "", 0, 1 << 20, ""},
		{"unknown", "compress", "", 0, 1 << 20, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := message.Fields{{Name: "Content-Encoding", Value: tt.coding}}
			if tt.coding == "" {
				f = nil
			}
			if got := string(Plain(f, coded(t, tt.how, text), tt.limit)); got != tt.want {
				t.Errorf("Plain = %.60q, want %.60q", got, tt.want)
			}
		})
	}
}

// Of a body that is cut what came is decoded.
func TestPlainOfACutBody(t *testing.T) {
	text := `{"success":false,"x":"` + strings.Repeat("abcdefg hijklmnop ", 4000)
	whole := coded(t, "gzip", text)
	got := Plain(message.Fields{{Name: "Content-Encoding", Value: "gzip"}}, whole[:len(whole)/2], 1<<20)
	if len(got) < 100 || !strings.HasPrefix(text, string(got)) {
		t.Errorf("Plain of half a body = %.40q (%d bytes), want a prefix of the text", got, len(got))
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("gzip", coded(f, "gzip", "hello"), 10)
	f.Add("deflate", coded(f, "zlib", "hello"), 3)
	f.Fuzz(func(t *testing.T, coding string, head []byte, limit int) {
		limit = max(0, min(limit, 1<<16))
		if got := Plain(message.Fields{{Name: "Content-Encoding", Value: coding}}, head, limit); len(got) > limit {
			t.Errorf("Plain gave %d bytes, more than %d", len(got), limit)
		}
	})
}
