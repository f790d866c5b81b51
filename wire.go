package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"

	"retryproxy/admin"
	"retryproxy/alert"
	"retryproxy/attempt"
	"retryproxy/audit"
	"retryproxy/breaker"
	"retryproxy/cli"
	"retryproxy/config"
	"retryproxy/doctor"
	"retryproxy/idempotency"
	"retryproxy/inbound"
	"retryproxy/intercept"
	"retryproxy/internal/spool"
	"retryproxy/journal"
	"retryproxy/limiter"
	"retryproxy/newcode"
	"retryproxy/patience"
	"retryproxy/pause"
	"retryproxy/proxy"
	"retryproxy/report"
	"retryproxy/telemetry"
	"retryproxy/tracing"
	"retryproxy/trend"
	"retryproxy/upstream"
)

const (
	keptAnswer    = 8 << 10 // bytes of a waiting call's last answer in memory
	clientIdle    = 2 * time.Minute
	upstreamIdle  = 60 * time.Second
	idlePerHost   = 256
	idleTotal     = 2048
	responseBytes = 256 << 10 // of an upstream's header
	hostLabels    = 20        // hosts beyond the configured ones that get a metric label
)

// options are what tests replace: the network, and where data is kept.
type options struct {
	data    string // directory; empty: the user's own
	log     *slog.Logger
	level   *slog.LevelVar
	listen  func(addr string) (net.Listener, error)
	dial    func(ctx context.Context, addr netip.AddrPort) (net.Conn, error)
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	getenv  func(string) string
	spans   trace.SpanProcessor // gets the spans; nil: what the configuration names
}

// complete fills in what a plain process has.
func (o options) complete() options {
	if o.listen == nil {
		o.listen = listenTCP
	}
	if o.level == nil {
		o.level = new(slog.LevelVar)
	}
	if o.getenv == nil {
		o.getenv = func(string) string { return "" }
	}
	return o
}

// app is everything that runs, wired from one configuration.
type app struct {
	options
	parse func(data []byte) (*config.Config, error) // for reloads, flags included
	life  context.Context                           // ends with the process

	cfg      atomic.Pointer[config.Config]
	watcher  *config.Watcher
	file     string // of the configuration; empty: the embedded one
	draining atomic.Bool
	limits   limits // changed by reloads, and as the fleet's store comes and goes
	ways     ways   // changed by reloads only, one at a time

	metrics  *telemetry.Metrics
	audit    *audit.Log
	observer *doctor.Observer // what clients do, for the doctor
	alerts   *alert.Alerts
	report   *report.Report // how policies and their variants do
	overview overview       // how all of it stands
	newCodes *newcode.Board // what no preset knows
	hangups  *patience.Patience
	store    recordStore
	salts    journal.Salts
	history  *journal.Recorder // nil: the store keeps none
	bodies   *spool.Pool
	shops    *breaker.Shops
	exits    *breaker.Exits
	pauses   *pause.Board
	pins     *intercept.Pins
	tracer   *tracing.Tracer // nil: no spans are made
	limiter  *limiter.Limiter
	up       *upstream.Client
	proxy    *proxy.Proxy
	front    *inbound.Server

	proxies []proxyListener
	admins  []adminListener
}

type proxyListener struct {
	net.Listener
	on *inbound.Listener
}

type adminListener struct {
	net.Listener
	asked   string // the address as configured: its port may be 0
	handler http.Handler
}

func (a *app) config() *config.Config { return a.cfg.Load() }

