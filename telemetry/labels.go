package telemetry

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// other stands for all label values beyond the bound.
const other = "other"

// longestLabel is the length of the longest host name with its port.
const longestLabel = 253 + len(":65535")

// table is a map that is read without a lock and copied when it grows, which it
// does seldom and not beyond its bound.
type table[K comparable, V any] struct {
	mu      sync.Mutex // of writers
	entries atomic.Pointer[map[K]V]
}

func (t *table[K, V]) get(key K) (v V, ok bool) {
	if m := t.entries.Load(); m != nil {
		v, ok = (*m)[key]
	}
	return v, ok
}

func (t *table[K, V]) size() int {
	if m := t.entries.Load(); m != nil {
		return len(*m)
	}
	return 0
}

// addLocked adds an entry unless it is there.
func (t *table[K, V]) addLocked(key K, v V) {
	grown := make(map[K]V, t.size()+1)
	if m := t.entries.Load(); m != nil {
		maps.Copy(grown, *m)
	}
	if _, ok := grown[key]; !ok {
		grown[key] = v
	}
	t.entries.Store(&grown)
}

// names bounds the values of one label: those expected, and the first so many
// others. Everything else is "other".
type names struct {
	known table[string, string]
	left  atomic.Int64 // others that may still come
}

func newNames(others int, expected ...string) *names {
	n := &names{}
	n.left.Store(int64(others))
	n.expect(expected)
	return n
}

// expect adds values that do not count as others.
func (n *names) expect(values []string) {
	n.known.mu.Lock()
	defer n.known.mu.Unlock()
	for _, v := range slices.Concat(values, []string{other}) {
		n.known.addLocked(v, v)
	}
}

// label is the value to be shown for name.
func (n *names) label(name string) string {
	if v, ok := n.known.get(name); ok {
		return v
	}
	if n.left.Load() <= 0 || name == "" || len(name) > longestLabel || !utf8.ValidString(name) {
		return other
	}
	return n.admit(name)
}

// admit lets a new name in if there is still room.
func (n *names) admit(name string) string {
	n.known.mu.Lock()
	defer n.known.mu.Unlock()
	if _, ok := n.known.get(name); !ok {
		if n.left.Add(-1) < 0 {
			return other
		}
		n.known.addLocked(name, name)
	}
	return name
}

// look is label for a scrape: it lets nothing new in.
func (n *names) look(name string) string {
	if v, ok := n.known.get(name); ok {
		return v
	}
	return other
}
