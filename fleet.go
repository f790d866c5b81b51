package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync"
	"time"

	"retryproxy/config"
	"retryproxy/limiter"
	"retryproxy/proxy"
	"retryproxy/store/redis"
)

// openRedis opens the store that a fleet shares.
func openRedis(ctx context.Context, cfg *config.Config, log *slog.Logger) (recordStore, error) {
	c := redisConfig(cfg)
	c.Log = func(msg string, args ...any) { log.Warn("store: "+msg, args...) } //nolint:sloglint // the text is a constant of the store
	if c.Keys == nil {
		log.Warn("store: what bots send is kept in the clear, credentials included; store.key seals it", "at", cfg.Store.Place())
	}
	s, err := redis.Open(ctx, c)
	if err != nil {
		return recordStore{}, err
	}
	return recordStore{Store: s, bound: func(cfg *config.Config, now time.Time) { s.Configure(redisConfig(cfg), now) }, history: s, fleet: s}, nil
}

// tokens are the retry tokens of a fleet; nil: there is none.
func (s *recordStore) tokens() proxy.Tokens {
	if s.fleet == nil {
		return nil
	}
	return s.fleet
}

// lookEvery is how soon calls of a replica that is gone are noticed.
func (s *recordStore) lookEvery() time.Duration {
	if s.fleet == nil {
		return 0
	}
	return time.Second
}

// limits are what the limiter goes by: the configuration, and into how many parts
// it is divided.
type limits struct {
	mu    sync.Mutex
	cfg   limiter.Config
	parts int
}

// limit has the limiter go by a configuration.
func (a *app) limit(cfg *config.Config, now time.Time) {
	a.limits.mu.Lock()
	defer a.limits.mu.Unlock()
	a.limits.cfg = cfg.Limiter()
	a.relimit(now)
}

// alone has the limiter go by this process's part of the limits while the fleet's
// tokens cannot be asked for.
func (a *app) alone(up bool) {
	a.limits.mu.Lock()
	defer a.limits.mu.Unlock()
	a.limits.parts = 1
	a.metrics.StoreUp(up)
	if a.overview.storeWorks(false); !up {
		a.overview.storeFails(false, "Redis cannot be reached")
		a.limits.parts = a.store.fleet.Replicas()
	}
	a.relimit(time.Now())
}

// relimit is under limits.mu.
func (a *app) relimit(now time.Time) {
	c := a.limits.cfg
	c.Buckets = c.Buckets.Of(a.limits.parts)
	a.limiter.Configure(c, now)
}

// mostShared is how many past calls Redis keeps where the configuration has the
// default: there they are in memory.
const mostShared = 100_000

func redisConfig(cfg *config.Config) redis.Config {
	i, calls := &cfg.Idempotency, cfg.History.Calls
	if calls == config.Default().History.Calls {
		calls = mostShared
	}
	return redis.Config{
		URL: string(cfg.Store.URL), TLS: &tls.Config{RootCAs: cfg.TLS.Roots()}, Instance: cfg.Instance,
		Entries: i.Entries, Bytes: int64(i.Bytes), MaxResponse: int(i.MaxResponse), TTL: i.TTL,
		Keep: cfg.History.Keep, Calls: calls, Keys: cfg.Store.Keys(),
	}
}
