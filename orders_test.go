package main

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"retryproxy/example/platforms/sandbox"
	"retryproxy/idempotency"
	"retryproxy/internal/race"
)

// ordersPreset is what an operator knows of the supplier.
const ordersPreset = `
preset: supplier-a
version: "1"
operation: [path]
business_key: [form:outOrderId]
volatile: [sign, timestamp]
secrets: [sign]
reads: {operations: ["*/query", "*/balance"]}
sign: {family: kv_amp, digest: md5, case: upper, secret: key, suffix: "&key={secret}", signature: [form:sign], time: {at: [form:timestamp], unit: s}, window: 4m}
answer: {code: [$.code], message: [$.msg], success: [{at: $.code, is: ["0"]}, {at: $.orderStatus, is: ["2"]}]}
rules:
  - {name: accepted, code: ["0"], where: [{at: $.orderStatus, is: ["0", "1"]}], is: processing}
  - {name: failed, code: ["0"], where: [{at: $.orderStatus, is: ["3"]}], is: refused}
  - {name: doubt, code: ["10010", "-99"], is: doubt}
  - {name: fast, code: ["10016"], is: throttled, wait: [{base: 1s}]}
  - {name: later, code: ["10013", "10002"], is: not_now, wait: [{base: 2s}]}
  - {name: sign, code: ["10003"], is: signature_refused}
query:
  request: {url: "http://a.test/api/order/query", form: {appId: demo-app, outOrderId: "{business_key}", timestamp: "{now:unix}", sign: "-"}}
  first_after: 4s
  every: 5s
  max: 12
  grace: 30s
  not_found_answers: 2
  rate: 100/s
  rules:
    - {where: [{at: $.orderStatus, is: ["2"]}], is: done}
    - {where: [{at: $.orderStatus, is: ["3"]}], is: failed}
    - {where: [{at: $.orderStatus, is: ["0", "1"]}], is: processing}
    - {where: [{at: $.code, is: ["10015"]}], is: not_found}
`

// market is the platforms, the bots of some shops, and the proxy between them.
type market struct {
	r            *rig
	pdd, temu, a *sandbox.Server
	books        *sandbox.Books
	client       http.Client

	mu     sync.Mutex
	tokens map[string]string // by platform and shop
}

// deal is what a bot made of an order.
type deal struct {
	sandbox.Sale
	bought string // done, failed, person
	told   string // the same of what it told its shop; empty: nobody had to be told
	edited string // and of the stock that it changed elsewhere
}

// TestThousandOrders lets bots buy and confirm a thousand orders through faults at every
// point and a kill in the middle. Each is delivered once, or in the list for a person, or
// it has definitely failed; none twice.
func TestThousandOrders(t *testing.T) {
	orders, seed := 1000, uint64(time.Now().UnixNano())
	if race.Enabled {
		orders = 20
	}
	if text := os.Getenv("RETRYPROXY_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("RETRYPROXY_SEED=%d", seed)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), ordersPreset)
	patch := []string{
		"retry_limits:", "presets: {dir: '" + dir + "'}\ncredentials: [{preset: supplier-a, values: {key: demo-secret}}, {preset: pdd, values: {client_secret: demo-secret}}, {preset: temu, values: {app_secret: demo-secret}}]\nretry_limits:",
		"retry_policies:\n", "retry_policies:\n  - {name: buy, match: {host: a.test}, preset: supplier-a, query: supplier-a, replay: resign}\n  - {name: tell, match: {host: pdd.test}, preset: pdd, replay: handback}\n  - {name: edit, match: {host: temu.test}, preset: temu, replay: resign}\n",
		"deadline: 6s", "deadline: 30s",
	}
	lasting(t, func(r *rig, again func()) {
		m := openMarket(r, orders, seed)
		deals := m.trade(orders, again)
		rest(20 * time.Minute) // the last questions
		m.compare(deals)
	}, patch...)
}

func openMarket(r *rig, orders int, seed uint64) *market {
	r.t.Helper()
	m := &market{r: r, books: sandbox.NewBooks(), tokens: map[string]string{}}
	var shops []string
	tokens := map[string]string{}
	for i := range 10 {
		shop := fmt.Sprintf("s%d", i)
		shops = append(shops, shop)
		tokens[shop] = "token-" + shop
		m.tokens["pdd"+shop], m.tokens["temu"+shop] = tokens[shop], tokens[shop]
	}
	faults := slices.DeleteFunc(sandbox.Faults(), func(f sandbox.Fault) bool { return f.Kind == sandbox.Quota }) // it would last until midnight
	script := sandbox.Dice(seed, sandbox.Mix{Rate: 0.25, Faults: faults, Most: 4, Fails: 0.05, Least: time.Second, Last: 20 * time.Second})
	options := func(name string, last byte) sandbox.Options {
		addr := netip.AddrFrom4([4]byte{127, 0, 2, last})
		r.hosts[name] = addr
		return sandbox.Options{Addr: addr.String() + ":80", Listen: r.net.Listen, Books: m.books, Script: script, Fault: 2 * time.Second, Rate: 1000}
	}
	var err error
	if m.pdd, err = sandbox.StartPDD(sandbox.PDD{Options: options("pdd.test", 1), Tokens: tokens, Orders: sandbox.Sales(orders, shops...)}); err != nil {
		r.t.Fatal(err)
	}
	if m.temu, err = sandbox.StartTEMU(sandbox.TEMU{Options: options("temu.test", 3), Tokens: tokens, Stock: map[int64]int{17000000000001: 1}}); err != nil {
		r.t.Fatal(err)
	}
	if m.a, err = sandbox.StartSupplierA(sandbox.Supplier{Options: options("a.test", 2), Hidden: 10 * time.Second, QueryEvery: 3 * time.Second, Flood: 1_000_000, Balance: 1_000_000_000}); err != nil {
		r.t.Fatal(err)
	}
	stop := r.stop
	r.stop = func() { stop(); m.client.CloseIdleConnections(); _, _, _ = m.pdd.Close(), m.temu.Close(), m.a.Close() }
	proxy, err := url.Parse("http://" + proxyAddr)
	if err != nil {
		r.t.Fatal(err)
	}
	m.client.Transport = &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true, DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
		return r.net.Dial(ctx, addr)
	}}
	return m
}

