package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

func listen(t *testing.T) *Upstream {
	t.Helper()
	u, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
	return u
}

// ask sends a request on a connection of its own and gives all that came back.
func ask(t *testing.T, u *Upstream, method, target string, lines ...string) (string, error) {
	t.Helper()
	c, err := net.Dial("tcp", u.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n", method, target)
	body := ""
	for _, line := range lines {
		if name, value, _ := strings.Cut(line, "="); name == "body" {
			body = value
			line = fmt.Sprintf("Content-Length: %d", len(body))
		}
		head += line + "\r\n"
	}
	if _, err := io.WriteString(c, head+"\r\n"+body); err != nil {
		t.Fatal(err)
	}
	reply, err := io.ReadAll(c)
	return string(reply), err
}

func TestBehaviours(t *testing.T) {
	tests := []struct {
		target string
		want   []string // parts of the answers to the same request, in order; RST and EOF for none
	}{
		{"/ok", []string{"HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\n"}},
		{"/status/503", []string{"HTTP/1.1 503 Service Unavailable\r\n", "HTTP/1.1 503 "}},
		{"/status/none", []string{"HTTP/1.1 400 "}},
		{"/fail/503?id=a", []string{" 503 ", " 503 ", " 200 ", " 503 "}},
		{"/fail/429?id=b&times=1&then=404", []string{" 429 ", " 404 "}},
		{"/retry-after/2?id=c", []string{"\r\nRetry-After: 2\r\n", " 200 "}},
		{"/retry-after/2%0d%0aX:y?id=d&status=503", []string{" 503 Service Unavailable\r\n", " 200 "}},
		{"/reset", []string{"RST", "RST"}},
		{"/reset?times=1", []string{"RST", " 200 "}},
		{"/reset-after", []string{"RST"}},
		{"/close", []string{"EOF"}},
		{"/stall?for=1ms", []string{"\"late\":true"}},
		{"/truncate?times=1", []string{"Content-Length: 1000\r\n\r\nxxx", "{\"ok\":true}"}},
		{"/junk", []string{"this is not HTTP"}},
		{"/suspect", []string{"{\"success\":false,\"error_code\":50001"}},
		{"/slow?ms=1", []string{" 200 "}},
		{"/echo?q=%zz", []string{"POST /echo?q=%zz HTTP/1.1\r\nHost: demo\r\n"}},
		{"/", []string{"/retry-after/2"}},
		{"/nowhere", []string{" 404 "}},
		{"/\x7f", []string{" 400 "}},
	}
	for _, test := range tests {
		t.Run(test.target, func(t *testing.T) {
			u := listen(t)
			for i, want := range test.want {
				got, err := ask(t, u, "POST", test.target, "body=x")
				switch {
				case errors.Is(err, syscall.ECONNRESET):
					got = "RST"
				case err == nil && got == "":
					got = "EOF"
				}
				if !strings.Contains(got, want) {
					t.Errorf("answer %d = %q (%v), want %q", i+1, got, err, want)
				}
			}
		})
	}
}

func TestHeaderInjectionIsNotPossible(t *testing.T) {
	u := listen(t)
	got, _ := ask(t, u, "GET", "/retry-after/2%0d%0aX:y")
	if !strings.Contains(got, "\r\nRetry-After: 2X:y\r\n") {
		t.Errorf("answer = %q, want the line end taken out", got)
	}
}

func TestOrdersFoldByKey(t *testing.T) {
	tests := []struct {
		name    string
		target  string
		lines   []string
		answers int // that arrive, of 3 requests
		effects int
	}{
		{"no key", "/order", nil, 3, 3},
		{"key", "/order", []string{"X-Idempotency-Key: k"}, 3, 1},
		{"standard key", "/order", []string{`Idempotency-Key: "k"`}, 3, 1},
		{"upstream ignores keys", "/order?fold=no", []string{"X-Idempotency-Key: k"}, 3, 3},
		{"first answer lost", "/order?lose=1", []string{"X-Idempotency-Key: k"}, 2, 1},
		{"done before the reset", "/reset-after", nil, 0, 3},
		{"not done before the reset", "/reset", nil, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			u := listen(t)
			ids := map[string]bool{}
			answers := 0
			for range 3 {
				got, err := ask(t, u, "POST", test.target, append(test.lines, "body=item")...)
				if err == nil && strings.Contains(got, " 201 ") {
					answers++
					ids[got[strings.Index(got, "A-"):][:6]] = true
				}
			}
			requests, effects := u.Counts()
			if answers != test.answers || effects != test.effects || requests != 3 {
				t.Errorf("answers, effects, requests = %d, %d, %d, want %d, %d, 3", answers, effects, requests, test.answers, test.effects)
			}
			if test.answers > 0 && len(ids) != test.effects {
				t.Errorf("order ids = %v, want %d", ids, test.effects)
			}
		})
	}
}

