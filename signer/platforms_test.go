package signer

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"retryproxy/message"
)

// The schemes here are what the presets of the platforms hold.

var pdd = Scheme{
	Family: SortedWrap, Digest: "md5", Case: "upper", Secret: "client_secret",
	Signature: []string{"form:sign", "json:$.sign", "query:sign"},
	Time:      Time{At: []string{"form:timestamp", "json:$.timestamp", "query:timestamp"}, Unit: "s"},
	Window:    10 * time.Minute,
	Token:     []string{"form:access_token", "json:$.access_token", "query:access_token"},
}

var temu = Scheme{
	Family: SortedWrap, Digest: "md5", Case: "upper", Secret: "app_secret",
	Signature: []string{"json:$.sign"},
	Time:      Time{At: []string{"json:$.timestamp"}, Unit: "s"},
	Window:    5 * time.Minute,
	Token:     []string{"json:$.access_token"},
}

var top = Scheme{
	Family: SortedWrap, Digest: "md5", Case: "upper", Secret: "app_secret", Empty: "skipped",
	Variants: Variants{
		At: []string{"query:sign_method", "form:sign_method"},
		Of: map[string]Variant{"hmac": {Digest: "hmac-md5"}, "hmac-sha256": {Digest: "hmac-sha256"}},
	},
	Signature: []string{"query:sign", "form:sign"},
	Time:      Time{At: []string{"query:timestamp", "form:timestamp"}, Unit: "2006-01-02 15:04:05", Also: []string{"ms"}, Zone: "+08:00"},
	Window:    10 * time.Minute,
	Token:     []string{"query:session", "form:session"},
}

var jd = Scheme{
	Family: SortedWrap, Digest: "md5", Case: "upper", Secret: "app_secret", Empty: "skipped",
	Signature: []string{"query:sign", "form:sign"},
	Time: Time{
		At: []string{"query:timestamp", "form:timestamp"}, Unit: "2006-01-02 15:04:05",
		Also: []string{"2006-01-02 15:04:05.000-0700"}, Zone: "+08:00",
	},
	Window: 6 * time.Minute,
	Token:  []string{"query:access_token", "form:access_token"},
}

var doudian = Scheme{
	Family: Doudian, Digest: "md5", Case: "lower", Secret: "app_secret",
	Variants:  Variants{At: []string{"query:sign_method", "form:sign_method"}, Of: map[string]Variant{"hmac-sha256": {Digest: "hmac-sha256"}}},
	Signature: []string{"query:sign", "form:sign"},
	Time:      Time{At: []string{"query:timestamp", "form:timestamp"}, Unit: "s", Also: []string{"2006-01-02 15:04:05"}, Zone: "+08:00"},
	Token:     []string{"query:access_token", "form:access_token"},
}

var kuaishou = Scheme{
	Family: KVAmp, Digest: "md5", Case: "lower", Secret: "sign_secret", Suffix: "&signSecret={secret}",
	Variants:  Variants{At: []string{"query:signMethod", "form:signMethod"}, Of: map[string]Variant{"HMAC_SHA256": {Digest: "hmac-sha256", Encoding: "base64"}}},
	Signature: []string{"query:sign", "form:sign"},
	Time:      Time{At: []string{"query:timestamp", "form:timestamp"}, Unit: "ms"},
	Include:   []string{"access_token", "appkey", "method", "param", "signMethod", "timestamp", "version"},
	Token:     []string{"query:access_token", "form:access_token"},
}

var xiaohongshu = Scheme{
	Family: FixedConcat, Digest: "md5", Case: "lower", Secret: "app_secret",
	Parts: []string{
		"{json:$.method}", "?appId=", "{json:$.appId}", "&timestamp=", "{timestamp}",
		"&version=", "{json:$.version}", "{secret}",
	},
	Signature: []string{"json:$.sign"},
	Time:      Time{At: []string{"json:$.timestamp"}, Unit: "s"},
	Token:     []string{"json:$.accessToken"},
}

