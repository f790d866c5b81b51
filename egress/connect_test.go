package egress

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"retryproxy/classify"
)

const (
	plainProxy = "http://10.0.0.1:3128"
	userProxy  = "http://acct-name:" + secret + "@10.0.0.1:3128"
	connectA   = "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n"
)

var authorization = "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("acct-name:"+secret)) + "\r\n"

// TestConnectRequest holds every byte that is sent.
func TestConnectRequest(t *testing.T) {
	tests := []struct{ name, url, host, want string }{
		{"name", plainProxy, "a.test", connectA + "\r\n"},
		{"user", userProxy, "a.test", connectA + authorization + "\r\n"},
		{"IPv4", plainProxy, "192.0.2.1", "CONNECT 192.0.2.1:443 HTTP/1.1\r\nHost: 192.0.2.1:443\r\n\r\n"},
		{"IPv6", plainProxy, "2001:db8::1", "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\r\n"},
		{"IPv4 in IPv6", plainProxy, "::ffff:192.0.2.1", "CONNECT 192.0.2.1:443 HTTP/1.1\r\nHost: 192.0.2.1:443\r\n\r\n"},
	}
	for _, test := range tests {
		if _, _, err := openScripted(t, test.url, test.host, turn{test.want, "HTTP/1.1 200 OK\r\n\r\n"}); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestConnectAnswers(t *testing.T) {
	const (
		none    = classify.FaultNone
		auth    = classify.FaultEgressAuth
		denied  = classify.FaultEgressDenied
		failed  = classify.FaultEgressFailed
		timeout = classify.FaultEgressTimeout
	)
	const broke = "closed the connection before its answer was complete"
	basicText := strings.TrimSuffix(strings.TrimPrefix(authorization, "Proxy-Authorization: Basic "), "\r\n")
	tests := []struct {
		name, answer string
		fault        classify.Fault
		detail       string // end of the error
	}{
		{"200", "HTTP/1.1 200 Connection established\r\n\r\n", none, ""},
		{"200 of HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\n", none, ""},
		{"no reason", "HTTP/1.1 200\r\n\r\n", none, ""},
		{"space and no reason", "HTTP/1.1 200 \r\n\r\n", none, ""},
		{"any 2xx", "HTTP/1.1 299 Fine\r\n\r\n", none, ""},
		{"framing fields mean nothing", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", none, ""},
		{"bare LF", "HTTP/1.1 200 OK\nVia: x\n\n", none, ""},
		{"1xx before", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", none, ""},
		{"reason in another script", "HTTP/1.1 200 \xe5\xba\x97\r\nX: \xff\r\n\r\n", none, ""},
		{"empty field", "HTTP/1.1 200 OK\r\nX:\r\n\r\n", none, ""},
		{"101", "HTTP/1.1 101 Switching\r\n\r\n", failed, "answered 101 Switching"},
		{"300", "HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", failed, "answered 302 Found"},
		{"400", "HTTP/1.1 400 Bad Request\r\n\r\n", failed, "answered 400 Bad Request"},
		{"401", "HTTP/1.1 401 Unauthorized\r\n\r\n", auth, "answered 401 Unauthorized"},
		{"403", "HTTP/1.1 403 Forbidden\r\n\r\n", denied, "answered 403 Forbidden"},
		{"404", "HTTP/1.1 404 Not Found\r\n\r\n", failed, "answered 404 Not Found"},
		{"405", "HTTP/1.1 405 No\r\n\r\n", failed, "answered 405 No"},
		{"407", "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n", auth, "answered 407 Proxy Authentication Required"},
		{"429", "HTTP/1.1 429 Slow\r\nRetry-After: 9\r\n\r\n", failed, "answered 429 Slow"},
		{"451", "HTTP/1.1 451 Legal\r\n\r\n", denied, "answered 451 Legal"},
		{"500", "HTTP/1.1 500 Oops\r\n\r\n", failed, "answered 500 Oops"},
		{"502", "HTTP/1.1 502 Bad Gateway\r\n\r\n", failed, "egress r (10.0.0.1:3128): a.test:443: the egress proxy answered 502 Bad Gateway"},
		{"503", "HTTP/1.1 503 Busy\r\n\r\n", failed, "answered 503 Busy"},
		{"504", "HTTP/1.1 504 Late\r\n\r\n", timeout, "answered 504 Late"},
		{"no body is waited for", "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 1000\r\n\r\n", failed, "answered 502 Bad Gateway"},
		{"long reason", "HTTP/1.1 502 " + strings.Repeat("x", 65) + "\r\n\r\n", failed, " 502 " + strings.Repeat("x", 64)},
		{"reason that cannot be shown", "HTTP/1.1 502 a\tb\xe5\r\n\r\n", failed, "answered 502 a?b?"},
		{"reason with the password", "HTTP/1.1 407 no " + secret + "\r\n\r\n", auth, "answered 407"},
		{"reason with the password cut", "HTTP/1.1 407 " + strings.Repeat("x", 60) + secret + "\r\n\r\n", auth, "answered 407"},
		{"reason with the user", "HTTP/1.1 407 no acct-name\r\n\r\n", auth, "answered 407"},
		{"reason with the field", "HTTP/1.1 407 no " + basicText + "\r\n\r\n", auth, "answered 407"},
		{"nothing", "", failed, broke},
		{"half a line", "HTTP/1.1 200 OK", failed, broke},
		{"half a header", "HTTP/1.1 200 OK\r\nVia: x\r\n", failed, broke},
		{"1xx and nothing", "HTTP/1.1 100 Continue\r\n\r\n", failed, broke},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, fault, err := openScripted(t, userProxy, "a.test", turn{connectA + authorization + "\r\n", test.answer})
			text := ""
			if err != nil {
				text = err.Error()
			}
			if fault != test.fault || !strings.HasSuffix(text, test.detail) {
				t.Errorf("Open = %v, %q, want %v, %q", fault, text, test.fault, test.detail)
			}
		})
	}
}

// TestConnectJunk: no HTTP, in whole or in part, is a fault as soon as it shows.
func TestConnectJunk(t *testing.T) {
	for _, answer := range []string{
		"SSH-2.0-x", "\x05\x00", "\x15\x03\x01\x00\x02\x02\x28", "HTTP/2.0 200 OK\r\n\r\n", "http/1.1 200 OK\r\n\r\n", " HTTP/1.1 200 OK\r\n\r\n",
		"\r\nHTTP/1.1 200 OK\r\n\r\n", "HTTP/1.x 200 OK\r\n\r\n", "HTTP/1.1  200 OK\r\n\r\n", "HTTP/1.1-200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n",
		"HTTP/1.1 099 OK\r\n\r\n", "HTTP/1.1 600 OK\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 200-OK\r\n\r\n", "HTTP/1.1 200 a\rb\r\n\r\n",
		"HTTP/1.1 200 a\x00b\r\n\r\n", "HTTP/1.1 \r\n\r\n", "HTTP/1.1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "HTTP/1.1 200 OK\r\n: x\r\n\r\n", "HTTP/1.1 200 OK\r\nA : x\r\n\r\n", "HTTP/1.1 200 OK\r\nA: x\r\n folded\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: x\x00\r\n\r\n", "HTTP/1.1 200 OK\r\nA: x\ry\r\n\r\n", "HTTP/1.1 200 OK\r\nA: x\x7f\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\r\n\r\n",
	} {
		// The reader never ends: whoever waits for more hangs.
		_, _, err := readAnswer(io.MultiReader(strings.NewReader(answer), iotest.ErrReader(errors.New("waited for more"))))
		said, ok := errors.AsType[*refusal](err)
		if !ok || said.fault != classify.FaultEgressFailed || !strings.Contains(said.text, "HTTP/1") {
			t.Errorf("readAnswer(%q) = %v, want junk", answer, err)
		}
	}
}

// endless repeats a text and counts what was taken.
type endless struct {
	text  string
	taken int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.text[e.taken%len(e.text)]
		e.taken++
	}
	return len(p), nil
}

func TestAnswerIsBounded(t *testing.T) {
	const start = "HTTP/1.1 200 OK\r\n"
	for _, text := range []string{"A: x\r\n", "x", "A"} {
		e := &endless{text: text}
		_, _, err := readAnswer(io.MultiReader(strings.NewReader(start), e))
		if err == nil || len(start)+e.taken > longestAnswer {
			t.Errorf("after %d bytes of %q: %v", e.taken, text, err)
		}
	}
	e := &endless{text: "HTTP/1.1 100 Continue\r\n\r\n"}
	if _, _, err := readAnswer(e); err == nil || e.taken > longestAnswer {
		t.Errorf("after %d bytes of 1xx: %v", e.taken, err)
	}
	const fields = "\r\n\r\n"
	fits := start + "A: " + strings.Repeat("x", longestAnswer-len(start)-len("A: ")-len(fields)) + fields
	if a, early, err := readAnswer(strings.NewReader(fits + "early")); err != nil || a.status != 200 || len(early) > 0 {
		t.Errorf("a header of just the limit: %v, %q, %v", a, early, err)
	}
	over := strings.Replace(fits, "A: ", "A: x", 1)
	if _, _, err := readAnswer(strings.NewReader(over)); err == nil {
		t.Error("a header over the limit is accepted")
	}
}

// TestAnswerInPieces: it does not matter how the bytes come, and what was not
// needed is either returned or still unread.
func TestAnswerInPieces(t *testing.T) {
	const head, rest = "HTTP/1.1 100 x\r\n\r\nHTTP/1.1 200 OK\r\nVia: x\r\n\r\n", "\x16\x03\x01 early\r\n\r\n"
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "with error": iotest.DataErrReader,
	} {
		r := wrap(strings.NewReader(head + rest))
		a, early, err := readAnswer(r)
		if err != nil || a.status != 200 {
			t.Fatalf("%s: %v, %v", name, a, err)
		}
		unread, _ := io.ReadAll(r)
		if got := string(early) + string(unread); got != rest {
			t.Errorf("%s: %q follows, want %q", name, got, rest)
		}
	}
}

