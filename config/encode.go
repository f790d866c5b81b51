package config

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"retryproxy/policy"
)

// Marshal writes the effective configuration as YAML, secrets as <secret>.
func (c *Config) Marshal() []byte {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(encode(valueOf(c))); err != nil {
		panic("bug: " + err.Error()) // nodes of our own making always encode
	}
	return out.Bytes()
}

// encodable has a form of its own in the file.
type encodable interface{ encode() *yaml.Node }

// encode turns v into nodes, the reverse of decoder.decode.
func encode(v reflect.Value) *yaml.Node {
	if own, ok := v.Addr().Interface().(encodable); ok {
		return own.encode()
	}
	switch {
	case isScalar(v):
		return encodeScalar(v)
	case v.Kind() == reflect.Struct:
		return encodeStruct(v)
	case v.Kind() == reflect.Map:
		return encodeMap(v)
	}
	n := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range v.Len() {
		n.Content = append(n.Content, encode(v.Index(i)))
	}
	if v.Len() == 0 || isScalar(v.Index(0)) {
		n.Style = yaml.FlowStyle
	}
	return n
}

func encodeStruct(v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := range v.NumField() {
		if name := tagOf(v.Type().Field(i)); name != "" {
			n.Content = append(n.Content, text(name), encode(v.Field(i)))
		}
	}
	return n
}

func encodeMap(v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
	for _, k := range keys {
		item := reflect.New(v.Type().Elem()).Elem()
		item.Set(v.MapIndex(k))
		n.Content = append(n.Content, text(k.String()), encode(item))
	}
	if len(keys) == 0 {
		n.Style = yaml.FlowStyle
	}
	return n
}

// encode leaves out the keys that match everything.
func (m *Match) encode() *yaml.Node {
	n := encodeStruct(reflect.ValueOf(m).Elem())
	dropEmpty(n)
	n.Style = yaml.FlowStyle
	return n
}

// dropEmpty leaves out the keys without a value.
func dropEmpty(n *yaml.Node) {
	full := n.Content
	n.Content = nil
	for i := 0; i < len(full); i += 2 {
		if len(full[i+1].Content) > 0 || full[i+1].Value != "" {
			n.Content = append(n.Content, full[i], full[i+1])
		}
	}
}

// encode writes statuses as people do, without quotes.
func (s *Statuses) encode() *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, status := range *s {
		n.Content = append(n.Content, plain(status))
	}
	return n
}

func encodeScalar(v reflect.Value) *yaml.Node {
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		return plain(durationText(*p))
	case *time.Time:
		if p.IsZero() {
			return text("")
		}
		return plain(p.Format(time.RFC3339))
	case *netip.Prefix:
		return text(p.String())
	case *policy.HourRange:
		return plain(fmt.Sprintf("%d-%d", p.From, p.To))
	case fmt.Stringer: // Size, Secret
		return text(p.String())
	}
	switch v.Kind() {
	case reflect.Bool, reflect.Int:
		return plain(fmt.Sprint(v.Interface()))
	case reflect.Float64:
		return plain(strconv.FormatFloat(v.Float(), 'g', -1, 64))
	}
	return text(strings.ReplaceAll(v.String(), "${", "$${"))
}

// plain is a scalar without quotes.
func plain(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }

// text is a string scalar; the library quotes it where it must.
func text(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
}
