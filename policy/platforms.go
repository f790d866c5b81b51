package policy

import "strings"

// platforms are the domains of third-party platforms, each with all names below
// it. They take none of our headers: what they do not know they may refuse or
// hold against a shop, and no key of ours keeps them from a second order.
var platforms = map[string]bool{
	"pinduoduo.com":        true, // PDD: gw-api, gw-upload
	"temu.com":             true, // openapi-b-us, -eu, -global
	"kuajingmaihuo.com":    true, // TEMU in China
	"taobao.com":           true, // gw.api, eco, api
	"jd.com":               true, // api
	"jinritemai.com":       true, // Doudian: openapi-fxg
	"kwaixiaodian.com":     true, // Kuaishou: openapi
	"xiaohongshu.com":      true, // ark
	"weixin.qq.com":        true, // api
	"shopeemobile.com":     true, // partner
	"shopee.cn":            true, // openplatform
	"shopee.com.br":        true, // openplatform
	"tiktokglobalshop.com": true, // open-api
	"myshopify.com":        true, // one name per shop
	"walmartapis.com":      true, // marketplace

	"sellingpartnerapi-na.amazon.com": true,
	"sellingpartnerapi-eu.amazon.com": true,
	"sellingpartnerapi-fe.amazon.com": true,
}

// Platform says whether host, with or without a port, belongs to a known
// third-party platform.
func Platform(host string) bool {
	name, _ := splitPort(host)
	name = strings.ToLower(bare(name)) // no copy when it is lower case already
	for name != "" {
		if platforms[name] {
			return true
		}
		_, name, _ = strings.Cut(name, ".")
	}
	return false
}

// KeyIgnored says whether host is known to act again when a key is repeated.
// Today those are the platforms: none of them reads an idempotency header.
func KeyIgnored(host string) bool { return Platform(host) }
