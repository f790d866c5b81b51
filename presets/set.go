package presets

import (
	"slices"
	"strings"

	"retryproxy/internal/glob"
)

// None is the name by which a policy switches presets off.
const None = "none"

// Set are the presets of one configuration. It is never changed once it is built.
type Set struct {
	list   []*Preset
	byName map[string]*Preset
	byHost map[string][]*Preset // enabled ones by a host name without stars
	others []*Preset            // enabled ones that have patterns
}

func newSet(list []*Preset) *Set {
	s := &Set{list: list, byName: map[string]*Preset{}, byHost: map[string][]*Preset{}}
	slices.SortFunc(list, func(a, b *Preset) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range list {
		s.byName[p.Name] = p
		if p.Enabled {
			s.place(p)
		}
	}
	return s
}

func (s *Set) place(p *Preset) {
	pattern := false
	for _, h := range p.Hosts {
		if strings.Contains(h, "*") {
			pattern = true
			continue
		}
		h = strings.ToLower(h)
		s.byHost[h] = append(s.byHost[h], p)
	}
	if pattern {
		s.others = append(s.others, p)
	}
}

// List are all presets by name; read only.
func (s *Set) List() []*Preset { return s.list }

// Secrets are the names whose values are secret, of all presets.
func (s *Set) Secrets() (names []string) {
	for _, p := range s.list {
		names = append(names, p.Secrets...)
	}
	return names
}

// Named is the preset of that name; nil: there is none.
func (s *Set) Named(name string) *Preset {
	if s == nil {
		return nil
	}
	return s.byName[name]
}

// For is the enabled preset for calls to a path of a host, a name without its port,
// in lower case; nil: there is none.
func (s *Set) For(host, path string) *Preset {
	if s == nil {
		return nil
	}
	host = strings.TrimSuffix(host, ".")
	for _, p := range s.byHost[host] {
		if p.serves(path) {
			return p
		}
	}
	for _, p := range s.others {
		if p.hosts.Match(host) && p.serves(path) {
			return p
		}
	}
	return nil
}

func (p *Preset) serves(path string) bool { return len(p.Paths) == 0 || glob.Any(p.Paths, path) }
