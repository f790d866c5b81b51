package inspect

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"strings"
)

// deepestXML is far more than any answer needs.
const deepestXML = 100

// element is one of an XML document on its way to JSON.
type element struct {
	name     string
	text     strings.Builder
	names    []string // of what is in it, in order
	children map[string][]json.RawMessage
}

// fromXML is an XML document, in UTF-8, as JSON: elements are members, those of one name
// a list, attributes members with an @ before the name, text beside them #text. Empty: it
// is none, or a page. No entity is resolved but the five of XML; names go without their
// namespaces.
func fromXML(text string) string {
	d := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(text, "\ufeff")))
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil } // it is UTF-8 already
	root := &element{}
	stack := []*element{root}
	for {
		token, err := d.Token()
		if err == io.EOF && len(stack) == 1 && root.isDocument() {
			return string(root.json())
		}
		if err != nil || len(stack) > deepestXML {
			return ""
		}
		at := stack[len(stack)-1]
		switch t := token.(type) {
		case xml.StartElement:
			stack = append(stack, begun(t))
		case xml.CharData:
			at.text.Write(t)
		case xml.EndElement:
			stack = stack[:len(stack)-1]
			stack[len(stack)-1].add(at.name, at.json())
		}
	}
}

// isDocument says whether what was read is one element, with nothing beside it, and of no
// page.
func (e *element) isDocument() bool {
	if len(e.names) != 1 || len(e.children[e.names[0]]) != 1 || strings.TrimSpace(e.text.String()) != "" {
		return false
	}
	switch strings.ToLower(e.names[0]) {
	case "html", "head", "body", "script", "div", "center":
		return false
	}
	return true
}

func begun(t xml.StartElement) *element {
	e := &element{name: t.Name.Local}
	for _, a := range t.Attr {
		if a.Name.Space == "xmlns" || a.Name.Space == "" && a.Name.Local == "xmlns" {
			continue
		}
		e.add("@"+a.Name.Local, quoted(a.Value))
	}
	return e
}

func (e *element) add(name string, value []byte) {
	if e.children == nil {
		e.children = map[string][]json.RawMessage{}
	}
	if len(e.children[name]) == 0 {
		e.names = append(e.names, name)
	}
	e.children[name] = append(e.children[name], value)
}

// json is the element: text alone, or an object of all that is in it.
func (e *element) json() []byte {
	text := strings.TrimSpace(e.text.String())
	if len(e.names) == 0 {
		return quoted(text)
	}
	if text != "" {
		e.add("#text", quoted(text))
	}
	out := []byte{'{'}
	for i, name := range e.names {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, quoted(name)...), ':')
		list := e.children[name]
		if len(list) == 1 {
			out = append(out, list[0]...)
			continue
		}
		out = append(append(append(out, '['), bytes.Join(raw(list), []byte{','})...), ']')
	}
	return append(out, '}')
}

func raw(list []json.RawMessage) [][]byte {
	out := make([][]byte, len(list))
	for i := range list {
		out[i] = list[i]
	}
	return out
}

// quoted is a text as a JSON string.
func quoted(text string) []byte {
	b, err := json.Marshal(text)
	if err != nil {
		panic("bug: a string is always JSON: " + err.Error())
	}
	return b
}
