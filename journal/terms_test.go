package journal

import (
	"slices"
	"strings"
	"testing"
)

var salts = Salts{{1}, Open}

// TestSipHash has the vectors of the paper's reference implementation: the key
// 00 01 … 0f and the texts "", 00, 00 01, ….
func TestSipHash(t *testing.T) {
	var key Salt
	for i := range key {
		key[i] = byte(i)
	}
	want := []uint64{
		0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d,
		0xcf2794e0277187b7, 0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137,
		0x93f5f5799a932462, 0x9e0082df0ba9e4b0, 0x7a5dbbc594ddb9f3, 0xf4b32f46226bada7,
		0x751e8fbc860ee5fb, 0x14ea5627c0843d90, 0xf723ca908e7af2ee, 0xa129ca6149be45e5,
	}
	var text []byte
	for n, w := range want {
		if got := key.hash(text, 0); got != w {
			t.Errorf("hash of %d bytes = %#x, want %#x", n, got, w)
		}
		text = append(text, byte(n))
	}
}

// has says whether a word is among the terms.
func has(terms []uint64, word string) bool {
	q := Query{Words: salts.Words(word)}
	return len(q.Words) > 0 && q.said(terms)
}

func TestTerms(t *testing.T) {
	tests := []struct {
		name, text string
		found      []string
		not        []string
	}{
		{"json", `{"order_sn":"220101-1234567","amount":12}`, []string{"220101-1234567", "order_sn", "ORDER_SN", "amount"}, []string{"1234567", "order"}},
		{"case", "Order-X17", []string{"order-x17", "ORDER-X17"}, nil},
		{"short runs", "abc 123 ab-1", []string{"ab-1"}, []string{"abc", "123"}},
		{"query", "type=pdd.order.ship&order_sn=99887766", []string{"99887766", "ship"}, []string{"pdd"}},
		{"form that holds JSON", "biz=%7B%22order_no%22%3A%22A77001%22%7D", []string{"a77001", "order_no"}, []string{"22a77001"}},
		{"percent at the end", "half%2", []string{"half"}, nil},
		{"percent that is none", "50%off1", []string{"off1"}, nil},
		{"escapes of JSON", `{"note":"\u8ba2\u53557001234\nline2\"quoted"}`, []string{"7001234", "line2", "quoted"}, []string{"53557001234", "nline2", "u8ba2"}},
		{"escape cut off", `abcd\u12`, []string{"abcd"}, nil},
		{"JSON in JSON", `{"order":"{\"sn\":\"8800-1\"}"}`, []string{"8800-1"}, nil},
		{"Chinese", "订单号12345678已发货", []string{"12345678"}, []string{"订单号"}},
		{"xml", "<orderId>WX-1234</orderId>", []string{"wx-1234", "orderid"}, nil},
		{"longest", strings.Repeat("a", 64), []string{strings.Repeat("a", 64)}, nil},
		{"too long", strings.Repeat("a", 65), nil, []string{strings.Repeat("a", 64)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, terms := range [][]uint64{salts.Terms([]byte(tt.text)), salts.Terms(nil, "/path", tt.text)} {
				for _, word := range tt.found {
					if !has(terms, word) {
						t.Errorf("%q is not found in %s", word, tt.text)
					}
				}
				for _, word := range tt.not {
					if has(terms, word) {
						t.Errorf("%q is found in %s", word, tt.text)
					}
				}
			}
		})
	}
}

func TestWordsAreAllWanted(t *testing.T) {
	terms := salts.Terms([]byte("order 1111 of shop-17"))
	for text, want := range map[string]bool{"1111 shop-17": true, "1111, shop-18": false, "of": false, "": false} {
		if got := has(terms, text); got != want {
			t.Errorf("%q is found: %v, want %v", text, got, want)
		}
	}
	if n := len(salts.Words(strings.Repeat("abcd1 abcd2 abcd3 abcd4 abcd5 ", 2) + "abcd6 abcd7 abcd8 abcd9 abcd10")); n != mostWords {
		t.Errorf("%d words are looked for, want at most %d", n, mostWords)
	}
}

