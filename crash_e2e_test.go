//go:build unix

package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// crashConfig: every kind of wait is short. The host of blind never sees a key,
// so there nothing makes a repeat safe. Calls are parked for a Retry-After, for want
// of a token, for a breaker and by a shutdown; hasty ones are soon given up.
const crashConfig = `
listen: {proxy: "127.0.0.1:0", admin: ""}
retry_limits: {global: off, task_type: off, shop: {rate: 120/m, burst: 3, share: 0}}
breakers: {host: {consecutive_failures: 10, open: 20ms, open_max: 50ms}, shop: {identical_failures: 3, probe_every: 1s}}
retry_policies:
  - {name: blind_503, match: {host: "%[1]s", path: /orders/503}, forward_headers: [], on_park: 503}
  - {name: blind_hasty, match: {host: "%[1]s", path: /orders/hasty}, forward_headers: [], max_retries: 1}
  - {name: blind, match: {host: "%[1]s"}, forward_headers: []}
  - {name: by_503, match: {path: /orders/503}, on_park: 503}
  - {name: hasty, match: {path: /orders/hasty}, max_retries: 1}
  - {name: default, max_retries: 6, base_delay: 10ms, max_delay: 100ms, safe: auto, per_try_timeout: 3s, deadline: 5s, retry_after_cap: 100ms, retry_after_over_cap: park}
`

const (
	crashClients  = 8
	crashBound    = 30 * time.Second       // from the last start to the last final answer
	crashAsync    = 50                     // so often a client asks not to wait for the answer to a refused order
	crashPatience = 300 * time.Millisecond // for a moment to kill at
)

// TestE2EKillAtAnyInstant kills the process again and again, at random instants,
// starting and stopping included, under a steady load of keyed orders: none is lost, none is
// made twice, none hangs. RETRYPROXY_KILLS and RETRYPROXY_SEED choose another run; an odd
// seed is one with durability: process.
func TestE2EKillAtAnyInstant(t *testing.T) {
	kills, seed := setting(t, "RETRYPROXY_KILLS", 30), setting(t, "RETRYPROXY_SEED", time.Now().UnixNano())
	durability := []string{"full", "process"}[uint64(seed)%2]
	t.Logf("RETRYPROXY_KILLS=%d RETRYPROXY_SEED=%d, durability: %s", kills, seed, durability)
	v := newVictim(t)
	honours, blind := newSeller(v, seed, true), newSeller(v, seed, false)
	v.configure(blind.host, durability)
	load := newBuyers(v, seed, honours, blind, manners...)

	random := rand.New(rand.NewPCG(uint64(seed), 0))
	for range kills {
		v.start()
		if random.IntN(6) > 0 {
			v.serve()
		}
		v.polite = random.IntN(6) == 0
		v.killAfter(time.Duration(random.Int64N(int64(350*time.Millisecond))), moment(random.IntN(2*int(moments))))
	}
	v.start()
	v.serve()
	load.calm(200)
	load.finish()
	load.check()
	if honours.cut.Load()+blind.cut.Load() == 0 {
		t.Error("no kill came while an attempt was in flight")
	}
	v.end()
	load.compare(v.records())
	t.Logf("%d orders: %s; %d of %d kills while starting", len(load.orders), load.tally(), v.early, kills)
}

// moment is an instant at which a kill is most likely to find a gap.
type moment int

const (
	arrived moment = iota // a seller has the order, and has done nothing
	sold                  // a seller has made it, and has not answered
	told                  // a seller has answered
	heard                 // a client has its final answer
	moments               // from here on: no event, the clock rules
)

