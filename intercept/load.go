package intercept

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY"

	leastRSA = 2048 // bits; clients refuse fewer
)

// load reads and checks a pair.
func load(f Files, now time.Time) (*Authority, error) {
	chain, err := readChain(f.Cert)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Cert, err)
	}
	key, err := readKey(f.Key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Key, err)
	}
	if err = checkChain(chain, now); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Cert, err)
	}
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(chain[0].PublicKey) {
		return nil, fmt.Errorf("%s: not the key of the first certificate in %s", f.Key, f.Cert)
	}
	return newAuthority(chain, seal(key))
}

// readChain gives the certificates of a file; other blocks are left out.
func readChain(name string) (chain []*x509.Certificate, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certificateBlock {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(chain)+1, err)
		}
		chain = append(chain, cert)
	}
	if len(chain) == 0 {
		return nil, errors.New("no PEM certificate in it")
	}
	return chain, nil
}

// checkChain says whether clients would take what the first certificate signs.
func checkChain(chain []*x509.Certificate, now time.Time) error {
	for i, c := range chain {
		switch n := i + 1; {
		case !c.BasicConstraintsValid || !c.IsCA:
			return fmt.Errorf("certificate %d is not of an authority (basic constraints: CA)", n)
		case c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
			return fmt.Errorf("certificate %d may not sign others (key usage: certificate sign)", n)
		case now.After(c.NotAfter):
			return fmt.Errorf("certificate %d expired on %s: move it and its key away to have a new pair made", n, c.NotAfter.Format(time.RFC3339))
		case now.Before(c.NotBefore):
			return fmt.Errorf("certificate %d is valid from %s on only: is the clock right?", n, c.NotBefore.Format(time.RFC3339))
		case n < len(chain) && c.CheckSignatureFrom(chain[n]) != nil:
			return fmt.Errorf("certificate %d is not signed by the next one", n)
		}
	}
	return nil
}

// readKey gives the first key of a file that only its owner may read. Its
// errors hold nothing of the content.
func readKey(name string) (crypto.Signer, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("the key is open to others (mode %04o), want 0600", info.Mode().Perm())
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if key, err := parseKey(block); key != nil || err != nil {
			return key, err
		}
	}
	return nil, errors.New("no PEM private key in it")
}

// parseKey reads a block; nil: it holds something else than a key.
func parseKey(block *pem.Block) (crypto.Signer, error) {
	var key any
	var err error
	switch {
	case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "":
		return nil, errors.New("the key is encrypted, want it plain in a file that only we may read")
	case block.Type == keyBlock:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case block.Type == "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case block.Type == "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, errors.New("not a private key that we can read (PKCS #8, SEC 1 or PKCS #1)")
	}
	return known(key)
}

// known gives the key when clients take what it signs.
func known(key any) (crypto.Signer, error) {
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		return k, nil
	case *rsa.PrivateKey:
		if k.N.BitLen() < leastRSA {
			return nil, fmt.Errorf("an RSA key of %d bits, want at least %d", k.N.BitLen(), leastRSA)
		}
		return k, nil
	}
	return nil, fmt.Errorf("want an EC or RSA key, not %T", key)
}
