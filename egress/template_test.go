package egress

import (
	"strings"
	"testing"
)

func TestRender(t *testing.T) {
	long := strings.Repeat("x", 300)
	tests := []struct{ name, text, shop, task, want string }{
		{"fixed", "user", "s1", "t", "user"},
		{"shop", "user-session-{shop}", "s1", "t", "user-session-s1"},
		{"in the middle", "u-{shop}-sesstime-10", "s.1_a-B", "t", "u-s.1_a-B-sesstime-10"},
		{"both", "{shop};{task_type}", "s1", "order_ship", "s1;order_ship"},
		{"twice", "{shop}{shop}", "ab", "", "abab"},
		{"escaped", "u-{shop}", "a:b@c d~", "", "u-a~3ab~40c~20d~7e"},
		{"first byte escaped", "{shop}", ":", "", "~3a"},
		{"bytes of UTF-8", "{shop}", "店", "", "~e5~ba~97"},
		{"control characters", "{shop}", "\r\n\x00", "", "~0d~0a~00"},
		{"a value is no template", "{shop}", "{task_type}", "t", "~7btask_type~7d"},
		{"other braces", "{{shop}}{9}{", "s1", "", "{s1}{9}{"},
		{"as long as there is room", "u-{shop}", long[:253], "", "u-" + long[:253]},
		{"longer", "u-{shop}", long[:254], "", "u-" + long[:253-34] + hashed(long[:254])},
		{"half the room each", "{shop}{task_type}", long, "t", long[:127-34] + hashed(long) + "t"},
	}
	for _, test := range tests {
		tpl, ok := newTemplate(test.text)
		if got := tpl.render(test.shop, test.task); !ok || got != test.want || len(got) > longestText {
			t.Errorf("%s: render(%q) = %q, %v, want %q", test.name, test.text, got, ok, test.want)
		}
	}
}

func TestUnknownPlaceholder(t *testing.T) {
	for _, text := range []string{"{Shop}", "a{shop_id}", "{shop}{tier}"} {
		if _, ok := newTemplate(text); ok {
			t.Errorf("newTemplate(%q) is accepted", text)
		}
	}
}

// FuzzRender: what is rendered is safe and short, and another value gives
// another text.
func FuzzRender(f *testing.F) {
	f.Add("s1", "s2")
	f.Add("a~3a", "a:")
	f.Add(strings.Repeat("a", 300), strings.Repeat("a", 301))
	tpl, _ := newTemplate("user-{shop}")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := tpl.render(a, ""), tpl.render(b, "")
		if (a == b) != (x == y) {
			t.Errorf("%q and %q become %q and %q", a, b, x, y)
		}
		for i := range len(x) {
			if !plain(x[i]) && x[i] != '~' {
				t.Errorf("render(%q) = %q", a, x)
			}
		}
		if len(x) > longestText {
			t.Errorf("render(%q) has %d bytes", a, len(x))
		}
	})
}