func setting(t *testing.T, name string, otherwise int64) int64 {
	t.Helper()
	n, err := strconv.ParseInt(cmp.Or(os.Getenv(name), strconv.FormatInt(otherwise, 10)), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// victim is the binary on one data directory, run after run.
type victim struct {
	t          *testing.T
	path       string
	file, data string
	cmd        *exec.Cmd
	log        *lockedBuffer
	addr       chan string // where it listens, once it does
	ended      chan struct{}
	polite     bool                                // it is asked to stop before it is killed
	early      int                                 // kills before it listened
	doomed     [moments]atomic.Pointer[os.Process] // what dies when the moment comes

	mu   sync.Mutex
	up   chan struct{} // closed while it listens
	at   *url.URL
	pick func() *url.URL // of several processes, one that listens; nil: there is only this
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	skipE2E(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	v := &victim{t: t, path: path, file: filepath.Join(dir, "c.yaml"), data: filepath.Join(dir, "data"), up: make(chan struct{})}
	if err := os.Mkdir(v.data, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if v.cmd != nil && v.cmd.Process != nil {
			_ = v.cmd.Process.Kill()
			<-v.ended
		}
	})
	return v
}

func (v *victim) configure(blind, durability string) {
	v.t.Helper()
	if err := os.WriteFile(v.file, fmt.Appendf(nil, crashConfig+"store: {durability: %[2]s}\n", blind, durability), 0o600); err != nil {
		v.t.Fatal(err)
	}
}

// start begins a run and does not wait for anything.
func (v *victim) start() {
	v.t.Helper()
	v.cmd, v.log = exec.Command(v.path, "serve", "-config", v.file, "-data", v.data), &lockedBuffer{}
	v.cmd.Stderr = v.log
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		v.t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	addr, ended, cmd := make(chan string, 1), make(chan struct{}), v.cmd
	v.addr, v.ended = addr, ended
	go func() { // ends with the process
		defer close(ended)
		for in := bufio.NewScanner(out); in.Scan(); {
			if m := proxyLine.FindStringSubmatch(in.Text()); m != nil {
				addr <- m[1]
			}
		}
		_ = cmd.Wait()
	}()
}

// serve waits until it listens, and lets the clients in.
func (v *victim) serve() {
	v.t.Helper()
	select {
	case addr := <-v.addr:
		v.mu.Lock()
		v.at = &url.URL{Scheme: "http", Host: addr}
		close(v.up)
		v.mu.Unlock()
	case <-v.ended:
		v.t.Fatalf("it does not start again: %s", v.log)
	case <-time.After(crashBound):
		v.t.Fatalf("it does not start within %v: %s", crashBound, v.log)
	}
}

// killAfter ends the run with SIGKILL after d, or at the next m from then on; it
// may not end by itself before, unless it was asked to.
func (v *victim) killAfter(d time.Duration, m moment) {
	v.t.Helper()
	select {
	case <-time.After(d):
	case <-v.ended:
		v.t.Fatalf("it ended by itself: %s", v.log)
	}
	if v.polite {
		_ = v.cmd.Process.Signal(syscall.SIGTERM)
	}
	if m < moments || v.polite {
		v.await(m)
	}
	_ = v.cmd.Process.Kill() // the moment may have come
	<-v.ended
	if code := v.cmd.ProcessState.ExitCode(); code > 0 || code == 0 && !v.polite {
		v.t.Fatalf("it ended by itself with %d: %s", code, v.log)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.at == nil {
		v.early++
		return
	}
	v.at, v.up = nil, make(chan struct{})
}

// await gives it some time to die at m, or to drain.
func (v *victim) await(m moment) {
	if m < moments {
		v.doomed[m].Store(v.cmd.Process)
		defer v.doomed[m].Store(nil)
	}
	select {
	case <-time.After(crashPatience):
	case <-v.ended:
	}
}

// comes says that it is m now.
func (v *victim) comes(m moment) {
	if p := v.doomed[m].Swap(nil); p != nil {
		_ = p.Kill()
	}
}

// end drains the last run.
func (v *victim) end() {
	v.t.Helper()
	_ = v.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-v.ended:
	case <-time.After(crashBound):
		v.t.Fatalf("it does not end: %s", v.log)
	}
	if code := v.cmd.ProcessState.ExitCode(); code != 0 {
		v.t.Errorf("exit code = %d, want 0; log: %s", code, v.log)
	}
}

// serving waits until it listens, and says where; nil: ctx ended.
func (v *victim) serving(ctx context.Context) *url.URL {
	if v.pick != nil {
		return v.pick()
	}
	for {
		v.mu.Lock()
		at, up := v.at, v.up
		v.mu.Unlock()
		if at != nil {
			return at
		}
		select {
		case <-up:
		case <-ctx.Done():
			return nil
		}
	}
}

// seller is an upstream that sells and is often in trouble.
type seller struct {
	v         *victim
	url, host string
	honours   bool // a key never makes two orders

	mu       sync.Mutex
	random   *rand.Rand
	sold     map[string]*sale  // by the order's text
	byKey    map[string]string // the receipt a key has
	receipts int
	cut      atomic.Int64 // requests whose connection ended before the answer
}

// sale is what the shop saw of an order.
type sale struct {
	refused           bool // told once, and so for ever
	requests, effects int
	begun             bool // a request came to an end that nobody may repeat
	again             int  // requests after that
	count             int  // the largest X-Retry-Count
	fell              bool // one did not rise
}

// newSeller starts a shop that ends with the test.
func newSeller(v *victim, seed int64, honours bool) *seller {
	s := &seller{v: v, honours: honours, random: rand.New(rand.NewPCG(uint64(seed), 1)), sold: map[string]*sale{}, byKey: map[string]string{}}
	server := httptest.NewServer(s)
	v.t.Cleanup(server.Close)
	s.url, s.host = server.URL, strings.TrimPrefix(server.URL, "http://")
	return s
}

// ServeHTTP plays one of: 503, 503 with Retry-After, 422, reset before or after the
// order is made, 201; any of them at once or slowly.
func (s *seller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return // the proxy was killed before it had sent the whole order
	}
	play, before, after := s.take(string(text), r.Header.Get("X-Retry-Count"))
	s.v.comes(arrived)
	<-time.After(before)
	if play < 22 {
		if s.lost(r, string(text)) {
			return
		}
		if play < 4 {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if s.refuses(r, string(text), play < 24) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	receipt := ""
	if play >= 28 {
		if receipt = s.sell(string(text), r.Header.Get("X-Idempotency-Key")); receipt == "" {
			w.WriteHeader(http.StatusUnprocessableEntity) // refused meanwhile
			return
		}
	}
	s.close(string(text))
	s.v.comes(sold)
	<-time.After(after)
	if s.lost(r, string(text)) {
		return
	}
	if play < 34 {
		cutOff(w)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(receipt))) // so that it is whole when flushed
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, receipt)
	_ = http.NewResponseController(w).Flush()
	s.v.comes(told)
}

// take books a request and says what becomes of it.
func (s *seller) take(text, count string) (play int, before, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.sold[text]
	if o == nil {
		o = &sale{}
		s.sold[text] = o
	}
	n, _ := strconv.Atoi(count) // absent: 0
	o.fell = o.fell || s.honours && o.requests > 0 && n <= o.count
	o.requests++
	o.count = n
	if o.begun {
		o.again++
	}
	if s.random.IntN(3) == 0 {
		before = time.Duration(s.random.Int64N(int64(150 * time.Millisecond)))
		after = time.Duration(s.random.Int64N(int64(150 * time.Millisecond)))
	}
	return s.random.IntN(100), before, after
}

// sell makes the order, once for each key that is honoured.
func (s *seller) sell(text, key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.honours && key != "" && s.byKey[key] != "" {
		return s.byKey[key]
	}
	if s.sold[text].refused {
		return ""
	}
	s.receipts++
	s.sold[text].effects++
	receipt := fmt.Sprintf("receipt %d for %s", s.receipts, text)
	if s.honours {
		s.byKey[key] = receipt
	}
	return receipt
}

// refuses says that the order is not to be had; one that was made is, and one that
// was refused stays so, though an earlier request for it is still being worked on.
func (s *seller) refuses(r *http.Request, text string, now bool) bool {
	if s.lost(r, text) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.sold[text]
	o.refused = o.refused || now && o.effects == 0
	return o.refused
}

// close notes that this request was more than "not now".
func (s *seller) close(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sold[text].begun = true
}

// lost says whether the proxy is gone: it cannot know what came of the request.
func (s *seller) lost(r *http.Request, text string) bool {
	if r.Context().Err() == nil {
		return false
	}
	s.cut.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sold[text].begun = true
	return true
}

// cutOff ends the connection without an answer.
func cutOff(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

func (s *seller) sale(text string) sale {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.sold[text]; o != nil {
		return *o
	}
	return sale{}
}

// buyers are a number of clients that order until they are told to stop.
type buyers struct {
	v      *victim
	stop   atomic.Bool
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	http   *http.Client
	heard  chan struct{} // a final answer

	mu     sync.Mutex
	orders []*order
}

// order is one key and what its client heard at last.
type order struct {
	manner
	shop    *seller
	key     string
	text    string
	asked   int
	final   answered
	err     error  // of the last request
	receipt string // where it is told how the order stands, once it was acknowledged
	state   string // in the end, as the receipt says; empty: nobody looked at that
}

// newBuyers lets clients order; each order is made in one of the manners.
func newBuyers(v *victim, seed int64, honours, blind *seller, manners ...manner) *buyers {
	l := &buyers{v: v, heard: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(v.t.Context())
	through := func(r *http.Request) (*url.URL, error) {
		if at := v.serving(r.Context()); at != nil {
			return at, nil
		}
		return nil, context.Cause(r.Context())
	}
	l.http = &http.Client{Transport: &http.Transport{Proxy: through, DisableKeepAlives: true}}
	for i := range crashClients {
		random := rand.New(rand.NewPCG(uint64(seed), uint64(2+i)))
		l.done.Go(func() {
			for n := 0; !l.stop.Load(); n++ {
				o := &order{shop: honours, key: fmt.Sprintf("k-%d-%d", i, n)}
				if random.IntN(3) == 0 {
					o.shop = blind
				}
				o.text = "order of " + o.key
				if len(manners) > 0 {
					o.manner = manners[random.IntN(len(manners))]
				}
				l.mu.Lock()
				l.orders = append(l.orders, o)
				l.mu.Unlock()
				l.insist(o, random)
			}
		})
	}
	v.t.Cleanup(func() { l.stop.Store(true); l.cancel(); l.done.Wait() })
	return l
}

// insist repeats an order until its answer is final. Some clients have little
// patience, some so little that they leave while the order is being recorded.
func (l *buyers) insist(o *order, random *rand.Rand) {
	for l.ctx.Err() == nil {
		patience := crashBound
		if random.IntN(3) == 0 {
			patience = time.Duration(random.Int64N(int64(200*time.Millisecond)) >> random.IntN(8))
		}
		ctx, cancel := context.WithTimeout(l.ctx, patience)
		over := l.ask(ctx, o)
		cancel()
		if over {
			l.v.comes(heard)
			select {
			case l.heard <- struct{}{}:
			default: // nobody counts yet
			}
			return
		}
		select {
		case <-time.After(time.Duration(random.Int64N(int64(30 * time.Millisecond)))):
		case <-l.ctx.Done():
		}
	}
}

// isFinal: repeating the request cannot change its answer.
func isFinal(a answered) bool {
	switch a.status {
	case 202, 502, 503, 504: // 202: it goes on
		return false
	case 409:
		return a.header.Get("X-Retry-Reason") != "key_busy"
	}
	return true
}

func (l *buyers) send(ctx context.Context, o *order) (answered, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", o.shop.url+"/orders"+o.path, strings.NewReader(o.text))
	if err != nil {
		return answered{}, err
	}
	req.Header.Set("X-Idempotency-Key", o.key)
	// Each repeat of a refused order is a new run, which may be acknowledged as well.
	if o.prefer != "" && (o.asked < crashAsync || !o.shop.sale(o.text).refused) {
		req.Header.Set("Prefer", o.prefer)
	}
	return l.do(o, req)
}

// do sends a request as the order's shop and reads the answer.
func (l *buyers) do(o *order, req *http.Request) (answered, error) {
	if o.shopID != "" {
		req.Header.Set("X-Shop-Id", o.shopID)
	}
	res, err := l.http.Do(req)
	if err != nil {
		return answered{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answered{res.StatusCode, res.Header, string(body)}, err
}

// calm waits for the answers to n orders.
func (l *buyers) calm(n int) {
	l.v.t.Helper()
	late := time.After(crashBound)
	for range n {
		select {
		case <-l.heard:
		case <-late:
			l.v.t.Errorf("less than %d orders had an answer %v after the last start", n, crashBound)
			return
		}
	}
}

// finish takes no further orders and waits for the answers of all that began.
func (l *buyers) finish() {
	l.v.t.Helper()
	l.stop.Store(true)
	late := time.AfterFunc(crashBound, l.cancel)
	l.done.Wait()
	l.lookAfter()
	if !late.Stop() {
		l.v.t.Errorf("calls are stuck %v after the last start; log: %s", crashBound, l.v.log)
	}
}

// check asks for every order once more and compares what its client heard with
// what its shop did.
func (l *buyers) check() {
	work := make(chan *order)
	var done sync.WaitGroup
	for range crashClients {
		done.Go(func() {
			for o := range work {
				if fault := l.fault(o); fault != "" {
					l.v.t.Errorf("%s: %s", o, fault)
				}
			}
		})
	}
	for _, o := range l.orders {
		work <- o
	}
	close(work)
	done.Wait()
}

// String tells what is known of an order.
func (o *order) String() string {
	return fmt.Sprintf("%s (honours keys: %v, %+v): its client asked %d times and heard %d %s %q %v, receipt %q %s; its shop saw %+v",
		o.key, o.shop.honours, o.manner, o.asked, o.final.status, o.final.header.Get("X-Retry-Reason"), o.final.body, o.err, o.receipt, o.state, o.shop.sale(o.text))
}

// refused says that its client heard from its shop that the order is not to be had.
func (o *order) refused() bool {
	return o.final.status == http.StatusUnprocessableEntity && o.final.header.Get("X-Retry-Reason") == "fail_permanent"
}

// fault says what was done to an order that nobody may do; empty: nothing.
func (o *sale) fault(honours bool) string {
	switch {
	case o.effects > 1:
		return "made twice"
	case o.fell:
		return "X-Retry-Count fell"
	case !honours && o.again > 0:
		return "sent again though it may have been executed"
	}
	return ""
}

// fault says what is wrong with an order; empty: nothing.
func (l *buyers) fault(o *order) string {
	before := o.shop.sale(o.text)
	if o.state == "dead" || o.refused() {
		return before.fault(o.shop.honours) // a repeat would be another run: compare looks at the rest
	}
	again, err := l.send(l.v.t.Context(), o)
	after := o.shop.sale(o.text)
	inDoubt := o.final.status == 409 && o.final.header.Get("X-Retry-Reason") == "in_doubt"
	switch {
	case o.err != nil || !isFinal(o.final):
		return "stuck"
	case err != nil:
		return "the repeat failed: " + err.Error()
	case after.fault(o.shop.honours) != "":
		return after.fault(o.shop.honours)
	case after.requests != before.requests:
		return "the repeat went upstream"
	case again.status != o.final.status || o.final.status == 201 && again.body != o.final.body:
		return fmt.Sprintf("the repeat got %d %s %q", again.status, again.header.Get("X-Retry-Reason"), again.body)
	case o.final.status == 201 && (after.effects != 1 || again.header.Get("Idempotency-Replayed") != "true"):
		return fmt.Sprintf("acknowledged, want one effect and a replay, got %v", again.header)
	case o.final.status != 201 && (o.shop.honours || !inDoubt):
		return "an end that nothing explains"
	}
	return ""
}

// tally is for the reader of a log.
func (l *buyers) tally() string {
	count := map[string]int{}
	for _, o := range l.orders {
		count[strings.TrimSpace(fmt.Sprintf("%d honours=%v %s", o.final.status, o.shop.honours, o.state))]++
		count["asked"] += o.asked
		if s := o.shop.sale(o.text); s.requests > 1 {
			count["repeated upstream"]++
		}
		count["cut"] = max(count["cut"], int(o.shop.cut.Load()))
	}
	return fmt.Sprint(count)
}
