package proxy

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/deadletter"
	"retryproxy/document"
	"retryproxy/idempotency"
	"retryproxy/inspect"
	"retryproxy/message"
	"retryproxy/presets"
	"retryproxy/signer"
	"retryproxy/template"
)

// backup is the supplier that has a call's order instead of where its client sent it.
type backup struct {
	idempotency.Supplier
	preset *presets.Preset
	place  hop
	built  *template.Request // as it was when the order came here
	client []hop             // where the client sent it
	asked  presets.Facts     // what was known of the request there
}

// definite are the verdict reasons that say for good: this was not executed. The list
// is closed: what nobody has thought of is a doubt.
var definite = []string{
	"refused", "throttled", "not_now", "quota_exhausted", "auth_expired", "risk_control", "signature_refused",
	"dns_no_such_host", "tls_verify",
}

// over are the stop reasons after which a supplier is done with a call. Others are ours
// (retry tokens, shutdown, the switch), the client's, or a doubt.
var over = []string{
	"fail_permanent", "attempts_exhausted", "retry_after_too_long", "deadline_exceeded", "breaker_open", "shop_breaker_open",
	"quota_exhausted", "auth_expired", "risk_control",
}

// HandsOn says whether an order may go to another supplier: the decision ends it where it
// is, and of all its attempts it is certain that none was executed. executed is the worst
// that is known of the record, whose first attempts may be forgotten.
func HandsOn(d Decision, made attempt.History, executed classify.Executed) bool {
	if d.Do != Stop && d.Do != Park || !slices.Contains(over, d.Reason) || executed != classify.ExecutedNo {
		return false
	}
	for i := range made {
		v := &made[i].Verdict
		sure := v.Basis == classify.BasisNotSent || v.Basis == classify.BasisRefused || v.Basis == classify.BasisQuery || slices.Contains(definite, v.Reason)
		if v.Executed != classify.ExecutedNo || !sure {
			return false
		}
	}
	return true
}

// method is that of the attempts.
func (x *exchange) method() string {
	if x.backup != nil {
		return x.backup.built.Method
	}
	return x.call.Request.Method
}

// clientHops are the places where the client sent the call.
func (x *exchange) clientHops() []hop {
	if x.backup != nil {
		return x.backup.client
	}
	return x.hops
}

// supplier is who has the order; zero: nobody but where the client sent it.
func (x *exchange) supplier() idempotency.Supplier {
	if x.backup != nil {
		return x.backup.Supplier
	}
	return idempotency.Supplier{}
}

// handOn gives the order to the next supplier that takes it, where the rule lets it; t is
// the last attempt, nil: there was none. false: d is the end. Who has the order is written
// into the record before anything is sent there.
func (x *exchange) handOn(t *tried, d Decision) bool {
	if !x.mayHandOn(t, d) {
		return false
	}
	from := x.preset
	for _, name := range x.laterSuppliers() {
		if from != nil && name == from.Name {
			continue // it has said no
		}
		b, err := x.offered(name)
		if err != nil {
			x.outcome.detail = "not handed on to " + name + ": " + err.Error()
			x.p.Log.Warn("an order is not handed on to a supplier", "call_id", x.id, "supplier", name, "why", err.Error())
			continue
		}
		if t != nil {
			x.keep(t)
		}
		x.release()
		if !x.entrust(b, d) {
			x.next = stop("store_unavailable")
			x.conclude(nil, x.next)
			return true
		}
		x.handedOn(from, d)
		return true
	}
	return false
}

// mayHandOn collects what the rule has to know.
func (x *exchange) mayHandOn(t *tried, d Decision) bool {
	switch {
	case len(x.policy.Failover) == 0 || x.call.Request.Method == "HEAD" || x.upgrade() != "" || x.body.stream != nil:
		return false
	case t != nil && t.said.Everywhere, x.p.drained.Load() && !x.lasting, !time.Now().Before(x.end):
		return false
	case !x.wanted() && x.call.Context().Err() != nil:
		return false
	case x.p.Retries().Value(&x.attrs, time.Now()) != "on":
		return false
	}
	made := slices.Concat(x.rec.History, x.past)
	if at := settledAt(&x.rec); !at.IsZero() {
		made = slices.DeleteFunc(made, func(a attempt.Attempt) bool { return a.Started.Before(at) })
	}
	return HandsOn(d, made, max(x.past.Executed(), x.rec.Executed))
}

