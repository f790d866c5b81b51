package limiter

import (
	"fmt"
	"math"
	"testing"
	"time"

	"retryproxy/breaker"
)

func TestFivePerMinute(t *testing.T) {
	d := newDesk(t, tokens(off, off, perMinute(5)))
	retry := Claim{Shop: "s17", Retry: true}
	for range 5 {
		d.start(retry)
	}
	d.start(Claim{Shop: "s17"})              // a fresh call needs no token
	d.start(Claim{Shop: "s18", Retry: true}) // another shop has its own
	d.start(Claim{Retry: true})              // no label, no bucket
	var line []*Ticket
	for k := 1; k <= 3; k++ {
		ticket := d.wait(retry, causeTokens, at(time.Duration(k)*12*time.Second))
		if v := d.l.View(ticket, d.now); v.Place != k || v.Dimension != "shop" {
			t.Errorf("View = %+v, want place %d for the shop's token", v, k)
		}
		line = append(line, ticket)
	}
	for k, ticket := range line {
		due := at(time.Duration(k+1) * 12 * time.Second)
		d.until(due.Add(-1))
		if !d.waits(ticket) {
			t.Fatalf("retry %d started before %v", k, due.Sub(t0))
		}
		d.until(due)
		if a := d.granted(fmt.Sprint(k), ticket); a.Cause != causeTokens || a.AtGate != 0 {
			t.Errorf("Answer = %+v, want tokens and no time at the gate", a)
		}
	}
}

func TestAllTokensOrNone(t *testing.T) {
	d := newDesk(t, tokens(Limit{Rate: 1, Burst: 3}, Limit{Rate: 1, Burst: 3}, Limit{Rate: 0.1, Burst: 1}))
	d.start(Claim{Shop: "a", TaskType: "x", Retry: true})
	for k := 1; k <= 4; k++ { // these hold nothing
		d.wait(Claim{Shop: "a", TaskType: "x", Retry: true}, causeTokens, at(time.Duration(k)*10*time.Second))
	}
	// Who comes later and lacks nothing passes them, though they are ahead in
	// the line of the global bucket too.
	d.start(Claim{Shop: "b", TaskType: "x", Retry: true})
	d.start(Claim{Shop: "c", TaskType: "y", Retry: true})
	for _, v := range d.l.Limits(d.now) {
		want := map[string]float64{"global": 0, "task_typex": 1, "task_typey": 2, "shopa": 0, "shopb": 0, "shopc": 0}[v.Dimension+v.Name]
		if math.Abs(v.Tokens-want) > 1e-9 {
			t.Errorf("%s %s holds %v tokens, want %v", v.Dimension, v.Name, v.Tokens, want)
		}
	}
}

// The date is the latest over all buckets, and its bucket is named.
func TestLatestBucketDecides(t *testing.T) {
	one := func(rate float64) Limit { return Limit{Rate: rate, Burst: 1} }
	tests := []struct {
		name                 string
		global, taskType, sh Limit
		dimension            string
		after                time.Duration
	}{
		{"global", one(0.1), one(1), one(1), "global", 10 * time.Second},
		{"task type", one(1), one(0.1), one(1), "task_type", 10 * time.Second},
		{"shop", one(1), one(1), one(0.1), "shop", 10 * time.Second},
		{"one is off", one(1), off, one(0.5), "shop", 2 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDesk(t, tokens(tt.global, tt.taskType, tt.sh))
			c := Claim{Shop: "s", TaskType: "x", Retry: true}
			d.start(c)
			ticket := d.wait(c, causeTokens, at(tt.after))
			if v := d.l.View(ticket, d.now); v.Dimension != tt.dimension {
				t.Errorf("Dimension = %s, want %s", v.Dimension, tt.dimension)
			}
			c.Deadline = at(tt.after) // a second token later
			if a := d.refused(c, RefusedTokens, at(2*tt.after)); a.Dimension != tt.dimension {
				t.Errorf("Dimension = %s, want %s", a.Dimension, tt.dimension)
			}
			d.until(at(tt.after))
			d.granted("ticket", ticket)
		})
	}
}

