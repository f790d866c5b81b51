// Package alert answers one question: who has to be told of what, and when?
//
// rules.go decides, told what happens and the time. target.go delivers: each
// target has a bounded queue and retries of its own, so that nothing here ever
// holds up a call, and nothing goes through the proxy itself.
package alert

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Deps are what Alerts needs from outside.
type Deps struct {
	// Measure is asked every few seconds while there are rules. May be nil.
	Measure func(now time.Time) Measured
	// Expiring counts the dead letters that will be removed within a time; it is
	// asked as often, where a rule is about them. May be nil.
	Expiring func(ctx context.Context, within time.Duration, now time.Time) Expiring
	// Count counts what became of a message: sent, failed or dropped. May be nil.
	Count func(rule, result string)
	Log   *slog.Logger // nil: none
	Dial  func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Config says what to tell to whom. A reload replaces it.
type Config struct {
	Sender
	Rules   []Rule
	Targets []Target
	Roots   *x509.CertPool // nil: the system's
}

// tickEvery is how often recoveries, reminders and measures are looked at.
const tickEvery = 5 * time.Second

// flushFor is the longest time that the end of the process waits for targets.
const flushFor = 5 * time.Second

// Alerts takes in what happens and tells it. All methods are safe for concurrent
// use, and none but Run, Flush and Test waits for anything.
type Alerts struct {
	deps    Deps
	changed chan struct{}
	watched [len(kinds)]atomic.Bool // whether there are rules of a kind
	trouble atomic.Bool             // the store failed: its success is worth a look

	mu      sync.Mutex
	rules   rules
	targets map[string]*target
	config  Config
	fresh   []*target // have no worker yet
	workers sync.WaitGroup
}

// kinds number what events can be of.
var kinds = [...]string{DeadLetters, Reasons, Breakers, StoreFails}

func watch(kind string) int { return slices.Index(kinds[:], kind) }

// New returns Alerts with a first configuration.
func New(d Deps, c Config) *Alerts {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	a := &Alerts{deps: d, changed: make(chan struct{}, 1), targets: map[string]*target{}}
	a.Configure(c)
	return a
}

func (d *Deps) count(rule, result string) {
	if d.Count != nil {
		d.Count(rule, result)
	}
}

// dropped counts and logs messages that are never sent.
func (d *Deps) dropped(target string, list []Message) {
	for i := range list {
		d.count(list[i].Rule, "dropped")
	}
	if len(list) > 0 {
		d.Log.Error("alerts were dropped", "target", target, "messages", len(list))
	}
}

// Configure makes c the rules. What stays as it was goes on with what it knows;
// a target that is gone drops what it has not sent.
func (a *Alerts) Configure(c Config) {
	if c.Zone == nil {
		c.Zone = time.UTC
	}
	client := newClient(a.deps.Dial, c.Roots)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.config = c
	a.rules.configure(c.Rules, time.Now())
	for i, kind := range kinds {
		a.watched[i].Store(a.rules.watches(kind))
	}
	old := a.targets
	a.targets = map[string]*target{}
	for _, t := range c.Targets {
		w := way{t, client, c.Sender}
		if was := old[t.Name]; was != nil {
			was.use(w)
			a.targets[t.Name] = was
			delete(old, t.Name)
			continue
		}
		a.targets[t.Name] = newTarget(&a.deps, w)
		a.fresh = append(a.fresh, a.targets[t.Name])
	}
	a.fresh = slices.DeleteFunc(a.fresh, func(t *target) bool { return a.targets[t.way.Name] != t })
	for _, t := range old {
		if t.cancel != nil {
			t.cancel()
		}
	}
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Run delivers, and looks at what is measured, until ctx ends.
func (a *Alerts) Run(ctx context.Context) error {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		if a.startWorkers(ctx) {
			ticker.Reset(tickEvery)
			a.tick(ctx)
		} else {
			ticker.Stop()
		}
		select {
		case <-ticker.C:
		case <-a.changed:
		case <-ctx.Done():
			a.workers.Wait()
			return nil
		}
	}
}

// startWorkers gives each new target its worker, and says whether there are rules.
func (a *Alerts) startWorkers(ctx context.Context) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.fresh {
		t.start(ctx, &a.workers)
	}
	a.fresh = nil
	return len(a.rules.books) > 0
}

