package simulate

import (
	"fmt"
	"time"

	"retryproxy/classify"
	"retryproxy/limiter"
	"retryproxy/policy"
	"retryproxy/proxy"
)

// call is one call on its way through the proxy. It goes through the steps of
// proxy's exchange, in the same order and by the same rules; what waits there in a
// goroutine comes back here as an event.
type call struct {
	*instance
	bot     *errand
	arrived time.Time
	attrs   policy.Attrs
	policy  *policy.Policy
	rules   classify.Rules
	end     time.Time // of the run's deadline

	past   int            // attempts made
	next   proxy.Decision // what to do next
	atGate time.Duration
	ticket *limiter.Ticket // nil: it does not wait
	grant  limiter.Grant
	flight int       // the number of the attempt in flight; 0: none
	began  time.Time // when it was sent
	limit  *event    // of its time
	last   outcome
}

// outcome is how the newest attempt ended.
type outcome struct {
	verdict classify.Verdict
	status  int
	spent   time.Duration
}

// newCall settles what holds for all attempts.
func (i *instance) newCall(e *errand) *call {
	b := e.group.Bots
	c := &call{instance: i, bot: e, arrived: i.run.clock.now(), next: proxy.Decision{Do: proxy.Retry}}
	c.attrs = policy.Attrs{
		TaskType: b.TaskType, Shop: e.shop, ShopTier: i.tierOf(e), Host: i.run.platform.base.Host, Path: b.Path, Method: b.Method,
	}
	c.policy = i.policies.Match(&c.attrs, c.arrived).Arm(e.shop, c.id())
	e.policy = c.policy.Name
	c.rules = c.policy.Rules(b.Method, policy.NatureUnknown, b.Keyed && c.policy.KeyHonoured(c.attrs.Host))
	deadline := c.policy.Deadline
	if b.Tells {
		deadline = min(deadline, b.Patience)
	}
	c.end = c.arrived.Add(deadline)
	return c
}

func (c *call) now() time.Time { return c.run.clock.now() }

// ask claims a turn.
func (c *call) ask() {
	now := c.now()
	if c.past > 0 && c.retries.Value(&c.attrs, now) != "on" {
		c.run.tally.stop("retries_off")
		c.conclude()
		return
	}
	claim := c.claim(c.next)
	answer, ticket := c.gates.Ask(&claim, now)
	if ticket == nil {
		c.turned(answer)
		return
	}
	c.ticket = ticket
	c.line = append(c.line, c)
}

// claim is what the gate has to know of the next attempt.
func (c *call) claim(next proxy.Decision) limiter.Claim {
	return limiter.Claim{
		Host: c.attrs.Host, Shop: c.attrs.Shop, TaskType: c.attrs.TaskType,
		Retry: c.past > 0, Retries: c.past, Late: c.atGate >= limiter.LateAfter, Priority: c.policy.Priority, Arrived: c.arrived,
		NotBefore: next.At, Cause: next.Cause, Deadline: c.end, MaxWait: c.cfg.Slots.MaxWait - c.atGate,
		FailOpen:     c.policy.OnOpen == "fail",
		ProbeTimeout: c.policy.ConnectTimeout + c.policy.PerTryTimeout,
	}
}

// turned goes on when the gate has answered.
func (c *call) turned(a limiter.Answer) {
	c.ticket = nil
	c.atGate += a.AtGate
	if a.Refused != "" {
		c.run.tally.stop(a.Refused)
		c.conclude()
		return
	}
	c.grant = a.Grant
	c.try()
}

// try makes one attempt, within the time of its policy.
func (c *call) try() {
	mine := c.past + 1
	c.flight, c.began = mine, c.now()
	patience := min(c.policy.PerTryTimeout, c.end.Sub(c.now()))
	c.limit = c.run.clock.in(patience, func() {
		c.judge(reply{phase: classify.PhaseSent, fault: classify.FaultTimeout})
	})
	c.run.platform.send(&request{bot: c.bot, retry: mine > 1, reply: func(r reply) {
		if c.flight == mine {
			c.judge(r)
		}
	}})
}

