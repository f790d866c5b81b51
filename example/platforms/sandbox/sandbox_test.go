package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding/simplifiedchinese"

	"retryproxy/internal/memnet"
)

// rig is one platform over an in-memory network, and a client.
type rig struct {
	t      *testing.T
	s      *Server
	client http.Client
}

// bubble runs f with a platform in a synctest bubble.
func bubble(t *testing.T, start func(Options) (*Server, error), f func(*rig), set ...func(*Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		o := Options{Addr: "127.0.0.1:8601", Listen: n.Listen}
		for _, change := range set {
			change(&o)
		}
		s, err := start(o)
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return n.Dial(ctx, addr) }, DisableKeepAlives: true}
		f(&rig{t: t, s: s, client: http.Client{Transport: transport}})
		if err := s.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
}

func startPDD(o Options) (*Server, error) {
	return StartPDD(PDD{Options: o, Tokens: map[string]string{"s1": "tok-s1", "s2": "tok-s2"}, Orders: Sales(5, "s1", "s2")})
}

func startTEMU(o Options) (*Server, error) {
	return StartTEMU(TEMU{Options: o, Tokens: map[string]string{"s1": "tok-s1", "s2": "tok-s2"}, Orders: Sales(3, "s1"), Stock: map[int64]int{17: 100}})
}

func startA(o Options) (*Server, error) { return StartSupplierA(Supplier{Options: o}) }
func startB(o Options) (*Server, error) { return StartSupplierB(Supplier{Options: o}) }

// send posts a body and gives what came back.
func (r *rig) send(path, contentType, body string) (string, error) {
	res, err := r.client.Post("http://"+r.s.Address()+path, contentType, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != 200 {
		return strconv.Itoa(res.StatusCode), nil
	}
	return string(text), err
}

const form = "application/x-www-form-urlencoded"

// pdd asks PDD; more are names and values laid over a notice of order 1.
func (r *rig) pdd(more ...string) string {
	r.t.Helper()
	text, err := r.send("/api/router", form, notice(more...))
	if err != nil {
		r.t.Fatalf("pdd: %v", err)
	}
	return text
}

// notice is the signed form of it.
func notice(more ...string) string {
	p := params{
		"type": "pdd.virtual.mobile.charge.notify", "client_id": "demo-app", "access_token": "tok-s1",
		"order_sn": "240101-0001", "outer_order_sn": "SUP-1", "status": "SUCCESS",
		"timestamp": strconv.FormatInt(time.Now().Unix(), 10),
	}
	p.lay(more)
	if p["sign"] == "" {
		p["sign"] = p.wrapped("demo-secret")
	}
	return p.form()
}

func (p params) lay(more []string) {
	for i := 0; i+1 < len(more); i += 2 {
		p[more[i]] = more[i+1]
	}
}

func (p params) form() string {
	v := url.Values{}
	for name, value := range p {
		v.Set(name, value)
	}
	return v.Encode()
}

// a asks supplier A about order o1.
func (r *rig) a(path string, more ...string) string {
	r.t.Helper()
	p := params{"appId": "demo-app", "outOrderId": "o1", "timestamp": strconv.FormatInt(time.Now().Unix(), 10)}
	if path == "/api/order/submit" {
		p.lay([]string{"productId", "phone-50", "account", "139", "amount", "5000"})
	}
	p.lay(more)
	if p["sign"] == "" {
		p["sign"] = p.joined("demo-secret")
	}
	text, err := r.send(path, form, p.form())
	if err != nil {
		r.t.Fatalf("supplier a: %v", err)
	}
	return text
}

// b asks supplier B, and reads its answer as GB2312.
func (r *rig) b(path string, more ...string) string {
	r.t.Helper()
	p := params{"userid": "demo-app", "sporderid": "o1"}
	signed := []string{"userid", "sporderid"}
	if path == "/onlinepay.do" {
		p.lay([]string{"productid", "phone-50", "num", "1", "account", "139", "spordertime", "20000101080000"})
		signed = []string{"userid", "productid", "num", "account", "spordertime", "sporderid"}
	}
	p.lay(more)
	if p["sign"] == "" {
		p["sign"] = p.listed("demo-secret", signed...)
	}
	text, err := r.send(path, form, p.form())
	if err != nil {
		r.t.Fatalf("supplier b: %v", err)
	}
	out, err := simplifiedchinese.GBK.NewDecoder().String(text)
	if err != nil {
		r.t.Fatalf("supplier b: %q is not GB2312: %v", text, err)
	}
	return out
}

func (r *rig) want(what, got, want string) {
	r.t.Helper()
	if !strings.Contains(got, want) {
		r.t.Errorf("%s = %s, want %s in it", what, got, want)
	}
}

func (r *rig) order(number string) Order { return r.s.Books.Order(number, time.Now()) }

// The digests were made by md5sum of the strings that the documents prescribe; the
// first two are those of the documents' own examples.
func TestSignatures(t *testing.T) {
	const at = `"timestamp":946684800`
	tests := []struct {
		name, family, secret, body, want string
	}{
		{"kv of a document", "joined", "EWEFD123RGSRETYDFNGFGFGSHDFGH", `{"productNo":"2110000050000","appId":"test01","mobile":"18698798721","amount":50,"orderNo":"12345","notifyUrl":"xxxxxx","remark":""}`, "7864F84DE809CE3FA0C080FB516FD991"},
		{"TEMU's document", "wrapped", "c7e0a1a63542be4de3cb5488f9fba8149e8fc290", `{"type":"bg.logistics.shipment.confirm","timestamp":1711009072,"sendType":0,"app_key":"f9d5cc9313893a20d5aa85c654e8f503","data_type":"JSON","access_token":"2nifvmpyymvypwmcms5ct4uqqudrwgpmzbcnmkt1jzjkuaf3x56iixym",
			"sendRequestList": [ {"orderSendInfoList":[{"quantity":1, "orderSn":"211-21905473070712792","parentOrderSn":"PO-211-21905452099192792","goodsId":601099548666279,"skuId":17592352673534}],"carrierId":"699272611","trackingNumber":"270324232756"} ]}`, "4CCF219942D4180C6DDA3CE36C1B838F"},
		{"PDD", "wrapped", "demo-secret", `{"access_token":"tok-s1","client_id":"demo-app","order_sn":"240101-0001","outer_order_sn":"SUP-1","status":"SUCCESS","type":"pdd.virtual.mobile.charge.notify",` + at + `,"sign":"left out"}`, "9CD70E0794747AD19438982A112B3E71"},
		{"nested, bool, null", "wrapped", "demo-secret", `{"list": [ {"b": 1, "a":"x<y"} ],"flag":true,"none":null,"access_token":"tok-s1","client_id":"demo-app","order_sn":"240101-0001","type":"pdd.order.information.get",` + at + `}`, "0D96649BF128FCDEED4F59B26C74A87A"},
		{"TEMU", "wrapped", "demo-secret", `{"access_token":"tok-s1","app_key":"demo-app","data_type":"JSON","requestUniqueKey":"k1","skuStockChangeList":[{"skuId":17,"stockDiff":5}],"type":"bg.local.goods.stock.edit",` + at + `}`, "27155E7DC42425F29E58515BEE3C1CCF"},
		{"A", "joined", "demo-secret", `{"outOrderId":"o1","appId":"demo-app","productId":"phone-50","account":"139","amount":5000,` + at + `}`, "082F2F81CF889344CB1F53D64C9C6397"},
		{"B", "listed", "demo-secret", `{"userid":"demo-app","productid":"phone-50","num":"1","account":"139","spordertime":"20000101080000","sporderid":"o1","userip":"unsigned"}`, "0DE5FF8BF1056BDDD0FC714E24DF9777"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := params{}
			if err := p.addJSON([]byte(test.body)); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{
				"joined": p.joined(test.secret), "wrapped": p.wrapped(test.secret),
				"listed": p.listed(test.secret, "userid", "productid", "num", "account", "spordertime", "sporderid"),
			}[test.family]
			if got != test.want {
				t.Errorf("signature = %s, want %s", got, test.want)
			}
		})
	}
}