func FuzzReadAnswer(f *testing.F) {
	for _, s := range []string{"HTTP/1.1 200 OK\r\n\r\nearly", "HTTP/1.0 407 " + secret + "\r\nA: b\r\n\r\n", "HTTP/1.1 100 x\n\nHTTP/1.1 502 x\n\n", "HTTP/1.", "x"} {
		f.Add([]byte(s))
	}
	p := proxies(f, userProxy)[0]
	f.Fuzz(func(t *testing.T, b []byte) {
		a, early, err := readAnswer(bytes.NewReader(b))
		slow := iotest.OneByteReader(bytes.NewReader(b))
		a2, early2, err2 := readAnswer(slow)
		if a != a2 || (err == nil) != (err2 == nil) || len(early2) > 0 {
			t.Fatalf("%q: %v, %v at once, %v, %v by bytes", b, a, err, a2, err2)
		}
		if err != nil {
			if strings.Contains(err.Error(), secret) {
				t.Fatalf("%q: %v", b, err)
			}
			return
		}
		unread, _ := io.ReadAll(slow)
		if !bytes.HasPrefix(unread, early) || !bytes.HasSuffix(b, unread) {
			t.Errorf("%q: early %q, unread %q", b, early, unread)
		}
		if a.status < 100 || a.status > 599 || a.interim() {
			t.Errorf("%q: status %d", b, a.status)
		}
		if err := a.refusal(&p); err != nil {
			if text := err.Error(); strings.Contains(text, secret) || len(text) > 120 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%q: %q", b, text)
			}
		}
	})
}
