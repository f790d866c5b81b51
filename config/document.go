package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document turns a file into nodes. The result is nil for a file without
// content. The error is a Problem without a path.
func document(data []byte) (*yaml.Node, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		return jsonDocument(data)
	}
	return yamlDocument(data)
}

// yamlDocument reads one YAML document.
func yamlDocument(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, yamlProblem(err, data)
	}
	if err := dec.Decode(&second); err == nil {
		return nil, Problem{Line: second.Line, Rule: "a second document; one file holds one"}
	} else if !errors.Is(err, io.EOF) {
		return nil, yamlProblem(err, data)
	}
	root := resolve(doc.Content[0])
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return nil, nil
	}
	return root, nil
}

var (
	yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)
	// The library counts lines from 0 where its parser, not its scanner, fails.
	yamlParser = regexp.MustCompile(`^did not find expected (?:key|node content|'|<)`)
)

// yamlProblem takes the line out of the library's message.
func yamlProblem(err error, data []byte) Problem {
	text := err.Error()
	line := 0
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
		if yamlParser.MatchString(text) {
			line++
		}
	}
	at, hint := hintFor(bytes.Split(data, []byte("\n")), line)
	return Problem{Line: at, Rule: "not valid YAML: " + strings.TrimPrefix(text, "yaml: ") + hint}
}

var (
	tabIndent = regexp.MustCompile(`^ *\t`)
	bareStar  = regexp.MustCompile(`(?:^|[:,\[-])\s*\*`)
)

// hintFor says what is usually meant by the faults that people make most, and in
// which line. The library may name the line before, or none.
func hintFor(lines [][]byte, line int) (at int, hint string) {
	from, to := max(0, line-1), min(len(lines), line+1)
	if line == 0 {
		to = len(lines)
	}
	for i := from; i < to; i++ {
		switch {
		case tabIndent.Match(lines[i]):
			return i + 1, "; indent with spaces, not with tabs"
		case bareStar.Match(lines[i]):
			return i + 1, "; quote values that begin with *"
		}
	}
	return line, ""
}

// maxDepth is far more than any configuration needs.
const maxDepth = 50

// jsonReader turns JSON tokens into the nodes that YAML gives.
type jsonReader struct {
	data  []byte
	dec   *json.Decoder
	line  int   // of at
	at    int64 // offset up to which lines were counted
	depth int
}

// jsonDocument reads one JSON value.
func jsonDocument(data []byte) (*yaml.Node, error) {
	r := &jsonReader{data: data, dec: json.NewDecoder(bytes.NewReader(data)), line: 1}
	r.dec.UseNumber()
	n, err := r.value()
	if err != nil {
		return nil, r.problem(err)
	}
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, r.problem(errors.New("something follows the end of the document"))
	}
	return n, nil
}

func (r *jsonReader) problem(err error) Problem {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && syntax.Offset > r.at {
		r.count(syntax.Offset)
	}
	return Problem{Line: r.line, Rule: "not valid JSON: " + err.Error()}
}

// count moves on to an offset and counts the lines on the way.
func (r *jsonReader) count(offset int64) {
	offset = min(offset, int64(len(r.data)))
	r.line += bytes.Count(r.data[r.at:offset], []byte("\n"))
	r.at = offset
}

// value reads the next value with all that is in it.
func (r *jsonReader) value() (*yaml.Node, error) {
	token, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	r.count(r.dec.InputOffset())
	switch t := token.(type) {
	case json.Delim:
		return r.container(t)
	case string:
		return r.node("!!str", t), nil
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(t.String(), ".eE") {
			tag = "!!float"
		}
		return r.node(tag, t.String()), nil
	case bool:
		return r.node("!!bool", strconv.FormatBool(t)), nil
	}
	return r.node("!!null", "null"), nil
}

func (r *jsonReader) node(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value, Line: r.line}
}

// container reads an object or a list up to its closing bracket.
func (r *jsonReader) container(open json.Delim) (*yaml.Node, error) {
	if r.depth++; r.depth > maxDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxDepth)
	}
	n := &yaml.Node{Kind: yaml.MappingNode, Line: r.line}
	if open == '[' {
		n.Kind = yaml.SequenceNode
	}
	for r.dec.More() {
		item, err := r.value()
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, item)
	}
	r.depth--
	_, err := r.dec.Token()
	return n, err
}
