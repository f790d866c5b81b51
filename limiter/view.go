package limiter

import (
	"cmp"
	"slices"
	"time"

	"retryproxy/breaker"
)

// View is where a waiting call stands. It is empty once the call has its answer.
type View struct {
	Cause     string    // backoff, retry_after, pause, breaker, gate, tokens
	Dimension string    // tokens: the bucket whose token comes last
	Lane      string    // in line: fresh or backlog
	Place     int       // in that lane, 1 is next; of tokens: in the line before them; 0: it waits for a date
	At        time.Time // when the wait is planned to end; zero: unknown
}

// HostView is a gate as an operator sees it.
type HostView struct {
	Host     string
	Breaker  breaker.Status
	InFlight int
	Backlog  int           // of these, attempts of calls that failed or waited for long before
	Limit    int           // slots at full capacity
	Capacity int           // slots at present: of the probes, of the ramp, or Limit
	Waiting  int           // in line
	Late     int           // of these, in the backlog's lane
	Longest  time.Duration // for which one of those in line has stood there
	Planned  int           // waiting for their own date
	Outage   *Outage
}

// BucketView is a bucket as an operator sees it.
type BucketView struct {
	Dimension string
	Name      string // of the task type or shop
	Off       bool
	Rate      float64 // tokens per second at present, share included
	Burst     int
	Tokens    float64
	Waiting   int       // retries that wait for their tokens
	Planned   int       // retries that wait for their own date
	NextAt    time.Time // when the next token is there; zero: now or never
	ClearsAt  time.Time // when those that wait now all have theirs, other limits aside; zero: nobody waits for this one, or never
}

// view says what a ticket waits for.
func (b *board) view(t *Ticket) View {
	switch {
	case t.stage == planned:
		return View{Cause: t.cause, At: t.start}
	case t.stage == ended:
		return View{}
	}
	g, v := t.gate, View{Cause: b.waitsAt(t.gate), Lane: laneNames[t.lane]}
	switch v.Cause {
	case causeTokens:
		at, k := b.tokensAt(t, b.now, reckoning{planned: (*bucket).plannedBefore, inTurn: true})
		if k == nil {
			k = b.global
		}
		v.Dimension, v.Place, v.At = k.dimension.String(), b.ahead(k, t, true)+1, at
		return v
	case causeBreaker:
		_, v.At = g.breaker.Allow(b.now)
	}
	n := g.lanes[t.lane].ahead(t)
	if v.Place = n + 1; g.pace.mean > 0 {
		v.At = later(v.At, b.turnAfter(g, n, b.expectedLimit(g)))
	}
	return v
}

func later(x, y time.Time) time.Time {
	if y.After(x) {
		return y
	}
	return x
}

// hosts lists every gate by name.
func (b *board) hosts() []HostView {
	var list []HostView
	for _, g := range b.gates.all() {
		list = append(list, b.hostView(g))
	}
	slices.SortFunc(list, func(x, y HostView) int { return cmp.Compare(x.Host, y.Host) })
	return list
}

func (b *board) hostView(g *gate) HostView {
	v := HostView{
		Host: g.host, Breaker: g.breaker.Status(b.now), InFlight: g.busy, Backlog: g.held[laneBacklog], Limit: b.limit(g), Capacity: b.capacity(g),
		Waiting: g.waiting, Late: g.lanes[laneBacklog].size, Longest: g.longest(b.now), Planned: g.planned, Outage: b.outage(g),
	}
	switch v.Breaker.State {
	case breaker.Open:
		v.Capacity = 0
	case breaker.HalfOpen:
		v.Capacity = b.config.Breaker.Probes
	}
	return v
}

// limits lists every bucket: global, then task types and shops by name.
func (b *board) limits() []BucketView {
	list := []BucketView{b.limitView(b.global)}
	for d := dimTaskType; d < dimensions; d++ {
		all := b.labelled[d].all()
		slices.SortFunc(all, func(x, y *bucket) int { return cmp.Compare(x.name, y.name) })
		for _, k := range all {
			list = append(list, b.limitView(k))
		}
	}
	return list
}

func (b *board) limitView(k *bucket) BucketView {
	b.refill(k)
	v := BucketView{
		Dimension: k.dimension.String(), Name: k.name, Off: k.limit.Off,
		Rate: float64(k.rate), Burst: k.limit.Burst, Tokens: k.tokens.TokensAt(b.now), Planned: k.planned.size,
	}
	for g, q := range k.lines {
		if g.open(b.now) {
			v.Waiting += q.size
		}
	}
	if at := b.date(k, 1, b.now); at.After(b.now) {
		v.NextAt = at
	}
	if at := b.date(k, v.Waiting, b.now); v.Waiting > 0 && !v.Off && at.After(b.now) {
		v.ClearsAt = at
	}
	return v
}
