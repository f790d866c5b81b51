package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/deadletter"
	"retryproxy/idempotency"
	"retryproxy/limiter"
	"retryproxy/pause"
	"retryproxy/policy"
)

// Told is what an order about a call that waits came to.
type Told struct {
	CallID   string    `json:"call_id"`
	State    string    `json:"state"`           // running: its attempt starts; waiting; parked: it is woken; done
	Cause    string    `json:"cause,omitempty"` // of its wait from now on
	NextAt   time.Time `json:"next_at,omitzero"`
	Record   string    `json:"record,omitempty"`   // cancelled: the state that its record is in
	Executed string    `json:"executed,omitempty"` // cancelled: no, maybe, yes
	Detail   string    `json:"detail"`
}

// Known says which record the call of an id has; false: nobody knows of such a call.
type Known func(ctx context.Context, callID string) (idempotency.ID, bool, error)

// order is that of an operator which ended a call's wait.
type order struct {
	deadletter.Signed
	done     chan struct{}
	over     bool              // done is closed
	record   idempotency.State // 0: it has none
	executed classify.Executed
}

// Expedite ends the wait of a call for its own date: backoff, Retry-After, or the date
// that it is parked until. Breakers, slots, tokens and what platforms stopped stand
// before it as ever; where one of them would turn it away, it waits on. Errors:
// attempt.ErrNoCall, ErrNotWaiting, ErrNotNow, deadletter.ErrInput, ErrBusy, those of the store.
func (p *Proxy) Expedite(ctx context.Context, id string, s deadletter.Signed, known Known) (told Told, err error) {
	if err := s.CheckNamed(); err != nil {
		return told, err
	}
	if x := p.calls.find(id); x != nil {
		told, err = x.hurry(time.Now())
	} else {
		var rec idempotency.Record
		if rec, err = p.parkedCall(ctx, id, known); err == nil {
			told, err = p.hurryParked(ctx, &rec, s)
		}
	}
	if err == nil {
		p.Log.Warn("call expedited", "call_id", id, "by", s.By, "note", s.Note, "detail", told.Detail)
	}
	told.CallID = id
	return told, err
}

// Cancel ends a call that waits or is parked, without another attempt. Its client gets the
// last answer there was. Errors: as Expedite, but ErrNotNow, and deadletter.ErrDraining.
func (p *Proxy) Cancel(ctx context.Context, id string, s deadletter.Signed, known Known) (told Told, err error) {
	if err := s.CheckNamed(); err != nil {
		return told, err
	}
	if x := p.calls.find(id); x != nil {
		told, err = x.cancelled(ctx, s)
	} else {
		var rec idempotency.Record
		if rec, err = p.parkedCall(ctx, id, known); err == nil {
			told, err = p.cancelParked(ctx, &rec, s)
		}
	}
	if err == nil {
		p.Log.Warn("call cancelled", "call_id", id, "by", s.By, "note", s.Note, "executed", told.Executed, "record", told.Record)
	}
	told.CallID = id
	return told, err
}

// find is the call in progress of an id; nil: there is none.
func (r *registry) find(id string) *exchange {
	_, live := r.snapshot()
	for _, x := range live {
		x.mu.Lock()
		found := x.sum.ID == id
		x.mu.Unlock()
		if found {
			return x
		}
	}
	return nil
}

// parkedCall finds what is parked under the id of a call: of its last run, of whoever
// parked it, or of its receipt.
func (p *Proxy) parkedCall(ctx context.Context, id string, known Known) (rec idempotency.Record, err error) {
	at, found, err := known(ctx, id)
	switch {
	case err != nil:
		return rec, err
	case !found || at == (idempotency.ID{}):
		return rec, attempt.ErrNoCall
	}
	rec, err = p.Store.Get(ctx, at, time.Now())
	last := ""
	if n := len(rec.Runs); n > 0 {
		last = rec.Runs[n-1].CallID
	}
	switch {
	case errors.Is(err, idempotency.ErrNotFound), err == nil && (rec.State.Ended() || id != last && id != rec.Owner && id != rec.Receipt):
		return rec, fmt.Errorf("it is over: %w", attempt.ErrNoCall)
	case err == nil && rec.State != idempotency.StateParked:
		return rec, fmt.Errorf("%w: it goes on as call %s", attempt.ErrNotWaiting, rec.Owner)
	}
	return rec, err
}

