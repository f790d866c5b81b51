package limiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"retryproxy/breaker"
)

// world drives a limiter with random steps and holds after each what must hold
// always.
type world struct {
	*testing.T
	l       *Limiter
	dice    *rand.Rand
	now     time.Time
	next    time.Time // what Tick returned last
	waiting []*Ticket
	late    bool // Tick comes late
	grants  []Grant
	spent   map[string]int // retries granted, by bucket
	ends    map[string]int // answers, by reason
	hold    bool           // never fail a host
	most    Config         // of all configurations so far: slots and probes
}

var worldConfig = Config{
	MaxInFlight: 3, RetryShare: 0.3, BacklogShare: 0.1, MaxWait: 20 * time.Second, MaxWaiting: 12,
	Breaker: breaker.Config{
		ConsecutiveFailures: 3, FailureRatio: 0.5, MinCalls: 10, Window: 10 * time.Second,
		Open: time.Second, OpenMax: 4 * time.Second, Probes: 2,
	},
	Buckets: Buckets{Global: Limit{Rate: 3, Burst: 4}, TaskType: Limit{Rate: 1, Burst: 3}, Shop: Limit{Rate: 0.5, Burst: 2}},
}

func newWorld(t *testing.T, seed uint64, config Config) *world {
	return &world{
		T: t, l: New(config, nil), dice: rand.New(rand.NewPCG(seed, 1)), now: t0,
		late: seed%2 == 1, spent: map[string]int{}, ends: map[string]int{}, most: config,
	}
}

// vary changes what decides how many slots there are and who gets them.
func vary(c Config, dice *rand.Rand) Config {
	c.MaxInFlight, c.Breaker.Probes = 1+dice.IntN(8), 1+dice.IntN(3)
	c.Adaptive = dice.IntN(2) == 0
	c.Ramp = []time.Duration{0, time.Second, 7 * time.Second}[dice.IntN(3)]
	c.RetryShare, c.BacklogShare = []float64{0.01, 0.3, 0.99}[dice.IntN(3)], []float64{0.01, 0.1, 0.99}[dice.IntN(3)]
	return c
}

// configure is a reload.
func (w *world) configure(c Config) {
	w.most.MaxInFlight = max(w.most.MaxInFlight, c.MaxInFlight)
	w.most.Breaker.Probes = max(w.most.Breaker.Probes, c.Breaker.Probes)
	w.l.Configure(c, w.now)
	w.collect()
}

func (w *world) pick(of ...string) string { return of[w.dice.IntN(len(of))] }

func (w *world) claim() *Claim {
	c := &Claim{
		Host: w.pick("a:80", "b:80"), Shop: w.pick("", "s1", "s2", "s3", "s4", "s5"), TaskType: w.pick("", "t1", "t2"),
		Retry: w.dice.IntN(3) > 0, Late: w.dice.IntN(4) == 0, Tunnel: w.dice.IntN(10) == 0, Priority: w.dice.IntN(3), Retries: w.dice.IntN(5),
		Arrived: w.now.Add(-time.Duration(w.dice.IntN(5)) * time.Second),
		MaxWait: time.Duration(w.dice.IntN(30)) * time.Second, FailOpen: w.dice.IntN(5) == 0, ProbeTimeout: 3 * time.Second,
	}
	if w.dice.IntN(3) == 0 {
		c.NotBefore, c.Cause = w.now.Add(time.Duration(w.dice.IntN(4000))*time.Millisecond), "backoff"
	}
	if w.dice.IntN(4) > 0 || w.most.Buckets.Global.Rate == 0 { // without fresh calls there is never a token again
		c.Deadline = w.now.Add(time.Duration(w.dice.IntN(40)) * time.Second)
	}
	return c
}

