package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync"
	"time"

	"retryproxy/config"
	"retryproxy/idempotency"
	"retryproxy/limiter"
	"retryproxy/proxy"
	"retryproxy/store/memory"
	"retryproxy/store/redis"
	"retryproxy/store/sqlite"
)

// recordStore is a store whose bounds a reload can change.
type recordStore struct {
	idempotency.Store
	bound func(cfg *config.Config, now time.Time)
	fleet *redis.Store // nil: this process shares it with nobody
}

// openStore opens the store of the configuration.
func openStore(ctx context.Context, cfg *config.Config, log *slog.Logger) (recordStore, error) {
	switch cfg.Store.Kind {
	case "redis":
		return openRedis(ctx, cfg, log)
	case "memory":
		s := memory.New(memoryConfig(cfg))
		return recordStore{s, func(cfg *config.Config, now time.Time) { s.Configure(memoryConfig(cfg), now) }, nil}, nil
	}
	c := sqliteConfig(cfg)
	c.Log = func(msg string, args ...any) { log.Warn("store: "+msg, args...) } //nolint:sloglint // the text is a constant of the store
	if c.Keys == nil {
		log.Warn("store: what bots send is kept in the clear, credentials included; store.key seals it", "path", c.Path)
	}
	s, err := sqlite.Open(ctx, c)
	if err != nil {
		return recordStore{}, err
	}
	return recordStore{s, func(cfg *config.Config, now time.Time) { s.Configure(sqliteConfig(cfg), now) }, nil}, nil
}

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
	return recordStore{s, func(cfg *config.Config, now time.Time) { s.Configure(redisConfig(cfg), now) }, s}, nil
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
	if !up {
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

func memoryConfig(cfg *config.Config) memory.Config {
	i := &cfg.Idempotency
	return memory.Config{Entries: i.Entries, Bytes: int64(i.Bytes), MaxResponse: int(i.MaxResponse), TTL: i.TTL}
}

func redisConfig(cfg *config.Config) redis.Config {
	i := &cfg.Idempotency
	return redis.Config{
		URL: string(cfg.Store.URL), TLS: &tls.Config{RootCAs: cfg.TLS.Roots()}, Instance: cfg.Instance,
		Entries: i.Entries, Bytes: int64(i.Bytes), MaxResponse: int(i.MaxResponse), TTL: i.TTL,
		Keys: cfg.Store.Keys(),
	}
}

func sqliteConfig(cfg *config.Config) sqlite.Config {
	i := &cfg.Idempotency
	return sqlite.Config{
		Path: cfg.Store.Path, Durability: cfg.Store.Durability,
		Entries: i.Entries, Bytes: int64(i.Bytes), MaxResponse: int(i.MaxResponse), TTL: i.TTL,
		Keep: cfg.History.Keep, Keys: cfg.Store.Keys(),
	}
}

// reseal seals all of the store in a directory by the first key.
func reseal(cfg *config.Config, dir string) (rows int, err error) {
	c := sqliteConfig(cfg)
	c.Path = dir
	return sqlite.Reseal(context.Background(), c)
}