// newApp builds all parts; nothing listens yet. hard ends all attempts at once.
func newApp(hard context.Context, cfg *config.Config, o options) (*app, error) {
	a := &app{options: o.complete(), life: hard}
	a.cfg.Store(cfg)
	w, err := ways{}.next(cfg, a.data)
	if err != nil {
		return nil, err
	}
	a.ways = w
	settings, err := buildSettings(cfg, w, addresses{}, a.mislabelled)
	if err != nil {
		return nil, err
	}
	a.metrics = telemetry.New(telemetry.Config{Version: cli.VersionName(version), Hosts: configuredHosts(cfg), HostLimit: hostLabels})
	if err = a.openStore(hard, cfg); err != nil {
		return nil, err
	}
	a.keepHistory()
	a.shops = breaker.NewShops(shopConfig(cfg))
	a.exits = breaker.NewExits(cfg.Limiter().Breaker)
	a.pauses = pause.New(mostPauses, a.pauseEvent)
	a.pins = intercept.NewPins()
	a.observer = doctor.NewObserver()
	a.hangups = patience.New()
	a.newCodes = newcode.New()
	a.report = report.New(reportGroups(settings.Policies), time.Now())
	a.limiter = limiter.New(cfg.Limiter(), a.breakerEvent)
	a.alerts = a.newAlerts(cfg)
	a.bodies = spool.New(spoolConfig(cfg))
	a.up = upstream.New(upstream.Config{
		Resolve: a.resolve, Dial: a.dial, Guard: a.guard, GuardName: a.guardName, TLS: &tls.Config{RootCAs: cfg.TLS.Roots()},
		IdlePerHost: idlePerHost, IdleTotal: idleTotal, IdleTimeout: upstreamIdle, HeaderBytes: responseBytes,
	})
	a.front = a.server()
	if err := a.openTracing(cfg); err != nil {
		return nil, err
	}
	a.proxy = proxy.New(hard, proxy.Deps{
		Upstream: a.up, Limiter: a.limiter, Shops: a.shops, Exits: a.exits, Rates: limiter.NewRates(), Pauses: a.pauses, Pins: a.pins, Store: a.store, Tokens: a.store.tokens(), LookEvery: a.store.lookEvery(),
		Flights: idempotency.NewFlights(cfg.Idempotency.Entries),
		Spool:   a.bodies, Answers: a.bodies.Sharing(keptAnswer),
		Inside: func(c net.Conn, from *inbound.Call, t *inbound.Tunnel) {
			a.front.ServeInside(c, from.Listener, from.Client, t)
		},
		Words: a.salts.Words, Terms: a.terms(), Tracer: a.spanMaker(), Hooks: a.hooks(), Log: a.log,
	}, settings)
	if a.limits.cfg = cfg.Limiter(); a.store.fleet != nil {
		a.store.fleet.OnHealth(a.alone)
	}
	a.front.Handler = a.proxy.Serve
	a.front.Configure(clientLimits(cfg))
	a.metrics.Watch(a.sources())
	a.metrics.Reload(true, time.Now()) // the first configuration is in force, too
	return a, a.setSwitch(cfg)
}

// openStore opens what is kept: calls, and what operators do.
func (a *app) openStore(ctx context.Context, cfg *config.Config) (err error) {
	if a.store, err = openStore(ctx, cfg, a.log); err != nil {
		return err
	}
	if a.audit, err = openAudit(cfg, a.log); err != nil {
		return errors.Join(err, a.store.Close())
	}
	a.overview.started, a.overview.trend = time.Now(), trend.New()
	a.store.Store = watched{a.store.Store, func() *alert.Alerts { return a.alerts }, &a.overview, a.metrics.StoreUp}
	return nil
}

// open listens on every address of the configuration, or on none.
func (a *app) open() (err error) {
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	cfg := a.config()
	proxies := append([]config.Listener{{Addr: cfg.Listen.Proxy}}, cfg.Listeners...)
	for _, p := range proxies {
		l, err := a.listen(p.Addr)
		if err != nil {
			return err
		}
		labels := attempt.Labels{Shop: p.Shop, ShopTier: p.ShopTier, TaskType: p.TaskType}
		a.proxies = append(a.proxies, proxyListener{l, &inbound.Listener{Addr: l.Addr().String(), Labels: labels}})
	}
	for addr, handler := range map[string]http.Handler{
		cfg.Listen.Admin: a.adminSide(), cfg.Listen.Health: admin.Health(a.adminDeps()),
	} {
		if addr == "" {
			continue
		}
		l, err := a.listen(addr)
		if err != nil {
			return err
		}
		a.admins = append(a.admins, adminListener{l, addr, handler})
	}
	settings, err := buildSettings(cfg, a.ways, a.own(), a.mislabelled)
	if err == nil {
		a.proxy.Apply(settings) // now with the real ports, so that loops are seen
	}
	return err
}

// listenTCP takes an IPv4 address at its word: 0.0.0.0 is not :: as well.
func listenTCP(addr string) (net.Listener, error) {
	network := "tcp"
	if at, err := netip.ParseAddrPort(addr); err == nil && at.Addr().Is4() {
		network = "tcp4"
	}
	return net.Listen(network, addr)
}

// mislabelled counts a user name whose labels cannot be read.
func (a *app) mislabelled() { a.metrics.Ignored("user_name") }

// own are the addresses we listen on.
func (a *app) own() (own addresses) {
	for _, l := range a.proxies {
		own.proxies = append(own.proxies, addressOf(l))
	}
	for _, l := range a.admins {
		own.others = append(own.others, addressOf(l))
	}
	return own
}

func addressOf(l net.Listener) netip.AddrPort {
	at, _ := netip.ParseAddrPort(l.Addr().String()) // TCP: it is one
	return at
}

// listensFor is the address that is listened on for a configured one; empty: none.
func (a *app) listensFor(asked string) string {
	for _, l := range a.admins {
		if l.asked == asked {
			return l.Addr().String()
		}
	}
	return ""
}

