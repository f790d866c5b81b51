package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"retryproxy/idempotency"
)

// A lease is given for leaseTime, or for a little more than was asked for lately,
// and renewed every renewEvery.
const (
	leaseTime  = 15 * time.Second
	renewEvery = 3 * time.Second
	spare      = 5 * time.Second // beyond what was asked for, so that the next who asks has it
	askedFor   = time.Minute     // how long it is remembered what was asked for
	// grace is how long this process must have had its own lease before it takes
	// others to be gone: after an outage of Redis all are without for a moment.
	grace = 2 * renewEvery
)

// lease is what this process knows of its own. Times are since birth, on a clock
// that nobody sets.
type lease struct {
	birth time.Time
	until atomic.Int64 // it holds at least until then
	want  atomic.Int64 // the most that was asked for in this time
	// lapses counts how often it had run out before it was renewed.
	lapses atomic.Uint64
	alarm  chan struct{} // looked at without delay

	renewing sync.Mutex // one renewal at a time; guards what follows
	wanted   int64      // want of the time before
	turned   time.Duration
	tried    time.Duration // when the last renewal began
	failed   error         // of the last renewal
	kept     string        // since when the records are kept

	mu       sync.Mutex // guards what follows
	since    time.Duration
	down     error         // why Redis cannot be reached; nil: it can
	server   time.Time     // by its clock, when told
	told     time.Duration // when that was
	replicas int           // that are alive
}

func (l *lease) init() {
	l.birth = time.Now()
	l.alarm = make(chan struct{}, 1)
}

func (l *lease) now() time.Duration { return time.Since(l.birth) }

// left is how long the lease holds at least.
func (l *lease) left() time.Duration { return time.Duration(l.until.Load()) - l.now() }

// reached says whether Redis answered when it was last asked in the background.
func (l *lease) reached() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.down
}

// suspect has Redis asked without delay.
func (l *lease) suspect() {
	select {
	case l.alarm <- struct{}{}:
	default:
	}
}

// Lease implements idempotency.Store.
func (s *Store) Lease(ctx context.Context, id idempotency.ID, owner string, least time.Duration) error {
	if s.closed.Load() {
		return errClosed
	}
	if err := s.hold(ctx, least); err != nil {
		return err
	}
	if f, ok := s.owned.Get(id); ok && f.lapses == s.lease.lapses.Load() && f.rec.Owner == owner {
		return nil
	}
	return s.confirm(ctx, id, owner)
}

// confirm looks whether a call is still run here: somebody may have adopted it while
// the lease had run out. As it holds now, nobody does from here on.
func (s *Store) confirm(ctx context.Context, id idempotency.ID, owner string) error {
	lapses := s.lease.lapses.Load()
	f, err := s.read(ctx, id)
	switch {
	case errors.Is(err, idempotency.ErrNotFound):
		return fmt.Errorf("%w: there is no record any more", idempotency.ErrConflict)
	case err != nil:
		return err
	case !running(f.rec.State) || f.replica != s.replica || f.rec.Owner != owner:
		return fmt.Errorf("%w: another replica took the call over", idempotency.ErrConflict)
	}
	f.lapses = lapses
	s.owned.Add(id, f)
	return nil
}

// hold sees to it that the lease holds for least.
func (s *Store) hold(ctx context.Context, least time.Duration) error {
	l := &s.lease
	for old := l.want.Load(); int64(least) > old && !l.want.CompareAndSwap(old, int64(least)); old = l.want.Load() {
	}
	if l.left() >= least {
		return nil
	}
	if err := l.reached(); err != nil {
		return err
	}
	if err := s.renew(ctx, least); err != nil {
		return err
	}
	if l.left() < least {
		return fmt.Errorf("%w: the lease was given too late", idempotency.ErrUnavailable)
	}
	return nil
}

// keepLease renews the lease when it is time, or at once when Redis did not answer
// somebody. It tells when Redis is gone, and when it is back.
func (s *Store) keepLease(ctx context.Context, urgent bool) {
	l := &s.lease
	was := l.reached()
	if !urgent && was == nil && l.now()-l.lastTried() < renewEvery {
		return
	}
	err := s.renew(ctx, 0)
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	l.down = err
	l.mu.Unlock()
	if (was == nil) != (err == nil) {
		s.bounds().Log(map[bool]string{true: "unavailable", false: "available again"}[err != nil], "addr", s.db.Options().Addr, "error", err)
		if f := s.onHealth.Load(); f != nil {
			(*f)(err == nil)
		}
	}
}

