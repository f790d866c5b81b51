package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Upstreams beyond those that simply listen and answer.

// closed is an upstream that refuses connections until it is opened.
func (r *rig) closed(host string, script ...step) *scripted {
	s := r.upstream(host, script...)
	s.l.Close()
	return s
}

// openAfter lets a closed upstream listen after a time.
func (s *scripted) openAfter(d time.Duration) {
	at := s.l.Addr().String()
	opened := make(chan struct{})
	stop := s.r.stop
	s.r.stop = func() { stop(); <-opened; s.l.Close() }
	go func() {
		defer close(opened)
		time.Sleep(d)
		l, err := s.r.net.Listen(at)
		if err != nil {
			s.r.t.Error(err)
			return
		}
		s.l = l
		go s.accept(l)
	}()
}

// upstreamTLS is an upstream that speaks TLS with a certificate.
func (r *rig) upstreamTLS(host string, cert tls.Certificate, script ...step) *scripted {
	s := r.upstream(host, script...)
	s.wrap = func(c net.Conn) net.Conn {
		return tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
	}
	return s
}

// connections is how many connections were made to the upstream.
func (s *scripted) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// authority issues certificates that are valid in a bubble, whose clock starts
// in the year 2000.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t *testing.T) *authority {
	t.Helper()
	ca := &authority{t: t}
	_, ca.cert, ca.key = ca.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	return ca
}

// certificate is one for host.
func (ca *authority) certificate(host string) tls.Certificate {
	ca.t.Helper()
	der, _, key := ca.issue(&x509.Certificate{Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}}, ca.cert, ca.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// file holds the CA's own certificate, as tls.ca_files wants it.
func (ca *authority) file() string {
	ca.t.Helper()
	name := filepath.Join(ca.t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
	if err := os.WriteFile(name, text, 0o600); err != nil {
		ca.t.Fatal(err)
	}
	return name
}

// issue signs a certificate with parent's key, or with its own.
func (ca *authority) issue(c, parent *x509.Certificate, with *ecdsa.PrivateKey) ([]byte, *x509.Certificate, *ecdsa.PrivateKey) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	if parent == nil {
		parent, with = c, key
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), time.Unix(0, 0), time.Unix(1<<32, 0)
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, with)
	if err != nil {
		ca.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatal(err)
	}
	return der, cert, key
}
