package upstream

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	mathbig "math/big"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// identity is a certificate for u1.test and 127.0.0.1, and a pool that trusts it.
var identity = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := x509.Certificate{
		SerialNumber: mathbig.NewInt(1), Subject: pkix.Name{CommonName: "upstream test"},
		NotBefore: time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		DNSNames: []string{"u1.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	leaf, _ := x509.ParseCertificate(der)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
})

// trusting is a Config that trusts the identity.
func trusting() Config {
	_, roots := identity()
	return Config{TLS: &tls.Config{RootCAs: roots}}
}

// newTLSScript is a script behind TLS with the protocols it accepts. A play sees
// the plain bytes.
func newTLSScript(t testing.TB, protocols []string, plays ...func(*peer)) *script {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := identity()
	return newScriptOn(t, tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: protocols}), plays...)
}

func (s *script) tlsTarget() Target {
	t := s.target()
	t.Scheme = "https"
	return t
}

// addrs makes addresses with the same port.
func addrs(port uint16, texts ...string) (out []netip.AddrPort) {
	for _, text := range texts {
		out = append(out, netip.AddrPortFrom(netip.MustParseAddr(text), port))
	}
	return out
}

func TestTicketsForget(t *testing.T) {
	kept := tickets{newTrust(nil).tickets, nil}
	kept.Put("u1.test", &tls.ClientSessionState{})
	kept.Put("u1.test", nil)
	if _, ok := kept.Get("u1.test"); ok {
		t.Error("a session that was taken back is still there")
	}
}