func TestCase_SF_06_RateZeroMeansNone(t *testing.T) {
	for _, dim := range []string{"global", "task_type", "shop"} {
		for burst := range 2 {
			none := Limit{Rate: 0, Burst: burst}
			c := tokens(off, off, off)
			switch dim {
			case "global":
				c.Buckets.Global = none
			case "task_type":
				c.Buckets.TaskType = none
			case "shop":
				c.Buckets.Shop = none
			}
			d, retries := newDesk(t, c), 0
			for range 10 {
				claim := Claim{Shop: "s", TaskType: "x", Retry: true, NotBefore: d.now.Add(100 * time.Millisecond), Cause: "backoff"}
				_, refused, dimension := d.l.Peek(d.claim(claim), d.now)
				a, ticket := d.l.Ask(d.claim(claim), d.now)
				switch {
				case ticket != nil:
					retries++
					d.until(d.now.Add(time.Hour))
					d.granted("retry", ticket)
				case a.Refused != RefusedTokens || a.Dimension != dim || !a.At.IsZero():
					t.Fatalf("%s burst %d: Answer = %+v, want retry_limited by it, for good", dim, burst, a)
				case refused != RefusedTokens || dimension != dim:
					t.Errorf("%s burst %d: Peek = %q, %q, want what Ask says", dim, burst, refused, dimension)
				}
			}
			if retries != burst {
				t.Errorf("%s burst %d: %d retries, want %d", dim, burst, retries, burst)
			}
		}
	}
}

func TestBurstZeroHasNoTokenAtAnyRate(t *testing.T) {
	d := newDesk(t, tokens(off, off, Limit{Rate: 100}))
	d.refused(Claim{Shop: "s", Retry: true}, RefusedTokens, time.Time{})
}

// A date that does not fit the deadline ends the call when it asks, though its
// own wait has not begun: those planned before it are counted.
func TestForecastCountsThePlanned(t *testing.T) {
	d := newDesk(t, tokens(Limit{Rate: 0.1, Burst: 2}, off, off))
	soon := Claim{Retry: true, NotBefore: at(time.Second), Cause: "backoff", Priority: 5}
	far := Claim{Retry: true, NotBefore: at(time.Minute), Cause: "backoff", Priority: 5}
	d.wait(far, "backoff", at(time.Minute)) // planned later: not ahead of anybody here
	d.wait(soon, "backoff", at(time.Second))
	d.wait(soon, "backoff", at(time.Second))
	third := soon
	third.Deadline = at(11 * time.Second)
	// The bucket is full until 1 s, so the third token comes 10 s later.
	ticket := d.wait(third, "backoff", at(time.Second))
	if a := d.refused(third, RefusedTokens, at(21*time.Second)); a.Dimension != "global" {
		t.Errorf("Dimension = %q, want global", a.Dimension)
	}
	if start, refused, dimension := d.l.Peek(d.claim(third), d.now); !start.Equal(at(21*time.Second)) || refused != RefusedTokens || dimension != "global" {
		t.Errorf("Peek = %v, %q, %q, want 21s, retry_limited, global", start.Sub(t0), refused, dimension)
	}
	vip := third // overtakes those who wait when its own date has come
	vip.Priority = 1
	first := d.wait(vip, "backoff", at(time.Second))
	d.until(at(time.Second))
	d.granted("vip", first) // due at the same instant, so its turn decides
	d.until(at(11 * time.Second))
	if d.waits(ticket) {
		t.Error("the third still waits at its deadline")
	}
}

