package signer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Families: how the text that is signed is put together.
const (
	SortedWrap     = "sorted_wrap"      // names and values, sorted by name, between two secrets
	KVAmp          = "kv_amp"           // name=value&name=value, sorted by name, then Suffix
	FixedConcat    = "fixed_concat"     // Parts, as they are listed
	PathSortedBody = "path_sorted_body" // path, sorted query, raw body
	Doudian        = "doudian"          // app_key method param_json timestamp v, named and in this order
)

var (
	families  = []string{SortedWrap, KVAmp, FixedConcat, PathSortedBody, Doudian}
	digests   = []string{"md5", "sha256", "hmac-md5", "hmac-sha1", "hmac-sha256"}
	encodings = []string{"", "hex", "base64"}
	cases     = []string{"", "upper", "lower"}
	wraps     = []string{"", "both", "head", "tail", "none"}
	empties   = []string{"", "signed", "skipped"}
	kinds     = []string{"uuid", "hex16", "digits"}
)

// Scheme says how one platform's requests are signed. Places are texts such as
// form:sign, query:timestamp, json:$.head.sign and header:X-Sign; of several the
// first that the request has counts.
type Scheme struct {
	Family   string `key:"family"`
	Digest   string `key:"digest"`   // md5, sha256, hmac-md5, hmac-sha1, hmac-sha256
	Encoding string `key:"encoding"` // hex (the default) or base64
	Case     string `key:"case"`     // of hex: upper, lower; empty: as the client wrote it
	// Variants are other digests, for requests that name theirs.
	Variants Variants `key:"variants"`
	Secret   string   `key:"secret"` // name of the credential that signs

	Signature []string `key:"signature"` // places
	Time      Time     `key:"time"`
	// Window is for how long the platform takes a signature; 0: not known.
	Window time.Duration `key:"window"`
	Nonce  Nonce         `key:"nonce"`
	Token  []string      `key:"token"` // places of the access token; all that are there are renewed

	// Which parameters of query and body are signed. The signature never is.
	Exclude []string `key:"exclude"`
	Include []string `key:"include"` // empty: all
	Empty   string   `key:"empty"`   // parameters without a value: signed (the default) or skipped
	// Wrap is where the secret stands in the text: both, head, tail, none. Empty:
	// both, but none for a sorted_wrap with an HMAC, whose key it is.
	Wrap   string   `key:"wrap"`
	Suffix string   `key:"suffix"` // of kv_amp, such as "&key={secret}"
	Parts  []string `key:"parts"`  // of fixed_concat: {path}, {timestamp}, {query:shop_id?}, … or literal text
	Joiner string   `key:"joiner"` // between parts
}

// Time says where the date of a signature is and how it is written.
type Time struct {
	At   []string `key:"at"`
	Unit string   `key:"unit"` // s, ms, or a Go layout; one that ends in SSS has milliseconds there
	Also []string `key:"also"` // further units that clients use; a new date is written as the old one was
	Zone string   `key:"zone"` // of a layout without one, such as +08:00; empty: UTC
}

// Nonce is a value that a platform takes only once.
type Nonce struct {
	At   []string `key:"at"`
	Kind string   `key:"kind"` // uuid, hex16, digits
}

// Variants choose a digest by what the request says.
type Variants struct {
	At []string           `key:"at"` // place of the digest's name, such as form:sign_method
	Of map[string]Variant `key:"of"` // by that name; another name: the scheme's own digest
}

// Variant is one digest. What it leaves out is the scheme's.
type Variant struct {
	Digest   string `key:"digest"`
	Encoding string `key:"encoding"`
	Case     string `key:"case"`
}

// Validate names every field with a fault and the rule that it breaks.
func (s *Scheme) Validate() error {
	var faults faults
	faults.oneOf("family", s.Family, families)
	faults.oneOf("digest", s.Digest, digests)
	faults.oneOf("encoding", s.Encoding, encodings)
	faults.oneOf("case", s.Case, cases)
	faults.oneOf("empty", s.Empty, empties)
	faults.oneOf("wrap", s.Wrap, wraps)
	faults.places("signature", s.Signature)
	faults.places("token", s.Token)
	if len(s.Signature) == 0 {
		faults.add("signature", "want at least one place")
	}
	if s.Secret == "" {
		faults.add("secret", "want the name of a credential")
	}
	if s.Window < 0 {
		faults.add("window", "want a duration of 0 or more")
	}
	faults.variants(s)
	faults.time(&s.Time)
	faults.nonce(&s.Nonce)
	faults.family(s)
	return errors.Join(faults...)
}

