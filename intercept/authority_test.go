package intercept

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// open makes an authority in a folder of its own.
func open(t testing.TB) *Authority {
	t.Helper()
	a, err := Open(filesIn(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func filesIn(dir string) Files {
	return Files{Cert: filepath.Join(dir, "ca.pem"), Key: filepath.Join(dir, "ca.key"), Make: true}
}

// Where a person says which files to use, none are made.
func TestOpenMakesNothingUnasked(t *testing.T) {
	f := filesIn(filepath.Join(t.TempDir(), "new"))
	f.Make = false
	if _, err := Open(f); err == nil || !strings.Contains(err.Error(), f.Cert) || !strings.Contains(err.Error(), f.Key) {
		t.Errorf("Open without files: %v, want an error that names both", err)
	}
	if _, err := os.Stat(filepath.Dir(f.Cert)); !os.IsNotExist(err) {
		t.Errorf("the directory is there (%v), want nothing made", err)
	}
}

// pool trusts what PEM gives.
func pool(t testing.TB, a *Authority) *x509.CertPool {
	t.Helper()
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(a.PEM()) {
		t.Fatalf("PEM() = %q, no certificate", a.PEM())
	}
	return p
}

func TestOpenCreates(t *testing.T) {
	f := filesIn(filepath.Join(t.TempDir(), "new", "data"))
	a, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	if !a.Created() {
		t.Error("Created() = false for a new pair")
	}
	for name, mode := range map[string]os.FileMode{f.Key: 0o600, f.Cert: 0o644, filepath.Dir(f.Key): os.ModeDir | 0o700} {
		if info, err := os.Stat(name); err != nil || runtime.GOOS != "windows" && info.Mode() != mode {
			t.Errorf("Stat(%s) = %v %v, want mode %v", name, info.Mode(), err, mode)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(f.Cert), ".*")); left != nil {
		t.Errorf("temporary files are left: %v", left)
	}
	root := a.root()
	now := time.Now()
	switch {
	case root.PublicKey.(*ecdsa.PublicKey).Curve != elliptic.P256():
		t.Error("the key is not P-256")
	case !root.IsCA || !root.BasicConstraintsValid || root.MaxPathLen != 0 || !root.MaxPathLenZero:
		t.Error("not an authority with a path length of 0")
	case root.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign:
		t.Errorf("key usage = %v", root.KeyUsage)
	case root.Subject.CommonName != "retryproxy CA "+hex.EncodeToString(root.SubjectKeyId[:4]):
		t.Errorf("common name = %q, key id %x", root.Subject.CommonName, root.SubjectKeyId)
	case root.NotBefore.After(now.Add(-24*time.Hour)) || a.NotAfter().Before(now.AddDate(9, 11, 0)):
		t.Errorf("valid %v to %v", root.NotBefore, root.NotAfter)
	}
	again, err := Open(f)
	if err != nil || again.Created() || again.Fingerprint() != a.Fingerprint() || again.SPKI() != a.SPKI() {
		t.Errorf("Open again = %v %v, want the same authority", again, err)
	}
	if other := open(t); other.Fingerprint() == a.Fingerprint() || other.root().Subject.CommonName == root.Subject.CommonName {
		t.Error("two installations have the same authority")
	}
}

func TestOpenAtOnce(t *testing.T) {
	f := filesIn(t.TempDir())
	var wg sync.WaitGroup
	found := make([]*Authority, 16)
	for i := range found {
		wg.Go(func() {
			a, err := Open(f)
			if err != nil {
				t.Error(err)
				return
			}
			found[i] = a
		})
	}
	wg.Wait()
	created := 0
	for _, a := range found {
		if a == nil || a.Fingerprint() != found[0].Fingerprint() {
			t.Fatal("not all have the same authority")
		}
		if a.Created() {
			created++
		}
	}
	if created != 1 {
		t.Errorf("%d made the pair, want 1", created)
	}
}

// A key whose certificate is still to come is waited for.
func TestOpenWaitsForTheOther(t *testing.T) {
	made := filesIn(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		want, err := Open(made)
		if err != nil {
			t.Fatal(err)
		}
		f := Files{Cert: made.Cert + ".late", Key: made.Key, Make: true}
		go func() {
			time.Sleep(time.Second)
			if err := os.Rename(made.Cert, f.Cert); err != nil {
				t.Error(err)
			}
		}()
		a, err := Open(f)
		if err != nil || a.Fingerprint() != want.Fingerprint() || a.Created() {
			t.Errorf("Open = %v %v, want the pair of the other process", a, err)
		}
	})
}

// maker writes PEM files of authorities that an operator might bring.
type maker struct {
	t testing.TB
	f Files
}

func newMaker(t testing.TB) *maker { return &maker{t, filesIn(t.TempDir())} }

func (m *maker) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// sign gives a certificate of key by parent; nil: by itself.
func (m *maker) sign(key crypto.Signer, parent *x509.Certificate, parentKey crypto.Signer, change func(*x509.Certificate)) *x509.Certificate {
	m.t.Helper()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "an authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	if change != nil {
		change(c)
	}
	if parent == nil {
		parent, parentKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), parentKey)
	m.must(err)
	cert, err := x509.ParseCertificate(der)
	m.must(err)
	return cert
}