func TestOrderNumbersGoFirst(t *testing.T) {
	var text strings.Builder
	word := func(n int, digit string) { text.WriteString(strings.Repeat("x", n) + "abcd" + digit + " ") }
	for n := range 60 {
		word(n, "")
	}
	for n := range 50 {
		word(n, "7")
	}
	terms := salts.Terms([]byte(text.String()))
	if len(terms) != MostTerms {
		t.Fatalf("%d terms, want %d", len(terms), MostTerms)
	}
	for n := range 50 {
		if !has(terms, strings.Repeat("x", n)+"abcd7") {
			t.Errorf("word %d with a digit is not found", n)
		}
	}
	kept := 0
	for n := range 60 {
		if has(terms, strings.Repeat("x", n)+"abcd") {
			kept++
		}
	}
	if kept != MostTerms-50 {
		t.Errorf("%d words without a digit, want the %d that have room", kept, MostTerms-50)
	}
}

func TestTermsAreDifferent(t *testing.T) {
	terms := salts.Terms([]byte(strings.Repeat("order-1 ORDER-1 ", 100)), "order-1")
	if len(terms) != 1 {
		t.Errorf("%d terms of one word", len(terms))
	}
	if terms := salts.Terms(nil); len(terms) != 0 {
		t.Errorf("%d terms of nothing", len(terms))
	}
}

func TestOnlyTheStartOfABodyIsLookedAt(t *testing.T) {
	body := append([]byte(strings.Repeat(" ", MostBody-8)), " order-1 order-2"...)
	if terms := salts.Terms(body); !has(terms, "order-1") || has(terms, "order-2") {
		t.Error("want what is within the first MostBody bytes, and no more")
	}
}

func TestSalts(t *testing.T) {
	old, current := Salt{1}, Salt{2}
	before := Salts{old, Open}.Terms(nil, "order-1")
	both := SaltsOf([][]byte{current[:], old[:]})
	if !slices.Equal(both, Salts{current, old, Open}) {
		t.Fatalf("SaltsOf = %x", both)
	}
	q := Query{Words: both.Words("order-1")}
	for name, terms := range map[string][]uint64{"old key": before, "new key": both.Terms(nil, "order-1"), "no key": SaltsOf(nil).Terms(nil, "order-1")} {
		if !q.said(terms) {
			t.Errorf("what was noted under the %s is not found", name)
		}
	}
	if slices.Equal(before, both.Terms(nil, "order-1")) {
		t.Error("the hash does not depend on the salt")
	}
	if q := (Query{Words: SaltsOf([][]byte{current[:]}).Words("order-1")}); q.said(before) {
		t.Error("found without the salt")
	}
}

func FuzzTerms(f *testing.F) {
	f.Add("order%2D1 \\u00e9 \\")
	f.Fuzz(func(t *testing.T, text string) {
		terms := salts.Terms([]byte(text), text)
		if len(terms) > MostTerms {
			t.Errorf("%d terms", len(terms))
		}
		sorted := slices.Sorted(slices.Values(terms))
		if len(slices.Compact(sorted)) != len(terms) {
			t.Error("a term came twice")
		}
		for _, words := range salts.Words(text) {
			if len(words) != len(salts) {
				t.Errorf("a word has %d hashes", len(words))
			}
		}
	})
}

// order is a body of some 500 bytes as a shop's system sends it.
const order = `{"order_sn":"260304-123456789012345","shop_id":"s17","buyer":{"name":"\u5f20\u4e09","phone":"13800138000"},` +
	`"items":[{"sku_id":"SKU-88412001","quantity":2,"price":"19.90"},{"sku_id":"SKU-88412002","quantity":1,"price":"5.00"}],` +
	`"logistics":{"company":"SF","tracking_no":"SF1234567890123"},"remark":"please ship before friday",` +
	`"callback":"https://erp.example.com/notify?order=260304-123456789012345","sign":"9f86d081884c7d659a2feaa0c55ad015","timestamp":1772600767}`

func BenchmarkTerms(b *testing.B) {
	for name, body := range map[string][]byte{"500B": []byte(order), "64KiB": []byte(strings.Repeat(order, 130))} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				salts.Terms(body, "9f1c9a52-7a3e-4d55-9b1e-3f1c9a52", "/api/router", "type=pdd.order.ship", "req-77001")
			}
		})
	}
}
