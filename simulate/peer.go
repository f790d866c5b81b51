package simulate

import (
	"cmp"
	"time"

	"retryproxy/classify"
)

// peer is what bots use instead of retryproxy: nothing at all, or a client or proxy
// that tries a fixed number of times, whatever the platform says.
type peer struct {
	run     *run
	retries int
	timeout time.Duration // of one attempt; 0: that of the bot, if it has one
	delay   time.Duration

	idle int // calls between two attempts
}

// visit is one call on its way by a peer.
type visit struct {
	*peer
	bot     *errand
	tries   int
	attempt int // the number of the one that is waited for; 0: none is
	timer   *event
}

func (p *peer) begin(e *errand) {
	v := &visit{peer: p, bot: e}
	e.hungUp = v.leave
	v.try()
}

func (p *peer) waiting() int { return p.idle }

// tick has nothing to do: what a peer waits for is an event.
func (p *peer) tick() (time.Time, bool) { return time.Time{}, false }

// try sends one attempt. A reply to an earlier one is not listened to.
func (v *visit) try() {
	v.tries++
	mine := v.tries
	v.attempt = mine
	if limit := cmp.Or(v.timeout, v.bot.group.Timeout); limit > 0 && v.retries > 0 {
		v.timer = v.run.clock.in(limit, func() { v.after(reply{fault: classify.FaultTimeout}) })
	}
	v.run.platform.send(&request{bot: v.bot, retry: mine > 1, reply: func(r reply) {
		if v.attempt == mine {
			v.after(r)
		}
	}})
}

// after takes the outcome of the attempt.
func (v *visit) after(r reply) {
	v.attempt = 0
	v.timer.off()
	retried := r.status >= 500 || r.status == 429 || r.fault != classify.FaultNone
	switch {
	case !retried:
		v.bot.answer(r.status < 400, r.spent)
	case v.tries > v.retries:
		v.bot.answer(false, r.spent)
	default:
		v.idle++
		v.timer = v.run.clock.in(v.delay, func() {
			v.idle--
			v.try()
		})
	}
}

// leave ends it: nobody waits for the answer.
func (v *visit) leave() {
	if v.attempt == 0 {
		v.idle--
	}
	v.attempt = 0
	v.timer.off()
}
