package presets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"retryproxy/classify"
	"retryproxy/document"
	"retryproxy/message"
	"retryproxy/policy"
)

func load(t *testing.T, dir string) *Set {
	t.Helper()
	set, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Each built-in preset understands its own fixtures as it says, every rule that is on has
// one, and everybody can see where it comes from.
func TestBuiltin(t *testing.T) {
	list := load(t, "").List()
	if len(list) < 15 {
		t.Errorf("there are %d, want those of 13 platforms and some suppliers", len(list))
	}
	for _, p := range list {
		t.Run(p.Name, func(t *testing.T) {
			for _, err := range p.Test() {
				t.Error(err)
			}
			proved := map[string]bool{}
			for i := range p.Fixtures {
				proved[p.Fixtures[i].Rule] = true
			}
			for _, r := range p.Rules {
				if r.Enabled && !proved[r.Name] {
					t.Errorf("no fixture proves rule %q", r.Name)
				}
				if !r.Enabled && r.Why == "" {
					t.Errorf("rule %q is off and does not say why", r.Name)
				}
			}
			if len(p.Sources) == 0 || p.Confidence == "" || p.Version == "" || p.Title == "" || len(p.Notes) == 0 {
				t.Error("want title, version, confidence, sources and notes")
			}
			if len(p.Forward) > 0 {
				t.Error("a platform gets headers of ours")
			}
		})
	}
}

// Who a call is for, by host and path; what is not enabled has to be named.
func TestPresetOfAHost(t *testing.T) {
	set := load(t, "")
	for host, want := range map[string]string{
		"gw-api.pinduoduo.com/api/router": "pdd", "gw-api.pinduoduo.com/other": "", "gw-api.pinduoduo.com./api/router": "pdd",
		"openapi-b-eu.temu.com/openapi/router": "temu", "eco.taobao.com/router/rest": "taobao-top",
		"shop-1.myshopify.com/admin/api/2026-01/orders.json": "shopify", "myshopify.com/admin/api/x": "",
		"ark.xiaohongshu.com/ark/open_api/v3/common_controller": "", "example.com/": "",
	} {
		name, path, _ := strings.Cut(host, "/")
		got := ""
		if p := set.For(name, "/"+path); p != nil {
			got = p.Name
		}
		if got != want {
			t.Errorf("For(%s) = %q, want %q", host, got, want)
		}
	}
	if set.Named("xiaohongshu") == nil || set.Named("nobody") != nil {
		t.Error("Named does not find what is not enabled, or finds what there is not")
	}
}

// What a preset knows of requests.
func TestFacts(t *testing.T) {
	set := load(t, "")
	const form = "application/x-www-form-urlencoded"
	for _, c := range []struct {
		preset, method, target, media, body string
		operation                           string
		nature                              policy.Nature
		scarce                              bool
		key                                 string
	}{
		{"pdd", "POST", "/api/router", form, "type=pdd.order.list.get&access_token=t", "pdd.order.list.get", policy.NatureReads, false, ""},
		{"pdd", "GET", "/api/router?type=pdd.goods.spec.id.get", "", "", "pdd.goods.spec.id.get", policy.NatureWrites, false, ""},
		{"pdd", "POST", "/api/router", form, "type=pdd.waybill.get", "pdd.waybill.get", policy.NatureWrites, false, ""},
		{"pdd", "POST", "/api/router", "application/json", `{"type":"pdd.goods.quantity.update","update_type":1}`, "pdd.goods.quantity.update", policy.NatureRepeats, false, ""},
		{"pdd", "POST", "/api/router", form, "type=pdd.goods.quantity.update&update_type=2", "pdd.goods.quantity.update", policy.NatureWrites, false, ""},
		{"pdd", "POST", "/api/router", form, "type=pdd.virtual.mobile.charge.notify&order_sn=1&outer_order_sn=SUP-1", "pdd.virtual.mobile.charge.notify", policy.NatureWrites, false, "SUP-1"},
		{"pdd", "POST", "/api/router", form, "type=pdd.open.decrypt.batch", "pdd.open.decrypt.batch", policy.NatureWrites, true, ""},
		{"pdd", "POST", "/api/router", form, "", "", policy.NatureWrites, false, ""},
		{"temu", "POST", "/openapi/router", "application/json", `{"type":"bg.order.list.get"}`, "bg.order.list.get", policy.NatureReads, false, ""},
		{
			"temu", "POST", "/openapi/router", "application/json",
			`{"app_key":"demo","access_token":"demo","data_type":"JSON","timestamp":1760000000,"type":"bg.local.goods.stock.edit","requestUniqueKey":"shop17-sku900-v42","goodsId":600000000000001,"skuStockTargetList":[{"skuId":17000000000001,"stockTarget":25}],"sign":"AA"}`,
			"bg.local.goods.stock.edit", policy.NatureWrites, false, "shop17-sku900-v42",
		},
		{"shopee", "GET", "/api/v2/order/get_order_list?shop_id=1", "", "", "/api/v2/order/get_order_list", policy.NatureReads, false, ""},
		{"tiktok-shop", "POST", "/order/202309/orders/search", "application/json", "{}", "/order/202309/orders/search", policy.NatureReads, false, ""},
		{"tiktok-shop", "POST", "/product/202309/products", "application/json", `{"idempotency_key":"k"}`, "/product/202309/products", policy.NatureRepeats, false, ""},
		{"shopify", "POST", "/admin/api/2026-01/graphql.json", "application/json", `{"query":"query { shop { name } }"}`, "/admin/api/2026-01/graphql.json", policy.NatureRepeats, false, ""},
		{"shopify", "POST", "/admin/api/2026-01/graphql.json", "application/json", `{"query":"mutation { x }"}`, "/admin/api/2026-01/graphql.json", policy.NatureWrites, false, ""},
	} {
		r := document.Request{Method: c.method, Target: c.target, Body: []byte(c.body)}
		if c.media != "" {
			r.Fields = message.Fields{{Name: "Content-Type", Value: c.media}}
		}
		f := set.Named(c.preset).Facts(&r)
		if f.Operation != c.operation || f.Nature != c.nature || f.Scarce != c.scarce || f.BusinessKey != c.key {
			t.Errorf("%s %s %s: %q, nature %d, scarce %v, key %q", c.preset, c.target, c.body, f.Operation, f.Nature, f.Scarce, f.BusinessKey)
		}
	}
}

func writeAll(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func said(p *Preset, body string) classify.Said {
	return p.Hear(&Facts{Nature: policy.NatureWrites}, &Response{Status: 200, Head: []byte(body), Whole: true}, 1<<20, clock)
}

// A file of a folder takes the place of a built-in preset, or is laid over it.
func TestOwnPresets(t *testing.T) {
	dir := writeAll(t, map[string]string{
		"pdd.yaml":   "preset: pdd\nextends: pdd\nenabled: true\nrules_before: [{name: ours, code: [52101], is: not_now}]\n",
		"other.yaml": "preset: other\nextends: temu\nhosts: [temu.example.com]\nenabled: true\n",
		"jd.yaml":    "preset: jd\nrules: [{name: all, status: [2xx], is: refused}]\n",
		"notes.txt":  "no preset",
	})
	set := load(t, dir)
	const throttled = `{"error_response":{"error_code":52101}}`
	if got := said(set.Named("pdd"), throttled); got.Rule != "ours" {
		t.Errorf("rules_before: the rule is %q", got.Rule)
	}
	if got := said(set.Named("pdd"), `{"error_response":{"error_code":10019}}`); got.Kind != classify.AuthExpired {
		t.Errorf("what was extended is gone: %s", got.Kind)
	}
	if p := set.For("temu.example.com", "/openapi/router"); p == nil || said(p, `{"success":false,"errorCode":4000004}`).Kind != classify.Throttled {
		t.Error("a preset that extends another is not that for its host")
	}
	if set.For("openapi-b-us.temu.com", "/openapi/router").Name != "temu" {
		t.Error("the preset that was extended lost its host")
	}
	if set.For("api.jd.com", "/routerjson") != nil || said(set.Named("jd"), "{}").Rule != "all" {
		t.Error("a file did not take the place of the built-in preset")
	}
	if set.Named("jd").Builtin || !set.Named("temu").Builtin {
		t.Error("Builtin does not tell ours from theirs")
	}
}

// Everything that is wrong with a file is told at once, with file, line and rule.
func TestBadPresets(t *testing.T) {
	dir := writeAll(t, map[string]string{"bad.yaml": `preset: Bad Name
confidence: sure
enabled: true
forward_headers: [cookies]
replay: again
operation: [body:x]
answer: {format: csv, charset: klingon, code: ["error"], success: [{at: $.a}]}
limits: [{scope: us, rate: 5}]
rules:
  - {is: throttled}
  - {name: a, is: fine, code: [1]}
  - {name: a, is: refused, code: [1], message: "(", scope: all, calls: both, status: [99]}
  - {name: b, is: throttled, code: [1], wait: [{base: 1s, until: "25:00"}, {message: "x"}, {at: $.x, unit: days}]}
sign: {family: magic}
fixtures: [{is: nothing, body: a, body_base64: b}]
surprise: 1
`, "self.yaml": "preset: me\nextends: nobody\n", "loop.yaml": "preset: ring\nextends: ring2\n", "loop2.yaml": "preset: ring2\nextends: ring\n"})
	_, err := Load(dir)
	if err == nil {
		t.Fatal("bad files are taken")
	}
	for _, want := range []string{
		"bad.yaml:6: operation[0]", "bad.yaml:7: answer.code[0]", "bad.yaml:16: surprise: unknown key", `there is no preset "nobody"`, "extends itself",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "bad.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	mended := strings.NewReplacer("operation: [body:x]\n", "\n", `code: ["error"], `, "", "surprise: 1\n", "").Replace(string(text))
	_, err = Load(writeAll(t, map[string]string{"bad.yaml": mended}))
	for _, want := range []string{
		":1: preset", ":2: confidence", ":3: enabled", ":4: forward_headers[0]", ":5: replay", ":7: answer.format", ":7: answer.charset",
		":7: answer.success[0]", ":8: limits[0].operation", ":8: limits[0].scope", ":8: limits[0].rate", ":10: rules[0].name", ":10: rules[0]: names nothing",
		":11: rules[1].is", ":12: rules[2].name", ":12: rules[2].message", ":12: rules[2].scope", ":12: rules[2].calls", ":12: rules[2].status",
		":13: rules[3].wait[0]", ":13: rules[3].wait[0].until", ":13: rules[3].wait[1].message", ":13: rules[3].wait[2].unit", ":14: sign",
		":15: fixtures[0].name", ":15: fixtures[0].is", ":15: fixtures[0].body_base64",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not have %q:\n%v", want, err)
		}
	}
}

func TestDigest(t *testing.T) {
	dir := writeAll(t, map[string]string{"a.yaml": "preset: a\n"})
	before := Digest(dir)
	if before == Digest(t.TempDir()) || Digest("") != Digest(t.TempDir()) || before != Digest(dir) {
		t.Error("the digest does not tell a folder with a file from an empty one")
	}
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("preset: b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if Digest(dir) == before {
		t.Error("a changed file does not change the digest")
	}
	if _, err := Load(filepath.Join(dir, "gone")); err == nil {
		t.Error("a folder that is not there is fine")
	}
}

func BenchmarkVerdict(b *testing.B) {
	set, err := Load("")
	if err != nil {
		b.Fatal(err)
	}
	p := set.Named("pdd")
	filler := strings.Repeat(`{"goods_id":17000000000001,"goods_name":"一二三四五","price":12.50},`, 28)
	body := []byte(`{"order_list_get_response":{"order_list":[` + strings.TrimSuffix(filler, ",") + `],"request_id":"176"}}`)
	r := Response{Status: 200, Head: body, Whole: true, Fields: message.Fields{{Name: "Content-Type", Value: "application/json"}}}
	f := Facts{Operation: "pdd.order.list.get", Nature: policy.NatureReads}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if got := p.Hear(&f, &r, 1<<20, clock); got.Kind != classify.Done {
			b.Fatal(got)
		}
	}
}
