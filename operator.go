package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"retryproxy/admin"
	"retryproxy/attempt"
	"retryproxy/breaker"
	"retryproxy/cli"
	"retryproxy/config"
	"retryproxy/dashboard"
	"retryproxy/document"
	"retryproxy/egress"
	"retryproxy/idempotency"
	"retryproxy/journal"
	"retryproxy/limiter"
	"retryproxy/pause"
	"retryproxy/policy"
	"retryproxy/presets"
	"retryproxy/proxy"
)

// adminDeps are what the admin listener shows and hands on.
func (a *app) adminDeps() admin.Deps {
	return admin.Deps{
		Calls: a.proxy.Calls, Find: a.find, Words: a.words(), Records: a.recordsOf, Request: a.requestOf,
		Zone:      func() *time.Location { return a.config().Location() },
		Gates:     func() []limiter.HostView { return a.limiter.Hosts(time.Now()) },
		Shops:     a.shops.Tripped,
		Exits:     func() []breaker.ExitStatus { return a.exits.Used(time.Now()) },
		ResetExit: a.resetExit,
		Limits:    func() []limiter.BucketView { return a.limiter.Limits(time.Now()) },
		Reset:     a.resetBreaker,
		Config:    func() []byte { return a.config().Marshal() },
		Reload:    a.reloadNow,
		Retries:   a.shownSwitch, SetRetries: a.orderSwitch,
		Explain: a.explain, Verdict: a.verdict, Metrics: a.metrics.Gatherer(), Ready: a.ready,
		Observed: func() any { return a.observer.View() },
		Coverage: a.coverage,
		Report: func(policy string) (any, bool) {
			return a.report.View(policy, time.Now())
		},
		ResetReport: func(policy string) bool { return a.report.Reset(policy, time.Now()) },
		Patience:    a.hangups.Views,
		Alerts:      func() any { return a.alerts.View() },
		TestAlerts: func(ctx context.Context, rule string) (any, error) {
			return a.alerts.Test(ctx, rule)
		},
		ResetPins: func(client, host string) int { return a.pins.Forget(client, host, time.Now()) },
		Standing:  a.standing, Trend: a.trends(), Problems: a.problems,
		NewCodes: admin.NewCodes{List: a.newCodes.List, See: a.seeNewCode}, Waits: a.plannedWaits,
		Letters: a.letters(), Line: a.line(),
		Pauses: func() []pause.Pause { return a.pauses.List(time.Now()) },
		Resume: a.resumeShop,
		CA:     a.caPEM, Intercept: a.interception,
		Accounts: a.accounts, Audit: a.audit,
		Hosts: func(authority string) bool { return a.proxy.Settings().Clients.AllowedHost(authority) },
	}
}

// adminSide is what the admin listener answers: the API, and the page that is made of it.
func (a *app) adminSide() http.Handler {
	deps := a.adminDeps()
	var api http.Handler
	deps.Page = dashboard.New(dashboard.Deps{
		API:      http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { api.ServeHTTP(w, r) }),
		Instance: a.config().Instance, Log: a.log,
		Zone: func() *time.Location { return a.config().Location() },
	})
	api = admin.New(deps)
	return api
}

// accounts are those who may use the admin side, by the configuration in force.
func (a *app) accounts() []admin.Account {
	list := a.config().Admin.Accounts()
	out := make([]admin.Account, 0, len(list))
	for _, t := range list {
		role, _ := admin.ParseRole(t.Role) // checked by config
		out = append(out, admin.Account{Name: t.Name, Role: role, Token: string(t.Token)})
	}
	return out
}

// find finds calls among those in progress, the latest ones, and the history.
func (a *app) find(ctx context.Context, q journal.Query) (calls []*attempt.Summary, next string, err error) {
	now := time.Now()
	if q.State == "parked" {
		return a.listParked(ctx, q, now)
	}
	known := slices.DeleteFunc(a.proxy.Calls(), toOurselves)
	if q.State == "" && q.Result == "" {
		first := q
		first.After = ""
		parked, _, err := a.listParked(ctx, first, now)
		if err != nil {
			return nil, "", err
		}
		known = append(known, parked...)
	}
	return journal.Look(ctx, a.store.history, q, known, now)
}