var shopee = Scheme{
	Family: FixedConcat, Digest: "hmac-sha256", Case: "lower", Secret: "partner_key",
	Parts:     []string{"{query:partner_id}", "{path}", "{timestamp}", "{access_token?}", "{query:shop_id?}", "{query:merchant_id?}"},
	Signature: []string{"query:sign"},
	Time:      Time{At: []string{"query:timestamp"}, Unit: "s"},
	Window:    5 * time.Minute,
	Token:     []string{"query:access_token"},
}

var tiktok = Scheme{
	Family: PathSortedBody, Digest: "hmac-sha256", Case: "lower", Secret: "app_secret",
	Signature: []string{"query:sign"},
	Time:      Time{At: []string{"query:timestamp"}, Unit: "s"},
	Window:    5 * time.Minute,
	Token:     []string{"header:x-tts-access-token", "query:access_token"},
	Exclude:   []string{"access_token"},
}

var lazada = Scheme{
	Family: PathSortedBody, Digest: "hmac-sha256", Case: "upper", Secret: "app_secret", Wrap: "none",
	Signature: []string{"query:sign", "form:sign"},
	Time:      Time{At: []string{"query:timestamp", "form:timestamp"}, Unit: "ms"},
	Token:     []string{"query:access_token", "form:access_token"},
}

var goofish = Scheme{
	Family: FixedConcat, Digest: "md5", Case: "lower", Secret: "app_secret", Joiner: ",",
	Parts:     []string{"{cred.app_id}", "{secret}", "{body.md5}", "{timestamp}", "{query:mch_id}", "{cred.mch_secret}"},
	Signature: []string{"query:sign"},
	Time:      Time{At: []string{"query:timestamp"}, Unit: "s"},
	Window:    5 * time.Minute,
}

var xinya = Scheme{
	Family: KVAmp, Digest: "md5", Secret: "key", Suffix: "&key={secret}",
	Signature: []string{"form:sign", "json:$.sign", "query:sign"},
	Time:      Time{At: []string{"form:timestamp", "json:$.timestamp", "query:timestamp"}, Unit: "s"},
	Window:    4 * time.Minute,
}

var supplier = Scheme{
	Family: SortedWrap, Digest: "md5", Secret: "app_secret",
	Signature: []string{"form:sign", "json:$.sign", "query:sign"},
	Time: Time{
		At: []string{"form:timestamp", "json:$.timestamp", "query:timestamp"}, Unit: "20060102150405SSS",
		Also: []string{"s", "ms", "2006-01-02 15:04:05"}, Zone: "+08:00",
	},
	Window: 30 * time.Second,
	Nonce:  Nonce{At: []string{"form:nonce", "json:$.nonce"}, Kind: "uuid"},
}

// example is a request with its signature, and the date in it.
type example struct {
	scheme   *Scheme
	request  Request
	secrets  Credentials
	signedAt string // RFC 3339
}

func posted(target string, pairs ...string) Request {
	return request(target, "application/x-www-form-urlencoded", strings.Join(pairs, "&"))
}

func request(target, media, body string) Request {
	r := Request{Method: "POST", Target: target, Body: []byte(body)}
	if media != "" {
		r.Fields.Add("Content-Type", media)
	}
	return r
}

