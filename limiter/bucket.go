package limiter

import (
	"math"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// Limit is one of retry_limits: how many retries may be sent.
type Limit struct {
	Off   bool    // no limit at all
	Rate  float64 // tokens per second
	Burst int     // tokens of a full bucket
	Share float64 // it refills at Share of the rate of fresh calls where that is more than Rate
}

// Buckets are the limits of the three dimensions.
type Buckets struct{ Global, TaskType, Shop Limit }

// dimension tells the three kinds of buckets apart.
type dimension uint8

const (
	dimGlobal dimension = iota
	dimTaskType
	dimShop
	dimensions
)

// String returns the token used in answers and metrics.
func (d dimension) String() string { return [...]string{"global", "task_type", "shop"}[d] }

func (b *Buckets) of(d dimension) Limit { return [...]Limit{b.Global, b.TaskType, b.Shop}[d] }

// enough is what counts as one token: dates are computed in floats.
const enough = 1 - 1e-6

// noise is what float arithmetic may add to a date, in nanoseconds: it must not
// make a round one uneven.
const noise = 1e-3

// never is further away than any deadline.
const never = 100 * 365 * 24 * time.Hour

// bucket holds the retry tokens of one dimension and name.
type bucket struct {
	dimension dimension
	name      string
	limit     Limit
	rate      rate.Limit // at present
	tokens    *rate.Limiter
	fresh     traffic

	planned line[*Ticket]    // retries that wait for their NotBefore, by that date
	lines   map[*gate]*queue // retries past it, by turn
	parked  map[*group]bool  // groups passed over for want of this shop's token
	alarm   alarm            // the next token, while somebody was turned back for want of one
	wanted  bool             // somebody was
	seen    time.Time        // when a token was there; it still is while the clock stands
}

// queue is the part of a bucket's line that waits at one gate.
type queue struct{ line[*Ticket] }

// sources are the bucket for each dimension, nil where a call has no label.
type sources [dimensions]*bucket

func newBucket(d dimension, name string, limit Limit, seq uint64) *bucket {
	k := &bucket{
		dimension: d, name: strings.Clone(name), limit: limit, rate: rate.Limit(limit.Rate),
		tokens:  rate.NewLimiter(rate.Limit(limit.Rate), limit.Burst),
		planned: newLine(sooner), lines: map[*gate]*queue{}, parked: map[*group]bool{},
	}
	k.alarm = alarm{seq: seq, owner: k}
	return k
}

// wake runs when the next token is due: who was passed over is looked at again.
func (k *bucket) wake(b *board) {
	k.wanted = false
	for g := range k.parked {
		g.unpark()
	}
	for g := range k.lines {
		b.touch(g)
	}
}

// has says whether a token is there, and has the bucket wake up when not. While
// it is about to wake, the token that comes belongs to those in line.
func (b *board) has(k *bucket) bool {
	if k == nil || k.limit.Off || k.seen.Equal(b.now) {
		return true
	}
	b.refill(k)
	switch {
	case !k.alarm.at.IsZero():
		return false
	case k.tokens.TokensAt(b.now) >= enough:
		k.seen = b.now
		return true
	}
	k.wanted = true
	b.agenda.set(&k.alarm, b.date(k, 1, b.now))
	return false
}

// take uses one token, which has said is there. It may borrow the millionth
// that has overlooked.
func (b *board) take(k *bucket) {
	if k != nil && !k.limit.Off {
		k.tokens.ReserveN(b.now, 1)
		k.seen = time.Time{}
	}
}

// giveBack returns the token of a retry that was never sent.
func (b *board) giveBack(k *bucket) {
	if k == nil || k.limit.Off {
		return
	}
	k.tokens.AllowN(b.now, -1)
	if k.wanted {
		b.agenda.set(&k.alarm, time.Time{})
		k.wake(b)
	}
}

// date is when the nth token is there if none is taken before from, rounded
// up; zero: never.
func (b *board) date(k *bucket, n int, from time.Time) time.Time {
	missing := float64(n) - k.tokens.TokensAt(from)
	if missing <= 1-enough && k.limit.Burst > 0 {
		return from
	}
	wait := math.Ceil(missing/float64(k.rate)*float64(time.Second) - noise)
	if k.limit.Burst < 1 || !(wait < float64(never)) {
		return time.Time{}
	}
	return from.Add(max(time.Duration(wait), 1))
}

// refill brings the rate in line with the fresh traffic.
func (b *board) refill(k *bucket) {
	want := rate.Limit(k.limit.Rate)
	if k.limit.Share > 0 {
		want = max(want, rate.Limit(k.limit.Share*k.fresh.rate(b.now)))
	}
	if want == k.rate {
		return
	}
	k.rate = want
	k.tokens.SetLimitAt(b.now, want)
	if k.wanted {
		b.agenda.set(&k.alarm, b.date(k, 1, b.now))
	}
}

// configure applies a changed limit; the tokens stay, as far as they fit. A
// limit that was off begins full.
func (b *board) configure(k *bucket, limit Limit) {
	if limit == k.limit {
		return
	}
	switch {
	case k.limit.Off:
		k.tokens = rate.NewLimiter(k.rate, limit.Burst)
	case limit.Burst != k.limit.Burst:
		k.tokens.SetBurstAt(b.now, limit.Burst)
	}
	k.limit, k.seen = limit, time.Time{}
	b.refill(k)
	b.agenda.set(&k.alarm, time.Time{})
	k.wake(b)
}

// ahead is how many retries in line this bucket serves before t: those with an
// earlier turn whose gate lets calls through. inTurn: shops take turns, so at its own
// gate t may go before older calls of a shop that has more of them.
func (b *board) ahead(k *bucket, t *Ticket, inTurn bool) (n int) {
	for g, q := range k.lines {
		if !g.open(b.now) {
			continue
		}
		rank := q.rank(t)
		if inTurn && g == t.gate {
			rank = min(rank, g.lanes[t.lane].ahead(t))
		}
		n += rank
	}
	return n
}

// quietUntil is when the next token may be taken: what flows into a full bucket
// until then is lost.
func (b *board) quietUntil(k *bucket, start time.Time) time.Time {
	if len(k.lines) > 0 {
		return b.now
	}
	if x, ok := k.planned.first(); ok && x.start.Before(start) {
		return x.start
	}
	return start
}

// plannedBefore is how many retries are planned for an earlier start than t's.
func (k *bucket) plannedBefore(t *Ticket) int { return k.planned.rank(t) }

// plannedAhead is how many of these have an earlier turn as well: t overtakes
// the others in line. It walks the plan, so it is asked only before a refusal.
func (k *bucket) plannedAhead(t *Ticket) (n int) {
	for _, block := range k.planned.blocks {
		for _, x := range block {
			if !sooner(x, t) {
				return n
			}
			if earlier(x, t) {
				n++
			}
		}
	}
	return n
}

// count books a fresh call, to whose rate a share of the retries is tied.
func (b *board) count(c *Claim) {
	for d := range dimensions {
		if limit := b.config.Buckets.of(d); limit.Off || limit.Share <= 0 {
			continue
		}
		if k := b.bucket(d, c); k != nil && k.fresh.add(b.now) {
			b.refill(k) // so that tokens grow by the rate of their time
		}
	}
}

// bucket returns the bucket of a dimension for a claim, nil without a label.
func (b *board) bucket(d dimension, c *Claim) *bucket {
	name := [...]string{"", c.TaskType, c.Shop}[d]
	switch {
	case d == dimGlobal:
		return b.global
	case name == "":
		return nil
	}
	if k, ok := b.labelled[d].get(name); ok {
		return k
	}
	b.seq++
	k := newBucket(d, name, b.config.Buckets.of(d), b.seq)
	b.labelled[d].add(k.name, k)
	return k
}

func (b *board) sources(c *Claim) (of sources) {
	for d := range dimensions {
		of[d] = b.bucket(d, c)
	}
	return of
}

// bucketWorth says what forgetting a bucket would lose: nothing once it is full.
func (b *board) bucketWorth(k *bucket) worth {
	switch {
	case len(k.lines) > 0 || k.planned.size > 0 || !k.alarm.at.IsZero():
		return inUse
	case k.tokens.TokensAt(b.now) < float64(k.limit.Burst):
		return idle
	}
	return worthless
}