func (l *lease) lastTried() time.Duration {
	l.renewing.Lock()
	defer l.renewing.Unlock()
	return l.tried
}

// renew has the lease hold for the usual time, and for least at least. Who waited
// for the renewal of another goes by that.
func (s *Store) renew(ctx context.Context, least time.Duration) error {
	l := &s.lease
	asked := l.now()
	l.renewing.Lock()
	defer l.renewing.Unlock()
	switch {
	case least > 0 && l.left() >= least:
		return nil
	case least > 0 && l.tried > asked && l.failed != nil:
		return l.failed
	}
	l.failed = s.renewNow(ctx)
	return l.failed
}

// renewNow asks Redis. Under renewing.
func (s *Store) renewNow(ctx context.Context) error {
	l := &s.lease
	hold := l.length()
	l.tried = l.now()
	out, err := leaseScript.Run(ctx, s.db, []string{s.prefix}, s.replica, hold.Microseconds()).Slice()
	if err != nil {
		return s.explained(err)
	}
	got := l.now()
	if l.until.Load() < int64(l.tried) { // it had run out: others may have taken us to be gone
		l.lapses.Add(1)
		l.mu.Lock()
		l.since = got
		l.mu.Unlock()
	}
	// Clocks do not run alike; a fiftieth is more than any two differ by.
	l.until.Store(max(l.until.Load(), int64(l.tried+hold-hold/50)))
	return s.learn(out, l.tried+(got-l.tried)/2)
}

// length is how long the lease is to be. Under renewing.
func (l *lease) length() time.Duration {
	now := l.now()
	if now-l.turned > askedFor {
		l.wanted, l.turned = l.want.Swap(0), now
	}
	most := time.Duration(max(l.wanted, l.want.Load()))
	return max(leaseTime, (most+spare)+(most+spare)/40) // a part of it is not counted on
}

var errForeign = errors.New("a script gave an unknown answer")

// learn keeps what the renewal told, and when that was. Under renewing.
func (s *Store) learn(out []any, at time.Duration) error {
	if len(out) != 3 {
		return fmt.Errorf("%w: %w", idempotency.ErrUnavailable, errForeign)
	}
	clock, _ := out[0].(string)
	since, _ := out[2].(string)
	server := parseScore(clock)
	replicas, _ := out[1].(int64)
	l := &s.lease
	if l.kept != "" && l.kept != since {
		s.bounds().Log("Redis came back without the records: keys that were used before are new again", "addr", s.db.Options().Addr)
		s.owned.Purge()
	}
	l.kept = since
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server, l.told, l.replicas = server, at, int(replicas)
	return nil
}

// release gives the lease up, if Redis can be reached.
func (s *Store) release() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.endDisowned(ctx)
	if err := releaseScript.Run(ctx, s.db, []string{s.prefix}, s.replica).Err(); err != nil {
		s.bounds().Log("the lease was not given up: other replicas wait for its end before they go on with calls of this one", "error", err)
	}
}

// lapsed says whether replicas without a lease are gone: this one has its own for
// long enough.
func (l *lease) lapsed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left() > 0 && l.now()-l.since > grace
}

// Replicas is how many processes have a lease, as of the last renewal.
func (s *Store) Replicas() int {
	s.lease.mu.Lock()
	defer s.lease.mu.Unlock()
	return max(s.lease.replicas, 1)
}

// tolerated is how far clocks may differ without anybody translating.
const tolerated = 500 * time.Millisecond

// serverTime is what time it is for everybody. It does not go by the clock of this
// process, which may be set at any time.
func (s *Store) serverTime() time.Time {
	l := &s.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.server.Add(l.now() - l.told)
}

// shift is what to add to a time of this process to have the server's.
func (s *Store) shift() time.Duration {
	d := s.serverTime().Sub(s.clock())
	if d.Abs() < tolerated {
		return 0
	}
	return d.Round(time.Millisecond)
}

// score is a time as an index has it.
func score(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMicro(), 10)
}

func parseScore(text string) time.Time {
	n, _ := strconv.ParseInt(text, 10, 64)
	return time.UnixMicro(n).UTC()
}
