package alert

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	mathrand "math/rand/v2"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"retryproxy/backoff"
)

const (
	mostWaiting = 100 // messages of one target; the oldest goes
	tries       = 8   // of one request
	deliverFor  = 15 * time.Minute
	longestWait = 5 * time.Minute // between two tries, whatever the service asks for
	burst       = 5
	perMinute   = 15 // with burst at most 20 requests in a minute, what WeCom and DingTalk take
)

var retryWaits = backoff.Policy{Base: time.Second, Max: time.Minute, Multiplier: 2, Jitter: backoff.JitterRandom, Ratio: 0.2}

// way is how a target is reached now; a reload replaces it.
type way struct {
	Target
	client *http.Client
	from   Sender
}

// target is a queue and who works it off.
type target struct {
	deps   *Deps
	budget *rate.Limiter
	wake   chan struct{} // a message came, or the end
	moved  chan struct{} // it is reached in another way now
	closed chan struct{} // what waits is to be sent now: the process ends
	cancel context.CancelFunc
	done   chan struct{} // the worker ended; nil: it never ran

	mu     sync.Mutex
	way    way
	queue  []Message
	trying int // messages of the request that is being sent
	lost   int // dropped since the newest delivery
	over   bool
	counts counts
	last   delivery
}

// counts are over all messages of a target.
type counts struct{ sent, failed, dropped int }

// delivery is what the newest request came to.
type delivery struct {
	at       time.Time
	messages int
	tries    int
	outcome
}

func newTarget(d *Deps, w way) *target {
	return &target{
		deps: d, way: w, budget: rate.NewLimiter(rate.Every(time.Minute/perMinute), burst),
		wake: make(chan struct{}, 1), moved: make(chan struct{}, 1), closed: make(chan struct{}),
	}
}

// push queues a message and never waits. It returns what had to go for it.
func (t *target) push(m *Message) (dropped []Message) {
	t.mu.Lock()
	if t.over {
		dropped = append(dropped, *m)
	} else if t.queue = append(t.queue, *m); len(t.queue) > mostWaiting {
		dropped = append(dropped, t.queue[0])
		t.queue = append(t.queue[:0:0], t.queue[1:]...)
	}
	t.lost += len(dropped)
	t.counts.dropped += len(dropped)
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
	return dropped
}

// start works the queue off until ctx ends, or until it is empty after close.
func (t *target) start(ctx context.Context, wg *sync.WaitGroup) {
	ctx, t.cancel = context.WithCancel(ctx)
	t.done = make(chan struct{})
	wg.Go(func() {
		defer close(t.done)
		defer t.cancel()
		for t.await(ctx) {
			t.deliver(ctx)
		}
		t.abandon()
	})
}

// await waits for a message and for the budget; false: it is over.
func (t *target) await(ctx context.Context) bool {
	for {
		t.mu.Lock()
		n := len(t.queue)
		t.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return false
		case n > 0:
			return t.afford(ctx)
		case t.closing():
			return false
		}
		select {
		case <-t.wake:
		case <-ctx.Done():
		}
	}
}

func (t *target) closing() bool {
	select {
	case <-t.closed:
		return true
	default:
		return false
	}
}

// afford waits until the budget allows one more request. At the end of the
// process there is no time for that.
func (t *target) afford(ctx context.Context) bool {
	r := t.budget.Reserve()
	timer := time.NewTimer(r.Delay())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.closed:
	case <-ctx.Done():
		return false
	}
	return true
}

// take gives the messages of the next request, and the request.
func (t *target) take(now time.Time) (batch []Message, w way, seal func(now time.Time) envelope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w = t.way
	batch, seal = w.pack(t.queue, t.lost, now)
	t.queue, t.lost = append([]Message(nil), t.queue[len(batch):]...), 0
	t.trying = len(batch)
	return batch, w, seal
}

// pack makes one request of as many messages as fit. A signature is made anew
// for every try: the services take it for some minutes only.
func (w *way) pack(queue []Message, lost int, now time.Time) ([]Message, func(time.Time) envelope) {
	f := formats[w.Format]
	if f.wrap == nil {
		batch := queue[:min(len(queue), f.most)]
		body, id := generic(batch, lost, w.from, now), newID()
		return batch, func(now time.Time) envelope { return jsonBody(body, id, w.Secret, now) }
	}
	text, n := f.texts(queue, lost, w.from)
	return queue[:n], func(now time.Time) envelope { return f.wrap(text, w.Secret, now) }
}

func newID() string {
	var b [12]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return "msg_" + hex.EncodeToString(b[:])
}

// deliver sends one request until it is taken or given up.
func (t *target) deliver(ctx context.Context) {
	began := time.Now()
	batch, w, seal := t.take(began)
	var o outcome
	n := 1
	for ; ; n++ {
		o = w.post(ctx, w.client, seal(time.Now()))
		t.saw(delivery{time.Now(), len(batch), n, o})
		if o.err == nil || !o.again || n == tries || ctx.Err() != nil {
			break
		}
		wait := min(max(retryWaits.Delay(n, mathrand.Float64()), o.wait), longestWait)
		if time.Since(began)+wait > deliverFor || !t.pause(ctx, wait) {
			break
		}
		if t.giveBack(&w.Target, batch) {
			return
		}
	}
	t.settle(w.Name, batch, delivery{time.Now(), len(batch), n, o})
}

// saw keeps what the newest try came to, for people who look meanwhile.
func (t *target) saw(d delivery) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = d
}

// giveBack queues messages again, in front, when a reload changed the way that
// they could not be delivered by.
func (t *target) giveBack(was *Target, batch []Message) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.way.Target == *was {
		return false
	}
	t.queue, t.trying = append(batch, t.queue...), 0 // over its bound by one request at most
	return true
}

// lastWait is what is left of a wait between tries when the process ends.
const lastWait = 500 * time.Millisecond

// pause waits between two tries, short when the process ends; false: it has ended.
func (t *target) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.moved:
		return true
	case <-ctx.Done():
		return false
	case <-t.closed:
	}
	timer.Reset(min(d, lastWait))
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// settle counts and logs what a request came to.
func (t *target) settle(name string, batch []Message, d delivery) {
	result := "sent"
	t.mu.Lock()
	t.last, t.trying = d, 0
	if d.err == nil {
		t.counts.sent += len(batch)
	} else {
		result = "failed"
		t.counts.failed += len(batch)
	}
	t.mu.Unlock()
	for i := range batch {
		t.deps.count(batch[i].Rule, result)
	}
	if d.err != nil {
		t.deps.Log.Error("an alert was not delivered", "target", name, "messages", len(batch), "tries", d.tries, "error", d.err.Error())
	}
}

// abandon counts what is never sent.
func (t *target) abandon() {
	t.mu.Lock()
	left := t.queue
	t.queue, t.over = nil, true
	t.counts.dropped += len(left)
	name := t.way.Name
	t.mu.Unlock()
	t.deps.dropped(name, left)
}

// close lets the worker end as soon as everything is sent.
func (t *target) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closing() {
		close(t.closed)
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// use replaces how the target is reached.
func (t *target) use(w way) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := t.way.Target != w.Target
	if t.way = w; !changed {
		return
	}
	select {
	case t.moved <- struct{}{}:
	default:
	}
}