// Who loses the last token in time to others does not sleep on for nothing.
func TestOvertakenEndsAtOnce(t *testing.T) {
	d := newDesk(t, tokens(Limit{Rate: 0.1, Burst: 1}, off, off))
	d.start(Claim{Retry: true})
	slow := d.wait(Claim{Retry: true, Priority: 5, Deadline: at(15 * time.Second)}, causeTokens, at(10*time.Second))
	patient := d.wait(Claim{Retry: true, Priority: 4, Deadline: at(20 * time.Second)}, causeTokens, at(10*time.Second))
	if a := d.turnedAway("slow", slow, RefusedTokens); a.Dimension != "global" || !a.At.Equal(at(20*time.Second)) || a.Cause != causeTokens {
		t.Errorf("Answer = %+v, want the global token at 20s", a)
	}
	vip := d.wait(Claim{Retry: true, Priority: 1}, causeTokens, at(10*time.Second))
	if v := d.l.View(patient, d.now); !v.At.Equal(at(20*time.Second)) || v.Place != 2 {
		t.Errorf("View = %+v, want the second token", v)
	}
	d.until(at(10 * time.Second))
	d.granted("vip", vip)
	d.until(at(20 * time.Second))
	d.granted("patient", patient)
}

func TestShare(t *testing.T) {
	// 50 fresh calls a second, a fifth of that is 10 retries a second.
	d := newDesk(t, tokens(Limit{Rate: 0.1, Burst: 1, Share: 0.2}, off, off))
	rate := func() float64 { return d.l.Limits(d.now)[0].Rate }
	tests := []struct {
		after time.Duration
		calls int
		want  float64
	}{
		{0, 0, 0.1},                                    // no call yet: the plain rate
		{0, 1, 0.2},                                    // one call in at least a second
		{500 * time.Millisecond, 49, 10},               // 50 in at least a second
		{2 * time.Second, 50, 10},                      // 100 in two seconds
		{59 * time.Second, 0, 0.2 * 100 / 59},          // in all the time since the first call
		{60 * time.Second, 0, 0.2 * 50 / 60},           // the first second is forgotten
		{62 * time.Second, 0, 0.1},                     // and the third
		{10 * time.Minute, 600, 0.2 * 600 / 60},        // after a pause: still over a minute
		{10*time.Minute + 59*time.Second, 0, 0.2 * 10}, // and for the whole of it
		{11 * time.Minute, 0, 0.1},
	}
	for _, tt := range tests {
		d.now = at(tt.after)
		for range tt.calls {
			d.end(d.start(Claim{}), breaker.Alive)
		}
		if got := rate(); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("rate after %v = %v, want %v", tt.after, got, tt.want)
		}
	}
}

// Fresh traffic brings the date of those who wait forward, also from never.
func TestShareMovesTheDate(t *testing.T) {
	d := newDesk(t, tokens(off, off, Limit{Rate: 0.01, Burst: 1, Share: 0.5}))
	d.start(Claim{Shop: "s", Retry: true})
	ticket := d.wait(Claim{Shop: "s", Retry: true}, causeTokens, at(100*time.Second))
	d.l.Tick(d.now)
	<-d.l.Changed()
	d.end(d.start(Claim{Shop: "s"}), breaker.Alive) // one a second, half of it
	if v := d.l.View(ticket, d.now); !v.At.Equal(at(2 * time.Second)) {
		t.Errorf("View = %+v, want the token at 2s", v)
	}
	select {
	case <-d.l.Changed():
	default:
		t.Error("no Changed though the date came forward")
	}
	for range 5 {
		d.end(d.start(Claim{Shop: "other"}), breaker.Alive) // does not count for s
	}
	// The mean falls as time passes without calls, so the date moves away again:
	// after 10 s one in ten seconds, which is 0.05 tokens a second.
	d.until(at(30 * time.Second))
	d.granted("ticket", ticket)
}

func TestTokensComeBackFromAnAttemptNeverSent(t *testing.T) {
	d := newDesk(t, tokens(Limit{Rate: 0.1, Burst: 1}, off, Limit{Rate: 0.1, Burst: 1}))
	g := d.start(Claim{Shop: "s", Retry: true})
	next := d.wait(Claim{Shop: "s", Retry: true}, causeTokens, at(10*time.Second))
	d.l.Cancel(g, d.now)
	d.l.Cancel(g, d.now)
	d.granted("next", next)
	if v := d.l.Limits(d.now); v[0].Tokens > 1e-9 || v[1].Tokens > 1e-9 {
		t.Errorf("Limits = %+v, want both empty", v)
	}
	d.l.Cancel(next.Answer().Grant, d.now)
	d.start(Claim{Shop: "s", Retry: true})
}

