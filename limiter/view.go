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
	Place     int       // in that line, 1 is next; 0: it waits for a date, not in a line
	At        time.Time // when the wait is planned to end; zero: unknown
}

// HostView is a gate as an operator sees it.
type HostView struct {
	Host     string
	Breaker  breaker.Status
	InFlight int
	Backlog  int // of these, attempts of calls that failed or waited for long before
	Limit    int // slots at full capacity
	Capacity int // slots at present: of the probes, of the ramp, or Limit
	Waiting  int // in line
	Late     int // of these, in the backlog's lane
	Planned  int // waiting for their own date
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
}

// view says what a ticket waits for.
func (b *board) view(t *Ticket) View {
	switch {
	case t.stage == planned:
		return View{Cause: t.cause, At: t.start}
	case t.stage == ended:
		return View{}
	}
	g, cause := t.gate, b.waitsFor(t)
	switch cause {
	case causeTokens:
		at, k := b.tokensAt(t, b.now, reckoning{planned: (*bucket).plannedBefore, inTurn: true})
		if k == nil {
			k = b.global
		}
		return View{cause, k.dimension.String(), b.ahead(k, t, true) + 1, at}
	case causeBreaker:
		_, at := g.breaker.Allow(b.now)
		return View{Cause: cause, Place: b.placeAt(g, t), At: later(at, b.expects(t))}
	}
	return View{Cause: cause, Place: b.placeAt(g, t), At: b.expects(t)}
}

func later(x, y time.Time) time.Time {
	if y.After(x) {
		return y
	}
	return x
}

// placeAt is a call's place in its lane at a gate, 1 is next.
func (b *board) placeAt(g *gate, t *Ticket) int { return g.lanes[t.lane].ahead(t) + 1 }

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
		Waiting: g.waiting, Late: g.lanes[laneBacklog].size, Planned: g.planned, Outage: b.outage(g),
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
	return v
}
