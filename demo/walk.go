package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Stage is what a walk needs: a proxy that runs with Config, and an upstream
// of its own.
type Stage struct {
	Proxy    string // host:port of the proxy's listener
	Admin    string // host:port of its admin listener
	Upstream *Upstream
	// Explain answers `retryproxy explain args`.
	Explain func(args []string, out io.Writer) error
}

// ErrPromise is wrapped by the error of a step that did not go as promised.
var ErrPromise = errors.New("the proxy did not do as promised")

// walk is a walk in progress.
type walk struct {
	Stage
	out io.Writer
	n   int // steps begun
}

// Walk shows, step by step, how the proxy deals with an upstream that
// misbehaves, with what really went over the wire. Its error says which step
// did not behave as promised.
func Walk(ctx context.Context, out io.Writer, s Stage) error {
	w := &walk{Stage: s, out: out}
	steps := []func(context.Context) error{
		w.healing, w.retryAfter, w.unsafe, w.keyed, w.replay, w.twoBots, w.outage, w.explain,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return fmt.Errorf("step %d: %w", w.n, err)
		}
	}
	return nil
}

// healing: the ordinary case.
func (w *walk) healing(ctx context.Context) error {
	w.title("A 503 that heals", "The upstream fails twice, then works. The bot sends one plain GET.")
	s, err := w.send(ctx, call{method: "GET", target: w.url("/fail/503?times=2&id=heal")})
	if err != nil {
		return err
	}
	w.tell(s, "Two retries, after about 0.2 s and 0.4 s; the bot only noticed that it took longer.")
	return expect(s.status == 200 && s.requests == 3 && s.header.Get("X-Retry-Count") == "2",
		"status %d after %d requests, want 200 after 3 with X-Retry-Count: 2", s.status, s.requests)
}

// retryAfter: the server's own wish comes first.
func (w *walk) retryAfter(ctx context.Context) error {
	w.title("A server that says when", "The upstream answers 429 with Retry-After: 1, then works.")
	s, err := w.send(ctx, call{method: "GET", target: w.url("/retry-after/1?id=when")})
	if err != nil {
		return err
	}
	w.tell(s, "Our own delay would have been 0.2 s; the proxy waited the second that it was asked for.")
	return expect(s.status == 200 && s.requests == 2 && s.took >= time.Second,
		"status %d after %d requests and %v, want 200 after 2 and at least 1s", s.status, s.requests, s.took)
}

// unsafe: a doubt about money is never resolved by trying again.
func (w *walk) unsafe(ctx context.Context) error {
	w.title("A POST without a key", "The upstream takes the order, then the connection breaks before it can say so.")
	s, err := w.send(ctx, w.lostOrder())
	if err != nil {
		return err
	}
	w.tell(s, "Sent once and not repeated: the order may exist, a second POST could buy twice. X-Retry-Advice says what to do.")
	return expect(s.status == 502 && s.requests == 1 && s.effects == 1 && s.header.Get("X-Retry-Executed") == "maybe" && s.header.Get("X-Retry-Advice") == "check",
		"status %d after %d requests, want 502 after 1 with executed maybe and advice check", s.status, s.requests)
}

// lostOrder is an order whose first answer gets lost on its way.
func (w *walk) lostOrder(lines ...string) call {
	return call{method: "POST", target: w.url("/order?lose=1"), lines: lines, body: "item=1"}
}

// keyed: the same, with what makes a repeat safe.
func (w *walk) keyed(ctx context.Context) error {
	w.title("The same POST with a key", "The same fault, but now the upstream can tell that it is the same order.")
	s, err := w.send(ctx, w.lostOrder("X-Idempotency-Key: order-4711"))
	if err != nil {
		return err
	}
	w.tell(s, "The key went upstream with both attempts, so the upstream gave the order that it already had.")
	return expect(s.status == 201 && s.requests == 2 && s.effects == 1 && strings.Contains(s.body, "already_placed"),
		"status %d after %d requests and %d orders, want 201 after 2 and 1", s.status, s.requests, s.effects)
}

// replay: the bot crashed and asks again.
func (w *walk) replay(ctx context.Context) error {
	w.title("The bot asks again", "It restarted and does not know whether its order went through: same POST, same key.")
	s, err := w.send(ctx, w.lostOrder("X-Idempotency-Key: order-4711"))
	if err != nil {
		return err
	}
	w.tell(s, "The stored answer, byte for byte; the upstream was not asked.")
	return expect(s.status == 201 && s.requests == 0 && s.header.Get("Idempotency-Replayed") == "true",
		"status %d after %d requests, want a replay of 201 without any", s.status, s.requests)
}

// twoBots: both believe that the order is theirs.
func (w *walk) twoBots(ctx context.Context) error {
	w.title("Two bots, one key, at once", "Both place the same order in the same moment; the upstream takes 0.4 s.")
	c := call{method: "POST", target: w.url("/order?slow=400ms"), lines: []string{"X-Idempotency-Key: order-4712"}, body: "item=1"}
	s, err := w.sendAll(ctx, []call{c, c})
	if err != nil {
		return err
	}
	w.tell(s, "One order. The second bot waited for the first one's answer and got the same.")
	first, second := s.replies[0], s.replies[1]
	return expect(first.status == 201 && first.body == second.body && s.requests == 1 && s.effects == 1 && collapsed(first) != collapsed(second),
		"answers %d and %d after %d requests, want one 201 for both after 1, one of them collapsed", first.status, second.status, s.requests)
}

