package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"retryproxy/access"
	"retryproxy/admin"
	"retryproxy/cli"
	"retryproxy/config"
	"retryproxy/inbound"
	"retryproxy/internal/logfile"
	"retryproxy/telemetry"
)

// serveFlags are the flags of `retryproxy serve`.
type serveFlags struct {
	file, data, listen string
	routes, upgrade    list
}

// list is a flag that may be given several times.
type list []string

// String shows the values so far.
func (l *list) String() string { return strings.Join(*l, ",") }

// Set adds a value.
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

// serve runs the proxy until ctx ends, then drains.
func serve(ctx context.Context, args []string, env environment) int {
	var f serveFlags
	set := flag.NewFlagSet("serve", flag.ContinueOnError)
	set.SetOutput(env.stderr)
	set.Usage = func() { cli.CommandUsage(set) }
	set.StringVar(&f.file, "config", "", "configuration `file` (default: the embedded one)")
	set.StringVar(&f.file, "f", "", "short for -config")
	set.StringVar(&f.data, "data", "", "`directory` for what must outlive the process: keyed calls and their records, and the CA that opens tunnels (without it calls are kept in memory, and the CA in the user's configuration directory). store.kind: memory in the file gives way to it, another store does not")
	set.StringVar(&f.listen, "listen", "", "`address` of the proxy, in place of the file's")
	set.Var(&f.routes, "route", "adds a reverse route `/prefix=url` to the file's; may be repeated")
	set.Var(&f.upgrade, "upgrade", "adds a `host` that is spoken to over TLS though the client says http; may be repeated")
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if set.NArg() > 0 {
		fmt.Fprintf(env.stderr, "serve: unknown argument %q; a configuration file goes with -config\n", set.Arg(0))
		return 2
	}
	name, data, err := f.read()
	if err != nil {
		fmt.Fprintln(env.stderr, err)
		return 2
	}
	parse := func(data []byte) (*config.Config, error) { return parseConfig(name, data, &f, env.getenv) }
	cfg, err := parse(data)
	if err != nil {
		fmt.Fprintln(env.stderr, err)
		return 2
	}
	if err := mayRun(cfg); err != nil {
		fmt.Fprintln(env.stderr, err)
		return 2
	}
	err = start(ctx, cfg, f.data, env, func(a *app) {
		a.parse = parse
		if f.file != "" {
			a.keepsTo(config.File{Data: data}, f.file)
		}
		i := a.banner()
		i.Config = f.file
		i.Overruled = f.file != "" && cfg.Overruled("store.kind") // the embedded file asks for nothing
		cli.Banner(env.stdout, i)
	})
	if err != nil {
		fmt.Fprintln(env.stderr, "retryproxy:", err)
		return 1
	}
	return 0
}

// mayRun refuses to open the proxy, or its admin side, to others by accident, and
// to start where the first large body would fail.
func mayRun(cfg *config.Config) error {
	var faults []error
	for i, addr := range proxyAddrs(cfg) {
		path := "listen.proxy"
		if i > 0 {
			path = fmt.Sprintf("listeners[%d].addr", i-1)
		}
		faults = append(faults, cfg.Fault(path, access.CheckListeners([]string{addr}, clientsConfig(cfg))))
	}
	return errors.Join(append(faults,
		cfg.Fault("listen.admin", access.CheckAdmin(cfg.Listen.Admin, len(cfg.Admin.Accounts()))),
		takesFiles(cfg.Body.Dir),
		cfg.Fault("log.file", hasFolder(cfg.Log.File)),
		cfg.Fault("intercept.ca_cert", holdsCA(cfg)),
	)...)
}

