package main

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"reflect"
	"time"

	"retryproxy/config"
	"retryproxy/presets"
	"retryproxy/proxy"
)

// parseConfig reads a configuration and lays the flags over it.
func parseConfig(name string, data []byte, f *serveFlags, getenv func(string) string) (*config.Config, error) {
	return config.Parse(name, data, config.Options{Getenv: getenv, Adjust: f.adjust})
}

// keepsTo keeps what runs in line with a file, and with the presets in the folder that
// the configuration in force names.
func (a *app) keepsTo(running config.File, file string) {
	beside := func() [sha256.Size]byte { return presets.Digest(a.config().Presets.Dir) }
	running.Beside = beside()
	read := func() (config.File, error) {
		f, err := config.ReadFile(file)
		f.Beside = beside()
		return f, err
	}
	a.file = file
	a.watcher = config.NewWatcher(running, read, a.apply)
	a.watcher.Report = a.reported
}

// apply builds what a changed file says and swaps it in, or fails and changes
// nothing. Buckets, breakers, records and waiting calls survive.
func (a *app) apply(data []byte) error {
	next, err := a.parse(data)
	if err != nil {
		return err
	}
	if err := a.config().CheckReload(next); err != nil {
		return err
	}
	if err := mayRun(next); err != nil {
		return err
	}
	w, err := a.ways.next(next, a.data)
	if err != nil {
		return err
	}
	settings, err := buildSettings(next, w, a.own(), a.mislabelled)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(a.config().Retries, next.Retries) { // else an operator's order stays
		if err := a.setSwitch(next); err != nil {
			return err
		}
	}
	now := time.Now()
	a.limit(next, now)
	a.shops.Configure(shopConfig(next))
	a.exits.Configure(next.Limiter().Breaker, now)
	a.metrics.Hosts(configuredHosts(next))
	a.level.Set(logLevel(next))
	a.bodies.Configure(spoolConfig(next))
	a.store.bound(next, now)
	a.front.Configure(clientLimits(next))
	a.up.SetTLS(&tls.Config{RootCAs: next.TLS.Roots()})
	a.alerts.Configure(alertConfig(next))
	a.report.Configure(reportGroups(settings.Policies), now) // before the first call by them ends
	a.proxy.Apply(settings)
	if !reflect.DeepEqual(reach(a.config()), reach(next)) {
		a.up.CloseIdle() // connections are judged by the rules under which they were made
	}
	a.ways = w
	a.pins.Forget("", "", now) // whoever mended its trust may try again
	a.cfg.Store(next)
	return nil
}

// reach are the parts of a configuration that say which connections may be made.
func reach(cfg *config.Config) []any {
	return []any{cfg.Destinations, cfg.TLS, cfg.Routes, cfg.Egress}
}

// reported tells log and metrics what a reload did.
func (a *app) reported(err error) {
	a.metrics.Reload(err == nil, time.Now())
	a.observer.Reloaded(err)
	a.overview.reloaded(err)
	if err != nil {
		a.log.Error("the changed configuration is not used; the old one stays in force", "error", err.Error())
		return
	}
	a.log.Info("configuration reloaded")
}

// setSwitch puts the file's switch into force.
func (a *app) setSwitch(cfg *config.Config) error {
	sw, err := buildSwitch(cfg)
	if err == nil {
		a.proxy.SetSwitch(sw)
	}
	return err
}

func buildSwitch(cfg *config.Config) (*proxy.Switch, error) {
	scopes := make([]proxy.Scope, 0, len(cfg.Retries.Scopes))
	for _, s := range cfg.Retries.Scopes {
		scopes = append(scopes, proxy.Scope{Match: s.Match.Policy(), Value: s.Value, Until: s.Until})
	}
	sw, err := proxy.NewSwitch(cfg.Retries.Default, scopes, cfg.Location())
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return sw, nil
}