// published are examples whose digest somebody else printed.
var published = map[string]example{
	// open.pinduoduo.com, "API calls", secret testSecret, the body as it is printed there.
	"pdd": {&pdd, request("/api/router", "application/json", `{
    "type": "pdd.order.number.list.get",
    "sign": "E4DE3ED21002510DED352819E7AE6775",
    "client_id": "1",
    "page": 1,
    "page_size": 10,
    "data_type": "XML",
    "timestamp": 1480411125,
    "order_status": 1,
    "access_token": "asd78172s8ds9a921j9qqwda12312w1w21211"
}`), Credentials{"client_secret": "testSecret"}, "2016-11-29T09:18:45Z"},
	// partner-us.temu.com, "Signature": its string and digest. Its body lists the
	// members of sendRequestList in another order than its string, so no body order
	// of it gives the digest; here the body has the order of the string.
	"temu": {
		&temu, request("/openapi/router", "application/json", `{"app_key":"f9d5cc9313893a20d5aa85c654e8f503","data_type":"JSON",`+
			`"access_token":"2nifvmpyymvypwmcms5ct4uqqudrwgpmzbcnmkt1jzjkuaf3x56iixym",`+
			`"sendRequestList": [ {"orderSendInfoList": [{"quantity": 1, "orderSn": "211-21905473070712792",`+"\n"+
			`"parentOrderSn":"PO-211-21905452099192792","goodsId":601099548666279,"skuId":17592352673534}],`+
			`"carrierId":"699272611","trackingNumber":"270324232756"}],`+
			`"sendType":0,"sign":"4CCF219942D4180C6DDA3CE36C1B838F","timestamp":1711009072,"type":"bg.logistics.shipment.confirm"}`),
		Credentials{"app_secret": "c7e0a1a63542be4de3cb5488f9fba8149e8fc290"},
		"2024-03-21T08:17:52Z",
	},
	// open.taobao.com docId=101617, secret helloworld.
	"taobao-top": {
		&top, posted("/router/rest", "app_key=12345678", "fields=num_iid%2Ctitle%2Cnick%2Cprice%2Cnum", "format=json", "method=taobao.item.seller.get",
			"num_iid=11223344", "session=test", "sign=66987CB115214E59E6EC978214934FB8", "sign_method=md5", "timestamp=2016-01-01+12%3A00%3A00", "v=2.0"),
		Credentials{"app_secret": "helloworld"},
		"2016-01-01T12:00:00+08:00",
	},
	// open.jd.com dev-guide listId=2643, secret yourappSecret.
	"jd-routerjson": {
		&jd, posted("/routerjson?access_token=yourtoken&app_key=yourappkey&method=jingdong.pop.order.search"+
			"&timestamp=2021-05-07%2009:20:39.683%2b0800&v=2.0&sign=D70825340F4084360B9362B60DFD7930",
			"360buy_param_json="+url.QueryEscape(`{"end_date":null,"optional_fields":null,"order_state":"WAIT_SELLER_STOCK_OUT","page":"1","page_size":"200","start_date":null}`)),
		Credentials{"app_secret": "yourappSecret"},
		"2021-05-07T09:20:39.683+08:00",
	},
	// partner.tiktokshop.com, "Sign your API request", secret e59af819cc.
	"tiktok-shop": {&tiktok, Request{
		Method: "GET", Target: "/authorization/202309/shops?app_key=29a39d&sign=b596b73e0cc6de07ac26f036364178ab16b0a907af13d43f0a0cd2345f582dc8&timestamp=1623812664",
		Fields: message.Fields{{Name: "X-Tts-Access-Token", Value: "TTP_demo"}, {Name: "Content-Type", Value: "application/json"}},
	}, Credentials{"app_secret": "e59af819cc"}, "2021-06-16T03:04:24Z"},
	// open.lazada.com docId=108069, secret helloworld.
	"lazada": {
		&lazada, request("/order/get?app_key=123456&access_token=test&timestamp=1517820392000&sign_method=sha256&order_id=1234"+
			"&sign=4190D32361CFB9581350222F345CB77F3B19F0E31D162316848A2C1FFD5FAB4A", "", ""),
		Credentials{"app_secret": "helloworld"},
		"2018-02-05T08:46:32Z",
	},
	// A recharge supplier with the same formula as xinya's prints this one (qpayword, recharge_query).
	"recharge": {
		&Scheme{
			Family: KVAmp, Digest: "md5", Case: "upper", Secret: "key", Suffix: "&key={secret}",
			Signature: []string{"json:$.sign"}, Time: Time{At: []string{"json:$.time"}, Unit: "s"},
		},
		request("/api/recharge_query", "application/json", `{"mcode":"10086","order_no":"DD12131313131","time":1648136845,"sign":"C5945C34C14A55571399E68AFFE8BBAE"}`),
		Credentials{"key": "ed076287532e86365e841e92bfc50d8c"},
		"2022-03-24T15:47:25Z",
	},
}