// settledAt is when a person or a supplier said last that nothing had been executed;
// zero: nobody did. The attempts before are no doubt any more.
func settledAt(rec *idempotency.Record) (at time.Time) {
	for _, n := range rec.Notes {
		if n.By == byQuery && n.Did == didQuery+"not_executed" || n.Did == deadletter.DidNotExecuted {
			at = later(at, n.At)
		}
	}
	return at
}

// laterSuppliers are those behind the one that has the order.
func (x *exchange) laterSuppliers() []string {
	if x.backup == nil {
		return x.policy.Failover
	}
	i := slices.Index(x.policy.Failover, x.backup.Name)
	if i < 0 {
		return nil // the configuration changed: nobody knows who comes next
	}
	return x.policy.Failover[i+1:]
}

// offered is a supplier to which the order could go: the request was built, and no guard
// speaks against it.
func (x *exchange) offered(name string) (*backup, error) {
	b := &backup{Supplier: idempotency.Supplier{Name: name}, client: x.clientHops(), asked: x.known}
	if x.backup != nil {
		b.asked = x.backup.asked
	}
	if b.preset = x.set.Presets.Named(name); b.preset == nil || b.preset.Submit == nil {
		return nil, errNoSubmit
	}
	b.OrderNo = x.numbered(b)
	if err := b.preset.Submit.Check(x.orderFacts(b.Name, b)); err != nil {
		return nil, err
	}
	return b, x.settlePlace(b)
}

var errNoSubmit = errors.New("there is no preset of that name with submit")

// settlePlace builds the request, and finds where it goes and by which exit.
func (x *exchange) settlePlace(b *backup) (err error) {
	if b.built, err = x.ordered(b); err != nil {
		return err
	}
	if b.place, err = newHop(b.built.Scheme, b.built.Authority, b.built.Target); err != nil {
		return err
	}
	b.place.target.Exempt = true // the configuration names it
	return x.chooseExit(&b.place)
}

// numbered is the number under which a supplier gets the order. A new one has the number
// of the attempt that brings it, so that no supplier sees one twice for two orders.
func (x *exchange) numbered(b *backup) string {
	no := orElse(b.asked.BusinessKey, x.ownKey())
	if no != "" && b.preset.Submit.OrderNo == presets.NewSuffix {
		no += "-r" + strconv.Itoa(x.rec.Attempts+len(x.past)+1)
	}
	return no
}

// ownKey is the key of a call that was given one.
func (x *exchange) ownKey() string {
	if x.keyless {
		return ""
	}
	return x.key
}

// orderFacts are what the templates of a preset are filled from, at this moment; b is the
// supplier that has the order or is to get it, nil: it is where its client sent it.
func (x *exchange) orderFacts(preset string, b *backup) *template.Facts {
	r := &x.call.Request
	content := x.body.start(int(x.set.Body.Inspect))
	if r.Fields.Has("Content-Encoding") {
		content = inspect.Plain(r.Fields, content, int(x.set.Body.Inspect))
	}
	known, no := &x.known, orElse(x.known.BusinessKey, x.ownKey())
	if b != nil {
		known, no = &b.asked, b.OrderNo
	}
	var random [template.MaxRandom / 2]byte
	_, _ = rand.Read(random[:])
	return &template.Facts{
		Key: x.ownKey(), CallID: x.id, Shop: x.labels.Shop, TaskType: x.labels.TaskType,
		Operation: known.Operation, BusinessKey: known.BusinessKey, OrderNo: no,
		Cred: x.set.Credentials.Of(preset, x.labels.Shop), Now: time.Now().Add(-x.p.skews.of(preset)), Random: hex.EncodeToString(random[:]),
		Call: &document.Request{Method: r.Method, Target: x.clientHops()[0].path, Fields: r.Fields, Body: content},
	}
}

// filled is a request of ours by a preset's template, dated and signed now.
func (x *exchange) filled(t *template.Template, sign *signer.Scheme, preset string, b *backup) (*template.Request, error) {
	r, err := t.Build(x.orderFacts(preset, b))
	if err != nil || sign == nil {
		return r, err
	}
	signed, err := sign.Sign(&signer.Request{Method: r.Method, Target: r.Target, Fields: r.Fields, Body: r.Body}, x.set.Credentials.Of(preset, x.labels.Shop))
	if err != nil {
		return nil, err
	}
	r.Target, r.Fields, r.Body = signed.Target, signed.Fields, signed.Body
	return r, nil
}