// step does one random thing.
func (w *world) step() {
	switch w.dice.IntN(12) {
	case 0, 1, 2, 3:
		c := w.claim()
		at, refused, _ := w.l.Peek(c, w.now)
		answer, ticket := w.l.Ask(c, w.now)
		if ticket == nil {
			w.ended(answer, c)
		} else if w.waiting = append(w.waiting, ticket); refused != "" {
			w.Fatalf("Peek refuses (%v), Ask lets it wait", refused)
		} else if !at.IsZero() && at.Before(w.now) {
			w.Fatalf("Peek = %v before now", w.now.Sub(at))
		}
	case 4, 5, 6:
		if i := len(w.grants); i > 0 {
			i = w.dice.IntN(i)
			g := w.grants[i]
			w.grants = slices.Delete(w.grants, i, i+1)
			w.finish(g)
		}
	case 7:
		if n := len(w.waiting); n > 0 {
			i := w.dice.IntN(n)
			t := w.waiting[i]
			w.waiting = slices.Delete(w.waiting, i, i+1)
			w.ended(w.l.Leave(t, w.now), &t.claim)
		}
	case 8:
		w.l.Pause(w.pick("a:80", "b:80"), w.pick("", "s1", "s2"), w.now.Add(time.Duration(w.dice.IntN(5))*time.Second), w.now)
	default:
		next := w.l.board.agenda.next()
		w.now = w.now.Add(time.Duration(w.dice.IntN(800)) * time.Millisecond)
		if !w.late && !next.IsZero() && next.Before(w.now) {
			w.now = next
		}
		w.tick()
	}
	w.collect()
	w.check()
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (w *world) finish(g Grant) {
	r := breaker.Result(w.dice.IntN(4))
	if w.hold {
		r = breaker.Alive
	}
	switch w.dice.IntN(8) {
	case 0: // a panic: released without a report
	case 1:
		place := g.gate.find(g)
		for _, k := range place.sources {
			if k != nil {
				w.spent[k.dimension.String()+k.name]--
			}
		}
		w.l.Cancel(g, w.now)
		w.collect()
	default:
		w.l.Report(g, r, w.now)
		w.collect()
		w.l.Report(g, breaker.Failed, w.now)
	}
	w.l.Release(g, w.now)
	w.collect()
	w.l.Release(g, w.now)
}

func (w *world) tick() {
	if w.next = w.l.Tick(w.now); !w.next.IsZero() && !w.next.After(w.now) {
		w.Fatalf("Tick(%v) = %v, not in the future", w.now.Sub(t0), w.next.Sub(t0))
	}
}

// collect books the tickets that ended. It follows every call that may start
// somebody, so that the breaker is still as it was at the start.
func (w *world) collect() {
	var started []*Ticket
	w.waiting = slices.DeleteFunc(w.waiting, func(t *Ticket) bool {
		select {
		case <-t.Ready():
			w.ended(t.Answer(), &t.claim)
			if t.answer.Refused == "" {
				started = append(started, t)
			}
			return true
		default:
			return false
		}
	})
	w.checkOrder(started)
}

func (w *world) ended(a Answer, c *Claim) {
	w.ends[a.Refused]++
	if a.Refused != "" {
		if a.Grant != (Grant{}) {
			w.Fatalf("refused %v, yet granted", a.Refused)
		}
		return
	}
	w.grants = append(w.grants, a.Grant)
	if !c.Deadline.IsZero() && w.now.After(c.Deadline) {
		w.Fatalf("granted %v after the deadline", w.now.Sub(c.Deadline))
	}
	if !w.late && a.AtGate > min(c.MaxWait, worldConfig.MaxWait) {
		w.Fatalf("granted after %v at the gate, max_wait %v", a.AtGate, c.MaxWait)
	}
	if c.Retry {
		w.spent["global"]++
		if c.TaskType != "" {
			w.spent["task_type"+c.TaskType]++
		}
		if c.Shop != "" {
			w.spent["shop"+c.Shop]++
		}
	}
}

// check holds the state against what it is made of.
func (w *world) check() {
	b := w.l.board
	if len(b.touched)+len(b.unjudged) > 0 {
		w.Fatal("left unsettled")
	}
	if n := b.agenda.next(); !n.IsZero() && !n.After(b.now) {
		w.Fatalf("an alarm is overdue by %v", b.now.Sub(n))
	}
	perGate, planned := map[*gate]int{}, map[*gate]int{}
	for _, t := range w.waiting {
		switch t.stage {
		case inLine:
			perGate[t.gate]++
			w.checkWaits(t)
		case stage(1):
			planned[t.gate]++
		default:
			w.Fatalf("a ticket is lost in stage %d", t.stage)
		}
	}
	for _, g := range b.gates.all() {
		if g.waiting != perGate[g] || g.planned != planned[g] || g.patience.size != g.waiting {
			w.Fatalf("%s: waiting %d, planned %d, want %d, %d", g.host, g.waiting, g.planned, perGate[g], planned[g])
		}
		w.checkGate(g)
		if g.busy > w.most.MaxInFlight || g.busy+len(g.free) != len(g.places) || g.waiting > b.config.MaxWaiting {
			w.Fatalf("%s: %d in flight, %d places, %d waiting", g.host, g.busy, len(g.places), g.waiting)
		}
		if s := g.breaker.Status(b.now); s.Probes > w.most.Breaker.Probes {
			w.Fatalf("%d probes in flight", s.Probes)
		}
	}
	w.checkTokens()
}

// checkGate: what a gate has counted is there, and it wakes up when something changes.
func (w *world) checkGate(g *gate) {
	b := w.l.board
	held, aged := [lanes]int{}, 0
	for _, p := range g.places {
		if p.seq > 0 {
			held[p.lane]++
		}
	}
	if held != g.held || held[laneFresh]+held[laneBacklog] != g.busy {
		w.Fatalf("%s: %v slots held, counted %v, %d busy", g.host, held, g.held, g.busy)
	}
	for i := range g.lanes {
		l := &g.lanes[i]
		places := make([]bool, l.size)
		for p := range l.groups() {
			for t := range p.line.all() {
				if n := l.ahead(t); n >= l.size || places[n] {
					w.Fatalf("%s: %+v has place %d of %d, which is another's", g.host, t.claim, n+1, l.size)
				} else {
					places[n] = true
				}
				if t.aged {
					aged++
				}
			}
		}
		if l.size == 0 && len(l.cells)+len(l.shops)+len(l.rounds)+len(l.plain.groups)+l.plain.heads.size > 0 {
			w.Fatalf("%s: an empty lane keeps %+v", g.host, l)
		}
	}
	fresh, late := g.lanes[laneFresh].size, g.lanes[laneBacklog].size
	if fresh+late != g.waiting || g.newcomers.size != fresh || g.youth.size != g.waiting-aged {
		w.Fatalf("%s: %d fresh and %d late of %d, %d newcomers, %d not aged", g.host, fresh, late, g.waiting, g.newcomers.size, g.youth.size)
	}
	if g.credit < 0 || g.credit > 1 {
		w.Fatalf("%s: credit %v", g.host, g.credit)
	}
	if down := b.low(g); down && !g.closed(b.now) && !g.relief || g.relief && !down && late == 0 {
		w.Fatalf("%s: relief %v, below capacity %v, %d in the backlog", g.host, g.relief, down, late)
	}
	if at := b.wakes(g); !at.IsZero() && (g.alarm.at.IsZero() || at.Before(g.alarm.at)) {
		w.Fatalf("%s: wakes up at %v, want %v", g.host, g.alarm.at.Sub(b.now), at.Sub(b.now))
	}
}

// checkOrder: among those who need the same, nobody starts before one with an
// earlier turn who was in line already.
func (w *world) checkOrder(started []*Ticket) {
	for _, s := range started {
		for _, t := range w.waiting {
			alike := t.gate == s.gate && t.lane == s.lane && t.claim.Shop == s.claim.Shop && t.sources == s.sources
			if alike && t.stage == inLine && t.joined.Before(w.now) && earlier(t, s) && !w.mayProbeBefore(s, t) {
				w.Fatalf("%+v started before %+v", s.claim, t.claim)
			}
		}
	}
}

// mayProbeBefore: a probe may overtake who is short of time, for the host would
// stay cut off if the probe ended with its call, but only if it has more itself.
// Who has time enough, or no deadline at all, is overtaken only by one with time enough
// that has tried less often.
func (w *world) mayProbeBefore(s, t *Ticket) bool {
	switch {
	case s.gate.breaker.State(w.now) == breaker.Closed:
		return false
	case !t.short(w.now):
		return !s.short(w.now) && s.claim.Retries < t.claim.Retries
	}
	return !s.short(w.now) || !s.claim.Deadline.Before(t.claim.Deadline)
}

// checkWaits: nobody waits who could start, or who must not wait any more.
func (w *world) checkWaits(t *Ticket) {
	b := w.l.board
	stop := b.blocker(t.gate)
	short := false
	for _, k := range t.sources {
		short = short || k != nil && !k.limit.Off && k.tokens.TokensAt(b.now.Add(-time.Microsecond)) < 1 // dates are rounded up
	}
	switch {
	case stop == "" && !short:
		w.Fatalf("%+v waits though it could start", t.claim)
	case stop == causeBreaker && t.claim.FailOpen:
		w.Fatal("a call that does not wait for breakers waits for one")
	case !t.claim.Deadline.IsZero() && !t.claim.Deadline.After(b.now):
		w.Fatal("a call waits past its deadline")
	case stop != "" && t.gate.clock(b.now) >= t.limit:
		w.Fatalf("a call waits past its max_wait")
	}
	if b.config.Buckets.Global.Share > 0 {
		return // a look at the rate may move the date to now
	}
	v := b.view(t)
	if v.Cause == "" || v.Place < 1 || (v.Cause == causeTokens && !v.At.After(b.now)) {
		w.Fatalf("view %+v", v)
	}
}

// checkTokens: never more retries than the burst and what flowed in since.
func (w *world) checkTokens() {
	b := w.l.board
	if b.config.Buckets.Global.Share > 0 {
		return
	}
	for name, n := range w.spent {
		limit := b.config.Buckets.Shop
		if name == "global" {
			limit = b.config.Buckets.Global
		} else if name[0] == 't' {
			limit = b.config.Buckets.TaskType
		}
		if most := float64(limit.Burst) + limit.Rate*b.now.Sub(t0).Seconds() + 1e-5; float64(n) > most {
			w.Fatalf("%s: %d retries after %v, want at most %v", name, n, b.now.Sub(t0), most)
		}
	}
}

func TestWhatMustAlwaysHold(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(60) {
		c := worldConfig
		if seed%4 == 2 {
			c.Buckets.Global = Limit{Rate: 0, Burst: 2, Share: 0.5}
			c.Buckets.Shop.Share = 0.3
		}
		dice := rand.New(rand.NewPCG(seed, 2))
		if seed%3 > 0 {
			c = vary(c, dice)
		}
		w := newWorld(t, seed, c)
		for i := range 300 {
			if seed%3 == 2 && i%50 == 49 {
				w.configure(vary(c, dice))
			}
			w.step()
		}
		w.drain()
		for reason, n := range w.ends {
			seen[reason] += n
		}
	}
	for _, reason := range []string{"", RefusedBreaker, RefusedTokens, RefusedSlot, RefusedPause, RefusedDeadline, RefusedLeft} {
		if seen[reason] == 0 {
			t.Errorf("no call ended with %q in %v", reason, seen)
		}
	}
}

// drain lets time pass until every ticket has ended: work is not left undone.
func (w *world) drain() {
	w.hold = true
	for i := 0; len(w.waiting)+len(w.grants) > 0; i++ {
		if i > 10_000 {
			w.Fatalf("%d tickets never end", len(w.waiting))
		}
		grants := w.grants
		w.grants = nil
		w.tick() // first, so that what is due starts before a result changes the breaker
		w.collect()
		for _, g := range grants {
			w.finish(g)
		}
		w.tick()
		w.collect()
		if w.next.IsZero() && len(w.grants) == 0 && len(w.waiting) > 0 {
			w.Fatalf("%d tickets wait for nothing, the first %+v", len(w.waiting), w.l.View(w.waiting[0], w.now))
		}
		w.now = maxTime(w.now, w.next)
	}
	w.tick()
	if b := w.l.board; len(b.global.lines)+b.global.planned.size > 0 || b.global.alarm.at.After(w.now) {
		w.Fatal("empty, yet something is planned")
	}
}

// FuzzLimiter is the same with steps chosen by the fuzzer's seed.
func FuzzLimiter(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint8(5))
	f.Fuzz(func(t *testing.T, seed uint64, slots, burst uint8) {
		c := worldConfig
		c.MaxInFlight = 1 + int(slots%6)
		c.Buckets.Global.Burst = int(burst % 8)
		w := newWorld(t, seed, c)
		for range 300 {
			w.step()
		}
		w.drain()
	})
}