// computed are examples by the documented formula, with digests from Python's
// hashlib and hmac: no platform prints one with all that went into it.
var computed = map[string]example{
	// Alibaba prints the md5 of this request only.
	"taobao-top hmac": {
		&top, request("/router/rest?app_key=12345678&fields=num_iid,title,nick,price,num&format=json&method=taobao.item.seller.get&num_iid=11223344"+
			"&session=test&sign_method=hmac&timestamp=2016-01-01%2012:00:00&v=2.0&buyer=&sign=D56D7858309C31B6251083A874D48273", "", ""),
		Credentials{"app_secret": "helloworld"},
		"2016-01-01T12:00:00+08:00",
	},
	"taobao-top hmac-sha256": {&top, posted("/router/rest?app_key=12345678&format=json&method=taobao.item.seller.get&session=test&sign_method=hmac-sha256"+
		"&timestamp=2016-01-01+12%3a00%3a00&v=2.0&sign=04DB15AD0774D5CFCE2C837DE43E3FCEA9011ED74F3038FB6AB5F3C4CEA119E8",
		"num_iid=11223344", "fields=num_iid,title,nick,price,num"), Credentials{"app_secret": "helloworld"}, "2016-01-01T12:00:00+08:00"},
	"doudian": {
		&doudian, request("/order/searchList?app_key=demo-key&access_token=demo-token&method=order.searchList&v=2&timestamp=1760000000&sign_method=hmac-sha256"+
			"&sign=aa7977cbd51fcbcb582f1dc14172bb74f7d941243a631ba0b8fb8ddfe5744e35", "application/json",
			`{"title": "<\u77ed\u8896&裤>\/x", "size": "10", "page": 0, "a": {"b": 17000000000000001, "a": 1.0}}`),
		Credentials{"app_secret": "demo-secret"},
		"2025-10-09T08:53:20Z",
	},
	"doudian md5": {&doudian, posted("/order/searchList", "app_key=demo-key", "v=2", "timestamp=1760000000",
		"param_json="+url.QueryEscape(`{"a":{"a":1.0,"b":17000000000000001},"page":0,"size":"10","title":"<短袖&裤>/x"}`),
		"sign=89db6f06ebb0cdae5b84e0a056fe1ba0"), Credentials{"app_secret": "demo-secret"}, "2025-10-09T08:53:20Z"},
	// The platform prints a digest of this shape, but with a secret of xxxxxx that does not give it.
	"kuaishou md5": {
		&kuaishou, posted("/open/item/add?appkey=ks123&method=open.item.add&version=1&access_token=xxx&timestamp=1583271919000&signMethod=MD5"+
			"&sign=c30942301dd8e5134c1f0dbf906af25e", "param="+url.QueryEscape(`{"title":"短袖", "relItemId":123456, "categoryId":12}`), "trace=1"),
		Credentials{"sign_secret": "demo-sign-secret"},
		"2020-03-03T21:45:19Z",
	},
	"kuaishou hmac": {
		&kuaishou, posted("/open/item/add?appkey=ks123&method=open.item.add&version=1&access_token=xxx&timestamp=1583271919000&signMethod=HMAC_SHA256"+
			"&sign=FYYBT8bYDjhxgpSK%2bMWJjFH3tT9JMXcw0YF2uEDcCWE%3d", "param="+url.QueryEscape(`{"title":"短袖", "relItemId":123456, "categoryId":12}`)),
		Credentials{"sign_secret": "demo-sign-secret"},
		"2020-03-03T21:45:19Z",
	},
	// The platform prints its example with parts blacked out.
	"xiaohongshu": {
		&xiaohongshu, request("/ark/open_api/v3/common_controller", "application/json;charset=utf-8",
			`{"method":"order.getOrderList","appId":"demo-app","version":"2.0","timestamp":"1612518379","accessToken":"demo-token",`+
				`"sign":"8b1233ba3b795df4d308878a1a16b7fc","startTime":1612518000,"pageNo":1}`),
		Credentials{"app_secret": "demo-secret"},
		"2021-02-05T09:46:19Z",
	},
	// The three texts are the platform's (open.shopee.com, "API calls"); it does not print the key.
	"shopee shop": {
		&shopee, request("/api/v2/shop/get_shop_info?partner_id=2001887&timestamp=1655714431&access_token=59777174636562737266615546704c6d&shop_id=14701711"+
			"&sign=7858d7df052af52debe2201d093fb926332b99ae01b6d01e4b937389916deeaa&language=zh-hans", "application/json", `{"unsigned":true}`),
		Credentials{"partner_key": "demo-partner-key"},
		"2022-06-20T08:40:31Z",
	},
	"shopee merchant": {&shopee, request("/api/v2/global_product/get_category?partner_id=2001887&timestamp=1655714431&access_token=09777174636962737266615546704c6d&merchant_id=1000000"+
		"&sign=7adca6c3dacc1a56feba04e62281f0d7476a1f8d69b10a4714a70ae9f0231e0f", "", ""), Credentials{"partner_key": "demo-partner-key"}, "2022-06-20T08:40:31Z"},
	"shopee public": {&shopee, request("/api/v2/public/get_shops_by_partner?partner_id=2001887&timestamp=1655714431"+
		"&sign=e7ccad1cb6ced755d9544f15d0d6dd33481b5669a74e26c00af642cfd8a5dffb", "", ""), Credentials{"partner_key": "demo-partner-key"}, "2022-06-20T08:40:31Z"},
	"tiktok-shop body": {
		&tiktok, request("/order/202309/orders/search?app_key=29a39d&shop_cipher=ROW_demo&page_size=20&timestamp=1623812664&access_token=old"+
			"&sign=682bdd85df2b4270ba839e7a3c905dbc61b571d2a23818465d855ec49feb289c", "application/json", `{"order_status":"AWAITING_SHIPMENT","n":1.0}`),
		Credentials{"app_secret": "e59af819cc"},
		"2021-06-16T03:04:24Z",
	},
	"lazada form": {
		&lazada, posted("/order/pack?app_key=123456&access_token=test&timestamp=1517820392000&sign_method=sha256", "order_item_ids=%5B1%2C2%5D",
			"sign=BEB4B35046218C0028E30010543F0FAA9E7C5A2466F9A45069E8FDEA4167F056"),
		Credentials{"app_secret": "helloworld"},
		"2018-02-05T08:46:32Z",
	},
	// Of goofish a digest of a body alone is printed.
	"goofish": {
		&goofish, request("/goofish/order/recharge/create?mch_id=demo-mch&timestamp=1760000000&sign=7719bcf133b607db7e7953dce7741b4f", "application/json",
			`{"goods_no":"vm-100","biz_content":{"account":"13800000000"},"buy_quantity":1}`),
		Credentials{"app_id": "demo-app", "app_secret": "demo-app-secret", "mch_secret": "demo-mch-secret"},
		"2025-10-09T08:53:20Z",
	},
	"xinya": {&xinya, posted("/api/order", "appId=demo", "orderNo=shop17-0001", "productId=88", "account=13800000000", "timestamp=1760000000",
		"sign=f339476e482392a067488f362d0aaa2b"), Credentials{"key": "demo-key"}, "2025-10-09T08:53:20Z"},
	"supplier": {&supplier, posted("/order", "app_id=demo", "account=13800000000", "amount=100", "outer_id=shop17-0001", "timestamp=20251009085320123",
		"sign=eea1d19602ceae518f07379c42b5d8e3"), Credentials{"app_secret": "demo-secret"}, "2025-10-09T08:53:20.123+08:00"},
}

