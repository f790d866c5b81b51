package policy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"retryproxy/internal/glob"
)

// Errors of NewMatcher and NewSet; they are wrapped with what is wrong.
var (
	ErrHours = errors.New("policy: an hour range is [from, to) with from 0 to 23, to 0 to 24 and from not to")
	ErrSet   = errors.New("policy: a set needs policies, each with a name of its own, and a last one that matches every call")
)

// Matcher is a compiled Match.
type Matcher struct {
	taskType, shop, shopTier, path, operation []string

	method    []string // lower case
	host      Hosts
	hours     [24]bool
	everyHour bool
	zone      *time.Location
}

// NewMatcher compiles m; its hours are those of zone, nil is UTC. It fails with
// ErrHours.
func NewMatcher(m Match, zone *time.Location) (*Matcher, error) {
	if zone == nil {
		zone = time.UTC
	}
	c := &Matcher{
		taskType: m.TaskType, shop: m.Shop, shopTier: m.ShopTier, path: m.Path, operation: m.Operation,
		method: lower(m.Method), host: NewHosts(m.Host),
		everyHour: len(m.Hours) == 0, zone: zone,
	}
	for _, r := range m.Hours {
		if err := r.Validate(); err != nil {
			return nil, err
		}
		for h := range c.hours {
			c.hours[h] = c.hours[h] || r.has(h)
		}
	}
	return c, nil
}

// Match says whether the call with these facts is meant at now. An empty list
// matches all calls; in a list of patterns a fact that a call does not have
// matches none of them.
func (m *Matcher) Match(a *Attrs, now time.Time) bool {
	return anyOf(m.taskType, a.TaskType, false) &&
		anyOf(m.shopTier, a.ShopTier, false) &&
		anyOf(m.shop, a.Shop, false) &&
		anyOf(m.operation, a.Operation, false) &&
		anyOf(m.method, a.Method, true) &&
		(len(m.host.patterns) == 0 || m.host.Match(a.Host)) &&
		anyOf(m.path, a.Path, false) &&
		(m.everyHour || m.hours[now.In(m.zone).Hour()])
}

// Validate returns ErrHours, wrapped, when the range makes no sense.
func (r HourRange) Validate() error {
	if r.From < 0 || r.From > 23 || r.To < 0 || r.To > 24 || r.From == r.To {
		return fmt.Errorf("%w, not %d-%d", ErrHours, r.From, r.To)
	}
	return nil
}

// has says whether hour h lies in [From, To).
func (r HourRange) has(h int) bool {
	if r.From < r.To {
		return h >= r.From && h < r.To
	}
	return h >= r.From || h < r.To
}

// anyOf says whether value matches one of the patterns. A missing value matches
// nothing but an empty list: "shop: *" means the calls that have a shop.
func anyOf(patterns []string, value string, fold bool) bool {
	if len(patterns) == 0 {
		return true
	}
	if value == "" {
		return false
	}
	for _, p := range patterns {
		if glob.Match(p, value, fold) {
			return true
		}
	}
	return false
}

func lower(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.ToLower(s)
	}
	return out
}
