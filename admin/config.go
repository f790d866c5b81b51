package admin

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// showConfig shows the configuration in force, as JSON or as YAML.
func (s *server) showConfig(w http.ResponseWriter, r *http.Request) {
	if wantsYAML(r) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(s.Config())
		return
	}
	show(w, toJSON(s.configNode()))
}

func wantsYAML(r *http.Request) bool {
	return r.URL.Query().Get("format") == "yaml" || strings.Contains(r.Header.Get("Accept"), "yaml")
}

// showPolicies shows the policies with everything they left out filled in.
func (s *server) showPolicies(w http.ResponseWriter, _ *http.Request) {
	show(w, s.policiesJSON())
}

// configNode is the configuration in force.
func (s *server) configNode() *yaml.Node {
	var doc yaml.Node
	if err := yaml.Unmarshal(s.Config(), &doc); err != nil || len(doc.Content) == 0 {
		panic("bug: the effective configuration is no YAML")
	}
	return doc.Content[0]
}

// valueOf is what a key of an object has; nil: there is none.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// toJSON writes YAML as JSON; keys keep the order that the file explains them in.
func toJSON(n *yaml.Node) json.RawMessage {
	switch n.Kind {
	case yaml.MappingNode:
		return join('{', '}', n.Content, 2)
	case yaml.SequenceNode:
		return join('[', ']', n.Content, 1)
	}
	var v any
	if n.ShortTag() == "!!timestamp" || n.Decode(&v) != nil {
		v = n.Value
	}
	text, err := encode(v, "")
	if err != nil { // .inf and .nan are no JSON
		text, _ = encode(n.Value, "")
	}
	return bytes.TrimSpace(text)
}

// join writes the items of an object (key and value, step 2) or of a list.
func join(begin, end byte, items []*yaml.Node, step int) json.RawMessage {
	var out bytes.Buffer
	out.WriteByte(begin)
	for i := 0; i < len(items); i += step {
		if i > 0 {
			out.WriteByte(',')
		}
		if step == 2 {
			key, _ := encode(items[i].Value, "")
			out.Write(bytes.TrimSpace(key))
			out.WriteByte(':')
		}
		out.Write(toJSON(items[i+step-1]))
	}
	out.WriteByte(end)
	return out.Bytes()
}

// reloadConfig reads the file again. A bad file keeps the old rules in force
// and each of its faults is named.
func (s *server) reloadConfig(w http.ResponseWriter, _ *http.Request) {
	if err := s.Reload(); err != nil {
		fail(w, http.StatusUnprocessableEntity, "bad_config", "the old configuration stays in force",
			strings.Split(strings.TrimSpace(err.Error()), "\n")...)
		return
	}
	show(w, struct {
		Reloaded bool `json:"reloaded"`
	}{true})
}

// Problems are what is wrong with the configuration, or was with a newer one.
type Problems struct {
	File     string    `json:"file"`        // empty: the embedded one
	Warnings []string  `json:"warnings"`    // about the one in force
	Reload   *Reloaded `json:"last_reload"` // null: there was none
}

// Reloaded is what a reload came to.
type Reloaded struct {
	At    time.Time `json:"at"`
	OK    bool      `json:"ok"`
	Error string    `json:"error"` // what is wrong with the file; empty: it is in force
}

func (s *server) showProblems(w http.ResponseWriter, _ *http.Request) { show(w, s.Problems()) }
