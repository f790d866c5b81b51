package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"retryproxy/attempt"
	"retryproxy/config"
	"retryproxy/internal/memnet"
)

// Clients whose tunnels we open.

// opening is the patch that opens the tunnels to hosts (a YAML list) and trusts
// the authority of the upstreams.
func opening(ca *authority, hosts string) []string {
	return patches(trusting(ca), lays("intercept: {hosts: "+hosts+"}"))
}

// visitor is a client that asks for a tunnel and speaks TLS in it. The zero value
// trusts our CA and asks for the tunnel's target by name.
type visitor struct {
	from     string   // address; empty: 127.0.0.1
	headers  []string // of the CONNECT
	name     string   // SNI; empty: the target's; "-": none
	protos   []string // ALPN
	distrust bool     // trusts nobody
	roots    *x509.CertPool
}

// opened is the inside of a tunnel: TLS with whoever is at its end.
type opened struct {
	*tls.Conn
	in *bufio.Reader
}

// ours is the pool of a client that trusts our CA.
func (r *rig) ours() *x509.CertPool {
	r.t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(r.app.ways.ca.PEM()) {
		r.t.Fatal("there is no CA of ours")
	}
	return pool
}

// theirs is the pool of a client that trusts the upstreams' authority only.
func (ca *authority) theirs() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// config is the client's side of TLS for a host.
func (v *visitor) config(r *rig, host string) *tls.Config {
	c := &tls.Config{ServerName: host, RootCAs: v.roots, NextProtos: v.protos}
	if v.roots == nil && !v.distrust {
		c.RootCAs = r.ours()
	}
	if v.distrust {
		c.RootCAs = x509.NewCertPool()
	}
	if v.name == "" {
		return c
	}
	roots := c.RootCAs // whoever asks for another name checks the target's all the same
	c.ServerName = strings.TrimPrefix(v.name, "-")
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(s tls.ConnectionState) error {
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: host, Roots: roots})
		return err
	}
	return c
}

// visit asks for a tunnel and speaks TLS in it; the error is that of TLS.
func (r *rig) visit(target string, v visitor) (*opened, error) {
	r.t.Helper()
	host, _, _ := net.SplitHostPort(target)
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if v.from == "" {
		v.from = "127.0.0.1"
	}
	raw, _, got := r.connectOn(r.dialFrom(v.from, proxyAddr), target, v.headers...)
	if got.Status != 200 {
		raw.Close()
		r.t.Fatalf("CONNECT %s = %d %s %v", target, got.Status, got.Body, got.Err)
	}
	tc := tls.Client(raw, v.config(r, host))
	if err := tc.HandshakeContext(r.t.Context()); err != nil {
		raw.Close()
		return nil, err
	}
	return &opened{tc, bufio.NewReader(tc)}, nil
}

// open is visit for a client that gets in.
func (r *rig) open(target string, v visitor) *opened {
	r.t.Helper()
	o, err := r.visit(target, v)
	if err != nil {
		r.t.Fatalf("TLS in the tunnel to %s: %v", target, err)
	}
	return o
}

// ask sends one request over HTTP/1.1.
func (o *opened) ask(r *rig, text string) reply {
	r.t.Helper()
	return r.inside(o, o.in, text)
}

// leaf is the certificate at the end of the tunnel.
func (o *opened) leaf() *x509.Certificate { return o.ConnectionState().PeerCertificates[0] }

// secretly does one request in a tunnel of its own.
func (r *rig) secretly(method, url, body string, headers ...string) reply {
	r.t.Helper()
	return r.secretlyAs(visitor{}, method, url, body, headers...)
}

// secretlyAs is secretly for a certain client.
func (r *rig) secretlyAs(v visitor, method, url, body string, headers ...string) reply {
	r.t.Helper()
	host, path, _ := strings.Cut(strings.TrimPrefix(url, "https://"), "/")
	o := r.open(host+":443", v)
	defer o.Close()
	return o.ask(r, rawOrigin(method, host, "/"+path, body, headers...))
}

// h2client is a client of HTTP/2 in an opened tunnel.
type h2client struct {
	*http2.ClientConn
	r    *rig
	host string
	conn *opened
}

// openH2 opens a tunnel and speaks HTTP/2 in it.
func (r *rig) openH2(target string) *h2client {
	r.t.Helper()
	return r.openH2As(target, visitor{protos: []string{"h2"}})
}

// openH2As is openH2 for a certain client.
func (r *rig) openH2As(target string, v visitor) *h2client {
	r.t.Helper()
	o := r.open(target, v)
	if p := o.ConnectionState().NegotiatedProtocol; p != "h2" {
		r.t.Fatalf("protocol = %q, want h2", p)
	}
	cc, err := (&http2.Transport{DisableCompression: true}).NewClientConn(o.Conn) //nolint:staticcheck // net/http's own wants to dial and to do TLS itself
	if err != nil {
		r.t.Fatal(err)
	}
	host, _, _ := net.SplitHostPort(target)
	return &h2client{cc, r, host, o}
}

