package sandbox

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/time/rate"
)

// gate is what a gateway looks at before it lets a request of a shop in.
type gate struct {
	rate        rate.Limit
	burst       int
	quotas      map[string]int
	tokens      map[string]string // the valid ones, by shop
	renewed     int
	dead        map[string]time.Time // shop: until then its token is refused
	maintenance time.Time            // until then
	buckets     map[string]*rate.Limiter
	day         string
	used        map[string]int // today, by shop and operation
}

func newGate(o Options, tokens map[string]string, usual float64) *gate {
	r := cmp.Or(o.Rate, usual)
	return &gate{
		rate: rate.Limit(r), burst: cmp.Or(o.Burst, max(1, int(r))), quotas: o.Quotas, tokens: tokens,
		dead: map[string]time.Time{}, buckets: map[string]*rate.Limiter{}, used: map[string]int{},
	}
}

// shop whose token this is; empty: nobody's.
func (g *gate) shop(token string) string {
	for shop, t := range g.tokens {
		if token != "" && t == token {
			return shop
		}
	}
	return ""
}

// renew makes a token and forgets the shop's old one.
func (g *gate) renew(shop string) (string, error) {
	if _, known := g.tokens[shop]; !known {
		return "", fmt.Errorf("sandbox: there is no shop %q", shop)
	}
	g.renewed++
	g.tokens[shop] = fmt.Sprintf("token-%s-%d", shop, g.renewed)
	delete(g.dead, shop)
	return g.tokens[shop], nil
}

// close is what Token and Maintenance do besides being answered.
func (g *gate) close(c *call, k Kind) {
	switch k {
	case Token:
		g.dead[c.shop] = c.until
	case Maintenance:
		g.maintenance = c.until
	}
}

// check says why a request with a good signature is not let in; None: it is.
// Limits are kept for the name in by: a shop or an app.
func (g *gate) check(c *call, by string) Kind {
	switch {
	case c.shop == "" || c.now.Before(g.dead[c.shop]):
		return Token
	case c.now.Before(g.maintenance):
		return Maintenance
	case !g.bucket(by).AllowN(c.now, 1):
		return Throttle
	case !g.spend(c):
		return Quota
	}
	return None
}

func (g *gate) bucket(by string) *rate.Limiter {
	if g.buckets[by] == nil {
		g.buckets[by] = rate.NewLimiter(g.rate, g.burst)
	}
	return g.buckets[by]
}

// beijing is the zone in which platforms begin their days.
var beijing = time.FixedZone("UTC+8", 8*60*60)

// spend takes one of today's requests; false: there are none left.
func (g *gate) spend(c *call) bool {
	quota, limited := g.quotas[c.operation]
	if !limited {
		return true
	}
	if day := c.now.In(beijing).Format(time.DateOnly); day != g.day {
		g.day = day
		clear(g.used)
	}
	key := c.shop + "\n" + c.operation
	if g.used[key] >= quota {
		return false
	}
	g.used[key]++
	return true
}

// off is how far a timestamp in Unix seconds lies before now; ok: it is one.
func off(timestamp string, now time.Time) (before time.Duration, ok bool) {
	n, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || n < 0 || n > 9_999_999_999 { // milliseconds are none
		return 0, false
	}
	return now.Sub(time.Unix(n, 0)), true
}

// within says whether a timestamp lies in the window around now.
func within(timestamp string, now time.Time, window time.Duration) bool {
	before, ok := off(timestamp, now)
	return ok && before.Abs() <= window
}

// Sale is an order that a buyer placed with a shop.
type Sale struct {
	Number, Shop, Product, Account string
	Amount                         int // fen
}

// Sales makes n orders of phone credit, for these shops in turn.
func Sales(n int, shops ...string) []Sale {
	out := make([]Sale, n)
	for i := range out {
		out[i] = Sale{
			Number: fmt.Sprintf("240101-%04d", i+1), Shop: shops[i%len(shops)],
			Product: "phone-50", Account: fmt.Sprintf("139%08d", i+1), Amount: 5000,
		}
	}
	return out
}

// page cuts page n, from 1, out of a list. Sizes above 100 are 100.
func page(list []Sale, n, size string) []Sale {
	i, _ := strconv.Atoi(n)
	many, _ := strconv.Atoi(size)
	many = min(cmp.Or(max(many, 0), 100), 100)
	from := min(min(max(i-1, 0), len(list))*many, len(list))
	return list[from:min(from+many, len(list))]
}

// of are the orders of one shop.
func of(shop string, sales []Sale) []Sale {
	return slices.DeleteFunc(slices.Clone(sales), func(s Sale) bool { return s.Shop != shop })
}
