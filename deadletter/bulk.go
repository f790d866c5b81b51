package deadletter

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// BulkOrder is the wish to run many letters again.
type BulkOrder struct {
	Filter Filter
	All    bool          // an empty filter is meant
	Every  time.Duration // from one letter to the next; 0: UsualRate
	Canary int           // so many go ahead, one after the other, and must end done
	At     time.Time     // the first of them, not before; zero: at once
	Signed
}

// Check says what is wrong with the order. Errors: ErrInput.
func (o *BulkOrder) Check() error {
	if o.Filter.Empty() && !o.All {
		return ErrNoFilter
	}
	if err := CheckCanary(o.Canary); err != nil {
		return err
	}
	return o.CheckOptional()
}

// Pace is the time from one letter to the next.
func (o *BulkOrder) Pace() time.Duration { return cmp.Or(o.Every, UsualRate) }

// ErrNoFilter is an ErrInput: nobody should move all letters by accident.
var ErrNoFilter = wrong("filter", "no condition is given; to mean every letter say so (all)")

// Bulk is how a bulk stands. One that could not begin has no Started.
type Bulk struct {
	State    string            `json:"state"` // running, ended, stopped, cancelled; none: there was none
	Why      string            `json:"why,omitempty"`
	Filter   map[string]string `json:"filter"`
	By       string            `json:"by,omitempty"`
	Note     string            `json:"note,omitempty"`
	Rate     string            `json:"rate"` // time from one letter to the next
	Canary   int               `json:"canary"`
	At       time.Time         `json:"at,omitzero"` // of the first letter, where they are to run later
	Started  time.Time         `json:"started,omitzero"`
	Ended    time.Time         `json:"ended,omitzero"`
	Requeued int               `json:"requeued"`        // letters that began to run
	Done     int               `json:"done"`            // of these, closed by an answer
	Failed   int               `json:"failed"`          // of these, not
	Refused  int               `json:"refused"`         // by a rule, or on their way already
	Later    int               `json:"later,omitempty"` // letters that got their time, and run by themselves
	Last     string            `json:"last,omitempty"`
}

// States of a bulk.
const (
	BulkNone      = "none"
	BulkRunning   = "running"
	BulkEnded     = "ended"     // there was no letter left
	BulkStopped   = "stopped"   // too many failed
	BulkCancelled = "cancelled" // by a person, or the proxy shuts down
)

// Preview is what a bulk would do.
type Preview struct {
	Letters  int         `json:"letters"` // that the filter finds
	Would    int         `json:"would_requeue"`
	At       time.Time   `json:"at,omitzero"`  // when the first of them would run; left out: at once
	Refused  int         `json:"would_refuse"` // by rule: they need a look each
	Refusals []Refusal   `json:"refusals"`     // why, the first met first
	More     bool        `json:"more,omitempty"`
	First    []Previewed `json:"first"` // the oldest
}

// Refusal is a rule and how many letters it keeps from running in a bulk.
type Refusal struct {
	Why     string `json:"why"`
	Letters int    `json:"letters"`
}

// Previewed is a letter and what a bulk would do with it.
type Previewed struct {
	View
	At      time.Time `json:"at,omitzero"`       // when it would run; left out: at once, or not at all
	Refused string    `json:"refused,omitempty"` // why; empty: it would run
}

// NewPreview is one of no letters.
func NewPreview() Preview { return Preview{Refusals: []Refusal{}, First: []Previewed{}} }

// shownFirst is how many letters a Preview names.
const shownFirst = 20

// Add counts a letter that would run at a time, zero: at once; err is what MayRequeue or
// MayLater said about it.
func (p *Preview) Add(v View, at time.Time, err error) {
	p.Letters++
	one := Previewed{View: v}
	if err == nil {
		p.Would++
		one.At = at
		if p.Would == 1 {
			p.At = at
		}
	} else {
		one.Refused = strings.TrimPrefix(strings.TrimPrefix(err.Error(), ErrRefused.Error()+": "), ErrInput.Error()+": ")
		p.Refused++
		p.refuse(one.Refused)
	}
	if len(p.First) < shownFirst {
		p.First = append(p.First, one)
	}
}

func (p *Preview) refuse(why string) {
	i := slices.IndexFunc(p.Refusals, func(r Refusal) bool { return r.Why == why })
	if i < 0 {
		i = len(p.Refusals)
		p.Refusals = append(p.Refusals, Refusal{Why: why})
	}
	p.Refusals[i].Letters++
}
