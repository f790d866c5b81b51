package demo

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"strings"
	"testing"
)

// lend starts no proxy: calls reach the upstream itself, unprotected.
func lend(addr string, configs *[]string) func(context.Context, string) (string, string, func(), error) {
	return func(_ context.Context, config string) (string, string, func(), error) {
		*configs = append(*configs, config)
		return addr, addr, func() { *configs = append(*configs, "stopped") }, nil
	}
}

func noExplain([]string, io.Writer) error { return nil }

func TestWalkWithoutRetriesBreaksThePromise(t *testing.T) {
	u := listen(t)
	var out bytes.Buffer
	err := Walk(t.Context(), &out, Stage{Proxy: u.Addr(), Admin: u.Addr(), Upstream: u, Explain: noExplain})
	if !errors.Is(err, ErrPromise) || !strings.HasPrefix(err.Error(), "step 1: ") {
		t.Errorf("Walk(no proxy) = %v, want ErrPromise in step 1", err)
	}
	for _, want := range []string{
		"1. A 503 that heals\n",
		"   > GET http://" + u.Addr() + "/fail/503?times=2&id=heal HTTP/1.1\n",
		"   < HTTP/1.1 503 Service Unavailable\n",
		" s, 1 request at the upstream. ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("Walk(no proxy) printed %q, want %q in it", out.String(), want)
		}
	}
}

func TestWalkEndsWithItsContext(t *testing.T) {
	u := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Walk(ctx, io.Discard, Stage{Proxy: u.Addr(), Admin: u.Addr(), Upstream: u, Explain: noExplain})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Walk(cancelled) = %v, want context.Canceled", err)
	}
}

func TestRunWalkStopsTheProxyItStarted(t *testing.T) {
	u := listen(t)
	var configs []string
	err := Run(t.Context(), nil, io.Discard, lend(u.Addr(), &configs), noExplain)
	if !errors.Is(err, ErrPromise) {
		t.Errorf("Run(walk) = %v, want ErrPromise", err)
	}
	want := "listen: {proxy: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\n" + Config
	if len(configs) != 2 || configs[0] != want || configs[1] != "stopped" {
		t.Errorf("Run(walk) used %q, want one start with %q and one stop", configs, want)
	}
}

func TestRunServe(t *testing.T) {
	u := listen(t)
	var configs []string
	var out bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Run(ctx, []string{"-serve", "-upstream", "127.0.0.1:0", "-listen", "127.0.0.1:18080"}, &out, lend(u.Addr(), &configs), noExplain)
	if err != nil {
		t.Fatalf("Run(-serve) = %v, want nil", err)
	}
	if len(configs) != 2 || !strings.Contains(configs[0], `proxy: "127.0.0.1:18080", admin: "127.0.0.1:9090"`) {
		t.Errorf("Run(-serve) used %q, want the address given and a stop", configs)
	}
	if !strings.Contains(configs[0], patient) || !strings.Contains(out.String(), "for=5s") || !strings.Contains(out.String(), `/ok"   # one call`) {
		t.Errorf("Run(-serve) used %q and printed %q, want retries that outlast the outage it proposes, and the call", configs[0], out.String())
	}
	for _, want := range []string{"\nbash:\n  curl -i -x http://" + u.Addr(), "\nPowerShell:\n  curl.exe -i -x http://" + u.Addr()} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("Run(-serve) printed %q, want %q in it", out.String(), want)
		}
	}
}

func TestRunUpstreamAlone(t *testing.T) {
	var out bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, []string{"-upstream", "127.0.0.1:0"}, &out, nil, nil); err != nil {
		t.Errorf("Run(-upstream) = %v, want nil", err)
	}
	if !strings.Contains(out.String(), "listens on 127.0.0.1:") {
		t.Errorf("Run(-upstream) printed %q, want its address", out.String())
	}
}

func TestRunUsage(t *testing.T) {
	tests := []struct {
		args []string
		want error
	}{
		{[]string{"-h"}, flag.ErrHelp},
		{[]string{"-nonsense"}, ErrUsage},
		{[]string{"nonsense"}, ErrUsage},
	}
	for _, test := range tests {
		if err := Run(t.Context(), test.args, io.Discard, nil, nil); !errors.Is(err, test.want) {
			t.Errorf("Run(%q) = %v, want %v", test.args, err, test.want)
		}
	}
}

func TestRunSaysThatAPortIsTaken(t *testing.T) {
	u := listen(t)
	err := Run(t.Context(), []string{"-upstream", u.Addr()}, io.Discard, nil, nil)
	if err == nil || !strings.Contains(err.Error(), u.Addr()) {
		t.Errorf("Run(port taken) = %v, want an error that names %s", err, u.Addr())
	}
}

func TestShow(t *testing.T) {
	c := call{method: "POST", target: "http://a:1/x", lines: []string{"X-Idempotency-Key: k"}, body: "item=1"}
	r := reply{
		head:   "HTTP/1.1 502 Bad Gateway\r\nDate: today\r\nX-Call-ID: c1\r\nRetry-After: 3",
		header: http.Header{"Content-Type": {"application/problem+json"}},
		body:   `{"type":"urn:x","title":"a title","detail":"a detail","attempts":[]}`,
	}
	var out bytes.Buffer
	show(&out, c, r)
	want := `   > POST http://a:1/x HTTP/1.1
   > X-Idempotency-Key: k
   < HTTP/1.1 502 Bad Gateway
   < X-Call-ID: c1
   < Retry-After: 3
   < {… "title": "a title", "detail": "a detail" …}
`
	if out.String() != want {
		t.Errorf("show() = %q, want %q", out.String(), want)
	}
}

func TestCallText(t *testing.T) {
	c := call{method: "POST", target: "http://a:1/x?y=%zz", lines: []string{"A: b"}, body: "12"}
	const want = "POST http://a:1/x?y=%zz HTTP/1.1\r\nHost: a:1\r\nA: b\r\nContent-Length: 2\r\n\r\n12"
	if got := c.text(); got != want {
		t.Errorf("text() = %q, want %q", got, want)
	}
}

func TestShorten(t *testing.T) {
	tests := []struct{ in, want string }{
		{"a\n b", "a b"},
		{"12345678", "12345678"},
		{"123456789", "12345678 …"},
		{"1234567é", "1234567 …"},
	}
	for _, test := range tests {
		if got := shorten(test.in, 8); got != test.want {
			t.Errorf("shorten(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}
