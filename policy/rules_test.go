package policy

import (
	"testing"

	"retryproxy/classify"
)

func TestSafeBasis(t *testing.T) {
	methods := []string{"GET", "PUT"}
	const unknown, reads, repeats, writes = NatureUnknown, NatureReads, NatureRepeats, NatureWrites
	for _, c := range []struct {
		safe, method string
		nature       Nature
		honoured     bool
		want         classify.Basis
	}{
		{"auto", "GET", unknown, false, classify.BasisMethod},
		{"auto", "GET", unknown, true, classify.BasisMethod},
		{"auto", "POST", unknown, false, ""},
		{"auto", "POST", unknown, true, classify.BasisKey},
		{"auto", "get", unknown, false, ""}, // methods are case-sensitive, RFC 9110 section 9.1
		{"method", "PUT", unknown, false, classify.BasisMethod},
		{"method", "POST", unknown, true, ""},
		{"key", "GET", unknown, false, ""},
		{"key", "GET", unknown, true, classify.BasisKey},
		{"key", "POST", unknown, false, ""},
		{"always", "POST", unknown, false, classify.BasisRule},
		{"never", "GET", unknown, true, ""},
		// What a preset knows: a get that writes is a write, a POST may read.
		{"auto", "GET", writes, false, ""},
		{"auto", "GET", writes, true, classify.BasisKey},
		{"auto", "POST", reads, false, classify.BasisRule},
		{"auto", "POST", repeats, false, classify.BasisRule},
		{"method", "POST", reads, false, classify.BasisRule},
		{"method", "PUT", writes, true, ""},
		{"key", "POST", reads, false, ""},
		{"never", "POST", reads, true, ""},
		{"always", "POST", writes, false, classify.BasisRule},
	} {
		p := &Policy{Safe: c.safe, SafeMethods: methods}
		if got := p.Rules(c.method, c.nature, c.honoured).Safe; got != c.want {
			t.Errorf("safe %s: Rules(%s, %d, honoured %v).Safe = %q, want %q", c.safe, c.method, c.nature, c.honoured, got, c.want)
		}
	}
}

func TestRulesTakeTheStatusSets(t *testing.T) {
	p := &Policy{OnUnknown: "retry"}
	p.RetryStatuses.Add(503)
	p.PermanentStatuses.Add(501)
	p.NotNowStatuses.Add(429)
	r := p.Rules("GET", NatureUnknown, false)
	if !r.Retry.Has(503) || !r.Permanent.Has(501) || !r.NotNow.Has(429) || r.OnUnknown != "retry" {
		t.Errorf("Rules = %+v, want the policy's statuses and on_unknown", r)
	}
}

func TestForwarding(t *testing.T) {
	const own, pdd = "erp.example.com:443", "gw-api.pinduoduo.com:443"
	both := []string{HeaderKey, HeaderRetryCount}
	for _, c := range []struct {
		name               string
		policy             Policy
		host               string
		key, via, honoured bool
	}{
		{"own host", Policy{Safe: "auto", ForwardHeaders: both}, own, true, true, true},
		{"own host, key not named", Policy{Safe: "auto", ForwardHeaders: both[1:]}, own, false, true, false},
		{"platform", Policy{Safe: "auto", ForwardHeaders: both}, pdd, false, false, false},
		{"platform, safe key", Policy{Safe: "key", ForwardHeaders: both}, pdd, false, false, false},
		{"platform, named by the operator", Policy{Safe: "auto", ForwardHeaders: both, ForwardHeadersSet: true}, pdd, true, true, false},
		{"platform, named and safe key", Policy{Safe: "key", ForwardHeaders: both, ForwardHeadersSet: true}, pdd, true, true, true},
		{"platform, none named", Policy{Safe: "key", ForwardHeadersSet: true}, pdd, false, true, false},
	} {
		p := c.policy
		if got := p.ForwardsTo(c.host, HeaderKey); got != c.key {
			t.Errorf("%s: ForwardsTo(%s, key) = %v, want %v", c.name, c.host, got, c.key)
		}
		if got := p.SendsVia(c.host); got != c.via {
			t.Errorf("%s: SendsVia(%s) = %v, want %v", c.name, c.host, got, c.via)
		}
		if got := p.KeyHonoured(c.host); got != c.honoured {
			t.Errorf("%s: KeyHonoured(%s) = %v, want %v", c.name, c.host, got, c.honoured)
		}
	}
}

// A host that ignores keys is one to the operator who forwards none: no repeat is
// safe by the key then.
func TestForwardsNothing(t *testing.T) {
	p := &Policy{Safe: "auto", SafeMethods: []string{"GET"}, ForwardHeaders: []string{}, ForwardHeadersSet: true}
	const host = "erp.example.com:443"
	if p.KeyHonoured(host) || p.Rules("POST", NatureUnknown, p.KeyHonoured(host)).Safe != "" {
		t.Error("with forward_headers: [] a repeat is safe by a key that does not go there")
	}
}

func TestForwards(t *testing.T) {
	p := &Policy{ForwardHeaders: []string{HeaderShop}}
	if !p.Forwards(HeaderShop) || p.Forwards(HeaderTaskType) || p.ForwardsKey() {
		t.Error("Forwards does not follow forward_headers")
	}
}

func TestPlatform(t *testing.T) {
	for _, c := range []struct {
		host string
		want bool
	}{
		{"gw-api.pinduoduo.com", true},
		{"gw-upload.pinduoduo.com:443", true},
		{"GW-API.PinDuoDuo.com.", true},
		{"openapi-b-global.temu.com:443", true},
		{"eco.taobao.com", true},
		{"gw.api.taobao.com", true},
		{"api.jd.com", true},
		{"openapi-fxg.jinritemai.com", true},
		{"openapi.kwaixiaodian.com", true},
		{"ark.xiaohongshu.com", true},
		{"api.weixin.qq.com", true},
		{"partner.shopeemobile.com", true},
		{"open-api.tiktokglobalshop.com", true},
		{"shop-17.myshopify.com", true},
		{"sellingpartnerapi-eu.amazon.com", true},
		{"marketplace.walmartapis.com", true},
		{"www.amazon.com", false},
		{"notpinduoduo.com", false},
		{"pinduoduo.com.evil.example", false},
		{"127.0.0.1:8080", false},
		{"[::1]:80", false},
		{"", false},
	} {
		if got := Platform(c.host); got != c.want {
			t.Errorf("Platform(%q) = %v, want %v", c.host, got, c.want)
		}
		if got := KeyIgnored(c.host); got != c.want {
			t.Errorf("KeyIgnored(%q) = %v, want %v", c.host, got, c.want)
		}
	}
}

func TestRulesAllocateNothing(t *testing.T) {
	p := &Policy{Safe: "auto", SafeMethods: []string{"GET"}, ForwardHeaders: []string{HeaderKey}}
	var got classify.Rules
	n := testing.AllocsPerRun(100, func() { got = p.Rules("POST", NatureUnknown, p.KeyHonoured("erp.example.com:443")) })
	if n != 0 || got.Safe != classify.BasisKey {
		t.Errorf("Rules allocates %v times (safe %q), want 0 (key)", n, got.Safe)
	}
}