func TestPublishedDigests(t *testing.T) { eachExample(t, published) }

func TestComputedDigests(t *testing.T) { eachExample(t, computed) }

// eachExample checks what holds for every signed request of every platform.
func eachExample(t *testing.T, examples map[string]example) {
	for name, e := range examples {
		t.Run(name, func(t *testing.T) {
			if err := e.scheme.Validate(); err != nil {
				t.Fatal(err)
			}
			if err := e.scheme.Check(&e.request, e.secrets); err != nil {
				t.Fatal(err)
			}
			want, err := time.Parse(time.RFC3339, e.signedAt)
			if err != nil {
				t.Fatal(err)
			}
			at, ok := e.scheme.SignedAt(&e.request)
			if !ok || !at.Equal(want) {
				t.Fatalf("signed at %v, %v; want %v", at, ok, want)
			}
			sameBytes(t, e, at)
			laterBytes(t, e, at.Add(26*time.Hour+7*time.Minute))
			wrongSecret(t, e)
		})
	}
}

// sameBytes: signed at the client's time, a request is the client's.
func sameBytes(t *testing.T, e example, at time.Time) {
	t.Helper()
	again, err := e.scheme.Resign(&e.request, e.secrets, at, noNonce(t))
	if err != nil {
		t.Fatal(err)
	}
	if again.Target != e.request.Target || !bytes.Equal(again.Body, e.request.Body) {
		t.Errorf("signed at the same time it differs:\n%s\n%s\nwant\n%s\n%s", again.Target, again.Body, e.request.Target, e.request.Body)
	}
}