func TestReadingHasNoEffect(t *testing.T) {
	u := listen(t)
	_, _ = ask(t, u, "GET", "/ok")
	_, _ = ask(t, u, "HEAD", "/order")
	if requests, effects := u.Counts(); requests != 2 || effects != 0 {
		t.Errorf("Counts() = %d, %d, want 2, 0", requests, effects)
	}
}

func TestOutageEnds(t *testing.T) {
	u := listen(t)
	_, _ = ask(t, u, "POST", "/outage?for=1h")
	if got, _ := ask(t, u, "GET", "/ok"); !strings.Contains(got, " 503 ") {
		t.Errorf("answer in the outage = %q, want 503", got)
	}
	if got, _ := ask(t, u, "GET", "/effects"); !strings.Contains(got, " 200 ") {
		t.Errorf("/effects in the outage = %q, want 200", got)
	}
	u.Outage(0)
	if got, _ := ask(t, u, "GET", "/ok"); !strings.Contains(got, " 200 ") {
		t.Errorf("answer after the outage = %q, want 200", got)
	}
}

func TestEffectsListTheNewestRequests(t *testing.T) {
	u := listen(t)
	for range shown + 5 {
		_, _ = ask(t, u, "GET", "/ok", "X-Idempotency-Key: k", "X-Retry-Count: 2")
	}
	got, _ := ask(t, u, "GET", "/effects")
	var view struct {
		Requests int
		Recent   []seen
	}
	_, body, _ := strings.Cut(got, "\r\n\r\n")
	if err := json.Unmarshal([]byte(body), &view); err != nil {
		t.Fatal(err)
	}
	first := view.Recent[0]
	if view.Requests != shown+6 || len(view.Recent) != shown || first.Key != "k" || first.Retry != "2" || first.Line != "GET /ok HTTP/1.1" {
		t.Errorf("requests = %d, listed = %d, first = %+v, want %d, %d and its key and count", view.Requests, len(view.Recent), first, shown+6, shown)
	}
}

// TestConnectionIsKept sends several requests, with every framing, on one connection.
func TestConnectionIsKept(t *testing.T) {
	u := listen(t)
	c, err := net.Dial("tcp", u.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	requests := []struct{ method, text, want string }{
		{"GET", "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"POST", "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"},
		{"POST", "\r\nPOST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n", "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nabc"},
		{"HEAD", "HEAD /ok HTTP/1.1\r\nHost: a\r\n\r\n", ""},
		{"GET", "GET /status/204 HTTP/1.1\r\nHost: a\r\n\r\n", ""},
		{"GET", "GET /ok HTTP/1.1\r\nHost: a\r\n\r\n", "{\"ok\":true}\n"},
	}
	for _, r := range requests {
		if _, err := io.WriteString(c, r.text); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(in, &http.Request{Method: r.method})
		if err != nil {
			t.Fatalf("%q: %v", r.text, err)
		}
		got, err := io.ReadAll(res.Body)
		if string(got) != r.want || err != nil {
			t.Errorf("answer to %q = %q (%v), want %q", r.text, got, err, r.want)
		}
	}
}

func TestExpectContinue(t *testing.T) {
	u := listen(t)
	got, _ := ask(t, u, "POST", "/ok", "Expect: 100-continue", "body=x")
	if !strings.HasPrefix(got, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n") {
		t.Errorf("answer = %q, want 100 and then 200", got)
	}
}

func TestUnfinishedBodyIsNoEffect(t *testing.T) {
	u := listen(t)
	for _, text := range []string{
		"POST /order HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc",
		"POST /order HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
	} {
		c, err := net.Dial("tcp", u.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, text)
		_ = c.(*net.TCPConn).CloseWrite()
		reply, _ := io.ReadAll(c)
		_ = c.Close()
		if _, effects := u.Counts(); len(reply) > 0 || effects != 0 {
			t.Errorf("reply to %q = %q, effects = %d, want none", text, reply, effects)
		}
	}
}

func TestHugeHeaderIsRefused(t *testing.T) {
	u := listen(t)
	got, err := ask(t, u, "GET", "/ok", "X-Big: "+strings.Repeat("x", maxHeader))
	if !strings.Contains(got, " 400 ") && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("answer = %q (%v), want 400 or a reset", got, err)
	}
}

func TestCloseEndsAStall(t *testing.T) {
	u := listen(t)
	ended := make(chan struct{})
	c, err := net.Dial("tcp", u.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "GET /stall?for=1h HTTP/1.1\r\n\r\n")
	go func() {
		defer close(ended)
		_, _ = io.ReadAll(c)
	}()
	if err := u.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("the stalled connection outlived the upstream")
	}
}