// Only a call that its gate could start stands in a line for tokens.
func TestTokenLineIsForThoseTheGateCouldStart(t *testing.T) {
	d := newDesk(t, tokens(Limit{Rate: 0.1, Burst: 1}, off, off))
	d.start(Claim{Retry: true, Host: "ok:80"})
	d.fail(host)
	down := d.wait(Claim{Retry: true}, causeBreaker, at(2*time.Second))
	ticket := d.wait(Claim{Retry: true, Host: "ok:80", Priority: 9}, causeTokens, at(10*time.Second))
	if v := d.l.Limits(d.now); v[0].Waiting != 1 {
		t.Errorf("%d wait for global tokens, want 1", v[0].Waiting)
	}
	d.until(at(2 * time.Second)) // the probe is due: now it is ahead, by priority
	if v := d.l.View(ticket, d.now); v.Place != 2 || !v.At.Equal(at(20*time.Second)) {
		t.Errorf("View = %+v, want second in line", v)
	}
	d.until(at(10 * time.Second))
	d.granted("down", down)
	// Its probe is out, so the others of that host are out of the line again.
	d.until(at(20 * time.Second))
	d.granted("ticket", ticket)
}

// When a breaker closes, those whose tokens will not come in time end at once.
func TestClosingJudgesTheRetries(t *testing.T) {
	d := newDesk(t, tokens(Limit{Rate: 0.5, Burst: 1}, off, off))
	d.fail(host)
	var line []*Ticket
	for range 4 {
		line = append(line, d.wait(Claim{Retry: true, Deadline: at(6 * time.Second)}, causeBreaker, at(2*time.Second)))
	}
	d.until(at(2 * time.Second)) // the first is the probe and has the token
	d.end(d.granted("probe", line[0]).Grant, breaker.Alive)
	if !d.waits(line[1]) || !d.waits(line[2]) {
		t.Error("tokens at 4s and 6s fit, yet they were turned away")
	}
	if a := d.turnedAway("last", line[3], RefusedTokens); !a.At.Equal(at(8 * time.Second)) {
		t.Errorf("At = %v, want 8s", a.At.Sub(t0))
	}
	d.until(at(6 * time.Second))
	d.granted("second", line[1])
	d.granted("third", line[2])
}

func TestConfigureBuckets(t *testing.T) {
	c := tokens(off, off, Limit{Rate: 0.1, Burst: 2})
	d := newDesk(t, c)
	retry := Claim{Shop: "s", Retry: true}
	d.start(retry)
	d.start(retry)
	first, second, third := d.wait(retry, causeTokens, at(10*time.Second)), d.wait(retry, causeTokens, at(20*time.Second)), d.wait(retry, causeTokens, at(30*time.Second))
	c.Buckets.Shop = Limit{Rate: 1, Burst: 10}
	d.l.Configure(c, d.now)
	if v := d.l.View(first, d.now); !v.At.Equal(at(time.Second)) {
		t.Errorf("View after a faster rate = %+v, want 1s and no token for free", v)
	}
	d.until(at(time.Second))
	d.granted("first", first)
	c.Buckets.Shop = off
	d.l.Configure(c, d.now)
	d.granted("second", second)
	d.granted("third", third)
	c.Buckets.Shop = Limit{Rate: 1, Burst: 1}
	d.l.Configure(c, d.now)
	d.start(retry)
	waits := d.wait(retry, causeTokens, at(2*time.Second))
	c.Buckets.Shop = Limit{}
	d.l.Configure(c, d.now)
	d.turnedAway("waits", waits, RefusedTokens)
	if next := d.l.Tick(d.now); !next.IsZero() {
		t.Errorf("Tick = %v, want nothing planned", next.Sub(t0))
	}
}

