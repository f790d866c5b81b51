// Package redis answers one question: what does a fleet know about a call?
//
// It is the idempotency.Store in one Redis (or Valkey) that several replicas
// share. The rules stay in Go: a record is read, the next one computed, and
// written by a script if it is still as it was read. Whoever runs a record holds
// it for its replica, and a replica has a lease; when that is over, others adopt.
// docs/store.md describes the keys for people.
package redis

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	goredis "github.com/redis/go-redis/v9"

	"retryproxy/idempotency"
	"retryproxy/internal/seal"
)

// Config says where a store is and what bounds it. config checks the values.
type Config struct {
	URL         string        // redis://, rediss:// or unix://
	TLS         *tls.Config   // of rediss; nil: the system's roots
	Instance    string        // replicas of one name share their records
	Entries     int           // records at most, no tenant more than half; 0: no bound
	Bytes       int64         // of all stored answers: fields and bodies; 0: no bound
	MaxResponse int           // of one stored body; a larger one leaves a marker
	TTL         time.Duration // for claims that come without one
	Keep        time.Duration // of calls in the history, after their end
	Calls       int           // in the history at most, the newest; 0: no bound
	Keys        *seal.Keys    // that seal requests and answers; nil: they are kept in the clear
	// Log is told what an operator should know; nil: nobody is.
	Log func(msg string, args ...any)
}

// Store keeps records in Redis. The time of the server is everybody's: what is
// kept is in it, and what is given and returned in that of this process.
type Store struct {
	config  atomic.Pointer[Config]
	db      *goredis.Client
	prefix  string // of all keys
	replica string // name of this process
	marks   atomic.Uint64
	clock   func() time.Time // of this process

	lease    lease
	owned    *lru.Cache[idempotency.ID, *found] // what this process runs, as it was written last
	unsure   *lru.Cache[idempotency.ID, doubt]  // changes that nobody knows the outcome of
	disowned disowned
	dry      dry
	onHealth atomic.Pointer[func(up bool)]

	closing  sync.Once
	halting  sync.Once
	closed   atomic.Bool
	stop     chan struct{}
	ended    chan struct{}
	statsMu  sync.Mutex
	lastSeen idempotency.Stats
}

var _ idempotency.Store = (*Store)(nil)

// mostOwned is how many records this process remembers: those that it runs.
const mostOwned = 1 << 14

var errClosed = fmt.Errorf("%w: it is closed", idempotency.ErrUnavailable)

// Open opens the store. It fails, with a line for the operator, when Redis does
// not answer, may evict records, cannot be written to, or is too old.
func Open(ctx context.Context, c Config) (*Store, error) { return open(ctx, c, time.Now) }

func open(ctx context.Context, c Config, clock func() time.Time) (*Store, error) {
	db, err := connect(&c)
	if err != nil {
		return nil, err
	}
	s := &Store{
		db: db, prefix: "rp:{" + c.Instance + "}:", replica: newReplica(), clock: clock,
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
	s.owned, err = lru.New[idempotency.ID, *found](mostOwned)
	if err == nil {
		s.unsure, err = lru.New[idempotency.ID, doubt](mostOwned)
	}
	if err != nil {
		panic("bug: a cache without room")
	}
	s.lease.init()
	s.dry.init()
	s.setConfig(c)
	if err := s.begin(ctx); err != nil {
		_ = db.Close()
		return nil, err
	}
	go s.run()
	return s, nil
}

// begin looks at the server and takes the lease.
func (s *Store) begin(ctx context.Context) error {
	if err := s.examine(ctx); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return s.acceptLayout(ctx) },
		func() error { return s.acceptKeys(ctx) },
		func() error { return s.renew(ctx, 0) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("store: redis at %s: %w", s.db.Options().Addr, err)
		}
	}
	return nil
}

// newReplica names this process: 64 random bits in hex.
func newReplica() string {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// Configure changes the bounds; where the store is stays. What no longer fits is
// evicted by the next changes and sweeps, the oldest first.
func (s *Store) Configure(c Config, _ time.Time) {
	old := s.bounds()
	c.URL, c.TLS, c.Instance, c.Keys, c.Log = old.URL, old.TLS, old.Instance, old.Keys, old.Log
	s.setConfig(c)
}

func (s *Store) setConfig(c Config) {
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	s.config.Store(&c)
}

func (s *Store) bounds() *Config { return s.config.Load() }

// OnHealth has f told when Redis can no longer be reached, and when it can again. f
// must not block.
func (s *Store) OnHealth(f func(up bool)) { s.onHealth.Store(&f) }

// Durable implements idempotency.Store.
func (s *Store) Durable() bool { return true }

// Close implements idempotency.Store. What this process still runs is from now on
// for others to adopt.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.halt()
		s.release()
		s.closed.Store(true)
		_ = s.db.Close() // its connections may be gone already
	})
	return nil
}

// halt ends what goes on in the background.
func (s *Store) halt() {
	s.halting.Do(func() {
		close(s.stop)
		<-s.ended
	})
}

// run keeps the lease, sweeps, and ends what nobody knows of, until Close.
func (s *Store) run() {
	defer close(s.ended)
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for n := 0; ; n++ {
		urgent := false
		select {
		case <-ticker.C:
		case <-s.lease.alarm:
			urgent = true
		case <-s.stop:
			return
		}
		ctx, cancel := s.background()
		s.keepLease(ctx, urgent)
		if n%2 == 0 && s.lease.reached() == nil {
			s.sweep(ctx)
			s.endDisowned(ctx)
		}
		cancel()
	}
}

// background is the context of work that nobody waits for: it ends with the store.
func (s *Store) background() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ends with cancel
		select {
		case <-s.stop:
			cancel()
		case <-done:
		}
	}()
	return ctx, func() { close(done); cancel() }
}

const (
	lookEvery = 500 * time.Millisecond
	mostSwept = 256 // records in one script
)

// sweep removes what is over until nothing is left, in small pieces.
func (s *Store) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		b := s.bounds()
		out, err := s.call(ctx, sweepScript, mostSwept, b.Entries, b.Bytes, b.Calls, b.Keep.Microseconds())
		if err != nil {
			return // the lease tells of it
		}
		if n, _ := out.(int64); n < mostSwept {
			return
		}
	}
}

// Stats implements idempotency.Store. Expired records count until they are swept.
// When Redis does not answer, it is what was last seen.
func (s *Store) Stats() idempotency.Stats {
	ctx, cancel := context.WithTimeout(context.Background(), statsPatience)
	defer cancel()
	out, err := s.list(ctx, statsScript)
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	if err == nil {
		s.lastSeen = parseStats(out)
	}
	return s.lastSeen
}

const statsPatience = time.Second

func parseStats(out []any) idempotency.Stats {
	st := idempotency.Stats{ByState: map[idempotency.State]int{}}
	states := idempotency.States()
	for i, state := range states {
		if n, _ := out[i].(int64); n > 0 {
			st.ByState[state] = int(n)
			st.Records += int(n)
		}
	}
	st.Bytes, _ = out[len(states)].(int64)
	st.EvictedEarly, _ = out[len(states)+1].(int64)
	if text, _ := out[len(states)+2].(string); text != "" {
		st.OldestParked = parseScore(text)
	}
	return st
}