func (a *Alerts) tick(ctx context.Context) {
	var m Measured
	now := time.Now()
	if a.deps.Measure != nil {
		m = a.deps.Measure(now)
	}
	if a.deps.Expiring != nil {
		m.Expiring = map[time.Duration]Expiring{}
		for _, within := range a.asked() {
			m.Expiring[within] = a.deps.Expiring(ctx, within, now)
		}
	}
	a.tell(func(r *rules) []Message { return r.tick(&m, now) })
}

// asked is how far ahead rules look at dead letters.
func (a *Alerts) asked() (out []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.rules.books {
		if b.rule.On == Retention {
			out = append(out, b.rule.Before)
		}
	}
	return out
}

// DeadLetter is a call that was given up.
type DeadLetter struct{ Reason, Host, TaskType, Shop, CallID string }

// Stop is a call that stopped short of success.
type Stop DeadLetter

// Breaker is a change of a breaker.
type Breaker struct {
	Scope  string // host, shop or egress
	Host   string // of egress: the exit
	Shop   string
	Closed bool   // otherwise it is cut off
	Why    string // a token
	Standing
}

// DeadLetter takes in a dead letter.
func (a *Alerts) DeadLetter(d DeadLetter) {
	a.event(&event{kind: DeadLetters, callID: d.CallID, labels: Labels{Host: d.Host, Reason: d.Reason, TaskType: d.TaskType, Shop: d.Shop}})
}

// Stop takes in a call that stopped.
func (a *Alerts) Stop(s Stop) {
	a.event(&event{kind: Reasons, callID: s.CallID, labels: Labels{Host: s.Host, Reason: s.Reason, TaskType: s.TaskType, Shop: s.Shop}})
}

// Breaker takes in a change of a breaker.
func (a *Alerts) Breaker(b Breaker) {
	a.event(&event{kind: Breakers, detail: b.Why, how: b.Standing, over: b.Closed, labels: Labels{Scope: b.Scope, Host: b.Host, Shop: b.Shop}})
}

// StoreFailed takes in that the store could not do something. reason is
// store_unavailable or store_full.
func (a *Alerts) StoreFailed(reason, detail string) {
	a.event(&event{kind: StoreFails, detail: detail, labels: Labels{Reason: reason}})
	a.trouble.Store(true) // last: a success that comes between would be the only one looked at
}

// StoreWorked takes in that it could; room: for a new record. It costs nothing
// while the store is well.
func (a *Alerts) StoreWorked(room bool) {
	if !a.trouble.Load() {
		return
	}
	works := &event{kind: StoreFails, over: true, labels: Labels{Reason: "store_unavailable"}}
	if room {
		a.trouble.Store(false)
		works.labels.Reason = "" // all of it
	}
	a.event(works)
}

// event takes in one event, if a rule is about its kind.
func (a *Alerts) event(e *event) {
	if !a.watched[watch(e.kind)].Load() {
		return
	}
	now := time.Now()
	a.tell(func(r *rules) []Message { return r.event(e, now) })
}

// tell queues what the rules say, in that order, and logs it afterwards.
func (a *Alerts) tell(decide func(*rules) []Message) {
	a.mu.Lock()
	list := decide(&a.rules)
	dropped := map[string][]Message{}
	for i := range list {
		for _, name := range list[i].To {
			if t := a.targets[name]; t != nil {
				dropped[name] = append(dropped[name], t.push(&list[i])...)
			}
		}
	}
	a.mu.Unlock()
	for i := range list {
		a.log(&list[i])
	}
	for name, lost := range dropped {
		a.deps.dropped(name, lost)
	}
}

// log keeps what is told where it can be found when no target takes it.
func (a *Alerts) log(m *Message) {
	level := slog.LevelWarn
	if m.State == Recovered || m.State == Alive {
		level = slog.LevelInfo
	}
	a.deps.Log.Log(context.Background(), level, "alert", "rule", m.Rule, "state", string(m.State), "what", m.headline(),
		"host", m.Group.Host, "reason", m.Group.Reason, "task_type", m.Group.TaskType, "shop", m.Group.Shop,
		"example", m.Call, "to", strings.Join(m.To, ","))
}

// Flush sends what waits, until ctx ends and no longer than a few seconds. What
// happens afterwards is not told any more.
func (a *Alerts) Flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushFor)
	defer cancel()
	a.mu.Lock()
	var running []*target
	for _, t := range a.targets {
		if t.close(); t.done != nil {
			running = append(running, t)
		}
	}
	a.mu.Unlock()
	for _, t := range running {
		select {
		case <-t.done:
		case <-ctx.Done():
			t.cancel()
			<-t.done
		}
	}
}