func (m *maker) writeCerts(certs ...*x509.Certificate) {
	var out bytes.Buffer
	for _, c := range certs {
		m.must(pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
	}
	m.must(os.WriteFile(m.f.Cert, out.Bytes(), 0o644))
}

func (m *maker) writeKey(kind string, der []byte) {
	m.must(os.WriteFile(m.f.Key, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func (m *maker) pkcs8(key crypto.Signer) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	m.must(err)
	m.writeKey("PRIVATE KEY", der)
}

func (m *maker) ec() *ecdsa.PrivateKey {
	key, err := newKey()
	m.must(err)
	return key
}

func (m *maker) rsa(bits int) *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	m.must(err)
	return key
}

func TestOpenLoads(t *testing.T) {
	tests := []struct {
		name  string
		write func(m *maker) (certs int)
	}{
		{"EC, SEC 1 after its parameters", func(m *maker) int {
			key := m.ec()
			der, err := x509.MarshalECPrivateKey(key)
			m.must(err)
			text := "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
			text += string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
			m.must(os.WriteFile(m.f.Key, []byte(text), 0o600))
			m.writeCerts(m.sign(key, nil, nil, nil))
			return 1
		}},
		{"RSA, PKCS #1", func(m *maker) int {
			key := m.rsa(2048)
			m.writeKey("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
			m.writeCerts(m.sign(key, nil, nil, nil))
			return 1
		}},
		{"RSA, PKCS #8", func(m *maker) int {
			key := m.rsa(2048)
			m.pkcs8(key)
			m.writeCerts(m.sign(key, nil, nil, nil))
			return 1
		}},
		{"intermediate with its root", func(m *maker) int {
			root, key := m.ec(), m.ec()
			top := m.sign(root, nil, nil, func(c *x509.Certificate) { c.Subject.CommonName = "top" })
			m.pkcs8(key)
			m.writeCerts(m.sign(key, top, root, nil), top)
			return 2
		}},
		{"both in one file", func(m *maker) int {
			key := m.ec()
			m.writeCerts(m.sign(key, nil, nil, nil))
			text, err := os.ReadFile(m.f.Cert)
			m.must(err)
			m.pkcs8(key)
			secret, err := os.ReadFile(m.f.Key)
			m.must(err)
			m.must(os.WriteFile(m.f.Key, append(secret, text...), 0o600))
			m.f.Cert = m.f.Key
			return 1
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := newMaker(t)
			want := test.write(m)
			a, err := Open(m.f)
			if err != nil {
				t.Fatal(err)
			}
			if a.Created() {
				t.Error("Created() = true for files that were there")
			}
			if n := bytes.Count(a.PEM(), []byte("BEGIN CERTIFICATE")); n != want || bytes.Contains(a.PEM(), []byte("KEY")) {
				t.Errorf("PEM() = %s, want %d certificates and nothing else", a.PEM(), want)
			}
			leaf, err := a.Leaf("shop.test", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if len(leaf.Certificate) != 1+want {
				t.Errorf("%d certificates are sent, want %d", len(leaf.Certificate), 1+want)
			}
			roots := x509.NewCertPool()
			roots.AddCert(a.root())
			between := x509.NewCertPool()
			between.AddCert(a.chain[0])
			_, err = parsed(t, leaf.Certificate[0]).Verify(x509.VerifyOptions{DNSName: "shop.test", Roots: roots, Intermediates: between})
			if err != nil {
				t.Errorf("a client that trusts the last certificate of the file: %v", err)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	cert := func(change func(*x509.Certificate)) func(*maker) {
		return func(m *maker) {
			key := m.ec()
			m.pkcs8(key)
			m.writeCerts(m.sign(key, nil, nil, change))
		}
	}
	tests := []struct {
		name  string
		write func(m *maker)
		key   bool // the fault is the key's, else the certificate's
		want  string
	}{
		{"no CA", cert(func(c *x509.Certificate) { c.IsCA = false }), false, "not of an authority"},
		{"may not sign", cert(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }), false, "may not sign"},
		{"expired", cert(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), false, "expired on"},
		{"not yet", cert(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }), false, "valid from"},
		{"another key", func(m *maker) { cert(nil)(m); m.pkcs8(m.ec()) }, true, "not the key of"},
		{"another kind of key", func(m *maker) { cert(nil)(m); m.pkcs8(m.rsa(2048)) }, true, "not the key of"},
		{"short RSA key", func(m *maker) {
			m.t.(*testing.T).Setenv("GODEBUG", "rsa1024min=0")
			cert(nil)(m)
			m.pkcs8(m.rsa(1024))
		}, true, "1024 bits"},
		{"certificate without key", func(m *maker) { cert(nil)(m); m.must(os.Remove(m.f.Key)) }, false, "but no key"},
		{"key without certificate", func(m *maker) { m.pkcs8(m.ec()) }, true, "but no certificate"},
		{"open key", func(m *maker) { cert(nil)(m); m.must(os.Chmod(m.f.Key, 0o640)) }, true, "open to others (mode 0640), want 0600"},
		{"no PEM", func(m *maker) { cert(nil)(m); m.must(os.WriteFile(m.f.Cert, []byte("x"), 0o644)) }, false, "no PEM certificate"},
		{"broken certificate", func(m *maker) {
			cert(nil)(m)
			m.must(os.WriteFile(m.f.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}}), 0o644))
		}, false, "certificate 1"},
		{"no key in it", func(m *maker) { cert(nil)(m); m.must(os.WriteFile(m.f.Key, nil, 0o600)) }, true, "no PEM private key"},
		{"broken key", func(m *maker) { cert(nil)(m); m.writeKey("PRIVATE KEY", []byte("hush")) }, true, "not a private key"},
		{"encrypted key", func(m *maker) { cert(nil)(m); m.writeKey("ENCRYPTED PRIVATE KEY", []byte("hush")) }, true, "encrypted"},
		{"chain out of order", func(m *maker) {
			cert(nil)(m)
			key := m.ec()
			m.pkcs8(key)
			m.writeCerts(m.sign(key, nil, nil, nil), m.sign(m.ec(), nil, nil, nil))
		}, false, "certificate 1 is not signed by the next one"},
		{"one file for two", func(m *maker) { m.f.Cert = m.f.Key }, true, "want two files"},
		{"no path", func(m *maker) { m.f.Key = "" }, true, "want the paths"},
	}
	for _, test := range tests {
		bubble(t, test.name, func(t *testing.T) { // it waits for the other half of a pair
			m := newMaker(t)
			test.write(m)
			_, err := Open(m.f)
			file := m.f.Cert
			if test.key {
				file = m.f.Key
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), file) {
				t.Errorf("Open = %v, want %q about %s", err, test.want, file)
			}
			if err != nil && strings.Contains(err.Error(), "hush") {
				t.Errorf("Open = %v, which shows the content of the key file", err)
			}
		})
	}
}

// bubble runs a subtest whose sleeps take no time.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// The key must not be seen in any way of printing the authority or a leaf.
func TestKeysAreNotShown(t *testing.T) {
	f := filesIn(t.TempDir())
	a, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := a.Leaf("shop.test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := readKey(f.Key)
	if err != nil {
		t.Fatal(err)
	}
	d, err := key.(*ecdsa.PrivateKey).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	log := slog.New(slog.NewJSONHandler(&text, nil))
	log.Info("x", "ca", a, "signer", a.signer)
	slog.New(slog.NewTextHandler(&text, nil)).Info("x", "ca", a, "signer", a.signer)
	asJSON, _ := json.Marshal(a) //nolint:staticcheck // SA9005: that nothing comes of it is the point
	text.Write(asJSON)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
		fmt.Fprintf(&text, verb+verb+verb+verb+"\n", a, a.signer, leaf.PrivateKey, struct{ A *Authority }{a})
	}
	text.Write(a.PEM())
	for _, shape := range []string{
		hex.EncodeToString(d), strings.ToUpper(hex.EncodeToString(d)), new(big.Int).SetBytes(d).String(),
		strings.Trim(fmt.Sprint(d), "[]"), string(d), "PRIVATE",
	} {
		if strings.Contains(text.String(), shape) {
			t.Errorf("the key is in %q", text.String())
		}
	}
	if got := fmt.Sprintf("%#v", a); got != "intercept.Authority("+a.Fingerprint()+")" {
		t.Errorf("%%#v = %s", got)
	}
}