// listParked lists the calls that are parked, those that were parked last first, with
// their attempts so far. A reason is why they are parked, an id that of their receipt.
func (a *app) listParked(ctx context.Context, q journal.Query, now time.Time) (calls []*attempt.Summary, next string, err error) {
	found, next, err := a.store.List(ctx, idempotency.Query{
		States: []idempotency.State{idempotency.StateParked}, Receipt: q.CallID, KeyHash: q.KeyHash,
		Shop: q.Shop, Host: q.Host, TaskType: q.TaskType, Reason: q.Reason, Words: q.Words, After: q.After, Limit: q.Most(),
	})
	if errors.Is(err, idempotency.ErrCursor) {
		err = fmt.Errorf("%w: %w", journal.ErrCursor, err)
	}
	if err != nil {
		return nil, "", err
	}
	for i := range found {
		if c := parkedCall(&found[i], now); q.Wants(c, now) {
			calls = append(calls, c)
		}
	}
	return calls, next, nil
}

// parkedCall is a parked record as the call that it is: its last run.
func parkedCall(rec *idempotency.Record, now time.Time) *attempt.Summary {
	run := idempotency.Run{CallID: rec.Owner, Started: rec.Created, First: 1}
	if n := len(rec.Runs); n > 0 {
		run = rec.Runs[n-1]
	}
	c := &attempt.Summary{
		ID: run.CallID, Policy: rec.Policy, Labels: rec.Labels, Method: rec.Method, Host: rec.Host, Path: rec.Path,
		KeyHash: idempotency.KeyHash(rec.Key), Record: attempt.RecordID(rec.ID), ClientID: run.ClientID, Terms: rec.Terms,
		State: rec.State.String(), Reason: rec.Reason, Executed: rec.Executed, NextAt: rec.NextAt,
		Started: run.Started, Duration: now.Sub(run.Started), Previous: run.First - 1,
	}
	if run.Kind != idempotency.ByClient {
		c.Origin = string(run.Kind)
	}
	for _, a := range rec.History {
		if a.N >= run.First {
			c.Attempts = append(c.Attempts, a)
		}
	}
	return c
}

// words gives what a text is looked for by; nil: nobody can look.
func (a *app) words() func(text string) [][]uint64 {
	if a.history == nil {
		return nil
	}
	return a.salts.Words
}

// mostTold is how many calls of a key are looked at for their records.
const mostTold = 200

// recordsOf are the records that the latest calls with a key of this hash have, one
// for each tenant.
func (a *app) recordsOf(ctx context.Context, keyHash string) (found []idempotency.Record, err error) {
	calls, _, err := a.find(ctx, journal.Query{KeyHash: keyHash, Limit: mostTold})
	if err != nil {
		return nil, err
	}
	seen := map[attempt.RecordID]bool{{}: true}
	for _, c := range calls {
		if seen[c.Record] {
			continue
		}
		seen[c.Record] = true
		rec, err := a.store.Get(ctx, idempotency.ID(c.Record), time.Now())
		switch {
		case err == nil:
			found = append(found, rec)
		case !errors.Is(err, idempotency.ErrNotFound):
			return nil, err
		}
	}
	return found, nil
}

// requestOf is the request of a record; nil: it is not kept.
func (a *app) requestOf(ctx context.Context, id idempotency.ID) (*idempotency.Request, error) {
	request, err := a.store.Load(ctx, id)
	if errors.Is(err, idempotency.ErrNotFound) {
		return nil, nil
	}
	return request, err
}

// resetBreaker closes a breaker by hand; false: there is none of that name.
func (a *app) resetBreaker(shop, host string) bool {
	now := time.Now()
	if shop == "" {
		return a.limiter.ResetBreaker(host, now)
	}
	e := a.shops.Reset(shop, host, now)
	if e != nil {
		a.breakerEvent(*e)
	}
	return e != nil
}

// caPEM is the certificate that clients have to trust; nil: no tunnel is opened.
func (a *app) caPEM() []byte {
	if i := a.proxy.Settings().Intercept; i != nil {
		return i.CA.PEM()
	}
	return nil
}

