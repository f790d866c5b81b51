package intercept

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"io"
)

// secret is a private key that can be used but not shown: it is behind a func,
// where neither fmt nor JSON nor reflection gets at it.
type secret struct {
	public crypto.PublicKey
	sign   func(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error)
}

func seal(key crypto.Signer) secret { return secret{key.Public(), key.Sign} }

// Public is the public half.
func (s secret) Public() crypto.PublicKey { return s.public }

// Sign signs a digest, as crypto.Signer wants it.
func (s secret) Sign(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return s.sign(random, digest, opts)
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}