func TestCase_SF_01_AnEmptyBucketDoesNotSpin(t *testing.T) {
	d := newDesk(t, tokens(Limit{Rate: 1, Burst: 2}, off, off))
	retries, ticks, refused := 0, 0, 0
	var line []*Ticket
	ask := func() {
		a, ticket := d.l.Ask(d.claim(Claim{Retry: true, NotBefore: d.now.Add(100 * time.Millisecond), Cause: "backoff", Deadline: at(time.Minute)}), d.now)
		switch {
		case ticket != nil:
			line = append(line, ticket)
		case a.Refused == RefusedTokens && a.At.After(at(time.Minute)):
			refused++
		default:
			t.Fatalf("Answer = %+v, want retry_limited with a date", a)
		}
	}
	for range 1000 {
		ask()
	}
	for next := d.l.Tick(d.now); !next.IsZero() && !next.After(at(10*time.Second)); next = d.l.Tick(d.now) {
		d.now = next
		ticks++
		d.l.Tick(d.now)
		done := line
		line = nil
		for _, ticket := range done {
			if d.waits(ticket) {
				line = append(line, ticket)
				continue
			}
			retries++
			d.end(d.granted("retry", ticket).Grant, breaker.Excluded)
			ask()
		}
	}
	if retries != 11 { // 2 at 100 ms, then one a second
		t.Errorf("%d retries in 10 s, want 11", retries)
	}
	if ticks > 40 {
		t.Errorf("%d ticks for 11 retries: it spins", ticks)
	}
	if len(line) > 62 || refused < 900 {
		t.Errorf("%d wait, %d refused, want only those whose token comes within the minute", len(line), refused)
	}
	for i, ticket := range line[:40] {
		if v := d.l.View(ticket, d.now); v.At.Before(d.now) || v.At.After(at(time.Minute)) {
			t.Fatalf("View of %d = %+v, want a date before the deadline", i, v)
		}
	}
}

func TestCase_SF_03_VIPBeforeNormal(t *testing.T) {
	d := newDesk(t, slots(1))
	var vip, normal []*Ticket
	for i := range 110 {
		c := Claim{Retry: true, Retries: 1, Priority: 5, NotBefore: at(2 * time.Second), Cause: "retry_after", MaxWait: 30 * time.Second}
		if i >= 100 {
			c.Priority = 1
			vip = append(vip, d.wait(c, "retry_after", c.NotBefore))
			continue
		}
		normal = append(normal, d.wait(c, "retry_after", c.NotBefore))
	}
	d.until(at(2 * time.Second))
	for i, ticket := range append(vip, normal...) {
		d.end(d.granted(fmt.Sprint(i), ticket).Grant, breaker.Alive)
	}
}

// 10 000 shops that waited leave no more behind than the table holds.
func TestLabelsAreBounded(t *testing.T) {
	d := newDesk(t, tokens(off, off, Limit{Rate: 0, Burst: 2, Share: 0.1}))
	kept := d.start(Claim{Shop: "kept", Retry: true})
	d.l.Release(kept, d.now)
	for i := range 2*maxLabels + 2 {
		d.end(d.start(Claim{Shop: fmt.Sprint(i), TaskType: fmt.Sprint(i), Retry: i%2 == 0}), breaker.Excluded)
		d.l.Pause(host, fmt.Sprint(i), at(time.Hour), d.now)
	}
	b := d.l.board
	if got := b.labelled[dimShop].entries.Len(); got > maxLabels {
		t.Errorf("%d shop buckets, want at most %d", got, maxLabels)
	}
	if got := b.labelled[dimTaskType].entries.Len(); got > maxLabels {
		t.Errorf("%d task type buckets, want at most %d", got, maxLabels)
	}
	if got := b.pauses.entries.Len(); got > maxLabels {
		t.Errorf("%d pauses, want at most %d", got, maxLabels)
	}
}