func TestParametersThatCannotBeSigned(t *testing.T) {
	for _, body := range []string{``, `[]`, `{"a":1,"a":1}`, `{"a":1}{"a":1}`, `{"a":`, `{"a":1,}`, `{"a" 1}`} {
		if err := (params{}).addJSON([]byte(body)); err == nil {
			t.Errorf("addJSON(%s) = nil, want an error", body)
		}
	}
	for _, text := range []string{"a=1&a=1", "a=%zz"} {
		if err := (params{}).addForm(text); err == nil {
			t.Errorf("addForm(%s) = nil, want an error", text)
		}
	}
}

func TestPDDChecks(t *testing.T) {
	at := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
	tests := []struct {
		name string
		more func() []string
		want string
	}{
		{"good", func() []string { return nil }, `"success":true`},
		{"wrong signature", func() []string { return []string{"sign", "8CD70E0794747AD19438982A112B3E71"} }, `:20004,`},
		{"lower case", func() []string { return []string{"sign", "9cd70e0794747ad19438982a112b3e71"} }, `:20004,`},
		{"just in the window", func() []string { return []string{"timestamp", at(-10 * time.Minute)} }, `"success":true`},
		{"too old", func() []string { return []string{"timestamp", at(-601 * time.Second)} }, `timestamp`},
		{"too new", func() []string { return []string{"timestamp", at(601 * time.Second)} }, `timestamp`},
		{"milliseconds", func() []string { return []string{"timestamp", at(0) + "000"} }, `timestamp`},
		{"unknown token", func() []string { return []string{"access_token", "x"} }, `:10019,`},
		{"no token", func() []string { return []string{"access_token", ""} }, `:10019,`},
		{"unknown client", func() []string { return []string{"client_id", "x"} }, `client_id`},
		{"unknown type", func() []string { return []string{"type", "pdd.x.get"} }, `参数错误:type`},
		{"another shop's order", func() []string { return []string{"access_token", "tok-s2"} }, `订单不存在`},
		{"unknown order", func() []string { return []string{"order_sn", "240101-9"} }, `订单不存在`},
		{"unknown status", func() []string { return []string{"status", "MAYBE"} }, `status错误`},
		{"too large", func() []string { return []string{"x", strings.Repeat("x", maxBody)} }, `:52004,`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, startPDD, func(r *rig) {
				r.want("answer", r.pdd(test.more()...), test.want)
				want := 0
				if strings.Contains(test.want, "success") {
					want = 1
				}
				if got := r.order("240101-0001").Notified; got != want {
					t.Errorf("notified %d times, want %d", got, want)
				}
			})
		})
	}
}

// The window can be a matter of seconds, and a clock that goes wrong is refused.
func TestPDDClock(t *testing.T) {
	skewed := func(o *Options) { o.Window, o.Skew = 5*time.Second, 3*time.Second }
	bubble(t, startPDD, func(r *rig) {
		stale := notice()
		time.Sleep(3 * time.Second)
		text, err := r.send("/api/router", form, stale)
		if err != nil || !strings.Contains(text, "timestamp") {
			t.Errorf("after 3 s, with a clock 3 s ahead: %s (%v), want a refusal of the timestamp", text, err)
		}
		r.want("a fresh one", r.pdd(), `"success":true`)
	}, skewed)
}

