package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"retryproxy/alert"
	"retryproxy/attempt"
	"retryproxy/breaker"
	"retryproxy/config"
	"retryproxy/idempotency"
	"retryproxy/limiter"
)

// alertConfig is what is told to whom.
func alertConfig(cfg *config.Config) alert.Config {
	machine, _ := os.Hostname() // without a name texts leave it out
	c := alert.Config{
		Sender: alert.Sender{Instance: cfg.Instance, Machine: machine, Zone: cfg.Location()},
		Roots:  cfg.TLS.Roots(),
	}
	for i := range cfg.Alerts {
		a := &cfg.Alerts[i]
		if a.Webhook.URL != "" {
			c.Targets = append(c.Targets, alert.Target{
				Name: a.Name, URL: string(a.Webhook.URL), Format: a.Webhook.Format, Secret: string(a.Webhook.Secret),
			})
		}
		if a.On != "" {
			c.Rules = append(c.Rules, alertRule(a))
		}
	}
	return c
}

func alertRule(a *config.Alert) alert.Rule {
	return alert.Rule{
		Name: a.Name, On: a.On,
		Reason: a.Match.Reason, Host: a.Match.Host, TaskType: a.Match.TaskType, Shop: a.Match.Shop, By: a.By,
		Count: a.Count, Within: a.Within, Factor: a.Factor, OlderThan: a.OlderThan, Before: a.Before, Every: a.Every,
		For: a.For, KeepFiringFor: a.KeepFiringFor, Quiet: a.Quiet, To: a.To,
	}
}

// newAlerts wires the alerts; they know nothing of the proxy and go around it.
func (a *app) newAlerts(cfg *config.Config) *alert.Alerts {
	letters := &expiring{going: func(ctx context.Context, within time.Duration) (int, time.Time, error) {
		return a.proxy.GoingLetters(ctx, within)
	}}
	return alert.New(alert.Deps{
		Measure: func(now time.Time) alert.Measured {
			stats := a.store.Stats()
			letters := 0
			if a.store.Durable() {
				letters = stats.ByState[idempotency.StateDead] + stats.ByState[idempotency.StateInDoubt]
			}
			return alert.Measured{
				Letters: letters,
				Parked:  stats.ByState[idempotency.StateParked], OldestParked: stats.OldestParked,
				Open: a.cutOff(now),
			}
		},
		Expiring: letters.within, Dial: a.dialTarget(),
		Count: a.metrics.Alert, Log: a.log,
	}, alertConfig(cfg))
}

// dialTarget makes connections to targets over the network of the options; nil:
// the usual way.
func (a *app) dialTarget() func(ctx context.Context, network, addr string) (net.Conn, error) {
	if a.dial == nil {
		return nil
	}
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		found, err := a.resolve(ctx, host)
		if err != nil {
			return nil, err
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, err
		}
		return a.dial(ctx, netip.AddrPortFrom(found[0], uint16(number)))
	}
}

// cutOff lists the breakers that are not closed.
func (a *app) cutOff(now time.Time) (out []alert.Cut) {
	for _, h := range a.limiter.Hosts(now) {
		if h.Breaker.State != breaker.Closed {
			out = append(out, alert.Cut{Labels: alert.Labels{Scope: "host", Host: h.Host}, Standing: standing(&h)})
		}
	}
	for _, s := range a.shops.Tripped() {
		out = append(out, alert.Cut{Labels: alert.Labels{Scope: "shop", Host: s.Host, Shop: s.Shop}})
	}
	for _, e := range a.exits.Used(now) {
		if e.State != breaker.Closed {
			out = append(out, alert.Cut{Labels: alert.Labels{Scope: "egress", Host: e.Name}})
		}
	}
	return out
}

// standing is what an alarm says of the outage of a host; zero: there is none.
func standing(h *limiter.HostView) alert.Standing {
	if h.Outage == nil {
		return alert.Standing{}
	}
	return alert.Standing{Reach: h.Outage.Reach, Waiting: h.Waiting + h.Planned, Release: h.Outage.Release}
}

