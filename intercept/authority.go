// Package intercept answers one question: with which certificate do we speak to a client as its host?
//
// An Authority signs a certificate for each host whose tunnels are opened and
// speaks TLS as that host. Its key stays in here: no method, format or log
// shows it.
package intercept

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Authority is our own certificate authority. Safe for concurrent use.
type Authority struct {
	chain   []*x509.Certificate // the signing certificate first, what clients trust last
	raw     [][]byte            // the same, sent after every leaf
	signer  secret
	leafKey secret // of all hosts, see mint
	until   time.Time
	created bool
	hosts   *lru.Cache[string, *entry]
}

// newAuthority puts a checked pair to work.
func newAuthority(chain []*x509.Certificate, signer secret) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	a := &Authority{chain: chain, signer: signer, leafKey: seal(key), until: chain[0].NotAfter}
	for _, c := range chain {
		a.raw = append(a.raw, c.Raw)
		if c.NotAfter.Before(a.until) {
			a.until = c.NotAfter
		}
	}
	a.hosts, _ = lru.New[string, *entry](maxHosts) // fails on sizes below 1 only
	return a, nil
}

// PEM gives the certificates of the authority, never the key.
func (a *Authority) PEM() []byte {
	var out bytes.Buffer
	for _, der := range a.raw {
		_ = pem.Encode(&out, &pem.Block{Type: certificateBlock, Bytes: der}) // a buffer takes all
	}
	return out.Bytes()
}

// root is the certificate that clients have to trust.
func (a *Authority) root() *x509.Certificate { return a.chain[len(a.chain)-1] }

// Fingerprint is the SHA-256 of the certificate that clients have to trust, as
// hex with colons: the form that trust stores show.
func (a *Authority) Fingerprint() string {
	sum := sha256.Sum256(a.root().Raw)
	return strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
}

// SPKI is the base64 SHA-256 of the public key that clients have to trust, for
// Chromium's --ignore-certificate-errors-spki-list. Chromium looks for it among
// the certificates it was sent, which is why ours follows every leaf.
func (a *Authority) SPKI() string {
	sum := sha256.Sum256(a.root().RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// NotAfter is when the first certificate of the authority expires.
func (a *Authority) NotAfter() time.Time { return a.until }

// Created says whether Open made the authority, rather than found it.
func (a *Authority) Created() bool { return a.created }

// Format shows the fingerprint, whatever the verb.
func (a *Authority) Format(s fmt.State, _ rune) {
	_, _ = io.WriteString(s, "intercept.Authority("+a.Fingerprint()+")") // fmt keeps the error
}

// LogValue is the fingerprint.
func (a *Authority) LogValue() slog.Value { return slog.StringValue(a.Fingerprint()) }
