package egress

import (
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"retryproxy/policy"
)

// mostIdentities bounds the exits that are made for labels of calls. One that is
// forgotten is made anew, and the connections of the old one age out.
const mostIdentities = 4096

// Table tells each call its way. It is safe for concurrent use.
type Table struct {
	rules  []*rule
	byShop map[string]*rule
	deny   bool
	fixed  map[identity]*Exit          // of proxies without placeholders
	made   *lru.Cache[identity, *Exit] // of the others; shared with successors
	errNo  error                       // what a call hears that no rule is meant for
}

// NewTable checks and compiles c. It fails with ErrConfig, once for each fault.
func NewTable(c Config) (*Table, error) {
	made, err := lru.New[identity, *Exit](mostIdentities)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return (&Table{made: made}).Successor(c)
}

// Successor is a new Table for c that keeps the exits of t whose identity is
// unchanged, so that connections through them live on. t stays usable.
func (t *Table) Successor(c Config) (*Table, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	next := &Table{
		byShop: map[string]*rule{}, deny: c.Deny,
		fixed: map[identity]*Exit{}, made: t.made,
		errNo: fmt.Errorf("%w: egress_default is deny and no egress rule is meant for this call", ErrDenied),
	}
	byName := map[string]*rule{}
	for _, r := range c.Rules {
		compiled := newRule(r, func(id identity) *Exit { return next.keep(t, id) })
		next.rules, byName[r.Name] = append(next.rules, compiled), compiled
	}
	for shop, name := range c.Shops {
		if shop != "" && name != "" {
			next.byShop[shop] = byName[name]
		}
	}
	return next, nil
}

// keep is the exit of a proxy without placeholders, the old table's if it has it.
func (t *Table) keep(old *Table, id identity) *Exit {
	e := old.fixed[id]
	if e == nil {
		e = newExit(id)
	}
	t.fixed[id] = e
	return e
}

// exit is the one of an identity that depends on the call.
func (t *Table) exit(id identity) *Exit {
	if e, ok := t.made.Get(id); ok {
		return e
	}
	e := newExit(id)
	if first, found, _ := t.made.PeekOrAdd(id, e); found {
		return first
	}
	return e
}

// Way tells how a call with these labels to host, with or without a port,
// leaves. It fails with ErrDenied.
func (t *Table) Way(shop, taskType, host string) (Way, error) {
	r := t.rule(shop, taskType, host)
	switch {
	case r == nil && t.deny:
		return Way{}, t.errNo
	case r == nil:
		return Way{}, nil
	case r.needsShop && shop == "":
		return Way{}, r.errShop
	case r.needsTaskType && taskType == "":
		return Way{}, r.errTaskType
	}
	return Way{Rule: r.name, Exits: r.exits(t, shop, taskType)}, nil
}

// rule is the shop's own or the first that matches.
func (t *Table) rule(shop, taskType, host string) *rule {
	if r := t.byShop[shop]; r != nil {
		return r
	}
	call := policy.Attrs{Shop: shop, TaskType: taskType, Host: host}
	for _, r := range t.rules {
		if r.match != nil && r.match.Match(&call, time.Time{}) {
			return r
		}
	}
	return nil
}