// busyLocked says why a call is in no wait that anybody could end.
func (x *exchange) busyLocked() error {
	doing := fmt.Sprintf("attempt %d is on the wire", len(x.past)+1)
	switch waits, tried := x.live.state == stateWaiting, len(x.past) > 0; {
	case waits && tried:
		doing = "its supplier is being asked what became of it"
	case waits:
		doing = "it waits for another call with its key"
	case x.sum.Policy == "":
		doing = "its request is being read"
	case tried && x.past.Last().Verdict.Class != classify.Transient:
		doing = "its answer is on its way"
	}
	return fmt.Errorf("%w: %s", attempt.ErrNotWaiting, doing)
}

// errJustOver: the wait ended by itself just before.
var errJustOver = fmt.Errorf("%w: it has just ended, and an attempt or an answer follows", attempt.ErrNotWaiting)

// hurry has a call that waits for its own date get in line now. While the ticket is to be
// seen, whatever it is asked for here does not change: its call does nothing but wait.
func (x *exchange) hurry(now time.Time) (told Told, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.live.ticket
	if t == nil {
		return told, x.busyLocked()
	}
	switch v := x.p.Limiter.View(t, now); {
	case v.Cause == "":
		return told, errJustOver
	case !limiter.Hurries(v.Cause):
		return told, fmt.Errorf("%w: it waits for %s", attempt.ErrNotWaiting, v.Cause)
	}
	if why := x.heldBack(now); why != "" {
		return told, fmt.Errorf("%w: %s", attempt.ErrNotNow, why)
	}
	switch refused, at := x.p.Limiter.Hurry(t, x.placeAt, now); refused {
	case "":
	case limiter.NotItsDate:
		return told, errJustOver
	default:
		return told, fmt.Errorf("%w: %s", attempt.ErrNotNow, refused+dated(" until ", at))
	}
	return x.p.toldOf(t, now), nil
}

// toldOf says what a call does whose wait was ended.
func (p *Proxy) toldOf(t *limiter.Ticket, now time.Time) Told {
	v := p.Limiter.View(t, now)
	if v.Cause != "" {
		return Told{State: stateWaiting, Cause: v.Cause, NextAt: v.At, Detail: "it waits on, for " + v.Cause + " like any other"}
	}
	if reason := t.Answer().Refused; reason != "" {
		return Told{State: stateDone, Detail: "it was turned away: " + reason}
	}
	return Told{State: stateRunning, Detail: "its next attempt starts now"}
}

// heldBack says what stands before the next attempt that the gate does not know of; empty:
// nothing does. The shop's breaker comes last: its yes takes the one probe.
func (x *exchange) heldBack(now time.Time) string {
	if x.preset != nil {
		if p := x.p.Pauses.Stops(x.pauseKey(), x.token(), now); p != nil {
			return stoppedBy(p)
		}
	}
	if x.retrying() {
		return x.p.shopHolds(x.labels.Shop, x.hops[x.hop].host, now)
	}
	return ""
}

func stoppedBy(p *pause.Pause) string {
	return p.Reason + " at " + p.Platform + dated(" until ", p.Until) + " (retryproxy shops)"
}

func (p *Proxy) shopHolds(shop, host string, now time.Time) string {
	if shop == "" {
		return ""
	}
	ok, at := p.Shops.MayRetry(shop, host, now)
	if ok {
		return ""
	}
	return "shop_breaker_open" + dated(" until ", at)
}

