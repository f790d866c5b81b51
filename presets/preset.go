// Package presets answers one question: what do a platform's requests and answers mean?
//
// docs/presets.md is the schema of the files that it reads.
package presets

import (
	"crypto/sha256"
	"regexp"
	"slices"
	"time"

	"retryproxy/classify"
	"retryproxy/document"
	"retryproxy/inspect"
	"retryproxy/internal/glob"
	"retryproxy/message"
	"retryproxy/policy"
	"retryproxy/signer"
)

// Preset is what is known about a platform. It is never changed once it is built.
type Preset struct {
	Name, Version, Title, Confidence string
	Sources, Notes                   []string
	Enabled                          bool // for its hosts, without being named
	Builtin                          bool

	Hosts []string // patterns
	Paths []string // globs; none: every path

	Forward []string // headers of ours that go upstream
	Renew   []string // headers that get a new value on each retry

	Operation, Token, BusinessKey []document.Place
	Volatile, VolatileLessToken   []string // parts of a request that change with every sending
	Secrets                       []string // names whose values are shown nowhere
	Reads                         Reads
	Idempotent                    []Idempotent
	Scarce                        []string // globs of operations
	Limits                        []Limit

	Sign   *signer.Scheme // nil: requests are not signed, or it is not known how
	Replay string         // of a request whose signature is too old: window, handback, resign

	Submit *Submit // how an order is placed here that another supplier did not take; nil: it is not known
	Query  *Query  // how it is asked what became of an order; nil: it is not known

	Answers  inspect.Options // Limit is the caller's
	Book     classify.Book
	Rules    []RuleText // as the file has them, those that are off included
	Fixtures []Fixture

	hosts policy.Hosts
}

// Reads says which calls change nothing.
type Reads struct {
	Operations []string `key:"operations"` // globs
	Except     []string `key:"except"`     // globs: these write
	Methods    []string `key:"methods"`
}

// known says whether the preset tells reads from writes.
func (r *Reads) known() bool { return len(r.Operations) > 0 || len(r.Methods) > 0 }

// Idempotent are writes that may be repeated.
type Idempotent struct {
	Operation string // glob
	Where     []RequestCondition
}

// RequestCondition is one on what stands at a place of a request.
type RequestCondition struct {
	At              document.Place
	Is, Not         []string
	Absent, Present bool
	Matches         *regexp.Regexp
}

// Limit bounds how often operations are called.
type Limit struct {
	Operation string // glob
	Scope     string // shop, all
	Rate      float64
	Burst     int
}

// Facts are what a preset knows about a request.
type Facts struct {
	Operation   string
	Nature      policy.Nature
	Scarce      bool
	Token       [sha256.Size]byte // hash of the access token; zero: none was found
	BusinessKey string            // what the order is called; empty: none was found
}

// Facts reads a request.
func (p *Preset) Facts(r *document.Request) Facts {
	f := p.FactsOf(first(p.Operation, r), r)
	f.BusinessKey = first(p.BusinessKey, r)
	if token := first(p.Token, r); token != "" {
		f.Token = sha256.Sum256([]byte(token))
	}
	return f
}

// FactsOf is what is known of an operation, whatever the request says which one it is.
func (p *Preset) FactsOf(operation string, r *document.Request) Facts {
	return Facts{Operation: operation, Nature: p.nature(operation, r), Scarce: glob.Any(p.Scarce, operation)}
}

// nature says whether the call changes something, and may be made twice.
func (p *Preset) nature(operation string, r *document.Request) policy.Nature {
	switch {
	case p.repeats(operation, r):
		return policy.NatureRepeats
	case !p.Reads.known():
		return policy.NatureUnknown
	case glob.Any(p.Reads.Except, operation):
		return policy.NatureWrites
	case operation != "" && glob.Any(p.Reads.Operations, operation), slices.Contains(p.Reads.Methods, r.Method):
		return policy.NatureReads
	}
	return policy.NatureWrites
}

func (p *Preset) repeats(operation string, r *document.Request) bool {
	for i := range p.Idempotent {
		if d := &p.Idempotent[i]; operation != "" && glob.Match(d.Operation, operation, false) && d.holds(r) {
			return true
		}
	}
	return false
}

func (d *Idempotent) holds(r *document.Request) bool {
	for i := range d.Where {
		c := &d.Where[i]
		v, ok := c.At.Read(r)
		switch {
		case c.Absent && ok, c.Present && !ok, len(c.Is) > 0 && !slices.Contains(c.Is, v), slices.Contains(c.Not, v),
			c.Matches != nil && (!ok || !c.Matches.MatchString(v)):
			return false
		}
	}
	return true
}

// first is what stands at the first of the places that has something.
func first(places []document.Place, r *document.Request) string {
	for i := range places {
		if v, ok := places[i].Read(r); ok && v != "" {
			return v
		}
	}
	return ""
}

// Limit is the first limit on an operation; nil: there is none.
func (p *Preset) Limit(operation string) *Limit {
	for i := range p.Limits {
		if operation != "" && glob.Match(p.Limits[i].Operation, operation, false) {
			return &p.Limits[i]
		}
	}
	return nil
}

// Response is an answer as far as it is known.
type Response struct {
	Status int
	Fields message.Fields
	Head   []byte // the first part of the content, as it came
	Whole  bool   // Head is all of it
}

// Hear says what an answer to a call means; most bounds what is looked at of the
// content, decoded, in bytes.
func (p *Preset) Hear(f *Facts, r *Response, most int, now time.Time) classify.Said {
	o := p.Answers
	o.Limit = most
	in := inspect.Read(r.Fields, r.Head, r.Whole, o)
	return p.Book.Read(&classify.Answer{
		Status: r.Status, Fields: r.Fields, Operation: f.Operation, Write: f.Nature.Writes(),
		Doc: in.Doc, Text: in.Text, Fault: in.Fault,
	}, now)
}