// laterBytes: signed later it holds, and nothing but date and signature differs.
func laterBytes(t *testing.T, e example, now time.Time) {
	t.Helper()
	later, err := e.scheme.Resign(&e.request, e.secrets, now, noNonce(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.scheme.Check(&later, e.secrets); err != nil {
		t.Errorf("its own work: %v", err)
	}
	if at, ok := e.scheme.SignedAt(&later); !ok || !at.Equal(now.Truncate(time.Second)) && !at.Equal(now.Truncate(time.Millisecond)) {
		t.Errorf("signed at %v, want %v", at, now)
	}
	places := append(e.scheme.Time.At, e.scheme.Signature...)
	if got, want := without(&later, places), without(&e.request, places); got != want {
		t.Errorf("besides date and signature it changed:\n%s\nwant\n%s", got, want)
	}
}

func wrongSecret(t *testing.T, e example) {
	t.Helper()
	other := Credentials{}
	for name := range e.secrets {
		other[name] = "another"
	}
	if err := e.scheme.Check(&e.request, other); err == nil || !strings.Contains(err.Error(), ErrNotReproduced.Error()) {
		t.Errorf("with another secret: %v, want %v", err, ErrNotReproduced)
	}
}

// without is the request with the values at places cut out, but for what
// Resign leaves alone: objects, lists, names without =.
func without(r *Request, places []string) string {
	v := newView(r)
	var cuts edits
	for _, p := range places {
		found, ok := v.at(p)
		there := slices.ContainsFunc(cuts, func(c edit) bool { return c.in == found.in && c.at == found.at })
		if ok && !found.nested && !found.bare && !there {
			cuts = append(cuts, edit{found, nil})
		}
	}
	rest := cuts.apply(r)
	return fmt.Sprintf("%s\n%v\n%s", rest.Target, rest.Fields, rest.Body)
}

func noNonce(t *testing.T) func() string {
	return func() string { t.Error("asked for a nonce"); return "" }
}
