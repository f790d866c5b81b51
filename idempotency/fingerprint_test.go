package idempotency

import (
	"bytes"
	"encoding/json"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const (
	jsonType = "application/json; charset=utf-8"
	formType = "application/x-www-form-urlencoded"
)

func subject() Subject {
	return Subject{Tenant: "s17", Method: "POST", Scheme: "https", Host: "u1.test:443", Target: "/order?a=1&ts=5", ContentType: jsonType}
}

func TestFingerprintCoversEveryPart(t *testing.T) {
	base := Fingerprint(subject(), []byte("{}"))
	changes := map[string]func(*Subject){
		"method":      func(s *Subject) { s.Method = "PUT" },
		"scheme":      func(s *Subject) { s.Scheme = "http" },
		"host":        func(s *Subject) { s.Host = "u2.test:443" },
		"path":        func(s *Subject) { s.Target = "/Order?a=1&ts=5" },
		"query":       func(s *Subject) { s.Target = "/order?a=1&ts=6" },
		"query order": func(s *Subject) { s.Target = "/order?ts=5&a=1" },
		"no query":    func(s *Subject) { s.Target = "/order" },
		"escaping":    func(s *Subject) { s.Target = "/%6frder?a=1&ts=5" },
		"border":      func(s *Subject) { s.Method, s.Scheme = "POSTh", "ttps" },
	}
	for name, change := range changes {
		s := subject()
		if change(&s); Fingerprint(s, []byte("{}")) == base {
			t.Errorf("another %s gives the same fingerprint", name)
		}
	}
	if Fingerprint(subject(), []byte("{} ")) == base {
		t.Errorf("another body gives the same fingerprint")
	}
	s := subject()
	s.Tenant, s.ContentType = "s18", ""
	if Fingerprint(s, []byte("{}")) != base {
		t.Errorf("tenant and media type change the fingerprint; they are no part of it")
	}
}

// group are requests with ts and sign ignored; all of one group are alike and
// unlike those of the other groups.
type group []struct{ target, media, body string }

var groups = []group{
	{
		{"/p", "", ""},
		{"/p?ts=1", "", ""},
		{"/p?ts=1&sign=ab%20c&ts=2", "", ""},
		{"/p?%74s=1", "", ""},
		{"/p?sign", "", ""},
	},
	{{"/p?", "", ""}},
	{{"/p?TS=1", "", ""}},
	{{"/p?a=1", "", ""}, {"/p?ts=1&a=1", "", ""}, {"/p?a=1&ts=1", "", ""}},
	{{"/p?a=1&", "", ""}, {"/p?a=1&ts=2&", "", ""}},
	{{"/p?a=1&b=2", "", ""}, {"/p?a=1&sign=x&b=2", "", ""}},
	{{"/p?b=2&a=1", "", ""}},
	{{"/p?a=1&b=2&a=3", "", ""}},
	{{"/p?a=%31", "", ""}},
	{{"/p?a=1;ts=2", "", ""}},
	{{"/p?%zz=1", "", ""}},

	{{"/p", formType, "a=1"}, {"/p", formType, "ts=4&a=1"}, {"/p", "Application/X-WWW-Form-Urlencoded; charset=utf-8", "a=1&ts=5&sign"}},
	{{"/p", formType, "a=2&ts=4"}},
	{{"/p", "text/plain", "a=1"}},
	{{"/p", "text/plain", "a=1&ts=4"}},
	{{"/p", "", "a=1&ts=4&"}},

	{
		{"/p", jsonType, `{"a":1}`},
		{"/p", jsonType, `{"a":1,"ts":5}`},
		{"/p", jsonType, `{"ts":5,"a":1}`},
		{"/p", "application/vnd.api+json", ` { "sign":"x,}]\"", "ts": {"a":[1,{"}":2}]},"a":1} `},
		{"/p", "text/json", `{"\u0074s":5,"a":1}`},
		{"/p", jsonType, `{"sign":"\n\\","a":1}`},
		{"/p", jsonType, `{"ts":"\\\"},","a":1}`},
	},
	{{"/p", jsonType, `{"a":2}`}, {"/p", jsonType, `{"a":2,"ts":5}`}},
	{{"/p", jsonType, `{"a": 1}`}},
	{{"/p", jsonType, `{"a":{"ts":5}}`}},
	{{"/p", jsonType, `{"a":{"ts":6}}`}},
	{{"/p", jsonType, `{"a":1,"b":2}`}, {"/p", jsonType, `{"a":1,"ts":0,"b":2}`}},
	{{"/p", jsonType, `{"b":2,"a":1}`}},
	{{"/p", jsonType, `{"a":1,"a":1}`}},
	{{"/p", jsonType, `{}`}, {"/p", jsonType, `{"ts":5}`}},
	{{"/p", formType, ""}, {"/p", formType, "ts=1"}},
	{{"/p", jsonType, `{"a":1"b":2}`}},
	{{"/p", jsonType, `{"ts":5]}`}},
	{{"/p", jsonType, `{"ts":6]}`}},
	{{"/p", jsonType, `[{"ts":5}]`}},
	{{"/p", jsonType, `{"a":1,"ts":5}x`}},
	{{"/p", jsonType, `{"a":1,"ts":5},`}},
	{{"/p", jsonType, `{"a":1,"ts":5`}},
	{{"/p", jsonType, `{"a":1,"ts":5,}`}},
	{{"/p", jsonType, `{"a":1,"ts":5]`}},
	{{"/p", jsonType, `{"a":1,"ts`}},
	{{"/p", "text/plain", `{"a":1}`}},
	{{"/p", "application/jsonx", `{"a":1,"ts":5}`}},
}

func TestIgnoredPartsAreLeftOut(t *testing.T) {
	seen := map[[32]byte]int{}
	for i, g := range groups {
		for _, x := range g {
			s := Subject{Tenant: "s17", Target: x.target, ContentType: x.media, Ignore: []string{"ts", "sign"}}
			sum := Fingerprint(s, []byte(x.body))
			if j, ok := seen[sum]; ok && j != i {
				t.Errorf("%q %q is like group %d: %v", x.target, x.body, j, groups[j])
			}
			if seen[sum] = i; Fingerprint(s, []byte(x.body)) != Fingerprint(Subject{Tenant: "s17", Target: g[0].target, ContentType: g[0].media, Ignore: s.Ignore}, []byte(g[0].body)) {
				t.Errorf("%q %q is unlike %q %q", x.target, x.body, g[0].target, g[0].body)
			}
		}
	}
}

func TestNothingIsLeftOutWithoutATenant(t *testing.T) {
	for _, g := range groups {
		for _, x := range g {
			s := Subject{Tenant: NoTenant, Target: x.target, ContentType: x.media}
			want := Fingerprint(s, []byte(x.body))
			if s.Ignore = []string{"ts", "sign", "a"}; Fingerprint(s, []byte(x.body)) != want {
				t.Errorf("ignored names change the fingerprint of %q %q in tenant -", x.target, x.body)
			}
		}
	}
}

func TestPrintTakesPiecesOfAnySize(t *testing.T) {
	for _, g := range groups {
		for _, x := range g {
			s := Subject{Target: x.target, ContentType: x.media, Ignore: []string{"ts", "sign"}}
			p := NewPrint(s)
			for i := range len(x.body) {
				p.Write([]byte(x.body[i : i+1]))
			}
			if p.Sum() != Fingerprint(s, []byte(x.body)) {
				t.Errorf("%q in single bytes has another fingerprint", x.body)
			}
		}
	}
}

func TestLongNames(t *testing.T) {
	long := strings.Repeat("n", maxName)
	over := long + "n"
	tests := []struct {
		name, media, a, b string
		same              bool
	}{
		{"a form name of 1 KiB is ignored", formType, long + "=1&a=1", "a=1", true},
		{"a longer form name counts", formType, over + "=1&a=1", over + "=2&a=1", false},
		{"a JSON name of 1 KiB less its quotes is ignored", jsonType, `{"` + long[2:] + `":1,"a":1}`, `{"a":1}`, true},
		{"with a longer JSON name the body counts whole", jsonType, `{"` + over + `":1,"ts":1}`, `{"` + over + `":1,"ts":2}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := Subject{Target: "/", ContentType: tt.media, Ignore: []string{"ts", long, long[2:], over}}
			if got := Fingerprint(s, []byte(tt.a)) == Fingerprint(s, []byte(tt.b)); got != tt.same {
				t.Errorf("same = %v, want %v", got, tt.same)
			}
		})
	}
}

// Parts of different requests never run into each other.
func FuzzFingerprintFraming(f *testing.F) {
	f.Add("POST", "/a?b", "x", "POS", "T/a?b", "x")
	f.Add("", "/?", "", "", "/", "")
	f.Fuzz(func(t *testing.T, method1, target1, body1, method2, target2, body2 string) {
		one := Fingerprint(Subject{Method: method1, Target: target1}, []byte(body1))
		two := Fingerprint(Subject{Method: method2, Target: target2}, []byte(body2))
		if same := method1 == method2 && target1 == target2 && body1 == body2; (one == two) != same {
			t.Errorf("(%q %q %q) and (%q %q %q): same = %v", method1, target1, body1, method2, target2, body2, one == two)
		}
	})
}

// What is left of two bodies decides, by another reading of them.
func FuzzIgnoredMembers(f *testing.F) {
	for _, g := range groups {
		for _, x := range g {
			f.Add(x.body, g[0].body, 3)
		}
	}
	f.Fuzz(func(t *testing.T, a, b string, cut int) {
		s := Subject{Target: "/", ContentType: jsonType, Ignore: []string{"ts", "sign"}}
		one, two := inTwo(s, a, cut), Fingerprint(s, []byte(b))
		left, right := plainMembers(t, a), plainMembers(t, b)
		switch {
		case a == b && one != two:
			t.Errorf("%q has two fingerprints", a)
		case one == two && a != b && (left == nil) != (right == nil):
			// Only brackets and strings are looked at: what is no JSON may pass for an object.
		case one == two && !reflect.DeepEqual(left, right):
			t.Errorf("%q and %q have one fingerprint but are %v and %v", a, b, left, right)
		}
		if len(left) > 0 && len(a) < maxName {
			if with := `{"ts":` + quote(b) + `,` + strings.TrimLeft(a, " \t\r\n")[1:]; Fingerprint(s, []byte(with)) != one {
				t.Errorf("%q with an ignored member has another fingerprint", a)
			}
		}
	})
}

// inTwo is the fingerprint of a body that comes in two pieces.
func inTwo(s Subject, body string, cut int) [32]byte {
	cut = max(0, min(cut, len(body)))
	p := NewPrint(s)
	p.Write([]byte(body[:cut]))
	p.Write([]byte(body[cut:]))
	return p.Sum()
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// plainMembers reads the top-level members that are not ignored; nil: no object.
func plainMembers(t *testing.T, body string) []string {
	t.Helper()
	if !json.Valid([]byte(body)) {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(body))
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		return nil
	}
	out := []string{}
	for d.More() {
		name, _ := d.Token()
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatalf("Decode: %v", err)
		}
		var compact bytes.Buffer
		json.Compact(&compact, value)
		if name != "ts" && name != "sign" {
			out = append(out, name.(string), compact.String())
		}
	}
	return out
}

func FuzzIgnoredPairs(f *testing.F) {
	for _, g := range groups {
		for _, x := range g {
			_, query, _ := strings.Cut(x.target, "?")
			f.Add(query, x.body, 2)
		}
	}
	f.Fuzz(func(t *testing.T, a, b string, cut int) {
		s := Subject{Target: "/", ContentType: formType, Ignore: []string{"ts", "sign"}}
		same := slices.Equal(plainPairs(a), plainPairs(b))
		if got := inTwo(s, a, cut) == Fingerprint(s, []byte(b)); got != same {
			t.Errorf("forms %q and %q: same = %v, want %v", a, b, got, same)
		}
		if a == "" || b == "" {
			return // "?" alone is a query
		}
		one := Fingerprint(Subject{Target: "/?" + a, Ignore: s.Ignore}, nil)
		if got := one == Fingerprint(Subject{Target: "/?" + b, Ignore: s.Ignore}, nil); got != same {
			t.Errorf("queries %q and %q: same = %v, want %v", a, b, got, same)
		}
	})
}

// plainPairs are the pairs of a form that are not ignored.
func plainPairs(form string) []string {
	if form == "" {
		return nil
	}
	return slices.DeleteFunc(strings.Split(form, "&"), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		return name == "ts" || name == "sign"
	})
}

func BenchmarkFingerprint(b *testing.B) {
	body := []byte(`{"order":"4711","ts":1767225600,"items":["` + strings.Repeat("x", 950) + `"]}`)
	for _, ignore := range [][]string{nil, {"ts", "sign"}} {
		b.Run("ignore "+strings.Join(ignore, " "), func(b *testing.B) {
			s := subject()
			s.Ignore = ignore
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				Fingerprint(s, body)
			}
		})
	}
}

// Fingerprint is the print of a request whose body is at hand.
func Fingerprint(s Subject, body []byte) [32]byte {
	p := NewPrint(s)
	_, _ = p.Write(body) // never fails
	return p.Sum()
}