// banner tells a person what runs where.
func (a *app) banner() cli.Info {
	cfg := a.config()
	i := cli.Info{
		Version: cli.VersionName(version), Proxy: a.proxies[0].Addr().String(), Admin: a.listensFor(cfg.Listen.Admin), Health: a.listensFor(cfg.Listen.Health),
		Upgrade: cfg.UpgradeToHTTPS, Users: len(cfg.Clients.Users) > 0, Memory: !a.store.Durable(), Store: cfg.Store.Place(), Log: cfg.Log.File, Warnings: cfg.Warnings(),
	}
	for _, l := range a.proxies[1:] {
		i.Extra = append(i.Extra, l.on.Addr+" ("+strings.Trim(l.on.Labels.Shop+" "+l.on.Labels.TaskType, " ")+")")
	}
	if a.ways.ca != nil {
		i.Opened, i.CA = cfg.Intercept.Hosts, a.ways.files.Cert
	}
	for j := range cfg.Egress {
		i.Egress = append(i.Egress, egressLine(&cfg.Egress[j]))
	}
	for _, r := range cfg.Routes {
		i.Routes = append(i.Routes, cli.Route{Host: r.Host, Prefix: r.Prefix, To: strings.Join(r.Upstreams, ", ")})
	}
	return i
}

// server is the client side.
func (a *app) server() *inbound.Server {
	return &inbound.Server{
		Allow:    func(addr netip.Addr) bool { return a.proxy.Settings().Clients.Allows(addr) },
		ErrorLog: func(msg string, args ...any) { a.log.Warn("client side: "+msg, args...) }, //nolint:sloglint // the text is a constant of inbound
	}
}

// guard judges an address on the rules in force, just before it is dialled.
func (a *app) guard(addr netip.AddrPort, exempt bool) error {
	return loopOr(a.proxy.Settings().Guard.Check(addr, exempt))
}

// guardName judges a name that an egress proxy looks up.
func (a *app) guardName(host string, port uint16, exempt bool) error {
	return loopOr(a.proxy.Settings().Guard.CheckName(host, port, exempt))
}

// hooks feed log and metrics.
func (a *app) hooks() proxy.Hooks {
	m := a.metrics
	return proxy.Hooks{
		Attempt: func(policy string, t *attempt.Attempt) {
			m.Attempt(policy, t)
			a.overview.countAttempt(t)
		},
		NewCode: func(c *newcode.Answer) {
			m.NewCode(c.Platform)
			a.newCodes.Note(c)
		},
		Lost: a.overview.loses, Denied: m.Denied, Ignored: m.Ignored, Key: m.Idempotency,
		DeadLetter: func(s *attempt.Summary) {
			m.DeadLetter(s.Reason)
			a.alertDeadLetter(s)
		},
		Tunnel: m.Tunnel, PassThrough: m.PassThrough, Moved: m.EgressMoved, Suspect: m.Suspect, Query: m.Query, Failover: m.Failover, Breaker: func(e *breaker.Event) { a.breakerEvent(*e) }, KeyOnly: m.KeyOnlyRepeat, RetryDenied: m.RetryDenied, Shed: m.Shed,
		Handled: a.report.Count,
		Call: func(s *attempt.Summary) {
			m.Call(s)
			a.givesUp(s)
			a.hangsUp(s)
			a.observer.Call(s)
			a.overview.countCall(s)
			a.alertStop(s)
			telemetry.LogCall(a.log, s)
			a.note(s)
		},
	}
}

// sources are what the metrics ask at each scrape.
func (a *app) sources() telemetry.Sources {
	return telemetry.Sources{
		Records: a.store.Stats, HistoryDropped: a.dropped(),
		Waiting: a.proxy.Waiting,
		Short:   func() map[string]int { return a.limiter.Short(time.Now()) },
		Gates:   func() []limiter.HostView { return a.limiter.Hosts(time.Now()) },
		Breakers: func() []telemetry.Breaker {
			var out []telemetry.Breaker
			for _, s := range a.shops.Tripped() {
				out = append(out, telemetry.Breaker{Scope: "shop", Host: s.Host, State: breaker.Open})
			}
			for _, e := range a.exits.Used(time.Now()) {
				rule, _, _ := strings.Cut(e.Name, " ")
				out = append(out, telemetry.Breaker{Scope: "egress", Host: rule, State: e.State})
			}
			return out
		},
	}
}

// close gives back what newApp built.
func (a *app) close() {
	for _, l := range a.proxies {
		_ = l.Close()
	}
	for _, l := range a.admins {
		_ = l.Close()
	}
	_ = a.front.Close()
	a.up.Close()
	a.flushHistory()
	_ = a.store.Close()
	_ = a.audit.Close()
}
