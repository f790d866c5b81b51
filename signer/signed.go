package signer

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"strings"
)

// forms are the ways in which clients of this family write nested values into
// the text. The servers decode first, so they take all of them.
func (s *Scheme) forms() []form {
	switch s.Family {
	case SortedWrap, KVAmp:
		return []form{{}, {plain: true}}
	case Doudian:
		return []form{{asSent: true}, {sorted: true}, {sorted: true, plain: true}}
	}
	return []form{{asSent: true}}
}

// signed is the text over which the signature of a request goes.
func (s *Scheme) signed(v *view, c Credentials, f form) (string, error) {
	var b strings.Builder
	var err error
	switch s.Family {
	case SortedWrap:
		err = s.writeSorted(&b, slices.Concat(v.query, v.body), f, "", "")
	case KVAmp:
		err = s.writeSorted(&b, slices.Concat(v.query, v.body), f, "=", "&")
		b.WriteString(strings.ReplaceAll(s.Suffix, secretPart, c[s.Secret]))
	case FixedConcat:
		err = s.writeParts(&b, v, c)
	case PathSortedBody:
		err = s.writePath(&b, v)
	case Doudian:
		err = s.writeDoudian(&b, v, f)
	}
	if err != nil {
		return "", err
	}
	return s.wrapped(b.String(), c[s.Secret], s.variantOf(v)), nil
}

// wrapped puts the secret around the text.
func (s *Scheme) wrapped(text, secret string, as Variant) string {
	wrap := s.Wrap
	switch {
	case s.Family == KVAmp || s.Family == FixedConcat:
		wrap = "none"
	case wrap == "" && s.Family == SortedWrap && strings.HasPrefix(as.Digest, "hmac-"):
		wrap = "none"
	}
	switch wrap {
	case "none":
		return text
	case "head":
		return secret + text
	case "tail":
		return text + secret
	}
	return secret + text + secret
}

// writeSorted writes the parameters that are signed, sorted by name.
func (s *Scheme) writeSorted(b *strings.Builder, params []value, f form, equals, between string) error {
	params = slices.DeleteFunc(params, func(p value) bool { return !s.signs(p) })
	slices.SortFunc(params, func(a, b value) int { return strings.Compare(a.name, b.name) })
	for i, p := range params {
		if i > 0 {
			if params[i-1].name == p.name {
				return fmt.Errorf("%w: the parameter %q is there twice", ErrUnreadable, p.name)
			}
			b.WriteString(between)
		}
		b.WriteString(p.name)
		b.WriteString(equals)
		if p.nested {
			b.WriteString(f.in([]byte(p.text)))
		} else {
			b.WriteString(p.text)
		}
	}
	return nil
}

// signs says whether a parameter is part of the text.
func (s *Scheme) signs(p value) bool {
	switch {
	case s.isSignature(p.name), slices.Contains(s.Exclude, p.name):
		return false
	case len(s.Include) > 0 && !slices.Contains(s.Include, p.name):
		return false
	}
	return p.text != "" || s.Empty != "skipped"
}

// isSignature says whether a parameter of that name may be the signature.
func (s *Scheme) isSignature(name string) bool {
	return slices.ContainsFunc(s.Signature, func(place string) bool {
		_, own, _ := parsePlace(place)
		return own == name
	})
}

// writePath writes path, sorted parameters and body. A form is parameters, and
// multipart bodies are not signed.
func (s *Scheme) writePath(b *strings.Builder, v *view) error {
	b.WriteString(v.path)
	params := v.query
	if v.object < 0 {
		params = slices.Concat(v.query, v.body)
	}
	if err := s.writeSorted(b, slices.Clone(params), form{}, "", ""); err != nil {
		return err
	}
	if !v.multipart && (v.object >= 0 || len(v.body) == 0) {
		b.Write(v.r.Body)
	}
	return nil
}

// writeDoudian writes the five parameters. The business parameters are the body,
// in older clients the parameter param_json.
func (s *Scheme) writeDoudian(b *strings.Builder, v *view, f form) error {
	for _, name := range []string{"app_key", "method", "param_json", "timestamp", "v"} {
		found, ok := named(v.query, name)
		if !ok && v.object < 0 {
			found, ok = named(v.body, name)
		}
		switch {
		case ok && name == "param_json":
			found.text = f.inText(found.text)
		case ok:
		case name == "param_json" && v.object >= 0:
			found.text = f.inText(string(v.r.Body))
		case name == "method":
			found.text = strings.ReplaceAll(strings.Trim(v.path, "/"), "/", ".")
		default:
			return fmt.Errorf("%w: no parameter %q", ErrUnreadable, name)
		}
		b.WriteString(name + found.text)
	}
	return nil
}

// writeParts writes the parts of a fixed_concat.
func (s *Scheme) writeParts(b *strings.Builder, v *view, c Credentials) error {
	for i, text := range s.Parts {
		if i > 0 {
			b.WriteString(s.Joiner)
		}
		p, err := parsePart(text)
		if err != nil {
			return err
		}
		content, err := s.part(p, v, c)
		if err != nil {
			return err
		}
		b.WriteString(content)
	}
	return nil
}

// part is what one part says.
func (s *Scheme) part(p part, v *view, c Credentials) (string, error) {
	var places []string
	switch p.kind {
	case "literal":
		return p.arg, nil
	case "path":
		return v.path, nil
	case "method":
		return v.r.Method, nil
	case "body":
		return string(v.r.Body), nil
	case "body.md5":
		sum := md5.Sum(v.r.Body)
		return hex.EncodeToString(sum[:]), nil
	case "secret":
		return c[s.Secret], nil
	case "cred":
		if c[p.arg] == "" {
			return "", fmt.Errorf("%w: no credential %q", ErrNoSecret, p.arg)
		}
		return c[p.arg], nil
	case "timestamp":
		places = s.Time.At
	case "nonce":
		places = s.Nonce.At
	case "access_token":
		places = s.Token
	case "place":
		places = []string{p.arg}
	}
	found, ok := v.find(places)
	if !ok && !p.optional {
		return "", fmt.Errorf("%w: nothing at %s", ErrUnreadable, strings.Join(places, ", "))
	}
	return found.text, nil
}

// variantOf is the digest that the request asks for.
func (s *Scheme) variantOf(v *view) Variant {
	found, _ := v.find(s.Variants.At)
	return s.variant(found.text)
}

// sum signs text.
func (as Variant) sum(text, secret string) string {
	var h hash.Hash
	switch as.Digest {
	case "md5":
		h = md5.New()
	case "sha256":
		h = sha256.New()
	case "hmac-md5":
		h = hmac.New(md5.New, []byte(secret))
	case "hmac-sha1":
		h = hmac.New(sha1.New, []byte(secret))
	default:
		h = hmac.New(sha256.New, []byte(secret))
	}
	h.Write([]byte(text))
	sum := h.Sum(nil)
	if as.Encoding == "base64" {
		return base64.StdEncoding.EncodeToString(sum)
	}
	if as.Case == "upper" {
		return strings.ToUpper(hex.EncodeToString(sum))
	}
	return hex.EncodeToString(sum)
}

// like gives a fresh signature the client's letters where the scheme leaves them open.
func (as Variant) like(sum, client string) string {
	if as.Case == "" && as.Encoding != "base64" && client == strings.ToUpper(client) {
		return strings.ToUpper(sum)
	}
	return sum
}
