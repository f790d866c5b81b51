package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Our own clients get the certificate of our CA from us.
func TestInternalHost(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		want := string(r.app.ways.ca.PEM())
		c, in, got := r.connect("retryproxy.internal:80")
		defer c.Close()
		r.want(got, 200, nil, 0)
		for name, got := range map[string]reply{
			"absolute":    r.get("http://retryproxy.internal/ca.pem"),
			"with a port": r.get("http://RetryProxy.internal:80/ca.pem?x"),
			"in a tunnel": r.inside(c, in, "GET /ca.pem HTTP/1.1\r\nHost: retryproxy.internal\r\n\r\n"),
			"again in it": r.inside(c, in, "GET http://retryproxy.internal/ca.pem HTTP/1.1\r\nHost: retryproxy.internal\r\n\r\n"),
			"admin":       r.admin("GET", "/ca.pem", "", nil),
		} {
			if got.Status != 200 || got.Body != want || got.Header.Get("Content-Type") != "application/x-pem-file" {
				t.Errorf("%s = %d %q %v, want the CA", name, got.Status, got.Body, got.Header)
			}
		}
		head := r.do("HEAD", "http://retryproxy.internal/ca.pem", "")
		r.want(head, 200, nil, 0)
		r.wantBody(head, "")
		if head.Header.Get("Content-Length") == "" {
			t.Errorf("HEAD = %v, want a length", head.Header)
		}
		for _, path := range []string{"/", "/ca.key", "/CA.pem", "/ca.pem/", "/../ca.pem"} {
			r.want(r.get("http://retryproxy.internal"+path), 404, nil, 0)
		}
		r.want(r.post("http://retryproxy.internal/ca.pem", "{}"), 405, nil, 0)
		r.wantDials(0)
	}, opening(ca, "[u1.test]")...)
	bubble(t, func(r *rig) {
		r.want(r.get("http://retryproxy.internal/ca.pem"), 404, nil, 0)
		r.want(r.admin("GET", "/ca.pem", "", nil), 404, nil, 0)
	})
}

// The name is ours only where it is asked for as such: another port, scheme or
// tunnel is another host, and no tunnel to it goes inside a tunnel.
func TestInternalHostElsewhere(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		r.upstream("u1.test:80", answer(200, "theirs"))
		for _, url := range []string{"http://retryproxy.internal:7000/ca.pem", "https://retryproxy.internal/ca.pem", "http://x.retryproxy.internal/ca.pem"} {
			got := r.get(url)
			if strings.Contains(url, "x.retry") {
				r.want(got, 502, nil, 0) // there is no such host
			} else {
				r.want(got, 400, nil, 0) // it is ours, and is not looked for elsewhere
			}
			if strings.Contains(got.Body, "CERTIFICATE") {
				t.Errorf("%s gives the CA", url)
			}
		}
		for target, text := range map[string]string{
			"u1.test:80":             "GET /ca.pem HTTP/1.1\r\nHost: retryproxy.internal\r\n\r\n",
			"u1.test:7000":           "GET http://retryproxy.internal/ca.pem HTTP/1.1\r\nHost: retryproxy.internal\r\n\r\n",
			"retryproxy.internal:80": "GET /ca.pem HTTP/1.1\r\nHost: u1.test\r\n\r\n",
		} {
			c, in, _ := r.connect(target)
			r.want(r.inside(c, in, text), 400, nil, 0)
			c.Close()
		}
		c, in, _ := r.connect("retryproxy.internal:80")
		defer c.Close()
		if got := r.inside(c, in, "CONNECT retryproxy.internal:80 HTTP/1.1\r\nHost: retryproxy.internal:80\r\n\r\n"); got.Status == 200 {
			t.Error("a tunnel was opened inside a tunnel")
		}
		r.wantDials(0)
	}, opening(ca, "['*']")...)
}

func TestInternalHostNeedsCredentials(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		got := r.get("http://retryproxy.internal/ca.pem")
		r.want(got, 407, nil, 0)
		c, _, got := r.connect("retryproxy.internal:80")
		c.Close()
		r.want(got, 407, nil, 0)
		proxy := "Proxy-Authorization: " + basic("bot1", "secret")
		r.want(r.get("http://retryproxy.internal/ca.pem", proxy), 200, nil, 0)
		c, in, _ := r.connect("retryproxy.internal:80", proxy)
		defer c.Close()
		r.want(r.inside(c, in, "GET /ca.pem HTTP/1.1\r\nHost: retryproxy.internal\r\n\r\n"), 200, nil, 0)
	}, patches(opening(ca, "[u1.test]"), users(t))...)
}

// The key of our CA is in its file, and nowhere else.
func TestTheKeyOfOurCAStaysSecret(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(503, ""), echo)
		text, err := os.ReadFile(filepath.Join(r.app.data, "ca.key"))
		if err != nil {
			t.Fatal(err)
		}
		secrets := secretsOf(t, text)
		got := r.secretly("GET", "https://u1.test/x", "")
		r.want(got, 200, u, 2)
		r.refuses("u1.test:443", visitor{}, 3)
		shown := got.Body + r.get("http://retryproxy.internal/ca.pem").Body + r.get("http://retryproxy.internal/ca.key").Body
		for _, path := range []string{"/ca.pem", "/ca.key", "/api/v1/intercept", "/api/v1/policies", "/api/v1/explain", "/api/v1/config?format=yaml", "/", "/readyz", "/debug/pprof/heap"} {
			shown += r.admin("GET", path, "", nil).Body
		}
		for _, s := range secrets {
			if strings.Contains(shown, s) {
				t.Errorf("an answer shows %q", s)
			}
		}
		r.none(secrets...)
	}, opening(ca, "[u1.test]")...)
}

