package sandbox

import (
	"cmp"
	"net"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Repeats is what a supplier does with an order number that it has seen before.
type Repeats string

// The duplicate rules found in documents; of some suppliers nothing is known.
const (
	Refuse       Repeats = ""              // always
	AfterFailure Repeats = "after_failure" // a failed order is placed and paid anew
	Accept       Repeats = "accept"        // every time is a new, paid order
)

// Supplier is what suppliers have in common.
type Supplier struct {
	Options
	Repeats    Repeats
	Hidden     time.Duration  // until an accepted order is found by a query; 0: 60 s (B: 10 min)
	QueryEvery time.Duration  // of one order; 0: 60 s
	Flood      int            // queries that came too soon, until the address is banned; 0: 20
	Ban        time.Duration  // 0: 10 min
	Work       time.Duration  // how long an order usually takes; 0: 3 s
	Balance    int            // fen; 0: 100 million
	Prices     map[string]int // fen by product; empty: phone-50 for 4950
}

// desk is what both suppliers do, whatever their dialect.
type desk struct {
	Supplier
	title   string
	gate    *gate
	jobs    map[string]job
	queried map[string]time.Time
	soon    *simplelru.LRU[string, int] // queries that came too soon, by address
	banned  *simplelru.LRU[string, time.Time]
	spent   int
	refunds []refund
}

// job is one accepted order.
type job struct {
	number, id, product, account string
	price                        int
	accepted, due                time.Time
	failed                       bool
}

type refund struct {
	at    time.Time
	price int
}

// outcome is what a desk says, in no dialect.
type outcome string

const (
	accepted  outcome = "accepted"
	found     outcome = "found"
	exists    outcome = "exists"
	noProduct outcome = "no product"
	noAccount outcome = "no account"
	noBalance outcome = "no balance"
	notFound  outcome = "not found"
	tooSoon   outcome = "too soon"
	tooMany   outcome = "banned"
	tooFull   outcome = "full"
)

const addresses = 1000 // whose queries are counted

func newDesk(s Supplier, o Options, title string) *desk {
	s.Options = o
	s.QueryEvery, s.Ban = cmp.Or(s.QueryEvery, time.Minute), cmp.Or(s.Ban, 10*time.Minute)
	s.Flood, s.Work, s.Balance = cmp.Or(s.Flood, 20), cmp.Or(s.Work, 3*time.Second), cmp.Or(s.Balance, 100_000_000)
	if len(s.Prices) == 0 {
		s.Prices = map[string]int{"phone-50": 4950}
	}
	soon, _ := simplelru.NewLRU[string, int](addresses, nil) // fails for a size below 1 only
	banned, _ := simplelru.NewLRU[string, time.Time](addresses, nil)
	return &desk{Supplier: s, title: title, gate: newGate(o, nil, 100), jobs: map[string]job{}, queried: map[string]time.Time{}, soon: soon, banned: banned}
}

func (d *desk) name() string { return d.title }

func (d *desk) renew(shop string) (string, error) { return d.gate.renew(shop) }

// submit accepts an order: it is paid at once and delivered, or refunded, in time.
func (d *desk) submit(c *call, product, account string) (job, outcome) {
	price, sold := d.Prices[product]
	old, there := d.jobs[c.order]
	switch {
	case there && !d.again(old, c.now):
		c.happen(d.Books, d.title, Refused)
		return old, exists
	case !sold:
		return job{}, noProduct
	case account == "" || c.order == "":
		return job{}, noAccount
	case d.balance(c.now) < price:
		return job{}, noBalance
	case d.Books.full():
		return job{}, tooFull
	}
	j := job{number: c.order, id: d.title + "-" + c.order, product: product, account: account, price: price, accepted: c.now}
	f := d.work(c.order)
	j.due, j.failed = c.now.Add(cmp.Or(f.For, d.Work)), f.Kind == Fails
	d.jobs[c.order] = j
	d.spent += price
	c.happen(d.Books, d.title, Charged)
	end := Delivered
	if j.failed {
		end = Refunded
		d.refunds = append(d.refunds, refund{j.due, price})
	}
	d.Books.happen(Event{j.due, end, d.title, c.order})
	return j, accepted
}

func (d *desk) work(order string) Fault {
	return d.Script(Point{Platform: d.title, Order: order, Phase: Working, Number: 1})
}

// again says whether a number that is known may be used again.
func (d *desk) again(j job, now time.Time) bool {
	return d.Repeats == Accept || d.Repeats == AfterFailure && j.failed && !now.Before(j.due)
}

// query finds an order, once some time has passed since it was accepted.
func (d *desk) query(c *call) (job, outcome) {
	from, _, _ := net.SplitHostPort(c.r.RemoteAddr)
	if last, there := d.queried[c.order]; there && c.now.Sub(last) < d.QueryEvery {
		return job{}, d.flood(c, from)
	}
	j, there := d.jobs[c.order]
	if there {
		d.queried[c.order] = c.now // only of orders that exist: others are not kept in mind
	}
	if !there || c.now.Sub(j.accepted) < d.Hidden {
		return job{}, notFound
	}
	return j, found
}

// flood counts a query that came too soon.
func (d *desk) flood(c *call, from string) outcome {
	n, _ := d.soon.Get(from)
	if n+1 >= d.Flood {
		d.soon.Remove(from)
		d.banned.Add(from, c.now.Add(d.Ban))
		return tooMany
	}
	d.soon.Add(from, n+1)
	return tooSoon
}

// isBanned says whether the address of a request is.
func (d *desk) isBanned(c *call) bool {
	from, _, _ := net.SplitHostPort(c.r.RemoteAddr)
	until, _ := d.banned.Get(from)
	return c.now.Before(until)
}

func (d *desk) balance(now time.Time) int {
	left := d.Balance - d.spent
	for _, r := range d.refunds {
		if !r.at.After(now) {
			left += r.price
		}
	}
	return left
}

// limited is what the gate of a supplier has left to check: it knows one buyer, and no tokens.
func (d *desk) limited(c *call) Kind {
	return d.gate.check(c, d.App)
}

// stage is how far an order is.
func (j job) stage(now time.Time) string {
	switch {
	case now.Before(j.accepted.Add(j.due.Sub(j.accepted) / 4)):
		return "waiting"
	case now.Before(j.due):
		return "processing"
	case j.failed:
		return "failed"
	default:
		return "success"
	}
}
