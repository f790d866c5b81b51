package deadletter

import (
	"time"
)

// BulkOrder is the wish to run many letters again.
type BulkOrder struct {
	Filter Filter
	All    bool          // an empty filter is meant
	Every  time.Duration // from one letter to the next; 0: UsualRate
	Canary int           // so many go ahead, one after the other, and must end done
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
	Started  time.Time         `json:"started,omitzero"`
	Ended    time.Time         `json:"ended,omitzero"`
	Requeued int               `json:"requeued"` // letters that began to run
	Done     int               `json:"done"`     // of these, closed by an answer
	Failed   int               `json:"failed"`   // of these, not
	Refused  int               `json:"refused"`  // by a rule, or on their way already
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
	Letters int    `json:"letters"` // that the filter finds
	Would   int    `json:"would_requeue"`
	Refused int    `json:"would_refuse"` // by rule: they need a look each
	More    bool   `json:"more,omitempty"`
	First   []View `json:"first"`
}

// shownFirst is how many letters a Preview names.
const shownFirst = 20

// Add counts a letter.
func (p *Preview) Add(v View, refused bool) {
	p.Letters++
	if refused {
		p.Refused++
	} else {
		p.Would++
	}
	if len(p.First) < shownFirst {
		p.First = append(p.First, v)
	}
}
