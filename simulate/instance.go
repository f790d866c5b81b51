package simulate

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"retryproxy/breaker"
	"retryproxy/config"
	"retryproxy/limiter"
	"retryproxy/policy"
	"retryproxy/proxy"
)

// instance is a retryproxy with one configuration: its real limiter, breakers,
// policies and switch, told the virtual time.
type instance struct {
	run      *run
	dice     *rand.Rand
	cfg      *config.Config
	policies *policy.Set
	retries  *proxy.Switch
	gates    *limiter.Limiter
	shops    *breaker.Shops

	line []*call // those that wait with a ticket, in the order in which they got it
}

func newInstance(r *run, cfg *config.Config, dice *rand.Rand) (*instance, error) {
	policies, err := cfg.Policies()
	if err != nil {
		return nil, err
	}
	scopes := make([]proxy.Scope, 0, len(cfg.Retries.Scopes))
	for _, s := range cfg.Retries.Scopes {
		scopes = append(scopes, proxy.Scope{Match: s.Match.Policy(), Value: s.Value, Until: s.Until})
	}
	retries, err := proxy.NewSwitch(cfg.Retries.Default, scopes, cfg.Location())
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	i := &instance{
		run: r, dice: dice, cfg: cfg, policies: policies, retries: retries,
		shops: breaker.NewShops(breaker.ShopConfig(cfg.Breakers.Shop)),
	}
	i.gates = limiter.New(cfg.Limiter(), i.breakerEvent)
	return i, nil
}

// breakerEvent counts a state change and what follows from it for shops.
func (i *instance) breakerEvent(e breaker.Event) {
	for _, e := range i.shops.Follow(e) {
		if e.From != e.To { // else what the outage left is worked off
			i.run.tally.breaker(&e, i.run.clock.since(e.At))
		}
	}
}

// told takes the change of a shop's breaker.
func (i *instance) told(e *breaker.Event) {
	if e != nil {
		i.breakerEvent(*e)
	}
}

func (i *instance) begin(e *errand) {
	c := i.newCall(e)
	e.hungUp = c.leave
	c.ask()
}

func (i *instance) waiting() int { return len(i.line) }

// tick lets all go on whose wait is over, and says when time alone ends the next one.
func (i *instance) tick() (time.Time, bool) {
	for {
		next := i.gates.Tick(i.run.clock.now())
		answered := i.answered()
		if len(answered) == 0 {
			return next, !next.IsZero()
		}
		for _, c := range answered {
			c.turned(c.ticket.Answer())
		}
	}
}

// answered takes those out of the line whose tickets have their answer. The gates
// know how many do not, so that the line is gone through only as far as needed.
func (i *instance) answered() (all []*call) {
	due := len(i.line)
	for _, h := range i.gates.Hosts(i.run.clock.now()) {
		due -= h.Waiting + h.Planned
	}
	if due == 0 {
		return nil
	}
	n := 0
	for ; n < len(i.line) && len(all) < due; n++ {
		select {
		case <-i.line[n].ticket.Ready():
			all = append(all, i.line[n])
			i.line[n] = nil
		default:
		}
	}
	// Those who came first mostly go first: it is their side that closes up.
	to := n
	for n--; n >= 0; n-- {
		if c := i.line[n]; c != nil {
			to--
			i.line[to] = c
		}
	}
	i.line = i.line[to:]
	return all
}

// leaves takes a call out of the line.
func (i *instance) leaves(c *call) {
	if n := slices.Index(i.line, c); n >= 0 {
		i.line = slices.Delete(i.line, n, n+1)
	}
}

// tierOf is what is known about a shop, else what the bot says.
func (i *instance) tierOf(e *errand) string {
	return cmp.Or(i.cfg.Shops[e.shop].Tier, e.group.ShopTier)
}