// trade lets fifty bots work the orders off, and kills the proxy in the middle.
func (m *market) trade(orders int, again func()) []*deal {
	var shops []string
	for i := range 10 {
		shops = append(shops, fmt.Sprintf("s%d", i))
	}
	var deals []*deal
	queue := make(chan *deal, orders)
	for _, s := range sandbox.Sales(orders, shops...) {
		d := &deal{Sale: s}
		deals = append(deals, d)
		queue <- d
	}
	close(queue)
	var bots sync.WaitGroup
	for range 50 {
		bots.Go(func() {
			for d := range queue {
				m.work(d)
			}
		})
	}
	rest(90 * time.Second)
	m.r.kill()
	again()
	bots.Wait()
	return deals
}

// work is what a bot does for an order: it buys, tells the shop what came of it, and counts
// it off elsewhere.
func (m *market) work(d *deal) {
	d.bought = m.insist(nil, "buy-"+d.Number, d.Shop, "http://a.test/api/order/submit", func(now time.Time) string {
		v := url.Values{"appId": {"demo-app"}, "outOrderId": {d.Number}, "productId": {d.Product}, "account": {d.Account}, "amount": {strconv.Itoa(d.Amount)}, "timestamp": {strconv.FormatInt(now.Unix(), 10)}}
		return signedPairs(v, func(text string) string { return digest(text + "key=demo-secret") }, "=", "&").Encode()
	})
	status := map[string]string{"done": "SUCCESS", "failed": "FAIL"}[d.bought]
	if status == "" {
		return // a person decides
	}
	d.told = m.insist(m.pdd, "tell-"+d.Number, d.Shop, "http://pdd.test/api/router", func(now time.Time) string {
		v := url.Values{"type": {"pdd.virtual.mobile.charge.notify"}, "client_id": {"demo-app"}, "access_token": {m.token(m.pdd, d.Shop)}, "order_sn": {d.Number}, "outer_order_sn": {"A-" + d.Number}, "status": {status}, "timestamp": {strconv.FormatInt(now.Unix(), 10)}}
		return signedPairs(v, wrapped, "", "").Encode()
	})
	d.edited = m.insist(m.temu, "edit-"+d.Number, d.Shop, "http://temu.test/openapi/router", func(now time.Time) string {
		const targets = `[{"skuId":17000000000001,"stockTarget":25}]` // nested values are signed as they are written
		v := signedPairs(url.Values{
			"type": {"bg.local.goods.stock.edit"}, "app_key": {"demo-app"}, "access_token": {m.token(m.temu, d.Shop)}, "data_type": {"JSON"},
			"timestamp": {strconv.FormatInt(now.Unix(), 10)}, "requestUniqueKey": {d.Number}, "goodsId": {"600000000000001"}, "skuStockTargetList": {targets},
		}, wrapped, "", "")
		return fmt.Sprintf(`{"app_key":"demo-app","access_token":%q,"data_type":"JSON","timestamp":%s,"type":%q,"requestUniqueKey":%q,"goodsId":600000000000001,"skuStockTargetList":%s,"sign":%q}`,
			v.Get("access_token"), v.Get("timestamp"), v.Get("type"), v.Get("requestUniqueKey"), targets, v.Get("sign"))
	})
}

func wrapped(text string) string { return digest("demo-secret" + text + "demo-secret") }

