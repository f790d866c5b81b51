package signer

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkResign signs a JSON body of 2 KiB again, its check included.
func BenchmarkResign(b *testing.B) {
	item := `{"skuId":17592352673534,"goodsId":601099548666279,"title":"short \u8896 <m>"},`
	body := fmt.Sprintf(`{"app_key":"demo","timestamp":1760000000,"type":"bg.stock.edit","list":[%s],"sign":"x"}`,
		strings.TrimSuffix(strings.Repeat(item, 2048/len(item)), ","))
	secrets := Credentials{"app_secret": "demo-secret"}
	unsigned := request("/openapi/router", "application/json", body)
	signed, err := temu.sign(&unsigned, secrets, form{})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := temu.Resign(&signed, secrets, now, nil); err != nil {
			b.Fatal(err)
		}
	}
}
