// Package report answers one question: which variant of a policy does better?
//
// It counts the calls that the retry rule handled, per policy and variant, in
// memory of fixed size, and compares the variants of a policy with the first one.
package report

import (
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

// Call is what a call came to that the retry rule handled.
type Call struct {
	Left      bool // its client left before the end: counted apart, for what it would have come to is not known
	Succeeded bool
	Attempts  int           // in all; 0: the gate never let it start
	Sent      int           // those of which a byte went to an upstream
	Added     time.Duration // what it took beyond its last attempt: waits, earlier attempts
}

// Arm is a policy without variants, or one of the variants of a policy.
type Arm struct {
	Name    string // as calls have it: policy or policy/variant
	Variant string // empty: the policy has none
	Weight  int    // its part of the calls; 0: the policy has no variants
	// Settings are all that makes the arm do as it does, for reflect.DeepEqual: an
	// arm whose settings changed is another one.
	Settings any
}

// Group is a policy with its arms, which are compared with the first.
type Group struct {
	Policy string
	Arms   []Arm
}

// mostHealed is how many attempts are told apart.
const mostHealed = 10

// Report counts. Make one with New; all methods are safe for concurrent use.
type Report struct {
	mu     sync.Mutex // guards groups, and changes of arms
	groups []group
	arms   atomic.Pointer[map[string]*counted] // by Arm.Name
}

type group struct {
	Group
	changed time.Time // when arms or weights changed last while others went on; zero: never
}

// counted is an arm with its figures.
type counted struct {
	settings any
	mu       sync.Mutex
	figures
}

// figures are those of one arm.
type figures struct {
	since                         time.Time
	calls, succeeded, saved, left int             // saved: succeeded after more than one attempt
	healed                        [mostHealed]int // of succeeded: on attempt 1, 2, …
	attempts, sent, added         moments
	spread                        histogram // of added
}

// New counts for these policies from now on.
func New(groups []Group, now time.Time) *Report {
	r := &Report{}
	r.Configure(groups, now)
	return r
}

// Configure takes the policies of a new configuration. Arms whose name and settings
// are as before keep their figures; the others begin at now.
func (r *Report) Configure(groups []Group, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, arms := r.byName(), map[string]*counted{}
	next := make([]group, len(groups))
	for i, g := range groups {
		next[i].Group = g
		kept := false
		for _, a := range g.Arms {
			c := before[a.Name]
			if c == nil || !reflect.DeepEqual(c.settings, a.Settings) {
				c = &counted{settings: a.Settings, figures: figures{since: now}}
			} else {
				kept = true
			}
			arms[a.Name] = c
		}
		if old := r.groupLocked(g.Policy); old != nil && kept {
			next[i].changed = old.changed
			if !reflect.DeepEqual(old.Arms, g.Arms) {
				next[i].changed = now
			}
		}
	}
	r.groups = next
	r.arms.Store(&arms)
}

// groupLocked is the policy of that name; nil: there is none.
func (r *Report) groupLocked(policy string) *group {
	for i := range r.groups {
		if r.groups[i].Policy == policy {
			return &r.groups[i]
		}
	}
	return nil
}

func (r *Report) byName() map[string]*counted {
	if m := r.arms.Load(); m != nil {
		return *m
	}
	return nil
}

// Count adds a call of the arm of that name. One that the configuration does not
// have any more is not counted.
func (r *Report) Count(name string, c Call) {
	if arm := r.byName()[name]; arm != nil {
		arm.mu.Lock()
		arm.add(&c)
		arm.mu.Unlock()
	}
}

func (f *figures) add(c *Call) {
	if c.Left {
		f.left++
		return
	}
	f.calls++
	if c.Succeeded {
		f.succeeded++
		f.healed[min(max(c.Attempts, 1), mostHealed)-1]++
	}
	if c.Succeeded && c.Attempts > 1 {
		f.saved++
	}
	ms := max(c.Added, 0).Milliseconds() // whole ones: what a call costs us is no wait
	f.attempts.add(float64(c.Attempts))
	f.sent.add(float64(c.Sent))
	f.added.add(float64(ms))
	f.spread.add(ms)
}

// Reset begins anew at now for one policy, empty: for all. False: there is none of
// that name.
func (r *Report) Reset(policy string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := policy == ""
	for i := range r.groups {
		g := &r.groups[i]
		if policy != "" && g.Policy != policy {
			continue
		}
		found, g.changed = true, time.Time{}
		for _, a := range g.Arms {
			c := r.byName()[a.Name]
			c.mu.Lock()
			c.figures = figures{since: now}
			c.mu.Unlock()
		}
	}
	return found
}

// look is a copy of the figures of an arm.
func (c *counted) look() figures {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.figures
}
