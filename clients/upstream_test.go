//go:build unix

package clients

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"retryproxy/internal/egresstest"
)

// upstream is every host under .test, by http and https, behind an egress proxy
// that knows where they are. What it does depends on the path, per host:
//
//	/heal    two 503, then 200
//	/after   503 with Retry-After: 1, then 200
//	/warm    200
//	/die     reads the request and closes the connection; with a key, the second time 200
//	/cut     closes the client's connections to the proxy, then 200
//	/page    a page that plays /steps and sends what came of it to /report
type upstream struct {
	egress string // address of the egress proxy
	plain  string // address by http, for who comes without any proxy
	cert   *x509.Certificate

	mu   sync.Mutex
	seen map[string][]arrival // by host and path
	jobs map[string]*job      // by host
}

// arrival is one request as the upstream got it.
type arrival struct {
	at  time.Time
	key string
	tls bool
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{seen: map[string][]arrival{}, jobs: map[string]*job{}}
	plain, secure := httptest.NewServer(u), httptest.NewUnstartedServer(u)
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{u.certificate(t)}}
	secure.StartTLS()
	at := map[string]string{"80": plain.Listener.Addr().String(), "443": secure.Listener.Addr().String()}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := egresstest.Serve(l, egresstest.Config{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		_, port, _ := net.SplitHostPort(addr)
		var d net.Dialer
		return d.DialContext(ctx, "tcp", at[port])
	}})
	u.plain = plain.Listener.Addr().String()
	u.egress = l.Addr().String()
	t.Cleanup(func() { stop(); plain.Close(); secure.Close() })
	return u
}

// certificate is good for every host of ours, and its own root.
func (u *upstream) certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "upstreams of the test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"*.plain.test", "*.intercept.test", "*.upgrade.test", "*.absolute.test"},
		IsCA:     true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if u.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// roots writes what the product has to trust.
func (u *upstream) roots(dir string) string {
	file := filepath.Join(dir, "upstream.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: u.cert.Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		panic(err)
	}
	return file
}

// add makes the job's host known.
func (u *upstream) add(j *job) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.jobs[j.host] = j
}

// arrivals are the requests for a path of a host so far.
func (u *upstream) arrivals(host, path string) []arrival {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]arrival(nil), u.seen[host+path]...)
}

// count is how many requests for a path of a host had the key.
func (u *upstream) count(host, path, key string) (n int) {
	for _, a := range u.arrivals(host, path) {
		if a.key == key {
			n++
		}
	}
	return n
}

// note keeps a request and counts those that are alike.
func (u *upstream) note(r *http.Request, host string) (n int, j *job) {
	a := arrival{time.Now(), r.Header.Get("X-Idempotency-Key"), r.TLS != nil}
	u.mu.Lock()
	u.seen[host+r.URL.Path] = append(u.seen[host+r.URL.Path], a)
	j = u.jobs[host]
	u.mu.Unlock()
	return u.count(host, r.URL.Path, a.key), j
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	host, _, _ := strings.Cut(r.Host, ":")
	n, j := u.note(r, host)
	if j == nil {
		http.Error(w, "no such host", http.StatusNotFound)
		return
	}
	switch path := r.URL.Path; {
	case path == "/heal" && n <= 2:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case path == "/after" && n == 1:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case path == "/die" && n == 1:
		panic(http.ErrAbortHandler) // closes the connection
	case path == "/cut" && n == 1:
		j.relay.cut()
	case path == "/page":
		http.ServeFile(w, r, "testdata/page.html")
		return
	case path == "/steps":
		io.WriteString(w, j.steps())
		return
	case path == "/report":
		j.report <- string(body)
	}
	fmt.Fprintf(w, "%s %d\n", strings.TrimPrefix(r.URL.Path, "/"), n)
}