func TestLine(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 1))
	l := newLine(func(a, b int) bool { return a < b })
	var want []int
	for range 20_000 {
		x := dice.IntN(2000)
		i, found := slices.BinarySearch(want, x)
		if got := l.rank(x); got != i {
			t.Fatalf("rank(%d) = %d, want %d", x, got, i)
		}
		if found {
			want = slices.Delete(want, i, i+1)
		} else if dice.IntN(5) > 0 {
			want = slices.Insert(want, i, x)
			l.insert(x)
			continue
		}
		if got := l.remove(x); got != found {
			t.Fatalf("remove(%d) = %v, want %v", x, got, found)
		}
		if first, ok := l.first(); ok != (len(want) > 0) || ok && first != want[0] {
			t.Fatalf("first = %v, %v, want that of %d members", first, ok, len(want))
		}
	}
	if got := l.members(); !slices.Equal(got, want) || l.size != len(want) {
		t.Errorf("members = %d, size %d, want %d in order", len(got), l.size, len(want))
	}
}

func TestBookIsBounded(t *testing.T) {
	worths := map[int]worth{1: inUse, 2: idle, 3: worthless}
	k := newBook(3, func(v int) worth { return worths[v] })
	put := func(v int) { k.add(fmt.Sprint(v), v) }
	put(1)
	put(2)
	put(3)
	put(4) // 4 and above are in use
	if _, ok := k.look("3"); ok {
		t.Error("the entry that loses nothing stayed")
	}
	put(5)
	if _, ok := k.look("2"); ok {
		t.Error("the idle entry stayed")
	}
	put(6)
	if got := k.entries.Len(); got != 4 {
		t.Errorf("%d entries, want 4: those in use stay", got)
	}
}
