// Package signer answers one question: how does a platform sign a request, when
// was this one signed, and how is it signed again?
//
// A signature is good for minutes, so a retry of the same bytes is refused soon.
// Where the secret is known here, Resign writes a new date and a new signature
// into the request and leaves every other byte as the client wrote it. It does so
// only for a request whose own signature it can reproduce: what a platform signs
// of nested JSON differs between clients, and a guess would cost an order.
//
// Everything here is computed: the time and the nonce are told.
package signer

import (
	"bytes"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"retryproxy/message"
)

// Why a request is not signed again. They come wrapped with what was missing, by
// name: no error holds a value.
var (
	// ErrNoSecret says that a credential is not known.
	ErrNoSecret = errors.New("signer: no secret")
	// ErrNotSigned says that the request has no signature, or no date that can be read.
	ErrNotSigned = errors.New("signer: not signed")
	// ErrNotReproduced says that the secret, or the scheme, is not the client's.
	ErrNotReproduced = errors.New("signer: the client's signature was not reproduced")
	// ErrUnreadable says that what is signed cannot be told from the request, or
	// not be changed in it.
	ErrUnreadable = errors.New("signer: what is signed cannot be told or changed")
)

// TokenCredential is the name of the access token among credentials.
const TokenCredential = "access_token"

// Request is what is signed. Body is all of it, without a transfer coding.
type Request struct {
	Method string
	Target string // path and query as they are sent
	Fields message.Fields
	Body   []byte
}

// Credentials are an account's secrets by name: app_key, app_secret,
// access_token and what else a scheme names.
type Credentials map[string]string

// String lists the names alone.
func (c Credentials) String() string {
	return "[" + strings.Join(slices.Sorted(maps.Keys(c)), " ") + "]"
}

// GoString is what %#v prints.
func (c Credentials) GoString() string { return "signer.Credentials" + c.String() }

// SignedAt is the date that the request bears, false where there is none.
func (s *Scheme) SignedAt(r *Request) (time.Time, bool) {
	found, ok := newView(r).find(s.Time.At)
	if !ok {
		return time.Time{}, false
	}
	date, _, ok := s.Time.read(found.text)
	return date, ok
}

// FreshUntil is until when the platform will take this signature, by our clock:
// signed_at + window, less a fifth for the way there. skew is how far our clock
// is ahead of the platform's. False: date or window are not known.
func (s *Scheme) FreshUntil(r *Request, skew time.Duration) (time.Time, bool) {
	date, ok := s.SignedAt(r)
	if !ok || s.Window <= 0 {
		return time.Time{}, false
	}
	return date.Add(s.Window - s.Window/5 + skew), true
}

// Check says whether our secret gives the signature that the client sent. Its
// errors are those above.
func (s *Scheme) Check(r *Request, c Credentials) error {
	_, err := s.reproduce(newView(r), c)
	return err
}

// Resign dates the request now (by the platform's clock, where that is known) and
// signs it: it writes date, nonce, signature and, where c has one, the access
// token. A request that does not pass Check is refused, and so is one with a
// checksum of a body that would change. r stays as it is, and all other bytes of
// the answer are r's own.
func (s *Scheme) Resign(r *Request, c Credentials, now time.Time, nonce func() string) (Request, error) {
	v := newView(r)
	f, err := s.reproduce(v, c)
	if err != nil {
		return Request{}, err
	}
	changes, err := s.renew(v, c, now, nonce)
	if err != nil {
		return Request{}, err
	}
	out := changes.apply(r)
	if out, err = s.sign(&out, c, f); err != nil {
		return Request{}, err
	}
	if err := checksumHolds(r, &out); err != nil {
		return Request{}, err
	}
	return out, nil
}

// Sign signs a request that was made here: the signature takes the place of what stands
// where it belongs. Date, nonce and token are the request's own. r stays as it is.
func (s *Scheme) Sign(r *Request, c Credentials) (Request, error) {
	if c[s.Secret] == "" {
		return Request{}, fmt.Errorf("%w: no credential %q", ErrNoSecret, s.Secret)
	}
	return s.sign(r, c, s.forms()[0])
}

