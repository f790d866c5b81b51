package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

const (
	hostName        = "localhost" // of the upstream
	certificateFile = "host.pem"
	keyFile         = "host.key"
)

// writeCertificate makes the certificate of the upstream, its own root. The bare
// proxies show the same one.
func writeCertificate(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, DNSNames: []string{hostName},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		writePEM(filepath.Join(dir, certificateFile), "CERTIFICATE", der),
		writePEM(filepath.Join(dir, keyFile), "PRIVATE KEY", secret),
	)
}

func writePEM(name, kind string, der []byte) error {
	return os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// readCertificate gives what writeCertificate made: to show it, and to trust it.
func readCertificate(dir string) (show *tls.Config, trust *x509.CertPool, err error) {
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, certificateFile), filepath.Join(dir, keyFile))
	if err != nil {
		return nil, nil, err
	}
	trust = x509.NewCertPool()
	trust.AddCert(cert.Leaf)
	return &tls.Config{Certificates: []tls.Certificate{cert}}, trust, nil
}
