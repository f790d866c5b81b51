// Package patience answers one question: after how long do clients of a kind hang up?
//
// A kind is a task type. It counts in memory of fixed size, and nobody is refused for
// what it says: it shows operators where a deadline is longer than the bots' patience.
package patience

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kinds that are not task types.
const (
	None   = "-"     // calls without a task type
	Others = "other" // task types beyond the first
)

const (
	mostKinds = 32 // task types told apart
	enough    = 20 // calls that waited, from which on the share of those that left says something
)

// Call is what a call that ended says of its client's patience.
type Call struct {
	Kind     string        // task type; empty: none
	Waited   bool          // for anything: backoff, tokens, its host
	Left     time.Duration // after which its client left without an answer; 0: it did not
	Deadline time.Duration // that it was given; 0: unknown
}

// View is what is known of a kind.
type View struct {
	Kind       string
	Calls      int // that ended
	Left       int // of them: whose client left without an answer
	Waited     int // calls that waited
	WaitedLeft int // of them: whose client left without an answer
	Deadline   time.Duration
	P50, P90   time.Duration // from the request until clients left; 0: none did
}

// Patience counts. Make one with New; all methods are safe for concurrent use.
type Patience struct {
	mu    sync.Mutex
	kinds map[string]*kind
}

// kind is the figures of a kind.
type kind struct {
	View
	times Times
	told  bool // that most leave
}

// New has counted nothing.
func New() *Patience { return &Patience{kinds: map[string]*kind{}} }

// Count adds a call. It says, once for each kind, that more than half of those that
// wait leave before their deadline.
func (p *Patience) Count(c Call) (v View, most bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.kindLocked(c.Kind)
	k.add(&c)
	if k.told || k.Waited < enough || 2*k.WaitedLeft <= k.Waited {
		return View{}, false
	}
	k.told = true
	return k.view(), true
}

// Of is what is known of a task type; empty: of calls without one.
func (p *Patience) Of(taskType string) View {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := cmp.Or(taskType, None)
	if k := p.kinds[name]; k != nil {
		return k.view()
	}
	if k := p.kinds[Others]; k != nil && len(p.kinds) > mostKinds {
		return k.view()
	}
	return View{Kind: name}
}

// Views are all kinds by name.
func (p *Patience) Views() []View {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]View, 0, len(p.kinds))
	for _, k := range p.kinds {
		out = append(out, k.view())
	}
	slices.SortFunc(out, func(a, b View) int { return cmp.Compare(a.Kind, b.Kind) })
	return out
}

// kindLocked finds or makes the kind of a task type.
func (p *Patience) kindLocked(name string) *kind {
	name = cmp.Or(name, None)
	if p.kinds[name] == nil && len(p.kinds) >= mostKinds {
		name = Others
	}
	k := p.kinds[name]
	if k == nil {
		name = strings.Clone(name)
		k = &kind{View: View{Kind: name}}
		p.kinds[name] = k
	}
	return k
}

func (k *kind) add(c *Call) {
	k.Calls++
	if c.Deadline > 0 {
		k.Deadline = c.Deadline
	}
	if c.Waited {
		k.Waited++
	}
	if c.Left <= 0 {
		return
	}
	k.Left++
	if c.Waited {
		k.WaitedLeft++
	}
	k.times.Add(c.Left)
}

func (k *kind) view() View {
	v := k.View
	v.P50, v.P90 = k.times.Quantile(0.5), k.times.Quantile(0.9)
	return v
}
