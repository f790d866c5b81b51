package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"strings"
)

// Subject is the part of a request, as sent to the first upstream, that its
// fingerprint covers besides the body.
type Subject struct {
	Tenant      string
	Method      string
	Scheme      string
	Host        string // normalised host:port
	Target      string // raw path and query
	ContentType string // decides how Ignore applies to the body; not part of the print
	// Ignore are the names left out (fingerprint_ignore): query parameters, form
	// fields of an application/x-www-form-urlencoded body, top-level members of
	// a JSON body. In NoTenant they are not left out.
	Ignore []string
	// Volatile are left out as well, in every tenant: they change with each sending.
	Volatile []string
}

// Print computes a fingerprint. It is an io.Writer for the body, which is never
// held: write it in pieces of any size, then call Sum.
//
// Two requests have the same print when all of Subject's covered parts and the
// body are byte-identical, apart from ignored parameters and members. Of a form
// the remaining fields count in their order; of a JSON object the remaining
// members count in their order, from the quote of the name to the comma or
// brace that ends the value; white space before a name does not count. A body
// that is not of that form counts whole, as does a JSON body with a top-level
// name longer than 1 KiB.
type Print struct {
	head  []byte
	whole hash.Hash // of the body as it is
	rest  hash.Hash // of the body less what is ignored; nil: nothing is
	parts filter    // writes to rest; nil: nothing is ignored
	tag   byte      // says which filter
}

// filter passes on a body less its ignored parts.
type filter interface {
	write(b []byte)
	end() bool // false: the body did not have the form, it counts whole
}

// NewPrint begins the fingerprint of a request.
func NewPrint(s Subject) *Print {
	p := &Print{whole: sha256.New()}
	if s.Tenant == NoTenant {
		s.Ignore = nil
	}
	if len(s.Volatile) > 0 {
		s.Ignore = slices.Concat(s.Ignore, s.Volatile)
	}
	p.head = make([]byte, 0, 128+len(s.Host)+len(s.Target))
	p.head = append(p.head, "fingerprint 1\n"...)
	path, query, hasQuery := strings.Cut(s.Target, "?")
	for _, part := range [...]string{s.Method, s.Scheme, s.Host, path} {
		p.head = framed(p.head, part)
	}
	switch {
	case !hasQuery:
		p.head = framed(p.head, "")
	case len(s.Ignore) == 0:
		p.head = framed(p.head, s.Target[len(path):])
	default:
		p.head = framed(p.head, lessPairs(query, s.Ignore))
	}
	if len(s.Ignore) > 0 {
		p.choose(s)
	}
	return p
}

// choose sets the filter by the media type of the body.
func (p *Print) choose(s Subject) {
	media, _, _ := strings.Cut(s.ContentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	rest := sha256.New()
	switch {
	case media == "application/x-www-form-urlencoded":
		p.tag, p.rest, p.parts = 'f', rest, &pairs{out: rest, ignore: s.Ignore}
	case media == "application/json", media == "text/json", strings.HasSuffix(media, "+json"):
		p.tag, p.rest, p.parts = 'j', rest, &members{out: rest, ignore: s.Ignore}
	}
}

// Write adds bytes of the body. It never fails.
func (p *Print) Write(b []byte) (int, error) {
	p.whole.Write(b)
	if p.parts != nil {
		p.parts.write(b)
	}
	return len(b), nil
}

// Sum ends the body and returns the fingerprint. Call it once.
func (p *Print) Sum() [32]byte {
	tag, body := byte('w'), p.whole
	if p.parts != nil && p.parts.end() {
		tag, body = p.tag, p.rest
	}
	return sha256.Sum256(body.Sum(append(p.head, tag)))
}

// framed appends a part with its length before it, so that no two lists of
// parts give the same bytes.
func framed(b []byte, part string) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(part))), part...)
}