// faults are what is wrong with a scheme.
type faults []error

func (f *faults) add(field, rule string, args ...any) {
	*f = append(*f, fmt.Errorf("%s: %s", field, fmt.Sprintf(rule, args...)))
}

func (f *faults) oneOf(field, text string, want []string) {
	if slices.Contains(want, text) {
		return
	}
	if want[0] == "" {
		want = want[1:]
	}
	f.add(field, "want %s, not %q", strings.Join(want, ", "), text)
}

func (f *faults) places(field string, places []string) {
	for i, p := range places {
		if _, _, err := parsePlace(p); err != nil {
			f.add(fmt.Sprintf("%s[%d]", field, i), "%v", err)
		}
	}
}

func (f *faults) variants(s *Scheme) {
	f.places("variants.at", s.Variants.At)
	if (len(s.Variants.At) == 0) != (len(s.Variants.Of) == 0) {
		f.add("variants", "want both at and of")
	}
	for name := range s.Variants.Of {
		v, field := s.variant(name), "variants.of."+name
		f.oneOf(field+".digest", v.Digest, digests)
		f.oneOf(field+".encoding", v.Encoding, encodings)
		f.oneOf(field+".case", v.Case, cases)
	}
}

func (f *faults) time(t *Time) {
	f.places("time.at", t.At)
	if len(t.At) == 0 {
		return
	}
	for i, unit := range t.units() {
		date, ok := readDate(unit, time.UTC, writeDate(unit, referenceDate, time.UTC))
		if !ok || !date.Equal(referenceDate) {
			field := "time.unit"
			if i > 0 {
				field = fmt.Sprintf("time.also[%d]", i-1)
			}
			f.add(field, "want s, ms or a Go layout with date and time, not %q", unit)
		}
	}
	if _, err := parseZone(t.Zone); err != nil {
		f.add("time.zone", "%v", err)
	}
}

func (f *faults) nonce(n *Nonce) {
	f.places("nonce.at", n.At)
	if len(n.At) > 0 || n.Kind != "" {
		f.oneOf("nonce.kind", n.Kind, kinds)
	}
}

// family checks what only some families have.
func (f *faults) family(s *Scheme) {
	hashed := strings.HasPrefix(s.Digest, "hmac-")
	switch s.Family {
	case KVAmp:
		if !strings.Contains(s.Suffix, secretPart) && !hashed {
			f.add("suffix", "want %s in it, or the secret would not sign", secretPart)
		}
	case FixedConcat:
		if len(s.Parts) == 0 {
			f.add("parts", "want at least one")
		}
		if !slices.Contains(s.Parts, secretPart) && !hashed {
			f.add("parts", "want %s among them, or the secret would not sign", secretPart)
		}
	default:
		if s.Wrap == "none" && !hashed {
			f.add("wrap", "want another than none, or the secret would not sign")
		}
	}
	f.only(s, KVAmp, "suffix", s.Suffix != "")
	f.only(s, FixedConcat, "parts", len(s.Parts) > 0)
	f.only(s, FixedConcat, "joiner", s.Joiner != "")
	for i, text := range s.Parts {
		if _, err := parsePart(text); err != nil {
			f.add(fmt.Sprintf("parts[%d]", i), "%v", err)
		}
	}
}

// only refuses what another family would ignore.
func (f *faults) only(s *Scheme, family, field string, given bool) {
	if given && s.Family != family {
		f.add(field, "only %s has it", family)
	}
}

// variant is the digest that is called name; name may be unknown or empty.
func (s *Scheme) variant(name string) Variant {
	own := Variant{Digest: s.Digest, Encoding: s.Encoding, Case: s.Case}
	v, ok := s.Variants.Of[name]
	if !ok {
		return own
	}
	if v.Digest == "" {
		v.Digest = own.Digest
	}
	if v.Encoding == "" {
		v.Encoding = own.Encoding
	}
	if v.Case == "" {
		v.Case = own.Case
	}
	return v
}