// insist sends a call until its bot knows what came of it, as the headers advise: done,
// failed, or a matter for a person. at is who gives new tokens; nil: nobody.
func (m *market) insist(at *sandbox.Server, key, shop, address string, sign func(time.Time) string) string {
	for range 120 {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, address, strings.NewReader(sign(time.Now())))
		if err != nil {
			return "person"
		}
		kind := "application/x-www-form-urlencoded"
		if at == m.temu {
			kind = "application/json"
		}
		req.Header = http.Header{"Content-Type": {kind}, "X-Idempotency-Key": {key}, "X-Shop-Id": {shop}}
		got, err := m.client.Do(req)
		if err != nil { // the proxy was killed: the same key again
			time.Sleep(time.Second)
			continue
		}
		body, err := io.ReadAll(got.Body)
		got.Body.Close()
		reason := got.Header.Get("X-Retry-Reason")
		switch {
		case err != nil:
		case reason == "" && got.StatusCode == 200 && !strings.Contains(string(body), `"orderStatus":0`) && !strings.Contains(string(body), `"orderStatus":1`):
			return "done"
		case reason == "auth_expired":
			m.renew(at, shop)
		case reason == "fail_permanent" || reason == "":
			if strings.Contains(string(body), `"orderStatus":0`) || strings.Contains(string(body), `"orderStatus":1`) {
				break // the work goes on: ask again with the same key
			}
			return "failed"
		case got.Header.Get("X-Retry-Executed") == "maybe" && reason != "in_doubt" && reason != "parked" && reason != "key_busy" && reason != "manual_review":
			return "person"
		}
		wait, _ := strconv.Atoi(got.Header.Get("Retry-After"))
		time.Sleep(max(time.Duration(wait)*time.Second, 5*time.Second))
	}
	return "person"
}

func (m *market) token(at *sandbox.Server, shop string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tokens[at.Name()+shop]
}

func (m *market) renew(at *sandbox.Server, shop string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if token, err := at.Renew(shop); err == nil {
		m.tokens[at.Name()+shop] = token
	}
}

// compare looks at what the books say of every deal.
func (m *market) compare(deals []*deal) {
	t := m.r.t
	now := time.Now()
	report := m.books.Read(now)
	for _, o := range report.Wrong() {
		t.Errorf("the books say that something is wrong with %s: %+v", o.Number, o)
	}
	for _, p := range report.Platforms {
		for name := range p.Headers {
			t.Errorf("%s got the header %s", p.Platform, name)
		}
	}
	letters := map[string]bool{}
	for _, rec := range m.list(idempotency.StateInDoubt, idempotency.StateDead) {
		letters[rec.Key] = true
	}
	delivered, persons := 0, 0
	for _, d := range deals {
		o := m.books.Order(d.Number, now)
		delivered += o.Delivered
		switch d.bought {
		case "done":
			if o.Delivered != 1 || o.Charged != 1 {
				t.Errorf("%s: its bot heard that it is done; charged %d, delivered %d", d.Number, o.Charged, o.Delivered)
			}
		case "failed":
			if o.Delivered != 0 || o.Charged != 0 {
				t.Errorf("%s: its bot heard that it failed; charged %d, delivered %d", d.Number, o.Charged, o.Delivered)
			}
		default:
			if persons++; !letters["buy-"+d.Number] {
				t.Errorf("%s: nobody knows what came of it, and it is in no list; charged %d, delivered %d", d.Number, o.Charged, o.Delivered)
			}
		}
		if d.told == "person" && !letters["tell-"+d.Number] {
			t.Errorf("%s: nobody knows whether its shop was told, and it is in no list", d.Number)
		}
		edits := 0
		for _, e := range o.Events {
			if e.Effect == sandbox.Stock {
				edits++
			}
		}
		if edits > 1 || d.edited == "done" && edits != 1 || d.edited == "person" && !letters["edit-"+d.Number] {
			t.Errorf("%s: its stock was edited %d times, and its bot heard %q", d.Number, edits, d.edited)
		}
	}
	if left := m.list(idempotency.StateRunning, idempotency.StateWaiting, idempotency.StateParked); len(left) > 0 {
		t.Errorf("%d calls still go on", len(left))
	}
	t.Logf("%d orders: %d delivered, %d for a person, %d letters; questions done %v, not executed %v, given up %v",
		len(deals), delivered, persons, len(letters), m.r.metric("queries_total", "answer=done"), m.r.metric("queries_total", "answer=failed"), m.r.metric("queries_total", "answer=unclear"))
	if least := len(deals)*8/10 - 5; delivered < least { // 5: of a few some more may fail
		t.Errorf("%d of %d orders were delivered, want most", delivered, len(deals))
	}
}

// list are all records in these states.
func (m *market) list(states ...idempotency.State) []idempotency.Record {
	list, more, err := m.r.app.store.List(m.r.t.Context(), idempotency.Query{States: states, Limit: 10_000})
	if err != nil || more != "" {
		m.r.t.Fatalf("the records cannot be listed: %v, more %q", err, more)
	}
	return list
}

// signedPairs is v with its signature over the sorted pairs.
func signedPairs(v url.Values, sum func(string) string, equals, and string) url.Values {
	var names []string
	for name := range v {
		names = append(names, name)
	}
	slices.Sort(names)
	text := ""
	for _, name := range names {
		text += name + equals + v.Get(name) + and
	}
	v.Set("sign", sum(text))
	return v
}

// digest is MD5 in capitals.
func digest(text string) string {
	sum := md5.Sum([]byte(text))
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}