// request makes a request; headers are lines.
func (c *h2client) request(method, path, body string, headers ...string) *http.Request {
	c.r.t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	q, err := http.NewRequestWithContext(c.r.t.Context(), method, "https://"+c.host+path, content)
	if err != nil {
		c.r.t.Fatal(err)
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		q.Header.Add(name, value)
	}
	return q
}

// do sends one request and reads its answer.
func (c *h2client) do(q *http.Request) reply {
	began := time.Now()
	res, err := c.RoundTrip(q)
	if err != nil {
		return reply{Err: err, Took: time.Since(began)}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return reply{Status: res.StatusCode, Header: res.Header, Body: string(body), Trailer: res.Trailer, Err: err, Proto: res.Proto, Took: time.Since(began)}
}

// ask sends one request.
func (c *h2client) ask(method, path, body string, headers ...string) reply {
	c.r.t.Helper()
	return c.do(c.request(method, path, body, headers...))
}

// resetTLS is reset for an upstream that speaks TLS.
func resetTLS(_ *scripted, c net.Conn, _ *request) bool {
	c.(*tls.Conn).NetConn().(*memnet.Conn).Reset()
	return false
}

// drain begins to shut the rig down; wait for what it returns.
func (r *rig) drain() (ended <-chan struct{}) {
	stop, done := r.stop, make(chan struct{})
	r.stop = func() { <-done }
	go func() {
		defer close(done)
		stop()
	}()
	return done
}

// applies makes the configuration of the cases with patches the one in force, as
// a changed file does.
func (r *rig) applies(patch ...string) {
	r.t.Helper()
	r.app.parse = func(data []byte) (*config.Config, error) { return parseText(string(data)) }
	text := caseConfig
	for i := 0; i+1 < len(patch); i += 2 {
		text = strings.ReplaceAll(text, patch[i], patch[i+1])
	}
	if err := r.app.apply([]byte(text)); err != nil {
		r.t.Fatal(err)
	}
}

// wantMode checks how the last call came in, in the API and in the log.
func (r *rig) wantMode(mode string) {
	r.t.Helper()
	if got := r.last().Mode; got != mode {
		r.t.Errorf("mode = %s, want %s", got, mode)
	}
	if lines := r.logged("call"); len(lines) == 0 || lines[len(lines)-1]["mode"] != mode {
		r.t.Errorf("logged %v, want mode %s in the last", lines, mode)
	}
	var calls []struct{ Mode string }
	r.admin("GET", "/api/v1/calls", "", &calls)
	if !slices.ContainsFunc(calls, func(c struct{ Mode string }) bool { return c.Mode == mode }) {
		r.t.Errorf("GET /api/v1/calls = %+v, want one with mode %s", calls, mode)
	}
}

// wantInside checks that the inside of a tunnel speaks for a host with our
// certificate, or with the upstream's own.
func (r *rig) wantInside(target string, v visitor, open bool) {
	r.t.Helper()
	o, err := r.visit(target, v)
	if err != nil {
		if open || !v.distrust {
			r.t.Errorf("TLS in the tunnel to %s: %v", target, err)
		}
		return
	}
	defer o.Close()
	if ours := strings.HasPrefix(o.leaf().Issuer.CommonName, "retryproxy CA"); ours != open {
		r.t.Errorf("the tunnel to %s shows a certificate of %q, opened = %v, want %v", target, o.leaf().Issuer, ours, open)
	}
}

// tlsEnd makes an upstream speak TLS.
func tlsEnd(cert tls.Certificate) func(net.Conn) net.Conn {
	return func(c net.Conn) net.Conn { return tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}}) }
}

// interceptedCall is the last call that came in through an opened tunnel: the
// CONNECT itself may have ended since.
func (r *rig) interceptedCall() *attempt.Summary {
	r.t.Helper()
	all := r.ended()
	for _, c := range slices.Backward(all) {
		if c.Mode == "intercept" {
			return c
		}
	}
	r.t.Fatal("no intercepted call has ended")
	return nil
}

// wantLeaves checks for how many hosts there is a certificate.
func (r *rig) wantLeaves(n int) {
	r.t.Helper()
	hosts := reflect.ValueOf(r.app.ways.ca).Elem().FieldByName("hosts")
	if got := hosts.Elem().FieldByName("lru").Elem().FieldByName("items").Len(); got != n {
		r.t.Errorf("hosts with a certificate = %d, want %d", got, n)
	}
}

// asker opens a tunnel, to be closed with the rig, and asks /x in it again and
// again.
func (r *rig) asker(target string, h2 bool) func(method, body string) reply {
	r.t.Helper()
	stop := r.stop
	if h2 {
		c := r.openH2(target)
		r.stop = func() { c.Close(); stop() }
		return func(method, body string) reply { return c.ask(method, "/x", body) }
	}
	o := r.open(target, visitor{})
	r.stop = func() { o.Close(); stop() }
	host, _, _ := net.SplitHostPort(target)
	return func(method, body string) reply { return o.ask(r, rawOrigin(method, host, "/x", body)) }
}
