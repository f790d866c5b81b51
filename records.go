package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"retryproxy/audit"
	"retryproxy/config"
	"retryproxy/idempotency"
	"retryproxy/journal"
	"retryproxy/store/memory"
	"retryproxy/store/redis"
	"retryproxy/store/sqlite"
)

// recordStore is a store whose bounds a reload can change.
type recordStore struct {
	idempotency.Store
	bound   func(cfg *config.Config, now time.Time)
	history journal.Journal // of calls that ended; nil: the store keeps none
	fleet   *redis.Store    // nil: this process shares it with nobody
}

// openStore opens the store of the configuration.
func openStore(ctx context.Context, cfg *config.Config, log *slog.Logger) (recordStore, error) {
	switch cfg.Store.Kind {
	case "redis":
		return openRedis(ctx, cfg, log)
	case "memory":
		s := memory.New(memoryConfig(cfg))
		return recordStore{Store: s, bound: func(cfg *config.Config, now time.Time) { s.Configure(memoryConfig(cfg), now) }}, nil
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
	return recordStore{Store: s, bound: func(cfg *config.Config, now time.Time) { s.Configure(sqliteConfig(cfg), now) }, history: s}, nil
}

// openAudit opens the log of what operators do. It lies beside the calls, where they are
// kept in files.
func openAudit(cfg *config.Config, log *slog.Logger) (*audit.Log, error) {
	path := ""
	if cfg.Store.Kind == "sqlite" {
		path = filepath.Join(cfg.Store.Path, "audit.jsonl")
	}
	return audit.Open(path, log)
}

func memoryConfig(cfg *config.Config) memory.Config {
	i := &cfg.Idempotency
	return memory.Config{Entries: i.Entries, Bytes: int64(i.Bytes), MaxResponse: int(i.MaxResponse), TTL: i.TTL}
}

func sqliteConfig(cfg *config.Config) sqlite.Config {
	i := &cfg.Idempotency
	return sqlite.Config{
		Path: cfg.Store.Path, Durability: cfg.Store.Durability,
		Entries: i.Entries, Bytes: int64(i.Bytes), MaxResponse: int(i.MaxResponse), TTL: i.TTL,
		Keep: cfg.History.Keep, Calls: cfg.History.Calls, Keys: cfg.Store.Keys(),
	}
}

// reseal seals all of the store in a directory by the first key.
func reseal(cfg *config.Config, dir string) (rows int, err error) {
	c := sqliteConfig(cfg)
	c.Path = dir
	return sqlite.Reseal(context.Background(), c)
}
