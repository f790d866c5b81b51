package doctor

import (
	"cmp"
	"slices"
	"time"

	"retryproxy/attempt"
	"retryproxy/patience"
)

// Bounds of what is remembered of a client.
const (
	mostAgents  = 4
	mostOpaque  = 8 // hosts of its tunnels
	mostCovered = 200
)

// modes are the ways to the proxy, but tunnels that we cannot look into.
var modes = [...]string{"forward", "intercept", "reverse"}

// caller is what is counted of a client address.
type caller struct {
	ClientView
	agents         []string
	modes          [len(modes)]int64
	tunnels        int64 // opaque
	opaque         []HostView
	noShop, noTask int64
	left           *patience.Times // after which it hung up; nil: it never did
}

// cover counts a call that is no tunnel.
func (c *caller) cover(s *attempt.Summary) {
	c.agent(s)
	if i := slices.Index(modes[:], s.Mode); i >= 0 {
		c.modes[i]++
	}
	if s.Labels.Shop == "" {
		c.noShop++
	}
	if s.Labels.TaskType == "" {
		c.noTask++
	}
	if s.Left > 0 && s.Origin == "" {
		if c.left == nil {
			c.left = &patience.Times{}
		}
		c.left.Add(s.Left)
	}
}

// tunnel counts one that we cannot look into.
func (c *caller) tunnel(s *attempt.Summary) {
	c.agent(s)
	c.tunnels++
	i := slices.IndexFunc(c.opaque, func(h HostView) bool { return h.Host == bounded(s.Host) })
	if i < 0 && len(c.opaque) < mostOpaque {
		i = len(c.opaque)
		c.opaque = append(c.opaque, HostView{Host: short(s.Host)})
	}
	if i >= 0 {
		c.opaque[i].Tunnels++
	}
}

// agent notes which program it is.
func (c *caller) agent(s *attempt.Summary) {
	if s.Agent != "" && len(c.agents) < mostAgents && !slices.Contains(c.agents, bounded(s.Agent)) {
		c.agents = append(c.agents, short(s.Agent))
	}
}

// Coverage is how much of what clients send gets the full treatment, and what to do
// about the rest. Shares are parts of 1.
type Coverage struct {
	Since   time.Time       `json:"since,omitzero"`
	Until   time.Time       `json:"until,omitzero"`
	Clients []ClientCovered `json:"clients"` // who needs advice first
}

// ClientCovered is one client address.
type ClientCovered struct {
	Client      string           `json:"client"`
	Agents      []string         `json:"user_agents"`
	Modes       map[string]int64 `json:"modes"` // calls by mode; tunnels that we cannot look into as opaque
	Calls       int64            `json:"calls"` // these tunnels included
	Opaque      float64          `json:"opaque_share"`
	NoShop      float64          `json:"no_shop_share"` // of calls that we see: without a shop
	NoTask      float64          `json:"no_task_share"`
	OwnRetries  int64            `json:"own_retries"` // calls that it made again by itself
	PatienceP50 int64            `json:"patience_p50_ms,omitempty"`
	Advice      []Advice         `json:"advice"`
}

// Advice is a finding about a client, with the lines that mend it.
type Advice struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	Finding  string   `json:"finding"`
	Why      string   `json:"why,omitempty"`
	Fix      []Fix    `json:"fix"`
}

// Coverage is what was seen so far of the clients, at most the 200 that matter most.
// setup has the address of the proxy, what it opens and what it upgrades.
func (o *Observer) Coverage(setup *Setup, admin string) Coverage {
	o.mu.Lock()
	v := Coverage{Since: o.total.since, Until: o.total.until, Clients: []ClientCovered{}}
	for _, c := range o.clients.Values() {
		v.Clients = append(v.Clients, c.covered(setup, admin))
	}
	o.mu.Unlock()
	slices.SortFunc(v.Clients, func(a, b ClientCovered) int {
		return cmp.Or(cmp.Compare(worst(b.Advice), worst(a.Advice)), cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Client, b.Client))
	})
	v.Clients = v.Clients[:min(len(v.Clients), mostCovered)]
	return v
}

func worst(list []Advice) (s Severity) {
	for i := range list {
		s = max(s, list[i].Severity)
	}
	return s
}

func (c *caller) covered(setup *Setup, admin string) ClientCovered {
	v := ClientCovered{
		Client: c.Client, Agents: append([]string{}, c.agents...), Modes: map[string]int64{}, Calls: c.Calls + c.tunnels,
		Opaque: share(c.tunnels, c.Calls+c.tunnels), NoShop: share(c.noShop, c.Calls), NoTask: share(c.noTask, c.Calls),
		OwnRetries: c.Counting, Advice: []Advice{},
	}
	for i, n := range c.modes {
		if n > 0 {
			v.Modes[modes[i]] = n
		}
	}
	if c.tunnels > 0 {
		v.Modes["opaque"] = c.tunnels
	}
	if c.unusual() {
		v.OwnRetries = max(c.AfterFailure, c.Counting) // it may have counted them
	}
	if c.left != nil {
		v.PatienceP50 = c.left.Quantile(0.5).Milliseconds()
	}
	for _, f := range c.advice(setup, admin) {
		v.Advice = append(v.Advice, Advice{f.ID, f.Severity, f.Seen, f.Why, f.Fix})
	}
	return v
}

// advice is what the doctor would say if this were the only client.
func (c *caller) advice(setup *Setup, admin string) []Finding {
	f := &Facts{Setup: *setup, Running: Running{Admin: admin}, Seen: &View{
		Calls: c.Calls, Tunnels: c.tunnels, NoShop: c.noShop, NoTask: c.noTask, Hosts: c.opaque,
	}}
	return slices.Concat(c.findings(), tunnels(f), unlabelled(f))
}

func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