// alertDeadLetter, alertStop and alertBreaker hand on what the alerts watch.
func (a *app) alertDeadLetter(s *attempt.Summary) {
	a.alerts.DeadLetter(alert.DeadLetter{Reason: s.Reason, Host: s.Host, TaskType: s.Labels.TaskType, Shop: s.Labels.Shop, CallID: s.ID})
}

func (a *app) alertStop(s *attempt.Summary) {
	if s.Mode != "local" && s.Reason != "" && s.Reason != "ok" {
		a.alerts.Stop(alert.Stop{Reason: s.Reason, Host: s.Host, TaskType: s.Labels.TaskType, Shop: s.Labels.Shop, CallID: s.ID})
	}
}

// alertBreaker leaves out probes: they change nothing that a person has to know.
func (a *app) alertBreaker(e *breaker.Event, h *limiter.HostView) {
	if e.To != breaker.HalfOpen {
		a.alerts.Breaker(alert.Breaker{
			Scope: e.Scope, Host: e.Host, Shop: e.Shop, Closed: e.To == breaker.Closed, Why: e.Reason, Standing: standing(h),
		})
	}
}

// watched is a store whose failures the alerts, the overview and the metrics see.
type watched struct {
	idempotency.Store
	alerts   func() *alert.Alerts
	overview *overview
	up       func(bool)
}

// Begin implements idempotency.Store.
func (w watched) Begin(ctx context.Context, c idempotency.Claim, now time.Time) (idempotency.Begun, error) {
	b, err := w.Store.Begin(ctx, c, now)
	w.saw(err, b.Result == idempotency.Fresh)
	return b, err
}

// Advance implements idempotency.Store.
func (w watched) Advance(ctx context.Context, id idempotency.ID, from, to idempotency.State, change idempotency.Change) (idempotency.Record, error) {
	rec, err := w.Store.Advance(ctx, id, from, to, change)
	w.saw(err, false)
	return rec, err
}

// Bury implements idempotency.Store.
func (w watched) Bury(ctx context.Context, c idempotency.Claim, ch idempotency.Change) (idempotency.Record, error) {
	rec, err := w.Store.Bury(ctx, c, ch)
	w.saw(err, err == nil)
	return rec, err
}

// saw tells how the store did; other errors are answers, too.
func (w watched) saw(err error, room bool) {
	switch {
	case errors.Is(err, context.Canceled): // nobody waited for its answer
	case errors.Is(err, idempotency.ErrFull):
		w.overview.storeFails(true, err.Error())
		w.alerts().StoreFailed("store_full", err.Error())
	case errors.Is(err, idempotency.ErrUnavailable):
		w.up(false)
		w.overview.storeFails(false, err.Error())
		w.alerts().StoreFailed("store_unavailable", err.Error())
	default:
		w.up(true)
		w.overview.storeWorks(room)
		w.alerts().StoreWorked(room)
	}
}

const (
	countEvery = time.Minute // how often expiring letters are counted
	countFor   = 5 * time.Second
)

// expiring counts the dead letters that will soon be removed. It belongs to one
// goroutine.
type expiring struct {
	going func(ctx context.Context, within time.Duration) (letters int, first time.Time, err error)
	known map[time.Duration]letterCount // by how far ahead was asked
}

type letterCount struct {
	alert.Expiring
	at time.Time
}

// within says how many go within a time. What the store cannot say now is what
// it said last.
func (e *expiring) within(ctx context.Context, ahead time.Duration, now time.Time) alert.Expiring {
	last := e.known[ahead]
	if now.Sub(last.at) < countEvery {
		return last.Expiring
	}
	next, err := e.count(ctx, ahead)
	if err != nil {
		return last.Expiring
	}
	if e.known == nil || len(e.known) > 100 { // rules come and go with reloads
		e.known = map[time.Duration]letterCount{}
	}
	e.known[ahead] = letterCount{next, now}
	return next
}

// count asks for the dead letters that go within a time.
func (e *expiring) count(ctx context.Context, ahead time.Duration) (out alert.Expiring, err error) {
	ctx, cancel := context.WithTimeout(ctx, countFor)
	defer cancel()
	out.Letters, out.First, err = e.going(ctx, ahead)
	return out, err
}
