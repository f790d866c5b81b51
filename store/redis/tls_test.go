package redis

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"retryproxy/idempotency"
	"retryproxy/internal/redistest"
)

// certified writes a certificate for 127.0.0.1 that is its own root, and its key.
func certified(t *testing.T) (root *x509.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if root, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return root, certFile, keyFile
}

func TestTLS(t *testing.T) {
	root, certFile, keyFile := certified(t)
	plain := redistest.Start(t)
	_, secure, _ := net.SplitHostPort(redistest.FreeAddr(t))
	redistest.Start(t, "tls-port", secure, "tls-cert-file", certFile, "tls-key-file", keyFile, "tls-ca-cert-file", certFile, "tls-auth-clients", "no")
	c := config(plain)
	c.URL = "rediss://127.0.0.1:" + secure
	if _, err := Open(context.Background(), c); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("Open with an unknown root = %v", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	c.TLS = &tls.Config{RootCAs: roots}
	r := &rig{t, opened(t, c)}
	r.fresh(key("a", 0), start)
	r.want(key("a", 0), idempotency.StateRunning.String())
}

// The rights that docs/store.md names are enough.
func TestRights(t *testing.T) {
	at := redistest.Start(t)
	admin := opened(t, config(at))
	c := config(at)
	ctx := context.Background()
	rule := []any{"ACL", "SETUSER", "rp", "on", ">pw", "~rp:{" + c.Instance + "}:*", "+@read", "+@write", "+@scripting", "+info", "+time", "-@dangerous", "+info"}
	if err := admin.db.Do(ctx, rule...).Err(); err != nil {
		t.Fatal(err)
	}
	c.URL = "redis://rp:pw@" + at.Addr()
	r := &rig{t, opened(t, c)}
	r.reach(key("a", 0), idempotency.StateDone, 10, start)
	r.reach(key("a", 1), idempotency.StateParked, 10, start)
	r.sweep(ctx)
	r.noted(time.Minute)
	if _, _, err := r.Due(ctx, start, 10); err != nil {
		t.Errorf("Due = %v", err)
	}
	if _, _, err := r.List(ctx, idempotency.Query{Receipt: "o k1"}); err != nil {
		t.Errorf("List = %v", err)
	}
	if _, _, _, err := r.Take(ctx, perMinute(5, 5, "s1")); err != nil {
		t.Errorf("Take = %v", err)
	}
	if st := r.Stats(); st.Records != 2 {
		t.Errorf("Stats() = %+v, want 2 records", st)
	}
	c = config(at)
	c.URL = "redis://rp:pw@" + at.Addr()
	if _, err := Open(ctx, c); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("Open of another instance = %v, want NOPERM", err)
	}
}