func collapsed(r reply) bool {
	return strings.Contains(r.header.Get("Cache-Status"), "collapsed")
}

const (
	crowd    = 5 // bots before, and as many after the breaker opened
	downTime = 2 * time.Second
)

// outage: the breaker opens, calls wait it out.
func (w *walk) outage(ctx context.Context) error {
	w.title("An outage", fmt.Sprintf("The upstream is down for %v. %d bots call and their first attempts fail, %d more call meanwhile.", downTime, crowd, crowd))
	w.Upstream.Outage(downTime)
	calls := make([]call, 2*crowd)
	for i := range calls {
		calls[i] = call{method: "GET", target: w.url("/ok")}
	}
	looked := make(chan string, 1)
	go func() { looked <- w.breakers(ctx, downTime/2) }()
	s, err := w.sendWaves(ctx, calls, downTime/6)
	if seen := <-looked; err == nil {
		fmt.Fprintf(w.out, "   $ curl http://%s/api/v1/breakers   (half way)\n   %s\n", w.Admin, shorten(seen, 300))
		err = expect(strings.Contains(seen, `"state":"open"`), "no breaker was open half way: %s", seen)
	}
	if err != nil {
		return err
	}
	show(w.out, calls[2*crowd-1], s.replies[2*crowd-1])
	w.tell(s, fmt.Sprintf("All %d calls succeeded. Five failures opened the breaker; then only probes went out. Retrying alone would have sent %d and lost every call.", 2*crowd, 2*crowd*4))
	for i, r := range s.replies {
		if r.status != http.StatusOK {
			return expect(false, "call %d ended with %d, want 200", i+1, r.status)
		}
	}
	return expect(s.requests <= 2*2*crowd, "the upstream saw %d requests, want at most %d", s.requests, 2*2*crowd)
}

// breakers gives the admin view of the breakers after that time.
func (w *walk) breakers(ctx context.Context, after time.Duration) string {
	rest(ctx, after)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.Admin+"/api/v1/breakers", nil)
	if err != nil {
		return err.Error()
	}
	direct := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // not by the environment's proxy
	res, err := direct.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	var compact bytes.Buffer
	if json.Compact(&compact, body) != nil {
		return string(body)
	}
	return compact.String()
}

// rest waits for d, or for the end of ctx.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// explain: what would happen, without sending anything.
func (w *walk) explain(context.Context) error {
	w.title("Ask before you send", "explain tells the policy, the delays and what each failure would lead to.")
	args := []string{"-X", "POST", w.url("/order")}
	before, _ := w.Upstream.Counts()
	fmt.Fprintf(w.out, "   $ retryproxy explain %s\n", strings.Join(args, " "))
	var text strings.Builder
	if err := w.Explain(args, &text); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(w.out, strings.TrimRight("   "+line, " \n"))
	}
	after, _ := w.Upstream.Counts()
	return expect(before == after && text.Len() > 0, "explain sent %d requests", after-before)
}

// sent is what came of the calls of a step.
type sent struct {
	reply   // of the first
	replies []reply
	// requests and effects are the upstream's own count of this step.
	requests, effects int
}

func (w *walk) send(ctx context.Context, c call) (sent, error) {
	return w.sendAll(ctx, []call{c})
}

// sendAll sends the calls at once and shows each with its answer.
func (w *walk) sendAll(ctx context.Context, calls []call) (sent, error) {
	s, err := w.sendWaves(ctx, calls, 0)
	for i := range s.replies {
		show(w.out, calls[i], s.replies[i])
	}
	return s, err
}

// sendWaves sends half of the calls at once and the others after a pause.
func (w *walk) sendWaves(ctx context.Context, calls []call, pause time.Duration) (sent, error) {
	requests, effects := w.Upstream.Counts()
	start := time.Now()
	replies, errs := make([]reply, len(calls)), make([]error, len(calls))
	var bots sync.WaitGroup
	for i, c := range calls {
		if pause > 0 && i == len(calls)/2 {
			rest(ctx, pause)
		}
		bots.Go(func() { replies[i], errs[i] = bot{w.Proxy}.do(ctx, c) })
	}
	bots.Wait()
	if err := errors.Join(errs...); err != nil {
		return sent{}, err
	}
	s := sent{reply: replies[0], replies: replies}
	s.took = time.Since(start)
	s.requests, s.effects = w.Upstream.Counts()
	s.requests -= requests
	s.effects -= effects
	return s, nil
}

func (w *walk) title(name, what string) {
	w.n++
	fmt.Fprintf(w.out, "\n%d. %s\n   %s\n\n", w.n, name, what)
}

// tell explains a step in one line, after the two numbers that prove it.
func (w *walk) tell(s sent, why string) {
	requests := fmt.Sprintf("%d requests", s.requests)
	if s.requests == 1 {
		requests = "1 request"
	}
	fmt.Fprintf(w.out, "\n   %.2f s, %s at the upstream. %s\n", s.took.Seconds(), requests, why)
}

func (w *walk) url(target string) string { return "http://" + w.Upstream.Addr() + target }

// expect is an error that names what was promised, unless it holds.
func expect(holds bool, format string, args ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrPromise, fmt.Sprintf(format, args...))
}
