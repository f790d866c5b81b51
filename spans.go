package main

import (
	"context"
	"time"

	"retryproxy/cli"
	"retryproxy/config"
	"retryproxy/proxy"
	"retryproxy/tracing"
)

// openTracing makes what makes spans, where the configuration or the environment names a
// collector.
func (a *app) openTracing(cfg *config.Config) error {
	processor := a.spans
	if processor == nil {
		to := a.collector(cfg)
		if to == nil {
			return nil
		}
		var err error
		if processor, err = tracing.Open(a.life, to); err != nil {
			return err
		}
	}
	res, err := tracing.Resource(a.life, cfg.Instance, cli.VersionName(version))
	if err != nil {
		return err
	}
	a.tracer = tracing.New(res, cfg.Tracing.Sample, processor)
	return nil
}

// collector is where spans are sent; nil: nowhere.
func (a *app) collector(cfg *config.Config) *tracing.Collector {
	on, forbidden, protocol := tracing.FromEnvironment(a.getenv)
	c := &tracing.Collector{Endpoint: cfg.Tracing.Endpoint, Protocol: protocol, Headers: map[string]string{}, Log: a.log}
	if c.Endpoint != "" {
		c.Protocol = cfg.Tracing.Protocol
	}
	for name, value := range cfg.Tracing.Headers {
		c.Headers[name] = string(value)
	}
	if forbidden || !on && c.Endpoint == "" {
		return nil
	}
	return c
}

// spanMaker is the tracer, or an interface that is nil.
func (a *app) spanMaker() proxy.Tracer {
	if a.tracer == nil {
		return nil
	}
	return a.tracer
}

// How long the last spans may take at the end of a drain: what is over by then is in
// vain, and what is not must not wait for a collector that is down.
const (
	leastFlush = time.Second
	mostFlush  = 5 * time.Second
)

// closeTracing sends what is left of the spans.
func (a *app) closeTracing(ctx context.Context) {
	if a.tracer == nil {
		return
	}
	left := mostFlush
	if end, ok := ctx.Deadline(); ok {
		left = min(max(time.Until(end), leastFlush), mostFlush)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	defer cancel()
	_ = a.tracer.Close(ctx) // what was lost was told
}