func TestPDDOrders(t *testing.T) {
	bubble(t, startPDD, func(r *rig) {
		r.want("list", r.pdd("type", "pdd.order.list.get", "page", "2", "page_size", "2"), `"order_sn":"240101-0005"`)
		r.want("list", r.pdd("type", "pdd.order.list.get", "page", "9"), `"order_list":[]`)
		r.want("before", r.pdd("type", "pdd.order.information.get"), `"order_status":1`)
		r.want("notice", r.pdd(), `"success":true`)
		r.want("second notice", r.pdd("status", "FAIL"), `订单状态不允许重复通知`)
		r.want("after", r.pdd("type", "pdd.order.information.get"), `"order_status":2`)
		for range 2 {
			r.want("waybill", r.pdd("type", "pdd.waybill.get", "order_sn", "240101-0003"), `"waybill_code":"WB`)
		}
		r.want("failed", r.pdd("order_sn", "240101-0005", "status", "FAIL"), `"success":true`)
		if o := r.order("240101-0001"); o.Notified != 1 || o.Refused != 1 || o.Early != 1 {
			t.Errorf("books = %+v, want notified 1 (early), refused 1", o)
		}
		if o := r.order("240101-0005"); o.Closed != 1 {
			t.Errorf("books = %+v, want closed 1", o)
		}
		wrong := r.s.Books.Read(time.Now()).Wrong()
		if len(wrong) != 2 || wrong[1].Waybills != 2 {
			t.Errorf("wrong = %+v, want the early notice and the second waybill", wrong)
		}
	})
}

func TestPDDTakesJSON(t *testing.T) {
	bubble(t, startPDD, func(r *rig) {
		body := `{"type":"pdd.order.information.get","client_id":"demo-app","access_token":"tok-s1","order_sn":"240101-0001","timestamp":946684800,"flag":true,"list":[{"b":1,"a":"x<y"}],"sign":"0D96649BF128FCDEED4F59B26C74A87A"}`
		text, err := r.send("/api/router", "application/json", body)
		if err != nil || !strings.Contains(text, `"order_status":1`) {
			t.Errorf("answer = %s (%v), want the order", text, err)
		}
		text, _ = r.send("/api/router", "application/json", strings.Replace(body, `x<y`, `x<z`, 1))
		r.want("changed", text, `:20004,`)
	})
}

func TestGateLimits(t *testing.T) {
	set := func(o *Options) {
		o.Rate, o.Burst, o.Quotas = 1, 2, map[string]int{"pdd.order.list.get": 3}
	}
	bubble(t, startPDD, func(r *rig) {
		ask := func(token string) string { return r.pdd("type", "pdd.order.list.get", "access_token", token) }
		r.want("1st", ask("tok-s1"), "total_count")
		r.want("2nd", ask("tok-s1"), "total_count")
		r.want("3rd at once", ask("tok-s1"), ":52101,")
		r.want("another shop", ask("tok-s2"), "total_count")
		time.Sleep(time.Second)
		r.want("3rd", ask("tok-s1"), "total_count")
		time.Sleep(time.Second)
		r.want("above the quota", ask("tok-s1"), ":70036,")
		r.want("another operation", r.pdd("access_token", "tok-s2"), "订单不存在")
		time.Sleep(16*time.Hour - 3*time.Second) // 15:59:59 UTC
		r.want("one second before midnight in Beijing", ask("tok-s1"), ":70036,")
		time.Sleep(time.Second)
		r.want("the next day", ask("tok-s1"), "total_count")
	}, set)
}

func TestTokens(t *testing.T) {
	script := func(p Point) Fault {
		return map[int]Fault{1: {Kind: Token, For: time.Minute}, 5: {Kind: Maintenance}}[p.Number]
	}
	bubble(t, startPDD, func(r *rig) {
		r.want("1st", r.pdd(), ":10019,")
		r.want("another shop", r.pdd("access_token", "tok-s2", "order_sn", "240101-0002"), ":10019,") // its own 1st
		time.Sleep(59 * time.Second)
		r.want("still", r.pdd(), ":10019,")
		time.Sleep(time.Second)
		r.want("over", r.pdd("status", "x"), "status错误")
		token, err := r.s.Renew("s1")
		if err != nil {
			t.Fatal(err)
		}
		r.want("the old one", r.pdd(), ":10019,")
		r.want("maintenance", r.pdd("access_token", token), ":70033,")
		time.Sleep(5*time.Second - time.Nanosecond)
		r.want("still", r.pdd("access_token", token), ":70033,")
		time.Sleep(time.Nanosecond)
		r.want("the new one", r.pdd("access_token", token), `"success":true`)
		if _, err := r.s.Renew("s9"); err == nil {
			t.Error("Renew(s9) = nil, want an error")
		}
	}, func(o *Options) { o.Script = script })
}

// A new token is good at once, however long the old one would have been refused.
func TestRenewedTokenIsGoodAtOnce(t *testing.T) {
	script := func(p Point) Fault {
		if p.Phase == Requesting && p.Number == 1 {
			return Fault{Kind: Token, For: time.Hour}
		}
		return Fault{}
	}
	bubble(t, startPDD, func(r *rig) {
		r.want("refused", r.pdd(), ":10019,")
		token, err := r.s.Renew("s1")
		if err != nil {
			t.Fatal(err)
		}
		r.want("renewed", r.pdd("access_token", token), `"success":true`)
	}, func(o *Options) { o.Script = script })
}

