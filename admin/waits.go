package admin

import (
	"encoding/json"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// Waits are the planned delays of a policy, one before each retry and without jitter, and
// how long all attempts with them can take.
type Waits struct {
	Delays  []time.Duration
	Longest time.Duration
}

// policiesJSON are the policies with what follows from their settings, so that a curve
// can be drawn.
func (s *server) policiesJSON() json.RawMessage {
	list := valueOf(s.configNode(), "retry_policies")
	if list == nil {
		return json.RawMessage("[]")
	}
	for _, p := range list.Content {
		name := s.addWaits(p, "")
		variants := valueOf(p, "variants")
		if variants == nil {
			continue
		}
		for _, v := range variants.Content {
			s.addWaits(v, name+"/")
		}
	}
	return toJSON(list)
}

// addWaits adds the delays of one policy, whose name it gives.
func (s *server) addWaits(p *yaml.Node, prefix string) string {
	name := valueOf(p, "name")
	if name == nil {
		return ""
	}
	w := s.Waits(prefix + name.Value)
	delays := &yaml.Node{Kind: yaml.SequenceNode}
	for _, d := range w.Delays {
		delays.Content = append(delays.Content, number(d.Milliseconds()))
	}
	p.Content = append(p.Content, word("delays_ms"), delays, word("longest_ms"), number(w.Longest.Milliseconds()))
	return name.Value
}

func word(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

func number(n int64) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(n, 10)}
}
