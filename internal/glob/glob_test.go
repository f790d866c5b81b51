package glob

import (
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		fold, want    bool
	}{
		{"", "", false, true},
		{"a", "a", false, true},
		{"a", "A", false, false},
		{"a", "A", true, true},
		{"*", "", false, true},
		{"*", "anything/at all", false, true},
		{"a*", "abc", false, true},
		{"a*", "bac", false, false},
		{"*.temu.com", "openapi-b-us.temu.com", true, true},
		{"*.temu.com", "temu.com", true, false},
		{"*.temu.com", "xtemu.com", true, false},
		{"a*b*c", "a-b-b-c", false, true},
		{"a*b*c", "a-b-b-", false, false},
		{"**a", "bba", false, true},
		{"/orders/*/ship", "/orders/17/ship", false, true},
		{"/orders/*/ship", "/orders/17/18/ship", false, true},
		{"/orders/*/ship", "/orders/17/shipped", false, false},
		{"abc", "ab", false, false},
		{"[x", "{X", true, false},
	} {
		if got := Match(c.pattern, c.text, c.fold); got != c.want {
			t.Errorf("Match(%q, %q, fold %v) = %v, want %v", c.pattern, c.text, c.fold, got, c.want)
		}
	}
}

// A pattern of many stars must not take exponential time.
func TestMatchIsNotExponential(t *testing.T) {
	if Match(strings.Repeat("a*", 40)+"b", strings.Repeat("a", 4000), false) {
		t.Error("Match(a*a*…b, aaa…) = true, want false")
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("a*b", "axxb")
	f.Add("*", "")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if Match(pattern, text, false) && !strings.Contains(pattern, "*") && pattern != text {
			t.Errorf("Match(%q, %q) = true without a star", pattern, text)
		}
		if !Match("*"+text+"*", text, false) {
			t.Errorf("Match(*%q*) does not match its own text", text)
		}
	})
}