// interception shows what is opened, and who refuses it.
func (a *app) interception() admin.Interception {
	i := a.proxy.Settings().Intercept
	if i == nil {
		return admin.Interception{}
	}
	return admin.Interception{
		Hosts: a.config().Intercept.Hosts, Fingerprint: i.CA.Fingerprint(), Expires: i.CA.NotAfter(),
		Passed: a.pins.List(time.Now()),
	}
}

func (a *app) resetExit(name string) bool {
	e := a.exits.Reset(name, time.Now())
	if e != nil {
		a.breakerEvent(*e)
	}
	return e != nil
}

// errNoFile: there is nothing to read again.
var errNoFile = errors.New("the proxy runs on the embedded default; start it with -config to reload a file")

func (a *app) reloadNow() error {
	if a.watcher == nil {
		return errNoFile
	}
	return a.watcher.Reload(a.life)
}

func (a *app) shownSwitch() admin.Switch {
	sw := a.proxy.Retries()
	out := admin.Switch{Default: sw.Default}
	for _, s := range sw.Scopes {
		out.Scopes = append(out.Scopes, admin.Scope(s))
	}
	return out
}

func (a *app) orderSwitch(s admin.Switch) error {
	scopes := make([]proxy.Scope, 0, len(s.Scopes))
	for _, o := range s.Scopes {
		scopes = append(scopes, proxy.Scope(o))
	}
	sw, err := proxy.NewSwitch(s.Default, scopes, a.config().Location())
	if err != nil {
		return err
	}
	a.proxy.SetSwitch(sw)
	rules := make([]string, len(s.Scopes))
	for i, scope := range s.Scopes {
		rules[i] = scope.String()
	}
	a.log.Warn("the retry switch was turned by an operator", "default", s.Default, "scopes", strings.Join(rules, "; "))
	return nil
}

// explain answers as if the question came from this machine.
func (a *app) explain(q admin.Question) (any, error) {
	return proxy.Explain(a.proxy.Settings(), a.proxy.Retries(), proxy.ExplainRequest{
		Method: q.Method, URL: q.URL, Fields: q.Fields, Body: q.Body, Rates: rates(a.config()),
		Durable: a.store.Durable(), Patience: a.hangups.Of,
	}, time.Now())
}

// verdict says what an answer of a platform means by the rules in force.
func (a *app) verdict(q admin.Answer) (any, error) {
	s, cfg := a.proxy.Settings(), a.config()
	p := s.Presets.Named(q.Platform)
	if p == nil {
		return nil, fmt.Errorf("platform: there is no preset %q; retryproxy preset ls lists them", q.Platform)
	}
	now := time.Now()
	facts := p.FactsOf(q.Operation, &document.Request{Method: q.Method})
	pol := s.Policies.Match(&policy.Attrs{
		Method: q.Method, Operation: q.Operation, Host: q.Host, Shop: q.Shop, ShopTier: s.Shops[q.Shop].Tier, TaskType: q.TaskType,
	}, now)
	answer := presets.Response{Status: q.Status, Fields: q.Fields, Head: q.Body, Whole: true}
	return p.Judge(pol, &facts, q.Method, &answer, int(cfg.Body.InspectMax), now), nil
}

// explainOffline answers by a configuration that does not run. It opens nothing.
func explainOffline(cfg *config.Config, q cli.Question) (any, error) {
	table, err := egress.NewTable(egressConfig(cfg))
	if err != nil {
		return nil, err
	}
	settings, err := buildSettings(cfg, ways{egress: table}, addresses{}, nil)
	if err != nil {
		return nil, err
	}
	sw, err := buildSwitch(cfg)
	if err != nil {
		return nil, err
	}
	return proxy.Explain(settings, sw, proxy.ExplainRequest{
		Method: q.Method, URL: q.URL, Fields: q.Fields, Body: q.Body, Rates: rates(cfg),
		Durable: cfg.Store.Kind != "memory",
	}, time.Now())
}

// rates are the retry limits as written.
func rates(cfg *config.Config) map[string]string {
	l := &cfg.RetryLimits
	return map[string]string{"global": l.Global.Text(), "task_type": l.TaskType.Text(), "shop": l.Shop.Text()}
}

// ready says whether new calls are taken.
func (a *app) ready() (bool, string) {
	if a.draining.Load() {
		return false, "shutting down"
	}
	return true, ""
}
