package config

import (
	"fmt"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	"retryproxy/policy"
)

// Variants are arms of a policy that are tried against each other.
type Variants []Variant

// Variant is the policy with some settings of its own, for a part of its calls.
type Variant struct {
	Policy // complete: what the variant leaves out comes from the policy
	Weight int
}

// Bounds of variants.
const (
	leastVariants = 2
	mostVariants  = 10 // each takes calls away from all others, and keeps figures
	mostWeight    = 1_000_000
)

// shared are the keys that say which calls are meant and which are the same: they
// cannot differ between the variants of a policy.
var shared = []string{"match", "variants", "fingerprint_ignore"}

// decode does nothing: variants are laid over their policy once that is read.
func (*Variants) decode(*decoder, *yaml.Node, string) {}

// readVariants reads those of a policy, each over what the policy itself holds.
func (p *Policy) readVariants(d *decoder, n *yaml.Node, path string) {
	if !d.isKind(n, yaml.SequenceNode, path) {
		return
	}
	p.Variants = make(Variants, len(n.Content))
	for i, item := range n.Content {
		v := &p.Variants[i]
		v.Policy, v.Weight = *p, 1
		v.Name, v.Match, v.Variants = "", Match{}, nil
		v.decode(d, resolve(item), fmt.Sprintf("%s[%d]", path, i))
	}
}

func (v *Variant) decode(d *decoder, n *yaml.Node, path string) {
	d.lines[path] = n.Line
	d.pairs(n, path, func(key, value *yaml.Node, at string) {
		switch {
		case key.Value == "weight":
			d.decode(value, at, valueOf(&v.Weight))
		case slices.Contains(shared, key.Value):
			d.fail(key.Line, at, "a variant has none of its own: it is the same for all variants of a policy")
		default:
			d.member(key, value, at, valueOf(&v.Policy), "weight")
		}
	})
	v.forwardHeadersSet = v.forwardHeadersSet || d.given(path+".forward_headers")
}

// encode writes the name, the weight, and what differs from the policy p.
func (v *Variant) encode(p *Policy) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text("name"), text(v.Name), text("weight"), encode(valueOf(&v.Weight))}}
	own, base := valueOf(&v.Policy), valueOf(p)
	for i := range own.NumField() {
		name := tagOf(own.Type().Field(i))
		switch {
		case name == "" || name == "name" || slices.Contains(shared, name):
			continue
		case name == "forward_headers" && v.forwardHeadersSet != p.forwardHeadersSet:
		case reflect.DeepEqual(own.Field(i).Interface(), base.Field(i).Interface()):
			continue
		}
		n.Content = append(n.Content, text(name), encode(own.Field(i)))
	}
	return n
}

// encode writes the policy; its variants are told by what is different there.
func (p *Policy) encode() *yaml.Node {
	n := encodeStruct(valueOf(p))
	if len(p.Variants) == 0 {
		return n
	}
	list := n.Content[len(n.Content)-1] // variants are the last key
	for i := range p.Variants {
		list.Content[i] = p.Variants[i].encode(p)
	}
	return n
}

// named is the name that calls of the variant have.
func (v *Variant) named(p *Policy) string { return p.Name + "/" + v.Name }

// buildVariants adds the variants to the policy that p became.
func (p *Policy) buildVariants(to *policy.Policy) {
	for i := range p.Variants {
		v := p.Variants[i].build()
		v.Name, v.Weight, v.Of = p.Variants[i].named(p), p.Variants[i].Weight, to
		to.Variants = append(to.Variants, v)
	}
}

// lived are the policies that calls live by, under their full names: a policy, or
// its variants instead.
func (list Policies) lived() (out []Policy) {
	for i := range list {
		p := &list[i]
		for j := range p.Variants {
			v := p.Variants[j].Policy
			v.Name = p.Variants[j].named(p)
			out = append(out, v)
		}
		if len(p.Variants) == 0 {
			out = append(out, *p)
		}
	}
	return out
}