// ordered is the order as the supplier gets it.
func (x *exchange) ordered(b *backup) (*template.Request, error) {
	return x.filled(&b.preset.Submit.Request, b.preset.Sign, b.Name, b)
}

// entrust makes the supplier the one that has the order, in the record first. From then
// on the call lives by its place, its answers and its rules; false: the store refused.
func (x *exchange) entrust(b *backup, d Decision) bool {
	if x.key != "" {
		c := idempotency.Change{Append: x.unsaved(), Reason: d.Reason, NextAt: time.Now(), Executed: x.executed(), Supplier: b.Supplier}
		if !x.advance(x.rec.State, idempotency.StateWaiting, c) {
			return false
		}
	}
	x.turnTo(b)
	x.elsewhere = x.earlier + len(x.past)
	x.retries = len(x.past) + x.policy.MaxRetries
	return true
}

// turnTo makes a supplier the place of the call.
func (x *exchange) turnTo(b *backup) {
	x.backup, x.preset, x.signature, x.nxHost = b, b.preset, signature{}, false
	x.hops, x.hop = []hop{b.place}, 0
	x.giveUpPlace(time.Now()) // it was there
	x.known = b.preset.Facts(&document.Request{Method: b.built.Method, Target: b.built.Target, Fields: b.built.Fields, Body: b.built.Body})
	x.settleRules()
}

// handedOn tells of it, and plans the first attempt there.
func (x *exchange) handedOn(from *presets.Preset, d Decision) {
	before := presets.None
	if from != nil {
		before = from.Name
	}
	x.outcome.detail = ""
	if h := x.p.Hooks.Failover; h != nil {
		h(x.policy.Name, before, x.backup.Name)
	}
	x.p.Log.Info("an order is handed on to another supplier", "call_id", x.id, "from", before, "to", x.backup.Name, "reason", d.Reason,
		"shop", x.labels.Shop, "host", x.hops[0].host)
	x.next = Decision{Do: Retry, Reason: d.Reason, Cause: causeBackoff, At: time.Now()}
	if x.p.drained.Load() { // the next process sends it
		x.next = stopAt("shutting_down", time.Now(), true)
		x.conclude(nil, x.next)
	}
}

// goesBack makes the supplier that the record names the place of a call that goes on or
// runs again: wherever the order is, it is nowhere else.
func (x *exchange) goesBack() *refusal {
	s := x.rec.Supplier()
	if s.Name == "" {
		return nil
	}
	b := &backup{Supplier: s, client: x.hops, asked: x.known, preset: x.set.Presets.Named(s.Name)}
	err := errNoSubmit
	if b.preset != nil && b.preset.Submit != nil {
		err = x.settlePlace(b)
	}
	if err != nil {
		return refuse("fail_permanent", "the order is at "+s.Name+": "+err.Error())
	}
	x.turnTo(b)
	first := x.lastRun().First
	for i := range x.rec.History {
		if a := &x.rec.History[i]; a.N >= first && a.Supplier != s.Name {
			x.elsewhere++
		}
	}
	return nil
}

// here is how many attempts of this run the supplier saw.
func (x *exchange) here() int { return x.earlier + len(x.past) - x.elsewhere }

// orderMessage is the request of an attempt at a supplier.
func (x *exchange) orderMessage() (*message.Request, error) {
	r, err := x.ordered(x.backup)
	if err != nil {
		return nil, fmt.Errorf("the order for %s: %w", x.backup.Name, err)
	}
	out := &message.Request{
		Method: r.Method, Scheme: x.hops[0].scheme(), Authority: r.Authority, Target: r.Target,
		Version: "1.1", Fields: r.Fields,
	}
	if x.sends.key && x.ownKey() != "" && !x.derived {
		out.Fields.Set(x.set.Headers.Keys[0], x.key)
	}
	if n := x.number(); x.sends.count && n > 0 {
		out.Fields.Set(x.set.Headers.RetryCount, strconv.Itoa(n))
	}
	if r.Body != nil {
		out.Body = signedBody{r.Body, noTrailers{}}
	}
	return out, nil
}

// noTrailers are those of content that we made.
type noTrailers struct{}

// Trailers are none.
func (noTrailers) Trailers() message.Fields { return nil }
