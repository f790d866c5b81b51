package redis

import (
	"context"
	"crypto/tls"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"retryproxy/idempotency"
)

// How long is waited for Redis. A change is tried twice at most; from lateAfter on
// the script itself refuses what was sent too long ago.
const (
	dialPatience = time.Second
	patience     = 2 * time.Second
	tries        = 2
	lateAfter    = 8 * time.Second
	connections  = 128
)

// The scripts.
var (
	//go:embed lua/lib.lua
	libText string
	//go:embed lua/put.lua
	putText string
	//go:embed lua/get.lua
	getText string
	//go:embed lua/held.lua
	heldText string
	//go:embed lua/due.lua
	dueText string
	//go:embed lua/goes.lua
	goesText string
	//go:embed lua/page.lua
	pageText string
	//go:embed lua/sweep.lua
	sweepText string
	//go:embed lua/lease.lua
	leaseText string
	//go:embed lua/release.lua
	releaseText string
	//go:embed lua/letgo.lua
	letGoText string
	//go:embed lua/tokens.lua
	tokensText string
	//go:embed lua/note.lua
	noteText string
	//go:embed lua/calls.lua
	callsText string
	//go:embed lua/stats.lua
	statsText string

	claimScript   = script("", putText) // a server without memory refuses it, see put.lua
	moveScript    = script("allow-oom", putText)
	getScript     = script("no-writes", getText)
	heldScript    = script("no-writes", heldText)
	dueScript     = script("no-writes", dueText)
	goesScript    = script("no-writes", goesText)
	pageScript    = script("no-writes", pageText)
	sweepScript   = script("allow-oom", sweepText)
	leaseScript   = script("allow-oom", leaseText)
	releaseScript = script("allow-oom", releaseText)
	letGoScript   = script("allow-oom", letGoText)
	tokensScript  = script("allow-oom", tokensText)
	noteScript    = script("", noteText)
	callsScript   = script("no-writes", callsText)
	statsScript   = script("no-writes", statsText)
)

func script(flags, text string) *goredis.Script {
	if flags != "" {
		flags = "#!lua flags=" + flags + "\n"
	}
	return goredis.NewScript(flags + libText + text)
}

// quiet keeps the library from writing lines of its own: what it would say comes
// back as errors.
var quiet = sync.OnceFunc(logging.Disable)

// connect makes a client. Nothing is sent yet, and nothing ever by itself: a
// change that was sent twice must be known to have been.
func connect(c *Config) (*goredis.Client, error) {
	quiet()
	o, err := goredis.ParseURL(c.URL)
	if err != nil {
		return nil, errors.New("store.url: want redis://[user:password@]host:port[/database], rediss://… or unix://…") // the cause may show the password
	}
	if o.TLSConfig != nil && c.TLS != nil {
		with := c.TLS.Clone()
		with.ServerName, with.MinVersion = o.TLSConfig.ServerName, tls.VersionTLS12
		o.TLSConfig = with
	}
	o.Protocol, o.DisableIdentity = 2, true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.MaxRetries, o.DialerRetries = -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialPatience, patience, patience, patience
	o.ContextTimeoutEnabled = true
	o.PoolSize, o.MaxActiveConns = connections, connections
	return goredis.NewClient(o), nil
}

// call runs a script. What was lost on the way is sent once more: every script
// does the same when it runs twice.
func (s *Store) call(ctx context.Context, script *goredis.Script, args ...any) (any, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	if err := s.lease.reached(); err != nil {
		return nil, fmt.Errorf("%w: %w", idempotency.ErrUnavailable, err)
	}
	for try := 1; ; try++ {
		out, err := script.Run(ctx, s.db, []string{s.prefix}, args...).Result()
		if err == nil {
			return out, nil
		}
		if lost(err) && try < tries && ctx.Err() == nil && !s.closed.Load() {
			continue
		}
		return nil, s.explained(err)
	}
}

// list runs a script that answers with a list.
func (s *Store) list(ctx context.Context, script *goredis.Script, args ...any) ([]any, error) {
	out, err := s.call(ctx, script, args...)
	if err != nil {
		return nil, err
	}
	all, ok := out.([]any)
	if !ok {
		return nil, fmt.Errorf("%w: a script answered %T", idempotency.ErrUnavailable, out)
	}
	return all, nil
}

// lost says that nobody knows whether it was done.
func lost(err error) bool {
	_, answered := errors.AsType[goredis.Error](err)
	return !answered
}

// errLost is wrapped by errors of changes that may have been made.
var errLost = errors.New("no answer")

// explained makes an error of ours.
func (s *Store) explained(err error) error {
	switch {
	case s.closed.Load():
		return errClosed
	case lost(err):
		s.lease.suspect()
		return fmt.Errorf("%w: redis: %w: %w", idempotency.ErrUnavailable, errLost, err)
	case strings.HasPrefix(err.Error(), "OOM"):
		return fmt.Errorf("%w: redis: %w", idempotency.ErrFull, err)
	}
	return fmt.Errorf("%w: redis: %w", idempotency.ErrUnavailable, err)
}

// examine looks whether records are safe with this server.
func (s *Store) examine(ctx context.Context) error {
	at := s.db.Options().Addr
	text, err := s.db.Info(ctx).Result()
	switch {
	case err != nil && lost(err):
		return fmt.Errorf("store: redis at %s does not answer: %w", at, err)
	case err != nil:
		return fmt.Errorf("store: redis at %s: INFO: %w", at, err)
	}
	info := parseInfo(text)
	major, _, _ := strings.Cut(info["redis_version"], ".")
	version, _ := strconv.Atoi(major)
	switch {
	case version < 7:
		return fmt.Errorf("store: redis at %s is version %s; it must be 7 or later (or Valkey)", at, info["redis_version"])
	case info["role"] != "master":
		return fmt.Errorf("store: redis at %s is a read-only copy (role %s); store.url must name the primary", at, info["role"])
	case info["maxmemory_policy"] != "noeviction":
		return fmt.Errorf("store: redis at %s has maxmemory-policy %s: it would forget keys, and orders would be made twice; set maxmemory-policy noeviction", at, info["maxmemory_policy"])
	}
	if info["aof_enabled"] != "1" {
		s.bounds().Log("appendonly is off in Redis: a restart of it forgets the keys of the last minutes, or all", "addr", at)
	}
	return nil
}

// layout is the version of what is kept under the keys.
const layout = "1"

// acceptLayout refuses what another version wrote.
func (s *Store) acceptLayout(ctx context.Context) error {
	if err := s.db.HSetNX(ctx, s.prefix+"count", "layout", layout).Err(); err != nil {
		return s.explained(err)
	}
	found, err := s.db.HGet(ctx, s.prefix+"count", "layout").Result()
	switch {
	case err != nil:
		return s.explained(err)
	case found != layout:
		return fmt.Errorf("the records of instance %q have layout %s, written by another retryproxy; this one knows layout %s", s.bounds().Instance, found, layout)
	}
	return nil
}

// parseInfo reads what INFO says.
func parseInfo(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out
}
