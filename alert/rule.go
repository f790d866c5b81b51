package alert

import (
	"path"
	"slices"
	"time"

	"retryproxy/policy"
)

// Kinds of rules: what they watch.
const (
	DeadLetters = "dead_letters" // calls that were given up
	Reasons     = "reason"       // calls that stopped for a reason
	Breakers    = "breaker"      // hosts, shops and egress proxies that are cut off
	Parked      = "parked"       // calls that wait without a client
	StoreFails  = "store"        // trouble with the store of records
	Retention   = "retention"    // dead letters that will soon be removed
	Heartbeat   = "heartbeat"    // nothing: says that we are alive
)

// Rule says when to tell whom. Which fields count depends on On; the
// configuration gives those that do a value.
type Rule struct {
	Name string
	On   string // one of the kinds

	Reason, Host, TaskType, Shop []string // patterns; empty: every one, also none
	By                           []string // the labels that make a group: host, reason, task_type, shop

	Count  int           // so many make an alert; with Factor at least so many
	Within time.Duration // counted over this time
	Factor float64       // so many times the usual; 0: Count alone decides

	OlderThan time.Duration // parked: of the oldest; 0: any age
	Before    time.Duration // retention: how long before they are removed
	Every     time.Duration // heartbeat

	For           time.Duration // it must last so long before it is told
	KeepFiringFor time.Duration // it must be over so long before the recovery is told
	Quiet         time.Duration // between two messages about what goes on

	To []string // names of targets
}

// Labels say what an event is about. They are also the names of groups, where
// those that the rule does not group by are empty.
type Labels struct {
	Scope    string `json:"scope,omitempty"` // of a breaker: host, shop or egress
	Host     string `json:"host,omitempty"`  // of an egress breaker: the exit
	Reason   string `json:"reason,omitempty"`
	TaskType string `json:"task_type,omitempty"`
	Shop     string `json:"shop,omitempty"`
	// Others: what did not fit in any more groups of its own.
	Others bool `json:"others,omitempty"`
}

// matcher decides which events a rule is about.
type matcher struct {
	reasons []string
	rest    *policy.Matcher
}

func newMatcher(r *Rule) matcher {
	rest, err := policy.NewMatcher(policy.Match{Host: r.Host, TaskType: r.TaskType, Shop: r.Shop}, nil)
	if err != nil {
		panic("bug: " + err.Error()) // only hours fail
	}
	return matcher{r.Reason, rest}
}

func (m *matcher) match(l *Labels, now time.Time) bool {
	named := func(pattern string) bool {
		ok, err := path.Match(pattern, l.Reason)
		return err == nil && ok
	}
	return (len(m.reasons) == 0 || slices.ContainsFunc(m.reasons, named)) &&
		m.rest.Match(&policy.Attrs{Host: l.Host, TaskType: l.TaskType, Shop: l.Shop}, now)
}

// group names the group of an event.
func (r *Rule) group(l *Labels) Labels {
	g := Labels{Scope: l.Scope}
	if r.On == StoreFails {
		g.Reason = l.Reason
	}
	for _, by := range r.By {
		switch by {
		case "host":
			g.Host = l.Host
		case "reason":
			g.Reason = l.Reason
		case "task_type":
			g.TaskType = l.TaskType
		case "shop":
			g.Shop = l.Shop
		}
	}
	return g
}

// counts says that the rule counts events over time.
func (r *Rule) counts() bool { return r.On == DeadLetters || r.On == Reasons }
