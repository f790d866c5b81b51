package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"retryproxy/config"
	"retryproxy/idempotency"
	"retryproxy/store/memory"
	"retryproxy/store/redis"
	"retryproxy/store/sqlite"
)

// recordStore is a store whose bounds a reload can change.
type recordStore struct {
	idempotency.Store
	bound func(cfg *config.Config, now time.Time)
}

// openStore opens the store of the configuration.
func openStore(ctx context.Context, cfg *config.Config, log *slog.Logger) (recordStore, error) {
	switch cfg.Store.Kind {
	case "redis":
		return openRedis(ctx, cfg, log)
	case "memory":
		s := memory.New(memoryConfig(cfg))
		return recordStore{s, func(cfg *config.Config, now time.Time) { s.Configure(memoryConfig(cfg), now) }}, nil
	}
	c := sqliteConfig(cfg)
	c.Log = func(msg string, args ...any) { log.Warn("store: "+msg, args...) } //nolint:sloglint // the text is a constant of the store
	s, err := sqlite.Open(ctx, c)
	if err != nil {
		return recordStore{}, err
	}
	return recordStore{s, func(cfg *config.Config, now time.Time) { s.Configure(sqliteConfig(cfg), now) }}, nil
}

// openRedis opens the store that a fleet shares.
func openRedis(ctx context.Context, cfg *config.Config, log *slog.Logger) (recordStore, error) {
	c := redisConfig(cfg)
	c.Log = func(msg string, args ...any) { log.Warn("store: "+msg, args...) } //nolint:sloglint // the text is a constant of the store
	s, err := redis.Open(ctx, c)
	if err != nil {
		return recordStore{}, err
	}
	return recordStore{s, func(cfg *config.Config, now time.Time) { s.Configure(redisConfig(cfg), now) }}, nil
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
	}
}

func sqliteConfig(cfg *config.Config) sqlite.Config {
	i := &cfg.Idempotency
	return sqlite.Config{
		Path: cfg.Store.Path, Durability: cfg.Store.Durability,
		Entries: i.Entries, Bytes: int64(i.Bytes), MaxResponse: int(i.MaxResponse), TTL: i.TTL,
	}
}
