package redis

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"retryproxy/idempotency"
	"retryproxy/limiter"
)

const (
	longest     = 365 * 24 * time.Hour // further away than any deadline
	mostBuckets = 1 << 14              // that are known to be empty
)

// dry are buckets that have no token before a date. Those who ask until then are
// told dates one after the other, so that they do not all come at once.
type dry struct {
	mu      sync.Mutex
	buckets *simplelru.LRU[string, *drought]
}

type drought struct {
	until time.Time // no token before
	next  time.Time // the date for who asks next
}

func (d *dry) init() {
	var err error
	if d.buckets, err = simplelru.NewLRU[string, *drought](mostBuckets, nil); err != nil {
		panic("bug: a cache without room")
	}
}

func bucketName(n *limiter.Need) string { return n.Dimension + ":" + n.Name }

// refuse gives the date of a bucket that is known to be empty; dimension is empty
// when none is.
func (d *dry) refuse(needs []limiter.Need, now time.Time) (at time.Time, dimension string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range needs {
		if b, ok := d.buckets.Get(bucketName(&needs[i])); ok && now.Before(b.until) {
			return b.take(&needs[i]), needs[i].Dimension
		}
	}
	return at, ""
}

// note keeps that a bucket is empty until a date, and gives the date for who asked.
func (d *dry) note(n *limiter.Need, until time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, ok := d.buckets.Get(bucketName(n))
	if !ok {
		b = &drought{}
		d.buckets.Add(bucketName(n), b)
	}
	b.until = until
	if b.next.Before(until) {
		b.next = until
	}
	return b.take(n)
}

// take is the next date; the one after it is a token later.
func (b *drought) take(n *limiter.Need) time.Time {
	at := b.next
	if rate := max(n.Rate, n.Share*n.Fresh); rate > 0 {
		b.next = at.Add(min(time.Duration(float64(time.Second)/rate), longest))
	}
	return at
}

// Take takes a retry token from each of these buckets, which all replicas share, or
// none; then at is when they could all be there, and dimension is the bucket that
// is the last. Errors: ErrUnavailable.
func (s *Store) Take(ctx context.Context, needs []limiter.Need) (ok bool, at time.Time, dimension string, err error) {
	if len(needs) == 0 {
		return true, at, "", nil
	}
	if at, dimension := s.dry.refuse(needs, s.clock()); dimension != "" {
		return false, at, dimension, nil
	}
	wait, lacking, err := s.take(ctx, needs)
	if err != nil || lacking == nil {
		return err == nil, at, "", err
	}
	return false, s.dry.note(lacking, s.clock().Add(wait)), lacking.Dimension, nil
}

// take asks Redis; lacking is the bucket that is the last, nil: all gave a token.
func (s *Store) take(ctx context.Context, needs []limiter.Need) (wait time.Duration, lacking *limiter.Need, err error) {
	args := make([]any, 1, 1+5*len(needs))
	args[0] = s.replica
	for i := range needs {
		n := &needs[i]
		args = append(args, bucketName(n), n.Rate, n.Burst, n.Share, n.Fresh)
	}
	out, err := s.list(ctx, tokensScript, args...)
	if err != nil {
		return 0, nil, err
	}
	if len(out) != 3 {
		return 0, nil, fmt.Errorf("%w: %w", idempotency.ErrUnavailable, errForeign)
	}
	if taken, _ := out[0].(int64); taken == 1 {
		return 0, nil, nil
	}
	text, _ := out[1].(string)
	micros, err := strconv.ParseInt(text, 10, 64)
	which, _ := out[2].(int64)
	if err != nil || which < 1 || int(which) > len(needs) {
		return 0, nil, fmt.Errorf("%w: %w", idempotency.ErrUnavailable, errForeign)
	}
	return min(time.Duration(min(micros, longest.Microseconds()))*time.Microsecond, longest), &needs[which-1], nil
}