// A connection that was open before the platform went down is of no use meanwhile.
func TestKeptConnectionsGoDownToo(t *testing.T) {
	script := func(p Point) Fault {
		if p.Phase == Requesting && p.Order == "240101-0003" {
			return Fault{Kind: Down}
		}
		return Fault{}
	}
	bubble(t, startPDD, func(r *rig) {
		transport := r.client.Transport.(*http.Transport)
		transport.DisableKeepAlives = false
		defer transport.CloseIdleConnections()
		r.want("list", r.pdd("type", "pdd.order.list.get"), "total_count") // its connection is kept
		other := http.Client{Transport: &http.Transport{DialContext: transport.DialContext, DisableKeepAlives: true}}
		res, err := other.Post("http://"+r.s.Address()+"/api/router", form, strings.NewReader(notice("order_sn", "240101-0003")))
		if err == nil {
			_ = res.Body.Close()
			t.Error("the request that brings it down is answered")
		}
		if _, err := r.send("/api/router", form, notice()); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("over the kept connection = %v, want ECONNRESET", err)
		}
		if o := r.order("240101-0001"); o.Notified != 0 {
			t.Errorf("books = %+v, want nothing done", o)
		}
	}, func(o *Options) { o.Script = script })
}

// temu sends an edit of stock; more are pairs of old and new text.
func (r *rig) temu(more ...string) string {
	r.t.Helper()
	body := strings.NewReplacer(more...).Replace(`{"type":"bg.local.goods.stock.edit","app_key":"demo-app","access_token":"tok-s1","data_type":"JSON","timestamp":NOW,"requestUniqueKey":"k1","skuStockChangeList":[{"skuId":17,"stockDiff":5}]}`)
	body = strings.Replace(body, "NOW", strconv.FormatInt(time.Now().Unix(), 10), 1)
	p := params{}
	if err := p.addJSON([]byte(body)); err != nil {
		r.t.Fatal(err)
	}
	if _, signed := p["sign"]; !signed {
		body = strings.TrimSuffix(body, "}") + `,"sign":"` + p.wrapped("demo-secret") + `"}`
	}
	text, err := r.send("/openapi/router", "application/json", body)
	if err != nil {
		r.t.Fatalf("temu: %v", err)
	}
	return text
}

func TestTEMUChecks(t *testing.T) {
	at := func(d time.Duration) string {
		return strconv.FormatInt(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).Unix(), 10)
	}
	for _, test := range []struct{ name, old, new, want string }{
		{"good", "", "", `"success":true`},
		{"wrong signature", `NOW`, `NOW,"sign":"27155E7DC42425F29E58515BEE3C1CCE"`, ":3000001,"},
		{"no timestamp", `"timestamp":NOW,`, ``, ":3000010,"},
		{"in the window", `NOW`, at(-300 * time.Second), `"success":true`},
		{"expired", `NOW`, at(-301 * time.Second), ":3000012,"},
		{"too new", `NOW`, at(301 * time.Second), ":3000011,"},
		{"no type", `"type":"bg.local.goods.stock.edit",`, ``, ":3000002,"},
		{"unknown type", `stock.edit`, `stock.eat`, ":3000003,"},
		{"no format", `"data_type":"JSON",`, ``, ":3000013,"},
		{"other format", `"JSON"`, `"XML"`, ":3000014,"},
		{"no app", `"app_key":"demo-app",`, ``, ":3000025,"},
		{"unknown app", `demo-app`, `x`, ":3000026,"},
		{"no token", `"access_token":"tok-s1",`, ``, ":3000030,"},
		{"unknown token", `tok-s1`, `x`, ":3000031,"},
		{"unknown sku", `17`, `18`, ":3000000,"},
		{"target among changes", `stockDiff`, `stockTarget`, ":3000000,"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, startTEMU, func(r *rig) { r.want("answer", r.temu(test.old, test.new), test.want) })
		})
	}
}

func TestTEMUKeysAndRate(t *testing.T) {
	bubble(t, startTEMU, func(r *rig) {
		stock := func() int { return r.s.platform.(*temu).stock[17] }
		first := r.temu()
		if again := r.temu(); again != first || stock() != 105 {
			t.Errorf("again = %s, stock %d, want the first answer and 105", again, stock())
		}
		r.temu("tok-s1", "tok-s2") // a key is the shop's
		r.temu(`"requestUniqueKey":"k1",`, "")
		r.temu(`"requestUniqueKey":"k1",`, "")
		if stock() != 120 {
			t.Errorf("stock = %d, want 120", stock())
		}
		r.temu("k1", "k2", "Change", "Target", "stockDiff", "stockTarget")
		if stock() != 5 {
			t.Errorf("stock = %d, want 5", stock())
		}
		effects := r.s.Books.Read(time.Now()).Platforms[0].Effects
		if want := (map[Effect]int{Stock: 5, Refused: 1}); !maps.Equal(effects, want) {
			t.Errorf("effects = %v, want %v", effects, want)
		}
		for range 14 {
			r.want("list", r.temu("stock.edit", "stock.edit", "bg.local.goods.stock.edit", "bg.order.list.get"), `"totalItemNum":3`)
		}
		r.want("21st within a second", r.temu(), ":4000004,")
	})
}