// takesFiles says whether temporary files can be made in dir; empty: the system's.
func takesFiles(dir string) error {
	file, err := os.CreateTemp(dir, "retryproxy-check-*")
	if err != nil {
		return fmt.Errorf("body.dir: large bodies need a folder for temporary files: %w", err)
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// hasFolder says whether there is a folder for a file; the file is not made, which
// whoever only checks may not be meant to own. Empty: no file is wanted.
func hasFolder(file string) error {
	if file == "" {
		return nil
	}
	_, err := os.Stat(filepath.Dir(file))
	return err
}

// read gives the file, or the embedded default.
func (f *serveFlags) read() (name string, data []byte, err error) {
	if f.file == "" {
		return "config.yaml (embedded)", defaultConfig, nil
	}
	data, err = os.ReadFile(f.file)
	if err != nil {
		return "", nil, fmt.Errorf("config: %w", err)
	}
	return f.file, data, nil
}

// adjust lays the flags over the file.
func (f *serveFlags) adjust(c *config.Config) {
	if f.listen != "" {
		c.Listen.Proxy = f.listen
		c.SetByFlag("listen.proxy", "-listen")
	}
	c.KeepIn(f.data)
	for i, host := range f.upgrade {
		c.SetByFlag(fmt.Sprintf("upgrade_to_https[%d]", len(c.UpgradeToHTTPS)+i), "-upgrade "+host)
	}
	c.UpgradeToHTTPS = append(c.UpgradeToHTTPS, f.upgrade...)
	for _, text := range f.routes {
		prefix, upstream, _ := strings.Cut(text, "=")
		c.SetByFlag(fmt.Sprintf("routes[%d]", len(c.Routes)), "-route "+text)
		c.Routes = append(c.Routes, config.Route{Name: prefix, Prefix: prefix, Upstreams: []string{upstream}, StripPrefix: true})
	}
}

// start opens everything, tells ready, serves until ctx ends, and drains.
func start(ctx context.Context, cfg *config.Config, dir string, env environment, ready func(*app)) error {
	hard, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	level := new(slog.LevelVar)
	level.Set(logLevel(cfg))
	out, closeLog, err := logOutput(cfg, env.stderr)
	if err != nil {
		return err
	}
	defer closeLog()
	log := telemetry.NewLogger(out, level, cfg.Log.Format, isTerminal(out))
	a, err := newApp(hard, cfg, options{data: dir, log: log, level: level, getenv: env.getenv})
	if err != nil {
		return err
	}
	if err := a.open(); err != nil {
		return err
	}
	defer a.close()
	ready(a)
	return a.run(ctx, stop, env)
}

// logOutput is where the log goes: the file of the configuration, else stderr.
func logOutput(cfg *config.Config, stderr io.Writer) (out io.Writer, end func(), err error) {
	l := &cfg.Log
	if l.File == "" {
		return stderr, func() {}, nil
	}
	file, err := logfile.Open(logfile.Config{Name: "log.file", Mode: 0o640, Path: l.File, Max: int64(l.MaxSize), Keep: l.Keep, Spare: stderr})
	if err != nil {
		return nil, nil, cfg.Fault("log.file", err)
	}
	return file, func() { _ = file.Close() }, nil
}

func logLevel(cfg *config.Config) (level slog.Level) {
	_ = level.UnmarshalText([]byte(cfg.Log.Level)) // checked by config
	return level
}

// run serves until ctx ends or a part fails.
func (a *app) run(ctx context.Context, stop func(), env environment) error {
	// A signal meanwhile is no fault of the store: it drains as ever.
	left, err := a.proxy.Recover(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	if left > 0 {
		a.log.Info("calls that an earlier process left behind go on", "calls", left)
	}
	g, gctx := errgroup.WithContext(ctx)
	background, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g.Go(func() error { return a.proxy.Run(background) })
	g.Go(func() error { return a.proxy.Keep(background) })
	g.Go(func() error { return a.sweepPauses(background) })
	g.Go(func() error { return a.sampleWaiting(background) })
	g.Go(func() error { return a.proxy.Retain(background) })
	g.Go(func() error { return a.alerts.Run(background) })
	g.Go(func() error { return a.record(background) })
	g.Go(func() error { return a.watch(background, env.reload) })
	for _, l := range a.proxies {
		g.Go(func() error { return ignoreClosed(a.front.Serve(l.Listener, l.on)) })
	}
	for _, s := range a.admins {
		g.Go(func() error { return admin.Serve(background, s.Listener, s.handler) })
	}
	g.Go(func() error {
		<-gctx.Done()
		defer end()
		return a.drain(stop)
	})
	return g.Wait()
}

// drain ends in order: not ready, no new calls, waiting calls answered, those in
// flight to their end or cut while their clients can still be told, then
// everything else.
func (a *app) drain(stop func()) error {
	a.draining.Store(true)
	a.log.Info("shutting down", "drain", a.config().Drain.String())
	a.proxy.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), a.config().Drain)
	defer cancel()
	hurry := time.AfterFunc(a.patience(), stop)
	err := errors.Join(a.front.Shutdown(ctx), a.proxy.Wait(ctx))
	late := !hurry.Stop() || err != nil
	stop()
	a.alerts.Flush(ctx)
	err = nil
	if late {
		a.log.Warn("calls were still in flight when the time to drain was over")
		err = a.front.Close()
	}
	a.closeTracing(ctx)
	return err
}

// patience is how long attempts in flight may go on by themselves. Where calls
// outlive the process it ends a little before the drain does: their clients are
// still told that the calls go on. Elsewhere the end of the drain cuts them.
func (a *app) patience() time.Duration {
	if !a.store.Durable() {
		return math.MaxInt64
	}
	drain := a.config().Drain
	return drain - min(time.Second, drain/10)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, inbound.ErrClosed) {
		return nil
	}
	return err
}

// isTerminal says whether people read w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// watch applies changes of the file, by itself and on SIGHUP, until ctx ends.
func (a *app) watch(ctx context.Context, signal <-chan os.Signal) error {
	if a.watcher == nil {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.watcher.Run(ctx) })
	g.Go(func() error {
		for {
			select {
			case <-signal:
				_ = a.watcher.Reload(ctx) // reported
			case <-ctx.Done():
				return nil
			}
		}
	})
	return g.Wait()
}
