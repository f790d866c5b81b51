package doctor

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// trust looks at our CA.
func (w *World) trust(f *Facts) Trust {
	t := Trust{File: w.CA.Cert, Key: w.CA.Key}
	if t.File == "" || len(f.Setup.Intercept) == 0 {
		return t
	}
	certs, err := certificates(t.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.Missing = true
		return t
	case err != nil:
		t.Fault = err.Error()
		return t
	}
	info, err := os.Stat(t.Key)
	if err != nil {
		t.Fault = err.Error()
		return t
	}
	root := certs[len(certs)-1] // what clients have to trust
	t.KeyMode, t.Expires = uint32(info.Mode().Perm()), certs[0].NotAfter
	t.Print = fmt.Sprintf("%x", sha256.Sum256(root.Raw))
	if pool, err := x509.SystemCertPool(); err == nil {
		_, err = root.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		t.System = err == nil
	}
	return t
}

// publicRoots is where this system keeps the public authorities; empty: unknown.
func publicRoots() string {
	for _, name := range []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"} {
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			return name
		}
	}
	return ""
}

var errNoCertificate = errors.New("it holds no PEM certificate")

// certificates reads the PEM certificates of a file, at least one.
func certificates(name string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var out []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, cert)
		}
	}
	if len(out) == 0 {
		return nil, errNoCertificate
	}
	return out, nil
}

// bundles looks at the files of certificates that the environment names.
func (w *World) bundles(f *Facts) map[string]Bundle {
	var ours []byte
	if certs, err := certificates(w.CA.Cert); err == nil {
		ours = certs[len(certs)-1].Raw
	}
	out := map[string]Bundle{}
	for _, v := range bundleVars {
		name := f.Shell.Vars[v.name]
		if name == "" {
			continue
		}
		b := Bundle{File: name}
		certs, err := certificates(name)
		if err != nil {
			b.Fault = err.Error()
		}
		b.Count = len(certs)
		for _, c := range certs {
			b.Ours = b.Ours || bytes.Equal(c.Raw, ours)
		}
		out[v.name] = b
	}
	return out
}