func TestSupplierA(t *testing.T) {
	bubble(t, func(o Options) (*Server, error) { return StartSupplierA(Supplier{Options: o, Work: 80 * time.Second}) }, func(r *rig) {
		const submit, query = "/api/order/submit", "/api/order/query"
		r.want("submit", r.a(submit), `"orderStatus":0`)
		r.want("again", r.a(submit), ":10010,")
		r.want("hidden", r.a(query), ":10015,")
		r.want("too soon", r.a(query), ":10016,")
		r.want("balance", r.a("/api/balance"), `"balance":99995050`)
		time.Sleep(time.Minute)
		r.want("found", r.a(query), `"orderStatus":1`)
		r.want("never sent", r.a(query, "outOrderId", "o2"), ":10015,")
		if o := r.order("o1"); o.Charged != 1 || o.Delivered != 0 {
			t.Errorf("books before it is due = %+v, want charged, not delivered", o)
		}
		time.Sleep(time.Minute)
		r.want("done", r.a(query), `"orderStatus":2`)
		o := r.order("o1")
		if o.Delivered != 1 || o.Refused != 1 || o.Events[2].At.Sub(o.Events[0].At) != 80*time.Second {
			t.Errorf("books = %+v, want delivered once after 80 s, refused 1", o)
		}
		r.want("wrong product", r.a(submit, "outOrderId", "o3", "productId", "x"), ":10012,")
		r.want("price above the amount", r.a(submit, "outOrderId", "o3", "amount", "4949"), ":10012,")
		r.want("no account", r.a(submit, "outOrderId", "o3", "account", ""), ":10014,")
		r.want("bad signature", r.a(submit, "sign", "x"), "签名错误")
		r.want("old", r.a(submit, "timestamp", strconv.FormatInt(time.Now().Unix()-241, 10)), "timestamp")
		r.want("unknown app", r.a(submit, "appId", "x"), ":10002,")
	})
}

func TestSupplierBansWhoFloods(t *testing.T) {
	start := func(o Options) (*Server, error) {
		return StartSupplierA(Supplier{Options: o, Flood: 3, Ban: time.Hour, Balance: 9000})
	}
	bubble(t, start, func(r *rig) {
		r.a("/api/order/submit")
		r.want("no balance", r.a("/api/order/submit", "outOrderId", "o2"), ":10011,")
		for i, want := range []string{":10015,", ":10016,", ":10016,", ":10004,", ":10004,"} {
			r.want(fmt.Sprintf("query %d", i+1), r.a("/api/order/query"), want)
		}
		r.want("anything else", r.a("/api/balance"), ":10004,")
		time.Sleep(time.Hour)
		r.want("later", r.a("/api/order/query"), `"orderStatus":2`)
		r.want("counted from 0 again", r.a("/api/order/query"), ":10016,")
	})
}

func TestRepeats(t *testing.T) {
	for _, test := range []struct {
		rule      Repeats
		fails     bool
		early     string // sent again before it is done
		late      string // and after
		delivered int
	}{
		{Refuse, false, ":10010,", ":10010,", 1},
		{Refuse, true, ":10010,", ":10010,", 0},
		{AfterFailure, false, ":10010,", ":10010,", 1},
		{AfterFailure, true, ":10010,", `"code":0,`, 0},
		{Accept, false, `"code":0,`, `"code":0,`, 3},
	} {
		t.Run(fmt.Sprintf("%s, fails %t", test.rule, test.fails), func(t *testing.T) {
			script := func(p Point) Fault {
				if p.Phase == Working && test.fails {
					return Fault{Kind: Fails}
				}
				return Fault{}
			}
			start := func(o Options) (*Server, error) { return StartSupplierA(Supplier{Options: o, Repeats: test.rule}) }
			bubble(t, start, func(r *rig) {
				r.a("/api/order/submit")
				r.want("early", r.a("/api/order/submit"), test.early)
				time.Sleep(time.Minute)
				r.want("late", r.a("/api/order/submit"), test.late)
				time.Sleep(time.Minute)
				o := r.order("o1")
				if o.Delivered != test.delivered || o.Charged != test.delivered {
					t.Errorf("books = %+v, want charged and delivered %d", o, test.delivered)
				}
				if got, want := len(r.s.Books.Read(time.Now()).Wrong()) > 0, test.delivered > 1; got != want {
					t.Errorf("wrong = %t, want %t", got, want)
				}
				r.want("balance", r.a("/api/balance"), fmt.Sprintf(`"balance":%d`, 100_000_000-4950*test.delivered))
			}, func(o *Options) { o.Script = script })
		})
	}
}

func TestSupplierB(t *testing.T) {
	script := func(p Point) Fault {
		if p.Phase == Working && p.Order == "o2" {
			return Fault{Kind: Fails}
		}
		return Fault{}
	}
	bubble(t, startB, func(r *rig) {
		r.want("submit", r.b("/onlinepay.do"), "<resultno>0</resultno><resultmsg>等待充值</resultmsg>")
		r.want("submit", r.b("/onlinepay.do", "sporderid", "o2"), "<sporderid>o2</sporderid><resultno>0</resultno>")
		r.want("again", r.b("/onlinepay.do"), "<resultno>5006</resultno><resultmsg>订单号重复</resultmsg>")
		r.want("hidden", r.b("/searchpay.do"), "<resultno>5007</resultno>")
		time.Sleep(10 * time.Minute)
		r.want("done", r.b("/searchpay.do"), "<orderid>supplier-b-o1</orderid><sporderid>o1</sporderid><resultno>1</resultno>")
		r.want("failed", r.b("/searchpay.do", "sporderid", "o2"), "<resultno>9</resultno><resultmsg>充值失败")
		r.want("balance", r.b("/searchbalance.do", "sign", params{"userid": "demo-app"}.listed("demo-secret", "userid")), "<balance>999950.50</balance>")
		r.want("bad signature", r.b("/searchpay.do", "sign", "x"), "<resultno>5005</resultno>")
		r.want("bad time", r.b("/onlinepay.do", "sporderid", "o3", "spordertime", "now"), "<resultno>5001</resultno>")
	}, func(o *Options) { o.Script = script })
}

