// Package template answers one question: what does a call look like at another place?
//
// A Template is what a preset says about a request that we build ourselves: the order
// at a backup supplier, or a query of what became of one. It is made of texts with
// placeholders in braces, which Build fills from the call, the clock and the
// credentials that it is told, each escaped for where it stands. A value that is not
// there is an error, and so nothing is sent. No error holds a value: it may be secret.
package template

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"retryproxy/message"
)

// Template is a request with placeholders. Its texts were read by UnmarshalText;
// Validate says what is wrong with the whole.
type Template struct {
	Method  string                       `key:"method"` // empty: POST with a body, else GET
	URL     URL                          `key:"url"`
	Headers map[string]Header            `key:"headers"`
	Query   map[string]Query             `key:"query"`  // added to that of the url, by name
	Form    map[string]Query             `key:"form"`   // the body as a form, by name
	JSON    JSON                         `key:"json"`   // the body as a JSON text
	Body    Body                         `key:"body"`   // the body as it is
	Tables  map[string]map[string]string `key:"tables"` // what `map` looks up
}

// Fault is what is wrong with a template, or why a call does not fit into it. Path is
// the key below the template, such as form.amount.
type Fault struct{ Path, Rule string }

// Error is key and rule.
func (f *Fault) Error() string { return f.Path + ": " + f.Rule }

func fault(path, rule string, args ...any) *Fault {
	return &Fault{Path: path, Rule: fmt.Sprintf(rule, args...)}
}

// Validate says what is wrong with a template, sorted by key; none: Build can use it.
func (t *Template) Validate() []*Fault {
	var faults []*Fault
	add := func(path, rule string, args ...any) { faults = append(faults, fault(path, rule, args...)) }
	if t.Method != "" && (!isToken(t.Method) || t.Method != strings.ToUpper(t.Method)) {
		add("method", "must be the name of a method in capitals")
	}
	if t.URL.empty() {
		add("url", "is missing")
	}
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		switch {
		case !isToken(name):
			add("headers."+name, "is no name of a header")
		case framed(name):
			add("headers."+name, "is not for templates: the connection decides")
		}
	}
	switch bodies := t.bodies(); {
	case len(bodies) > 1:
		add(bodies[1], "there is %s already; a request has one body", bodies[0])
	case len(bodies) > 0 && (t.Method == "GET" || t.Method == "HEAD"):
		add(bodies[0], "a %s has no body; use query", t.Method)
	}
	for _, at := range t.texts() {
		for _, name := range at.text.tables() {
			if _, ok := t.Tables[name]; !ok {
				add(at.path, "there is no table %s", name)
			}
		}
	}
	return faults
}

// bodies are the keys that say what the body is.
func (t *Template) bodies() (keys []string) {
	if len(t.Form) > 0 {
		keys = append(keys, "form")
	}
	if !t.JSON.empty() {
		keys = append(keys, "json")
	}
	if !t.Body.empty() {
		keys = append(keys, "body")
	}
	return keys
}

// placed is a text with its key.
type placed struct {
	path string
	text *text
}

// texts are all texts, sorted by key.
func (t *Template) texts() []placed {
	all := []placed{{"body", &t.Body.text}, {"json", &t.JSON.text}, {"url", &t.URL.text}}
	for name, v := range t.Headers {
		all = append(all, placed{"headers." + name, &v.text})
	}
	for name, v := range t.Query {
		all = append(all, placed{"query." + name, &v.text})
	}
	for name, v := range t.Form {
		all = append(all, placed{"form." + name, &v.text})
	}
	slices.SortFunc(all, func(a, b placed) int { return strings.Compare(a.path, b.path) })
	return all
}

// Request is what Build made: a message.Request before its framing.
type Request struct {
	Method    string
	Scheme    string // http or https
	Authority string // host or host:port; becomes Host
	Target    string // path and query
	Fields    message.Fields
	Body      []byte // nil: none
}

// Build fills the template, which Validate has passed. The error is a *Fault that
// names the key and what is missing; nothing is to be sent then.
func (t *Template) Build(f *Facts) (*Request, error) {
	b := builder{facts: f, tables: t.Tables}
	r := &Request{Method: t.method(), Scheme: t.URL.scheme, Authority: t.URL.authority}
	r.Target = b.target(t)
	t.addHeaders(&b, r)
	kind := ""
	switch {
	case len(t.Form) > 0:
		r.Body, kind = []byte(b.pairs("form", t.Form)), "application/x-www-form-urlencoded"
	case !t.JSON.empty():
		r.Body, kind = []byte(b.fill("json", &t.JSON.text)), "application/json"
	case !t.Body.empty():
		r.Body, kind = []byte(b.fillAs("body", &t.Body.text, t.bodyForm())), "text/plain; charset=utf-8"
	}
	if kind != "" && !r.Fields.Has("Content-Type") {
		r.Fields.Add("Content-Type", kind)
	}
	if b.fault != nil {
		return nil, b.fault
	}
	return r, nil
}

func (t *Template) method() string {
	switch {
	case t.Method != "":
		return t.Method
	case len(t.bodies()) > 0:
		return "POST"
	}
	return "GET"
}

// bodyForm is how values are escaped in a body, by its type.
func (t *Template) bodyForm() form {
	for name, h := range t.Headers {
		if strings.EqualFold(name, "Content-Type") && strings.Contains(h.source, "xml") {
			return inXML
		}
	}
	return inText
}

func (t *Template) addHeaders(b *builder, r *Request) {
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		h := t.Headers[name]
		r.Fields.Add(name, b.fill("headers."+name, &h.text))
	}
}

// target is the path and query: those of the url, and the template's query.
func (b *builder) target(t *Template) string {
	target := b.fill("url", &t.URL.text)
	if path, _, _ := strings.Cut(target, "?"); hasDots(path) {
		b.fail("url", "a value makes a segment of dots")
	}
	query := b.pairs("query", t.Query)
	switch {
	case query == "":
		return target
	case !strings.Contains(target, "?"):
		return target + "?" + query
	case strings.HasSuffix(target, "?") || strings.HasSuffix(target, "&"):
		return target + query
	}
	return target + "&" + query
}

// hasDots says whether a path climbs, which no value may make it do.
func hasDots(path string) bool {
	for s := range strings.SplitSeq(path, "/") {
		if s == "." || s == ".." {
			return true
		}
	}
	return false
}

// pairs are names and values as a query or form has them, in the order of the names.
func (b *builder) pairs(path string, values map[string]Query) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := values[name]
		if out.Len() > 0 {
			out.WriteByte('&')
		}
		out.WriteString(url.QueryEscape(name) + "=" + b.fill(path+"."+name, &v.text))
	}
	return out.String()
}

// isToken says whether a text is a token of RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return s != ""
}

// framed says whether a field belongs to the connection.
func framed(name string) bool {
	return message.IsHopByHop(name) || strings.EqualFold(name, "Host") || strings.EqualFold(name, "Content-Length")
}

// Holds says whether the request has something at a place such as form:sign or
// query:sign; of a JSON body it is not known beforehand.
func (t *Template) Holds(place string) bool {
	kind, name, _ := strings.Cut(place, ":")
	switch kind {
	case "form":
		_, ok := t.Form[name]
		return ok
	case "query":
		_, ok := t.Query[name]
		return ok || strings.Contains(t.URL.String(), name+"=")
	case "header":
		for h := range t.Headers {
			if strings.EqualFold(h, name) {
				return true
			}
		}
		return false
	}
	return kind == "json" && !t.JSON.empty()
}