// hurryParked makes a parked call due now. It is woken like any other.
func (p *Proxy) hurryParked(ctx context.Context, rec *idempotency.Record, s deadletter.Signed) (told Told, err error) {
	now := time.Now()
	if why := p.parkedHeldBack(rec, now); why != "" {
		return told, fmt.Errorf("%w: %s", attempt.ErrNotNow, why)
	}
	_, err = p.Store.Advance(context.WithoutCancel(ctx), rec.ID, rec.State, rec.State, idempotency.Change{
		Now: now, Version: rec.Version, Reason: rec.Reason, NextAt: now,
		Deadline: rec.Deadline.Add(now.Sub(rec.Updated)), // what is left of it
		Note:     &idempotency.Note{At: now, By: s.By, Did: deadletter.DidExpedite, Text: s.Note},
	})
	if err != nil {
		return told, movedMeanwhile(err)
	}
	p.keeper.expect(now)
	told = Told{State: causeParked, NextAt: now, Detail: "it is woken now"}
	if p.drained.Load() {
		told.Detail = "this process stops: the next one wakes it"
	}
	return told, nil
}

// movedMeanwhile says that somebody else was quicker.
func movedMeanwhile(err error) error {
	switch {
	case errors.Is(err, idempotency.ErrConflict):
		return fmt.Errorf("somebody was quicker: %w", deadletter.ErrBusy)
	case errors.Is(err, idempotency.ErrNotFound):
		return fmt.Errorf("it is over: %w", attempt.ErrNoCall)
	}
	return err
}

// parkedHeldBack says what a parked call would meet at once; empty: nothing is known. What
// its request says is not read for that.
func (p *Proxy) parkedHeldBack(rec *idempotency.Record, now time.Time) string {
	list := p.Pauses.List(now)
	for i := range list {
		all := list[i].Shop == "" && !list[i].Unlabelled
		mine := list[i].Host == rec.Host && (all || list[i].Shop == rec.Labels.Shop)
		if mine && (list[i].Reason != pause.QuotaExhausted || rec.Reason == pause.QuotaExhausted) {
			return stoppedBy(&list[i])
		}
	}
	if !p.Limiter.Admits(rec.Host, now) {
		at, _, _ := p.Limiter.Peek(&limiter.Claim{Host: rec.Host}, now)
		return limiter.RefusedBreaker + dated(" until ", at)
	}
	if rec.Attempts == 0 {
		return ""
	}
	attrs := policy.Attrs{
		TaskType: rec.Labels.TaskType, Shop: rec.Labels.Shop, ShopTier: rec.Labels.ShopTier,
		Host: rec.Host, Path: rec.Path, Method: rec.Method,
	}
	if p.Retries().Value(&attrs, now) != "on" {
		return "retries_off"
	}
	return p.shopHolds(rec.Labels.Shop, rec.Host, now)
}

// cancelFor is how long an operator waits for the end of a call to be written.
const cancelFor = 10 * time.Second

// cancelled ends the wait of a call, and says what its record became.
func (x *exchange) cancelled(ctx context.Context, s deadletter.Signed) (told Told, err error) {
	o, err := x.cancel(s, time.Now())
	if err != nil {
		return told, err
	}
	told = Told{State: stateDone, Detail: "it ends now; its client has not taken its answer yet"}
	timer := time.NewTimer(cancelFor)
	defer timer.Stop()
	select {
	case <-o.done:
	case <-timer.C:
		return told, nil
	case <-ctx.Done():
		return told, nil
	}
	told.Executed, told.Detail = o.executed.String(), "it ended without another attempt"
	if o.record != 0 {
		told.Record = o.record.String()
	}
	if o.record != 0 && !o.record.Ended() {
		return told, fmt.Errorf("%w: the call ended here, but its record is still %s; that is mended as soon as the store answers", idempotency.ErrUnavailable, told.Record)
	}
	return told, nil
}