// judge asks what the outcome means, and tells gate and breaker.
func (c *call) judge(r reply) {
	c.flight = 0
	c.limit.off()
	v := classify.Judge(&c.rules, &classify.Outcome{Phase: r.phase, Fault: r.fault, Status: r.status})
	if r.status != 0 && v.Class != classify.Success && c.policy.RetryStatuses.Has(r.status) {
		v.RetryAfter = r.retryAfter
	}
	c.past++
	c.last = outcome{v, r.status, r.spent}
	c.gates.Report(c.grant, proxy.BreakerResult(&v, &proxy.Span{Arrived: c.arrived, End: c.end, Began: c.began, Ended: c.now()}), c.now())
	c.next = c.decide()
	if c.next.Do != proxy.Retry {
		c.run.tally.stop(c.next.Reason)
		c.conclude()
		return
	}
	c.release()
	c.ask()
}

// decide collects the facts and asks the rule.
func (c *call) decide() proxy.Decision {
	f := c.facts(c.dice.Float64())
	if f.Verdict.Class == classify.Transient {
		c.lookAround(&f)
		if d := f.Planned(); d.Do == proxy.Retry {
			claim := c.claim(d)
			f.LookAhead(&claim, c.gates, c.shops)
		}
	}
	d := proxy.Decide(&f)
	if d.Do == proxy.Retry {
		c.run.tally.planned(c.window(f))
	}
	return d
}

// facts are those of the call itself. It is never parked: the store of a simulation
// is memory.
func (c *call) facts(dice float64) proxy.Facts {
	return proxy.Facts{
		Policy: c.policy, Verdict: c.last.verdict, Status: c.last.status, ID: c.id(),
		Retries: c.past - 1, Left: c.policy.MaxRetries - (c.past - 1), Now: c.now(), End: c.end, Dice: dice,
	}
}

// lookAround fills the facts that only a possible retry needs.
func (c *call) lookAround(f *proxy.Facts) {
	f.Gone, f.Replayable = c.bot.settled, true
	f.Switch = c.retries.Value(&c.attrs, f.Now)
	f.Healthy = c.gates.Healthy(c.attrs.Host, f.Now)
	if f.Status == 429 && f.Verdict.RetryAfter > 0 && c.attrs.Shop != "" && c.policy.HonourRetryAfter {
		c.gates.Pause(c.attrs.Host, c.attrs.Shop, f.Now.Add(min(f.Verdict.RetryAfter, c.policy.RetryAfterCap)), f.Now)
	}
}

// window is when the retry that was planned could have been, by other dice.
func (c *call) window(f proxy.Facts) (from, to time.Duration) {
	f.Dice = 0
	from = c.run.clock.since(f.Planned().At)
	f.Dice = 1
	return from, c.run.clock.since(f.Planned().At)
}

// id keeps stable jitter and the variant the same for the same call.
func (c *call) id() string { return fmt.Sprintf("%s-%d", c.bot.group.Name, c.bot.number) }

// release gives the slot back.
func (c *call) release() {
	c.gates.Release(c.grant, c.now())
	c.grant = limiter.Grant{}
}

// leave is for a call whose bot has hung up. The attempt of a keyed one runs to its
// end; that of another is cancelled and says nothing.
func (c *call) leave() {
	switch {
	case c.ticket != nil:
		answer := c.gates.Leave(c.ticket, c.now())
		c.gates.Cancel(answer.Grant, c.now())
		c.leaves(c)
		c.ticket = nil
		c.run.tally.stop("client_gone")
		c.conclude()
	case c.flight != 0 && !c.bot.group.Keyed:
		c.judge(reply{phase: classify.PhaseSent, fault: classify.FaultCancelled})
	}
}

// conclude gives the bot its answer and the slot back.
func (c *call) conclude() {
	ok := c.past > 0 && c.last.verdict.Class == classify.Success
	c.bot.answer(ok, c.last.spent)
	c.release()
	c.reportShop()
}

// reportShop tells the shop's breaker how the call ended.
func (c *call) reportShop() {
	if c.attrs.Shop == "" || c.past == 0 {
		return
	}
	now, v := c.now(), &c.last.verdict
	if v.Class == classify.Success {
		c.told(c.shops.Report(c.attrs.Shop, c.attrs.Host, "", true, now))
		return
	}
	if proxy.BlamesShop(v, c.last.status) && c.gates.Closed(c.attrs.Host, now) {
		c.told(c.shops.Report(c.attrs.Shop, c.attrs.Host, v.Reason, false, now))
	}
}