// Every fault does what its name says to each platform, and the books tell what
// was done.
func TestFaults(t *testing.T) {
	edit := func() (path, contentType, body string) {
		p := params{
			"type": "bg.local.goods.stock.edit", "app_key": "demo-app", "access_token": "tok-s1", "data_type": "JSON",
			"timestamp": "946684800", "requestUniqueKey": "240101-0001", "skuStockTargetList": `[{"skuId":17,"stockTarget":1}]`,
		}
		text := fmt.Sprintf(`{"type":%q,"app_key":%q,"access_token":%q,"data_type":%q,"timestamp":%s,"requestUniqueKey":%q,"skuStockTargetList":%s,"sign":%q}`,
			p["type"], p["app_key"], p["access_token"], p["data_type"], p["timestamp"], p["requestUniqueKey"], p["skuStockTargetList"], p.wrapped("demo-secret"))
		return "/openapi/router", "application/json", text
	}
	submitB := func() (path, contentType, body string) {
		p := params{"userid": "demo-app", "sporderid": "240101-0001", "productid": "phone-50", "num": "1", "account": "139", "spordertime": "20000101080000"}
		p["sign"] = p.listed("demo-secret", "userid", "productid", "num", "account", "spordertime", "sporderid")
		return "/onlinepay.do", form, p.form()
	}
	for _, platform := range []struct {
		name  string
		start func(Options) (*Server, error)
		write func() (path, contentType, body string)
		codes map[Kind]string
	}{
		{"pdd", startPDD, func() (path, contentType, body string) { return "/api/router", form, notice() }, map[Kind]string{
			NewCode: ":59999,", SystemError: ":52001,", Throttle: ":52101,", Quota: ":70036,", Token: ":10019,",
			Maintenance: ":70033,", Signature: ":20004,", Clock: "timestamp", Duplicate: "重复通知", None: `"success":true`,
		}},
		{"temu", startTEMU, edit, map[Kind]string{
			NewCode: ":9990001,", SystemError: ":4000000,", Throttle: ":4000004,", Quota: ":4000004,", Token: ":3000034,",
			Maintenance: ":7000000,", Signature: ":3000001,", Clock: ":3000012,", Duplicate: ":2000000,", None: `"success":true`,
		}},
		{"supplier-a", startA, func() (path, contentType, body string) { return "/api/order/submit", form, submission("240101-0001") }, map[Kind]string{
			NewCode: ":10777,", SystemError: ":-99,", Throttle: ":10016,", Quota: ":7001,", Token: ":10002,",
			Maintenance: ":10013,", Signature: "签名", Clock: "timestamp", Duplicate: ":10010,", None: `"orderStatus":0`,
		}},
		{"supplier-b", startB, submitB, map[Kind]string{
			NewCode: ">8888<", SystemError: ">9999<", Throttle: ">5008<", Quota: ">7001<", Token: ">5002<",
			Maintenance: ">5009<", Signature: ">5005<", Clock: ">5011<", Duplicate: ">5006<", None: ">0<",
		}},
	} {
		for _, f := range Faults() {
			t.Run(platform.name+" "+f.String(), func(t *testing.T) {
				script := func(p Point) Fault {
					if p.Phase == Requesting && p.Number == 1 {
						return f
					}
					return Fault{For: time.Hour} // orders are not delivered meanwhile
				}
				bubble(t, platform.start, func(r *rig) {
					begun := time.Now()
					got, err := r.send(platform.write())
					r.seen(f, got, err, time.Since(begun), platform.codes)
					r.booked(f)
				}, func(o *Options) { o.Script = script })
			})
		}
	}
}

// seen compares what the client got with the fault.
func (r *rig) seen(f Fault, got string, err error, took time.Duration, codes map[Kind]string) {
	r.t.Helper()
	switch f.Kind {
	case Reset, Down:
		if !errors.Is(err, syscall.ECONNRESET) {
			r.t.Errorf("error = %v, want ECONNRESET", err)
		}
	case Cut:
		if !errors.Is(err, io.ErrUnexpectedEOF) || got == "" {
			r.t.Errorf("answer = %q, %v, want a part and an unexpected EOF", got, err)
		}
	case HTML:
		r.want("answer", got, "<html>")
	case Garbage:
		r.want("answer", got, `encoding="GBK"`)
		if text, _ := simplifiedchinese.GBK.NewDecoder().String(got); !strings.HasSuffix(text, "\ufffd") {
			r.t.Errorf("answer = %q, want it torn within a character", text)
		}
	case BadGateway, Unavailable, TimedOut:
		r.want("answer", got, string(f.Kind))
	case Hang:
		if want := codes[SystemError]; f.Executed {
			r.want("answer", got, codes[None])
		} else {
			r.want("answer", got, want)
		}
		if took != 5*time.Second {
			r.t.Errorf("it took %v, want 5s", took)
		}
	default:
		r.want("answer", got, codes[f.Kind])
	}
	if f.Kind == Down {
		r.isDownFor(5 * time.Second)
	}
}

func (r *rig) isDownFor(d time.Duration) {
	r.t.Helper()
	for _, want := range []error{syscall.ECONNREFUSED, nil} {
		res, err := r.client.Get("http://" + r.s.Address() + "/books")
		if !errors.Is(err, want) {
			r.t.Errorf("then = %v, want %v", err, want)
		}
		if err == nil {
			_ = res.Body.Close()
		}
		time.Sleep(d)
		synctest.Wait()
	}
}

// booked wants in the books what the fault says, and nothing else.
func (r *rig) booked(f Fault) {
	r.t.Helper()
	done, want := r.order("240101-0001").Events, 0
	if f.Executed {
		want = 1
	}
	report := r.s.Books.Read(time.Now())
	e := report.Recent[0]
	if len(done) != want || len(e.Effects) != want || e.Fault != f.String() || report.Platforms[0].Faults[f.String()] != 1 {
		r.t.Errorf("books = %+v, %+v, want %s and %d effects", done, e, f, want)
	}
}

