package storetest

import (
	"bytes"
	"errors"
	"sync"
	"time"

	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/message"
)

// A store that is not durable has no request to give and no call to go on with;
// it passes these by saying so.
var pendingTests = []test{
	{"pending are the calls that are running and waiting, those that are due first", pendingInOrder},
	{"a request comes back as it came", requestAsItCame},
	{"a request is kept until its call ends done or failed", requestOfState},
	{"a new run has its own request", requestOfRun},
	{"a request with another key is another", requestOfKey},
}

// difficult is a request that is hard to keep.
func difficult() *idempotency.Request {
	return &idempotency.Request{
		Mode: "forward", Place: idempotency.Place{Scheme: "https", Authority: "U1.test", Target: "/a;b/%zz?q=1+2&q=\xff", Exempt: true}, Version: "HTTP/1.1", Honoured: true,
		Others: []idempotency.Place{{Scheme: "h2c", Authority: "u2.test:81", Target: "/a?b=1"}},
		Fields: message.Fields{
			{Name: "host", Value: "u1.test"},
			{Name: "X-Two", Value: `say "a\b"`},
			{Name: "X-two", Value: "zwölf <&>\u2028"},
			{Name: "X-Latin", Value: "\xfc\xff"},
			{Name: "X-Empty", Value: ""},
		},
		Trailers: message.Fields{{Name: "X-Sum", Value: "1"}},
		Body:     allBytes(), Listener: "127.0.0.1:8080", Client: "127.0.0.1:50000", User: "bot1",
	}
}

func requested(q *idempotency.Request, c idempotency.Claim) idempotency.Claim {
	c.Request = q
	return c
}

// load requires a request, or none.
func (b *bench) load(id idempotency.ID, want *idempotency.Request) {
	b.Helper()
	got, err := b.store.Load(b.Context(), id)
	if want == nil || !b.store.Durable() {
		if !errors.Is(err, idempotency.ErrNotFound) {
			b.Errorf("Load(%s) = %v, %v, want %v", id.Key, got, err, idempotency.ErrNotFound)
		}
		return
	}
	if err != nil {
		b.Errorf("Load(%s) = %v", id.Key, err)
		return
	}
	if (got.Body == nil) != (want.Body == nil) || !bytes.Equal(got.Body, want.Body) {
		b.Errorf("Load(%s) has a body of %d bytes (nil: %v), want %d (nil: %v)", id.Key, len(got.Body), got.Body == nil, len(want.Body), want.Body == nil)
	}
	head := *want
	head.Body, got.Body = nil, nil
	b.same("request", got, &head)
}

func (b *bench) pending(want ...string) {
	b.Helper()
	if !b.store.Durable() {
		want = nil
	}
	recs, err := b.store.Pending(b.Context())
	if err != nil {
		b.Fatalf("Pending = %v", err)
	}
	var got []string
	for i := range recs {
		got = append(got, recs[i].Key)
		b.same("pending record", recs[i], b.get(recs[i].ID, start))
	}
	b.same("pending keys", got, want)
}

func pendingInOrder(b *bench) {
	b.pending()
	held := []struct {
		key  string
		to   idempotency.State
		next time.Duration
	}{
		{"late", idempotency.StateParked, time.Hour},
		{"soon", idempotency.StateParked, time.Second},
		{"running", idempotency.StateRunning, 0},
		{"between", idempotency.StateWaiting, time.Minute},
		{"overdue", idempotency.StateWaiting, -time.Hour},
	}
	for _, x := range held {
		id := idempotency.ID{Tenant: order.Tenant, Key: x.key}
		b.begin(claim(id, "call-1"), start, idempotency.Fresh)
		if ch := change("call-1", start); x.next != 0 {
			ch.NextAt = start.Add(x.next)
			b.advance(id, idempotency.StateRunning, x.to, ch)
		}
	}
	for i, state := range idempotency.States() {
		if state.Ended() {
			b.reach(claim(idempotency.ID{Tenant: order.Tenant, Key: named(i)}, "call-1"), state, classify.ExecutedMaybe)
		}
	}
	b.pending("running", "overdue", "between")
}

func requestAsItCame(b *bench) {
	q := difficult()
	b.begin(requested(q, claim(order, "call-1")), start, idempotency.Fresh)
	clear(q.Body)
	q.Fields[0].Value, q.Trailers[0].Value = "changed", "changed"
	b.load(order, difficult())

	for name, body := range map[string][]byte{"none": nil, "empty": {}, "large": bytes.Repeat(allBytes(), 1000)} {
		id := idempotency.ID{Tenant: order.Tenant, Key: name}
		q := &idempotency.Request{Mode: "reverse", Place: idempotency.Place{Target: "/"}, Body: body}
		b.begin(requested(q, claim(id, "call-1")), start, idempotency.Fresh)
		b.load(id, q)
	}
	id := idempotency.ID{Tenant: order.Tenant, Key: "without"}
	b.begin(claim(id, "call-1"), start, idempotency.Fresh)
	b.load(id, nil)
	b.load(idempotency.ID{Tenant: order.Tenant, Key: "unknown"}, nil)
}

func requestOfState(b *bench) {
	for i, state := range idempotency.States() {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		b.reach(requested(difficult(), claim(id, "call-1")), state, classify.ExecutedMaybe)
		want := difficult()
		if state == idempotency.StateDone || state == idempotency.StateFailed {
			want = nil
		}
		b.load(id, want)
	}
	for i, state := range []idempotency.State{idempotency.StateDead, idempotency.StateInDoubt} {
		id := idempotency.ID{Tenant: "settled", Key: named(i)}
		b.reach(requested(difficult(), claim(id, "call-1")), state, classify.ExecutedMaybe)
		b.advance(id, state, idempotency.StateFailed, settle(classify.ExecutedNo))
		b.load(id, nil)
	}
}

func requestOfRun(b *bench) {
	b.reach(requested(difficult(), claim(order, "call-1")), idempotency.StateDead, classify.ExecutedNo)
	q := difficult()
	q.Target, q.Body = "/again", nil
	b.begin(requested(q, claim(order, "call-2")), start, idempotency.Fresh)
	b.load(order, q)
	b.begin(requested(difficult(), claim(order, "call-3")), start, idempotency.Busy)
	b.load(order, q)
	b.advance(order, idempotency.StateRunning, idempotency.StateDead, change("call-2", start))
	b.begin(claim(order, "call-4"), start, idempotency.Fresh)
	b.load(order, nil)
}

func requestOfKey(b *bench) {
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
			q := difficult()
			q.Target = "/" + named(i)
			if _, err := b.store.Begin(b.Context(), requested(q, claim(id, "call-1")), start); err != nil {
				b.Errorf("Begin = %v", err)
			}
			b.load(id, q)
		})
	}
	group.Wait()
}