// secretsOf are the texts by which a key would show itself.
func secretsOf(t *testing.T, file []byte) (out []string) {
	t.Helper()
	block, _ := pem.Decode(file)
	if block == nil {
		t.Fatalf("no PEM in %q", file)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	d := key.(*ecdsa.PrivateKey).D //nolint:staticcheck // the number is what must not show
	raw := d.FillBytes(make([]byte, 32))
	out = append(out, "PRIVATE KEY", d.String(), d.Text(16), string(raw), hex.EncodeToString(raw), strings.ToUpper(d.Text(16)))
	// The lines that hold a part of it; the others are the public half.
	const perLine = 48
	at := bytes.Index(block.Bytes, raw)
	lines := strings.Split(string(file), "\n")[1:]
	return append(out, lines[at/perLine:(at+len(raw)-1)/perLine+1]...)
}

// A reload opens and closes tunnels to come; a host keeps its certificate.
func TestInterceptionIsReloaded(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		for _, host := range []string{"u1.test", "u2.test"} {
			r.upstreamTLS(host+":443", ca.certificate(host), answer(200, "ok"))
		}
		theirs := visitor{roots: ca.theirs()}
		old := r.open("u1.test:443", visitor{})
		defer old.Close()
		serial := old.leaf().SerialNumber
		r.wantInside("u2.test:443", theirs, false)

		r.applies(opening(ca, "[u1.test, u2.test]")...)
		r.wantInside("u2.test:443", visitor{}, true)
		again := r.open("u1.test:443", visitor{})
		if got := again.leaf().SerialNumber; got.Cmp(serial) != 0 {
			t.Errorf("serial after the reload = %v, want %v as before", got, serial)
		}
		again.Close()
		r.want(old.ask(r, "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n"), 200, nil, 0) // what is open goes on

		r.applies(trusting(ca)...)
		r.wantInside("u1.test:443", theirs, false)
		r.wantInside("u2.test:443", theirs, false)
		r.want(r.admin("GET", "/ca.pem", "", nil), 404, nil, 0)

		r.applies(opening(ca, "[u1.test]")...)
		r.wantInside("u1.test:443", visitor{}, true)
	}, opening(ca, "[u1.test]")...)
	bubble(t, func(r *rig) { // from nothing
		r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
		r.applies(opening(ca, "[u1.test]")...)
		r.want(r.secretly("GET", "https://u1.test/x", ""), 200, nil, 0)
	})
}

// Draining lets calls in flight end, says so to their clients, and closes what is
// idle or has not begun.
func TestInterceptedCallsAreDrained(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), after(800*time.Millisecond, answer(200, "ok")))
		busy, idle := r.open("u1.test:443", visitor{}), r.open("u1.test:443", visitor{})
		two, spare := r.openH2("u1.test:443"), r.openH2("u1.test:443")
		silent, in, _ := r.connect("u1.test:443")
		defer silent.Close()
		r.want(idle.ask(r, "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n"), 200, u, 1)
		io.WriteString(busy, "GET /x HTTP/1.1\r\nHost: u1.test\r\n\r\n")
		other := r.async(func() reply { return two.ask("GET", "/x", "") })
		rest(100 * time.Millisecond)
		began := time.Now()
		ended := r.drain()
		if _, err := idle.in.ReadByte(); err != io.EOF {
			t.Errorf("an idle connection: %v, want its end", err)
		}
		r.between("the end of an idle connection", time.Since(began), 0, 0)
		all, err := io.ReadAll(busy.in)
		if text := string(all); err != nil || !strings.HasPrefix(text, "HTTP/1.1 200 ") || !strings.Contains(text, "\r\nConnection: close\r\n") || !strings.HasSuffix(text, "\r\n\r\nok") {
			t.Errorf("a call in flight ended as %q, %v; want its answer with Connection: close, then the end", text, err)
		}
		r.want(<-other, 200, u, 3)
		for name, c := range map[string]*h2client{"busy": two, "idle": spare} {
			if c.CanTakeNewRequest() {
				t.Errorf("the %s connection of HTTP/2 takes requests, want GOAWAY", name)
			}
		}
		<-ended
		r.between("the end", time.Since(began), 700*time.Millisecond, 5*time.Second)
		if _, err := in.ReadByte(); err == nil {
			t.Error("a tunnel that nobody spoke in goes on")
		}
		for _, c := range []io.Closer{busy, idle, two, spare} {
			c.Close()
		}
	}, opening(ca, "[u1.test]")...)
}

// A call that waits for its retry when the drain begins gets its answer.
func TestWaitingInterceptedCallsAreDrained(t *testing.T) {
	ca := newCA(t)
	bubble(t, func(r *rig) {
		u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(503, "busy", "Retry-After: 4"))
		c := r.openH2("u1.test:443")
		defer c.Close()
		one := r.async(func() reply { return c.ask("GET", "/x", "") })
		rest(100 * time.Millisecond)
		r.drain()
		got := <-one
		r.want(got, 503, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "shutting_down")
		r.wantBody(got, "busy")
	}, opening(ca, "[u1.test]")...)
}