// A request that the platform would refuse is not executed by a fault either.
func TestFaultsExecuteNothingThatIsRefused(t *testing.T) {
	script := func(p Point) Fault {
		if p.Phase != Requesting {
			return Fault{}
		}
		return Fault{Kind: BadGateway, Executed: true}
	}
	bubble(t, startPDD, func(r *rig) {
		r.want("answer", r.pdd("sign", "x"), "502")
		if o := r.order("240101-0001"); o.Notified != 0 {
			t.Errorf("books = %+v, want nothing done", o)
		}
	}, func(o *Options) { o.Script = script })
}

func TestConnectionFaults(t *testing.T) {
	script := func(p Point) Fault {
		if p.Phase != Connecting {
			return Fault{}
		}
		return map[int]Fault{1: {Kind: Reset}, 2: {Kind: Down, For: time.Second}}[p.Number]
	}
	bubble(t, startPDD, func(r *rig) {
		for _, want := range []error{syscall.ECONNRESET, syscall.ECONNRESET, syscall.ECONNREFUSED} {
			if _, err := r.send("/api/router", form, notice()); !errors.Is(err, want) {
				t.Errorf("error = %v, want %v", err, want)
			}
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		r.want("then", r.pdd(), `"success":true`)
		if got := r.s.Books.Read(time.Now()).Recent; len(got) != 3 || got[0].Answer != "reset" || got[1].Fault != "down" {
			t.Errorf("books = %+v, want two connections and a request", got)
		}
	}, func(o *Options) { o.Script = script })
}

// A server that closes lets nobody hang, even while it is down.
func TestCloseEndsEverything(t *testing.T) {
	for _, kind := range []Kind{Hang, Down} {
		script := func(p Point) Fault {
			if p.Phase != Requesting {
				return Fault{}
			}
			return Fault{Kind: kind, For: time.Hour}
		}
		bubble(t, startPDD, func(r *rig) {
			done := make(chan error)
			go func() { _, err := r.send("/api/router", form, notice()); done <- err }()
			synctest.Wait()
			begun := time.Now()
			if err := r.s.Close(); err != nil {
				t.Errorf("Close() = %v, want nil", err)
			}
			if err := <-done; err == nil || time.Since(begun) != 0 {
				t.Errorf("%s: error = %v after %v, want one at once", kind, err, time.Since(begun))
			}
		}, func(o *Options) { o.Script = script })
	}
}

func TestDiceAreAPureFunction(t *testing.T) {
	mix := Mix{Rate: 0.5, Faults: Faults(), Most: 3, Fails: 0.1, Least: time.Second, Last: 3 * time.Second}
	one, two, other := Dice(7, mix), Dice(7, mix), Dice(8, mix)
	kinds, differ, failed := map[Fault]int{}, 0, 0
	for i := range 2000 {
		p := Point{Platform: "pdd", Operation: "x", Order: strconv.Itoa(i / 4), Phase: Requesting, Number: 1 + i%4}
		f := one(p)
		kinds[f]++
		if f != two(p) {
			t.Fatalf("the same seed gives %v and %v at %+v", f, two(p), p)
		}
		if f != other(p) {
			differ++
		}
		if p.Number > mix.Most && f.Kind != None {
			t.Fatalf("request %d meets %v, want at most %d that do", p.Number, f, mix.Most)
		}
		p.Phase = Working
		w := one(p)
		if w.For < mix.Least || w.For > mix.Last {
			t.Fatalf("work takes %v, want from 1s to 3s", w.For)
		}
		if w.Kind == Fails {
			failed++
		}
	}
	if len(kinds) != len(Faults())+1 || differ == 0 || kinds[Fault{}] < 1100 || kinds[Fault{}] > 1400 || failed < 150 || failed > 250 {
		t.Errorf("%d kinds, %d differ, %d without, %d failed; want all %d, some, about 1250, about 200", len(kinds), differ, kinds[Fault{}], failed, len(Faults())+1)
	}
}

// submission is a signed order for supplier A.
func submission(number string) string {
	p := params{
		"appId": "demo-app", "outOrderId": number, "productId": "phone-50", "account": "139", "amount": "5000",
		"timestamp": strconv.FormatInt(time.Now().Unix(), 10),
	}
	p["sign"] = p.joined("demo-secret")
	return p.form()
}

func TestSameSeedSameBooks(t *testing.T) {
	var reports []Report
	for range 2 {
		bubble(t, startA, func(r *rig) {
			for i := range 300 {
				_, _ = r.send("/api/order/submit", form, submission(strconv.Itoa(i/3)))
				time.Sleep(1001 * time.Millisecond) // never at the instant when it is up again
			}
			reports = append(reports, r.s.Books.Read(time.Now()))
		}, func(o *Options) { o.Script = Dice(3, Mix{Rate: 0.6, Faults: Faults(), Fails: 0.2, Least: time.Second}) })
	}
	if diff := cmp.Diff(reports[0], reports[1]); diff != "" {
		t.Errorf("the same seed makes a difference: %.2000s", diff)
	}
	if n := len(reports[0].Platforms[0].Faults); n < 20 {
		t.Errorf("%d kinds of faults, want most of %d", n, len(Faults()))
	}
}

// Over real sockets and with many clients at once, the books agree with what
// clients were told for certain.
func TestOverLoopback(t *testing.T) {
	s, err := StartSupplierA(Supplier{Options: Options{
		Rate: 1e6, Fault: 5 * time.Millisecond,
		Script: Dice(5, Mix{Rate: 0.4, Faults: Faults(), Least: time.Millisecond}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	}()
	r := &rig{t: t, s: s}
	var clients sync.WaitGroup
	var told sync.Map // orders that a client was told to be accepted
	for client := range 8 {
		clients.Go(func() {
			for i := range 100 {
				number := fmt.Sprintf("%d-%d", client, i/4)
				if text, err := r.send("/api/order/submit", form, submission(number)); err == nil && strings.Contains(text, `"code":0,`) {
					told.Store(number, true)
				}
			}
		})
	}
	clients.Wait()
	charged := 0
	for _, o := range s.Books.Read(time.Now().Add(time.Second)).Orders {
		if o.Charged > 1 || o.Delivered != o.Charged {
			t.Errorf("books = %+v, want at most one charge, and delivered", o)
		}
		charged += o.Charged
		told.Delete(o.Number)
	}
	told.Range(func(number, _ any) bool {
		t.Errorf("%v was accepted, and the books do not know it", number)
		return true
	})
	if charged < 50 { // how many depends on who meets the others' outages
		t.Errorf("%d of 200 orders were charged, want a good part", charged)
	}
}

func TestParseFaults(t *testing.T) {
	got, err := ParseFaults("reset/executed,502")
	if err != nil || len(got) != 2 || got[0] != (Fault{Kind: Reset, Executed: true}) || got[1] != (Fault{Kind: BadGateway}) {
		t.Errorf("ParseFaults = %v, %v, want reset/executed and 502", got, err)
	}
	if all, err := ParseFaults("all"); err != nil || len(all) != len(Faults()) {
		t.Errorf("ParseFaults(all) = %v, %v", all, err)
	}
	if _, err := ParseFaults("throttle/executed"); err == nil {
		t.Error("ParseFaults(throttle/executed) = nil, want an error")
	}
}

func TestBooksOfSeveralPlatforms(t *testing.T) {
	b, now := NewBooks(), time.Unix(1000, 0)
	for _, e := range []Event{
		{now, Charged, "supplier-a", "o1"},
		{now.Add(time.Second), Delivered, "supplier-a", "o1"},
		{now, Charged, "supplier-b", "o1-r2"},
		{now.Add(time.Second), Delivered, "supplier-b", "o1-r2"},
		{now, Charged, "supplier-a", "o2"},
		{now.Add(time.Second), Refunded, "supplier-a", "o2"},
		{now.Add(2 * time.Second), Charged, "supplier-b", "o2-r2"},
		{now.Add(3 * time.Second), Delivered, "supplier-b", "o2-r2"},
		{now.Add(3 * time.Second), Notified, "pdd", "o2"},
		{now, Charged, "supplier-a", "o3"},
		{now, Closed, "pdd", "o3"},
	} {
		b.happen(e)
	}
	r := b.Read(now.Add(time.Minute))
	var wrong []string
	for _, o := range r.Wrong() {
		wrong = append(wrong, o.Number)
	}
	if got := strings.Join(wrong, " "); got != "o1 o3" {
		t.Errorf("wrong = %s, want o1 (twice) and o3 (closed, but paid)", got)
	}
	if o := r.Orders[1]; o.Charged != 1 || o.Delivered != 1 || o.Notified != 1 || o.Early != 0 || len(o.Events) != 5 {
		t.Errorf("o2 = %+v, want one delivery by the second supplier", o)
	}
	if got := len(r.Of("pdd").Orders); got != 2 {
		t.Errorf("pdd knows %d orders, want 2", got)
	}
}

func TestBooksAreBounded(t *testing.T) {
	b := NewBooks()
	for i := range mostEntries + 5 {
		b.enter(Entry{Number: i, Answer: strconv.Itoa(i)}, []string{strconv.Itoa(i)})
	}
	r := b.Read(time.Now())
	if n := len(r.Recent); n != mostEntries || r.Recent[0].Number != 5 || r.Recent[n-1].Number != mostEntries+4 {
		t.Errorf("%d entries from %d, want the newest %d in order", n, r.Recent[0].Number, mostEntries)
	}
	if tally := r.Platforms[0]; tally.Requests != mostEntries+5 || len(tally.Headers) != mostNames || len(tally.Answers) != mostNames {
		t.Errorf("%d requests, %d headers, want all and %d", tally.Requests, len(tally.Headers), mostNames)
	}
	b.events = mostEvents
	if !b.full() {
		t.Error("full() = false, want true")
	}
}

func TestAdmin(t *testing.T) {
	bubble(t, startPDD, func(r *rig) {
		get := func(path string) (out string) {
			res, err := r.client.Get("http://" + r.s.Address() + path)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, _ := io.ReadAll(res.Body)
			return string(text)
		}
		req, _ := http.NewRequest(http.MethodPost, "http://"+r.s.Address()+"/api/router", strings.NewReader(notice()))
		req.Header.Set("Content-Type", form)
		req.Header.Set("X-Retry-Count", "1")
		res, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		var report Report
		if err := json.Unmarshal([]byte(get("/books")), &report); err != nil {
			t.Fatal(err)
		}
		if p := report.Platforms[0]; p.Requests != 1 || p.Headers["X-Retry-Count"] != 1 || p.Effects[Notified] != 1 || len(p.Headers) != 1 {
			t.Errorf("books = %+v, want one notice and its foreign header", p)
		}
		r.want("order", get("/books?order=240101-0001"), `"notified": 1`)
		r.want("all", get("/books?all"), `"platform": "pdd"`)
		r.want("GET /token", get("/token?shop=s1"), "POST /token")
		token, err := r.send("/token?shop=s1", "", "")
		if err != nil {
			t.Fatal(err)
		}
		r.want("renewed", r.pdd("access_token", strings.TrimSpace(token)), "重复通知")
		var summary strings.Builder
		r.s.Books.Read(time.Now()).Summary(&summary)
		r.want("summary", summary.String(), "240101-0001: charged 0, delivered 0, notified 1 (early 1)")
	})
}