// checksums are fields that speak of the body's bytes: RFC 9530, RFC 3230, RFC 1864.
var checksums = []string{"Content-Digest", "Repr-Digest", "Digest", "Content-MD5"}

// checksumHolds refuses a changed body whose checksum the client sent.
func checksumHolds(before, after *Request) error {
	i := slices.IndexFunc(checksums, before.Fields.Has)
	if i >= 0 && !bytes.Equal(before.Body, after.Body) {
		return fmt.Errorf("%w: %s is of the body as it was", ErrUnreadable, checksums[i])
	}
	return nil
}

// reproduce finds the form of nested values that gives the client's signature.
func (s *Scheme) reproduce(v *view, c Credentials) (form, error) {
	old, ok := v.find(s.Signature)
	if !ok || old.text == "" {
		return form{}, fmt.Errorf("%w: nothing at %s", ErrNotSigned, strings.Join(s.Signature, ", "))
	}
	if c[s.Secret] == "" {
		return form{}, fmt.Errorf("%w: no credential %q", ErrNoSecret, s.Secret)
	}
	before := ""
	for i, f := range s.forms() {
		text, err := s.signed(v, c, f)
		if err != nil {
			return form{}, err
		}
		if i > 0 && text == before {
			continue
		}
		as := s.variantOf(v)
		sum := as.like(as.sum(text, c[s.Secret]), old.text)
		if subtle.ConstantTimeCompare([]byte(sum), []byte(old.text)) == 1 {
			return f, nil
		}
		before = text
	}
	return form{}, ErrNotReproduced
}

// renew collects what changes but for the signature.
func (s *Scheme) renew(v *view, c Credentials, now time.Time, nonce func() string) (edits, error) {
	var changes edits
	if len(s.Time.At) > 0 {
		found, ok := v.find(s.Time.At)
		if !ok {
			return nil, fmt.Errorf("%w: no date at %s", ErrNotSigned, strings.Join(s.Time.At, ", "))
		}
		old, unit, ok := s.Time.read(found.text)
		if !ok {
			return nil, fmt.Errorf("%w: the date at %s is written in another way", ErrNotSigned, strings.Join(s.Time.At, ", "))
		}
		changes.set(v.r, found, writeDate(unit, now, old.Location()))
	}
	if found, ok := v.find(s.Nonce.At); ok {
		changes.set(v.r, found, nonce())
	}
	if c[TokenCredential] == "" {
		return changes, nil
	}
	for _, place := range s.Token {
		if found, ok := v.at(place); ok {
			changes.set(v.r, found, c[TokenCredential])
		}
	}
	return changes, nil
}

// sign writes the signature into a request that has an old one.
func (s *Scheme) sign(r *Request, c Credentials, f form) (Request, error) {
	v := newView(r)
	text, err := s.signed(v, c, f)
	if err != nil {
		return Request{}, err
	}
	old, ok := v.find(s.Signature)
	if !ok {
		return Request{}, fmt.Errorf("%w: nothing at %s", ErrNotSigned, strings.Join(s.Signature, ", "))
	}
	as := s.variantOf(v)
	var changes edits
	changes.set(r, old, as.like(as.sum(text, c[s.Secret]), old.text))
	return changes.apply(r), nil
}

// Write makes a nonce of this kind out of 16 random bytes.
func (n Nonce) Write(random [16]byte) string {
	switch n.Kind {
	case "uuid":
		random[6] = random[6]&0x0f | 0x40 // RFC 9562 section 5.4: version 4
		random[8] = random[8]&0x3f | 0x80
		h := hex.EncodeToString(random[:])
		return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
	case "digits":
		return digits(random)
	}
	return hex.EncodeToString(random[:8])
}

// digits are 18 decimal digits of which the first is not 0, so that they are
// the same as a number.
func digits(random [16]byte) string {
	var n uint64
	for _, b := range random[:8] {
		n = n<<8 | uint64(b)
	}
	const least = 100_000_000_000_000_000
	return strconv.FormatUint(least+n%(9*least), 10)
}