// cancel is the order itself: whoever answers a ticket first decides.
func (x *exchange) cancel(s deadletter.Signed, now time.Time) (*order, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.live.ticket
	switch {
	case t == nil:
		return nil, x.busyLocked()
	case !x.p.Limiter.Refuse(t, deadletter.ReasonCancelled, now):
		return nil, errJustOver
	}
	x.order = &order{Signed: s, done: make(chan struct{})}
	return x.order, nil
}

// carriedOut tells the operator who ended the call what became of it; repeated calls do
// nothing.
func (x *exchange) carriedOut() {
	o := x.order
	if o == nil || o.over {
		return
	}
	if x.flight != nil {
		o.record = x.rec.State
	}
	o.executed, o.over = x.executed(), true
	close(o.done)
}

// words are the order as the history has it.
func (o *order) words() string {
	text := "an operator ended it: " + o.By
	if o.Note != "" {
		text += ": " + o.Note
	}
	return text
}

// noteOf is the order as the record has it.
func (o *order) noteOf(now time.Time) *idempotency.Note {
	return &idempotency.Note{At: now, By: o.By, Did: deadletter.DidCancel, Text: o.Note}
}

// unwoken is the exchange of a parked call that nobody has woken.
func (p *Proxy) unwoken(rec *idempotency.Record, q *idempotency.Request) *exchange {
	x := p.exchangeOf(rec, q, attempt.OriginParked)
	x.mu.Lock() // operators may look already
	x.sum.Started, x.sum.Terms = rec.Created, rec.Terms
	x.mu.Unlock()
	x.note(rec.ID)
	x.begun, x.lasting, x.resumes = time.Now(), true, true
	x.earlier = max(rec.Attempts+1-x.lastRun().First, 0)
	x.body = requestBody{call: x.call}
	if x.placed(q) == nil {
		_ = x.resumePolicy() // refuses nothing; without a policy it is a letter
	}
	x.describe()
	return x
}

// headOf is the request of a record without its content, of which there may be much.
func (p *Proxy) headOf(ctx context.Context, id idempotency.ID) (*idempotency.Request, error) {
	select {
	case p.reading <- struct{}{}:
		defer func() { <-p.reading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	q, err := p.Store.Load(ctx, id)
	switch {
	case errors.Is(err, idempotency.ErrNotFound):
		return &idempotency.Request{Mode: "forward"}, nil
	case err != nil:
		return nil, err
	}
	q.Body = nil
	return q, nil
}

// cancelParked ends a parked call where it is, in one step: whoever moves its record first
// decides. Then it is told of like any call that was given up.
func (p *Proxy) cancelParked(ctx context.Context, rec *idempotency.Record, s deadletter.Signed) (told Told, err error) {
	if p.drained.Load() {
		return told, deadletter.ErrDraining
	}
	q, err := p.headOf(ctx, rec.ID)
	if err != nil {
		return told, err
	}
	x := p.unwoken(rec, q)
	d := stop(deadletter.ReasonCancelled)
	x.order = &order{Signed: s, done: make(chan struct{})}
	x.outcome.decision, x.outcome.detail, x.turn.Refused = d, x.order.words(), d.Reason
	now, to := time.Now(), x.lastState()
	c := idempotency.Change{Now: now, Version: rec.Version, Reason: d.Reason, TTL: x.set.KeyTTL, EndRun: true, Executed: x.executed(), Note: x.order.noteOf(now)}
	if to == idempotency.StateDead {
		c.TTL = x.set.LetterTTL
	}
	moved, err := p.Store.Advance(context.WithoutCancel(ctx), rec.ID, rec.State, to, c)
	if err != nil {
		x.withdraw()
		return told, movedMeanwhile(err)
	}
	x.rec.State, x.rec.Receipt, x.ended = moved.State, moved.Receipt, true
	p.crew.goes(p.Log, func() {
		defer x.finish()
		x.conclude(nil, d)
	})
	return Told{State: stateDone, Record: to.String(), Executed: x.executed().String(), Detail: "it ended without another attempt"}, nil
}
