package intercept

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	maxHosts     = 10_000             // that keep their certificate; some 25 MiB
	leafLife     = 7 * 24 * time.Hour // from now on; it begins clockSlack earlier
	renewalShare = 3                  // renewed when 1/3 of the life is left: clocks may be ahead so far
	maxCN        = 64                 // characters of a common name (RFC 5280, appendix A.1)
)

// entry is what we have for a host. Its lock is held while the host's
// certificate is signed, so that those who come at once get the same one.
type entry struct {
	mu   sync.Mutex
	leaf *leaf
}

// leaf is a certificate and how to speak TLS with it.
type leaf struct {
	config      *tls.Config // of this host alone: so are the keys of its session tickets
	from, renew time.Time   // to be used from, and up to
}

// Leaf gives the certificate for a host: a lower-case name, or an address
// without brackets. A host keeps its certificate (some clients fail when it
// changes between connections) until a third of its life is left, unless 10,000
// others came since. ErrHost: not a host; else the authority has expired.
//
// The parsed Leaf of the result is nil: serving does not need it, and it is
// most of the memory.
func (a *Authority) Leaf(host string, now time.Time) (*tls.Certificate, error) {
	l, err := a.leaf(host, now)
	if err != nil {
		return nil, fmt.Errorf("intercept: certificate for %q: %w", host, err)
	}
	return &l.config.Certificates[0], nil
}

func (a *Authority) leaf(host string, now time.Time) (*leaf, error) {
	host, ip, err := parseHost(host)
	if err != nil {
		return nil, err
	}
	e := a.entry(host)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leaf == nil || now.Before(e.leaf.from) || !now.Before(e.leaf.renew) {
		fresh, err := a.mint(host, ip, now)
		if err != nil {
			return nil, err
		}
		e.leaf = fresh
	}
	return e.leaf, nil
}

// entry finds or adds the entry of a host.
func (a *Authority) entry(host string) *entry {
	if e, ok := a.hosts.Get(host); ok {
		return e
	}
	fresh := &entry{}
	if e, ok, _ := a.hosts.PeekOrAdd(host, fresh); ok {
		return e
	}
	return fresh
}

// mint signs a certificate. All hosts share one key, made at start and never
// written: whoever could take one from our memory could take the authority's
// too, so a key each would cost and protect nothing.
func (a *Authority) mint(host string, ip netip.Addr, now time.Time) (*leaf, error) {
	if !now.Before(a.until) {
		return nil, fmt.Errorf("our authority expired on %s", a.until.Format(time.RFC3339))
	}
	template := &x509.Certificate{
		NotBefore:             now.Add(-clockSlack),
		NotAfter:              now.Add(leafLife),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	renew := now.Add(leafLife - leafLife/renewalShare)
	if template.NotAfter.After(a.until) { // a new one would not last longer
		template.NotAfter, renew = a.until, a.until
	}
	if ip.IsValid() {
		template.IPAddresses = []net.IP{ip.AsSlice()}
	} else {
		template.DNSNames = []string{host}
	}
	if len(host) <= maxCN { // for people only, clients read the alternative names
		template.Subject = pkix.Name{CommonName: host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.chain[0], a.leafKey.Public(), a.signer)
	if err != nil {
		return nil, err
	}
	chain := make([][]byte, 0, 1+len(a.raw))
	chain = append(append(chain, der), a.raw...)
	return &leaf{newConfig(tls.Certificate{Certificate: chain, PrivateKey: a.leafKey}), template.NotBefore, renew}, nil
}
