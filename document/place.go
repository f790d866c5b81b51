package document

import (
	"errors"
	"fmt"
	"mime"
	"net/url"
	"regexp"
	"strings"

	"retryproxy/message"
)

// ErrPlace is wrapped by what ParsePlace refuses.
var ErrPlace = errors.New("want form:name, json:$.a.b, query:name, header:Name, path or path:RE2")

// Place says where in a request something stands. The zero Place stands nowhere.
type Place struct {
	text string
	from source
	name string // of a field, parameter or header
	path Path
	re   *regexp.Regexp
}

type source uint8

const (
	nowhere source = iota
	inForm
	inJSON
	inQuery
	inHeader
	inPath
)

// ParsePlace reads a place. The error wraps ErrPlace.
func ParsePlace(text string) (p Place, err error) {
	p.text = text
	kind, name, named := strings.Cut(text, ":")
	switch {
	case text == "path":
		p.from = inPath
		return p, nil
	case !named || name == "":
		return Place{}, fmt.Errorf("%w, not %q", ErrPlace, text)
	case kind == "form":
		p.from, p.name = inForm, name
	case kind == "query":
		p.from, p.name = inQuery, name
	case kind == "header":
		p.from, p.name = inHeader, name
	case kind == "json":
		p.from = inJSON
		p.path, err = ParsePath(name)
	case kind == "path":
		p.from = inPath
		if p.re, err = regexp.Compile(name); err == nil && p.re.NumSubexp() < 1 {
			err = errors.New("it has no group")
		}
	default:
		err = ErrPlace
	}
	if err != nil {
		return Place{}, fmt.Errorf("%w: %q: %w", ErrPlace, text, err)
	}
	return p, nil
}

// String is the place as it was written.
func (p Place) String() string { return p.text }

// UnmarshalText reads a place.
func (p *Place) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePlace(string(text))
	return err
}

// MarshalText writes the place.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.text), nil }

// Request is a request as places are looked for in it.
type Request struct {
	Method string
	Target string // path and query, as they are sent
	Fields message.Fields
	Body   []byte // decoded, as far as it is known
	text   string // of Body, once it was asked for
	valid  answer // it is JSON
}

func (r *Request) content() string {
	if r.text == "" {
		r.text = string(r.Body)
	}
	return r.text
}

// answer to a question that is asked once.
type answer uint8

const (
	unasked answer = iota
	yes
	no
)

// Read gives what stands at the place, without escapes and the white space around it. A
// path keeps its escapes.
func (p Place) Read(r *Request) (value string, ok bool) {
	switch p.from {
	case inForm:
		if isForm(r) {
			value, ok = parameter(r.content(), p.name)
		}
	case inJSON:
		var v Value
		if r.isJSON() {
			v, ok = p.path.First(r.content())
		}
		value = v.Text
	case inQuery:
		_, query, _ := strings.Cut(r.Target, "?")
		value, ok = parameter(query, p.name)
	case inHeader:
		value, ok = r.Fields.Get(p.name), r.Fields.Has(p.name)
	case inPath:
		value, ok = p.inPath(r)
	}
	return strings.TrimSpace(value), ok
}

func (p Place) inPath(r *Request) (string, bool) {
	path, _, _ := strings.Cut(r.Target, "?")
	if p.re == nil {
		return path, true
	}
	m := p.re.FindStringSubmatch(path)
	if m == nil {
		return "", false
	}
	return m[1], true
}

// isForm says whether the content may be a form: many clients send one without saying so,
// and some call JSON one, which is then none, whatever stands between two & in it.
func isForm(r *Request) bool {
	media, _, _ := mime.ParseMediaType(r.Fields.Get("Content-Type"))
	return (media == "" || media == "application/x-www-form-urlencoded") && !r.isJSON()
}

// isJSON says whether the content is JSON, whatever its media type says.
func (r *Request) isJSON() bool {
	if r.valid == unasked {
		r.valid = no
		if Valid(r.content()) {
			r.valid = yes
		}
	}
	return r.valid == yes
}

// parameter is the first one of that name among pairs of a query or a form.
func parameter(pairs, name string) (string, bool) {
	for pairs != "" {
		var pair string
		pair, pairs, _ = strings.Cut(pairs, "&")
		key, value, _ := strings.Cut(pair, "=")
		if k, err := url.QueryUnescape(key); err != nil || k != name {
			continue
		}
		if v, err := url.QueryUnescape(value); err == nil {
			return v, true
		}
		return value, true
	}
	return "", false
}
