package idempotency

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestCase_ID_18_ParseKey(t *testing.T) {
	long := strings.Repeat("k", 255)
	tests := []struct {
		name    string
		values  []string
		want    string
		present bool
		err     error
	}{
		{"no line", nil, "", false, nil},
		{"bare", []string{"order-1"}, "order-1", true, nil},
		{"white space around", []string{" \torder-1\t"}, "order-1", true, nil},
		{"quoted", []string{`"k1"`}, "k1", true, nil},
		{"quoted with escapes", []string{`"a\"b\\c"`}, `a"b\c`, true, nil},
		{"an escape that ends the string", []string{`"a\\"`}, `a\`, true, nil},
		{"a quote inside a bare key", []string{`a"b`}, `a"b`, true, nil},
		{"every visible character", []string{"!#$%&'()*+,-./:;<=>?@[]^_`{|}~"}, "!#$%&'()*+,-./:;<=>?@[]^_`{|}~", true, nil},
		{"255 characters", []string{long}, long, true, nil},
		{"255 characters in quotes", []string{`"` + long + `"`}, long, true, nil},
		{"255 characters, all escaped", []string{`"` + strings.Repeat(`\\`, 255) + `"`}, strings.Repeat(`\`, 255), true, nil},
		{"both names, equal", []string{"k1", "k1"}, "k1", true, nil},
		{"both names, equal but for quotes", []string{"k1", `"k1"`}, "k1", true, nil},

		{"empty", []string{""}, "", true, ErrKeyEmpty},
		{"only spaces", []string{"   "}, "", true, ErrKeyEmpty},
		{"empty in quotes", []string{`""`}, "", true, ErrKeyEmpty},
		{"only spaces in quotes", []string{`"  "`}, "", true, ErrKeyEmpty},
		{"one good, one empty", []string{"k1", ""}, "", true, ErrKeyEmpty},
		{"256 characters", []string{long + "k"}, "", true, ErrKeyTooLong},
		{"256 characters in quotes", []string{`"` + long + `k"`}, "", true, ErrKeyTooLong},
		{"8 KiB", []string{strings.Repeat("k", 8192)}, "", true, ErrKeyTooLong},
		{"tab", []string{"a\tb"}, "", true, ErrKeyCharacter},
		{"space", []string{"a b"}, "", true, ErrKeyCharacter},
		{"space in quotes", []string{`"a b"`}, "", true, ErrKeyCharacter},
		{"control", []string{"k\x01"}, "", true, ErrKeyCharacter},
		{"delete", []string{"k\x7f"}, "", true, ErrKeyCharacter},
		{"bytes above ASCII", []string{"\x80\xff"}, "", true, ErrKeyCharacter},
		{"UTF-8", []string{"ключ"}, "", true, ErrKeyCharacter},
		{"open quotes", []string{`"k1`}, "", true, ErrKeyQuoting},
		{"a quote alone", []string{`"`}, "", true, ErrKeyQuoting},
		{"text after the quotes", []string{`"k1"x`}, "", true, ErrKeyQuoting},
		{"parameters after the quotes", []string{`"k1";a=1`}, "", true, ErrKeyQuoting},
		{"a list", []string{`"k1", "k2"`}, "", true, ErrKeyQuoting},
		{"unknown escape", []string{`"a\b"`}, "", true, ErrKeyQuoting},
		{"an escape without end", []string{`"a\`}, "", true, ErrKeyQuoting},
		{"an escaped closing quote", []string{`"a\"`}, "", true, ErrKeyQuoting},
		{"two different", []string{"k1", "k2"}, "", true, ErrKeysDiffer},
		{"two that differ in case", []string{"k1", "K1"}, "", true, ErrKeysDiffer},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key, present, err := ParseKey(tt.values)
			if key != tt.want || present != tt.present || err != tt.err {
				t.Errorf("ParseKey(%q) = %q, %v, %v, want %q, %v, %v", tt.values, key, present, err, tt.want, tt.present, tt.err)
			}
		})
	}
}

func TestParseKeyDoesNotAllocate(t *testing.T) {
	values := []string{"order-4711", `"order-4711"`}
	if n := testing.AllocsPerRun(100, func() { ParseKey(values) }); n != 0 {
		t.Errorf("ParseKey allocates %v times, want 0", n)
	}
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"k1", `"k1"`, `"a\"b\\c"`, "", `"`, `"a\`, "a\tb", "\x80", strings.Repeat("k", 256)} {
		f.Add(s, s)
	}
	known := []error{ErrKeyEmpty, ErrKeyTooLong, ErrKeyCharacter, ErrKeyQuoting, ErrKeysDiffer}
	f.Fuzz(func(t *testing.T, a, b string) {
		key, present, err := ParseKey([]string{a, b})
		if !present {
			t.Fatalf("ParseKey(%q, %q): not present", a, b)
		}
		if err != nil {
			if key != "" || !slices.Contains(known, err) {
				t.Fatalf("ParseKey(%q, %q) = %q, %v, want no key and a known text", a, b, key, err)
			}
			return
		}
		invisible := func(r rune) bool { return r <= ' ' || r > '~' }
		if len(key) < 1 || len(key) > 255 || strings.ContainsFunc(key, invisible) {
			t.Fatalf("ParseKey(%q, %q) = %q", a, b, key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, _, err := ParseKey([]string{quoted, b}); again != key || err != nil {
			t.Fatalf("ParseKey(%q, %q) = %q, %v, want %q", quoted, b, again, err, key)
		}
		if _, _, err := ParseKey([]string{a, b, key + "x"}); !errors.Is(err, ErrKeysDiffer) && len(key) < 255 && key[0] != '"' {
			t.Fatalf("a third, different key = %v, want %v", err, ErrKeysDiffer)
		}
	})
}
