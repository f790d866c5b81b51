package document

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func path(t testing.TB, text string) Path {
	t.Helper()
	p, err := ParsePath(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// all are the texts of what stands at the path, with | between them.
func all(p Path, doc string) string {
	var list []string
	p.Each(doc, func(v Value) bool {
		list = append(list, v.Text)
		return true
	})
	return strings.Join(list, "|")
}

func TestParsePath(t *testing.T) {
	for _, text := range []string{
		"$", "$.a", "$.a.b", "$.list[0].x", "$.list[*].x", "$.*.x", "$..x", "$.a..x[0]", `$["odd key"]`, `$["a\"b"].c`, "$.错误", "$[2147483647]",
	} {
		p, err := ParsePath(text)
		if err != nil || p.String() != text || p.IsZero() {
			t.Errorf("ParsePath(%s) = %q, %v", text, p, err)
		}
		written, err := p.MarshalText()
		var again Path
		if err != nil || again.UnmarshalText(written) != nil || again.String() != text {
			t.Errorf("%s does not come back: %q, %v", text, again, err)
		}
	}
	for _, text := range []string{
		"", "a", ".a", "$a", "$.", "$..", "$...x", "$..*", "$..[0]", "$..a..b", "$[", "$[]", "$[-1]", "$[+1]", "$[1.5]", "$[2147483648]", "$[a]", "$['a']",
		`$["a"`, `$["a]`, `$["a"]b`, `$["\q"]`, "$.a.", "$.a[0", " $.a", "$" + strings.Repeat(".a", 33), "$." + strings.Repeat("a", 1<<10),
	} {
		if p, err := ParsePath(text); !errors.Is(err, ErrPath) || !p.IsZero() {
			t.Errorf("ParsePath(%.40s) = %q, %v; want an error", text, p, err)
		}
	}
}

func TestEach(t *testing.T) {
	for _, tt := range []struct{ path, doc, want string }{
		{"$.a", `{"a":17000000000000001}`, "17000000000000001"},
		{"$.a", `{"a":1.0}`, "1.0"},
		{"$.a", `{"a":-0.50e+3}`, "-0.50e+3"},
		{"$.a", `{"a":true}`, "true"},
		{"$.a", `{"a":" \u4e2d\n\"x\" "}`, "中\n\"x\""},
		{"$.a", `{"a":"\ud83d\ude00"}`, "😀"},
		{"$.a", `{"a": {"b" : 1} , "c":2}`, `{"b" : 1}`},
		{"$.a", `{"a":[1, 2]}`, "[1, 2]"},
		{"$.a", `{"a":1,"a":2}`, "1"},
		{"$.a.b", `{"a":{"c":1},"a":{"b":2}}`, ""},
		{"$.a.b", `{"a":[{"b":1}]}`, ""},
		{"$.a.b", `{"a":"{\"b\":1}"}`, ""},
		{"$.a", "\ufeff {\"a\":1}", "1"},
		{"$.a", ` [{"a":1}]`, ""},
		{"$.A", `{"a":1}`, ""},
		{"$.list[0]", `{"list":[5,6]}`, "5"},
		{"$.list[1].x", `{"list":[{"x":1},{"x":2}]}`, "2"},
		{"$.list[2]", `{"list":[5,6]}`, ""},
		{"$.list[0]", `{"list":{"0":1}}`, ""},
		{"$.list[*].x", `{"list":[{"x":1},{"y":2},3,{"x":null},{"x":"4"}]}`, "1||4"},
		{"$[*]", `[1,[2,3],{"a":4}]`, `1|[2,3]|{"a":4}`},
		{"$[*]", `{"a":1,"b":2}`, "1|2"},
		{"$[*][0]", "[1,[2,3]]", "2"},
		{"$.*.x", `{"a":{"x":1},"b":[{"x":2}],"c":{"x":3,"x":4}}`, "1|3"},
		{"$..x", `{"x":1,"a":[{"x":{"x":2}},[[{"x":3}]]],"b":"x"}`, `1|{"x":2}|2|3`},
		{"$..a.b", `{"a":{"b":1},"c":{"a":{"b":2}}}`, "1|2"},
		{`$["odd key"]`, `{"odd key":1}`, "1"},
		{`$["a.b"]["[0]"]`, `{"a.b":{"[0]":1}}`, "1"},
		{`$[""]`, `{"":1}`, "1"},
		{`$["a\"b\\c"]`, `{"a\"b\\c":1}`, "1"},
		{`$["tab\t"]`, `{"tab\t":1}`, "1"},
		{`$["\r\b"]`, `{"\r\b":1}`, "1"},
		{"$.a/b", `{"a\/b":1}`, "1"},
		{"$.错误", `{"错误":1}`, "1"},
		{"$.错误", `{"\u9519\u8bef":1}`, "1"},
		{"$.code", `{"\u0063od\u0065":1}`, "1"},
		{"$", ` {"a":1} ` + "\n", `{"a":1}`},
		{"$", " 7 \n", "7"},
		{"$", `" text "`, "text"},
		{"$", "null", ""},
		{"$.a", `"a"`, ""},
		{"$..a", "17", ""},
	} {
		if !Valid(tt.doc) {
			t.Errorf("%s is not valid", tt.doc)
		}
		if got := all(path(t, tt.path), tt.doc); got != tt.want {
			t.Errorf("%s in %s = %q, want %q", tt.path, tt.doc, got, tt.want)
		}
	}
	if got := all(Path{}, `{"a":1}`); got != "" {
		t.Errorf("the zero path finds %q", got)
	}
}

func TestFirst(t *testing.T) {
	const doc = `{"n":1.0,"s":"\u4e2d","o":{},"l":[1],"t":false,"z":null}`
	for name, want := range map[string]Value{
		"n": {Number, "1.0", "1.0"}, "s": {String, "中", `"\u4e2d"`}, "o": {Object, "{}", "{}"}, "l": {Array, "[1]", "[1]"},
		"t": {Bool, "false", "false"}, "z": {Null, "", "null"},
	} {
		if got, ok := path(t, "$."+name).First(doc); !ok || got != want {
			t.Errorf("%s = %+v, %v; want %+v", name, got, ok, want)
		}
	}
	if got, ok := path(t, "$.*").First(doc); !ok || got.Text != "1.0" {
		t.Errorf("the first of any = %+v, %v", got, ok)
	}
	if got, ok := path(t, "$.none").First(doc); ok || got != (Value{}) {
		t.Errorf("what is not there = %+v, %v", got, ok)
	}
}

func nested(depth int, inside string) string {
	return strings.Repeat(`{"a":`, depth) + inside + strings.Repeat("}", depth)
}

func TestValid(t *testing.T) {
	for _, doc := range []string{"{}", "\ufeff{}", " null ", `"[[["`, nested(deepest, `"[{\"["`), `{"a":1,"a":2}`} {
		if !Valid(doc) {
			t.Errorf("%.40q is not valid", doc)
		}
	}
	for _, doc := range []string{"", "\ufeff", "{", "{}{}", "{} x", "{'a':1}", "01", "+1", "NaN", "[1,]", "\"a\nb\"", `"\x"`, "\ufeff\ufeff{}", nested(deepest+1, "1")} {
		if Valid(doc) {
			t.Errorf("%.40q is valid", doc)
		}
	}
}

func TestUnpack(t *testing.T) {
	inner, err := json.Marshal(nested(deepest-1, "1"))
	if err != nil {
		t.Fatal(err)
	}
	tooMuch := `{"b":{"a":` + string(inner) + `}}`
	for _, tt := range []struct{ paths, doc, want string }{
		{"$.*.queryResult", `{"r":{"code":"0","queryResult":"{\"code\":403}"}}`, `{"r":{"code":"0","queryResult":{"code":403}}}`},
		{"$.a", `{ "a" : " [1, 2] " , "b":"{}"}`, `{ "a" : [1, 2] , "b":"{}"}`},
		{"$.a $.a.b", `{"a":"{\"b\":\"{}\"}"}`, `{"a":{"b":{}}}`},
		{"$.a", `{"a":"{\"b\":\"{}\"}"}`, `{"a":{"b":"{}"}}`},
		{"$.a", `{"a":"{broken"}`, `{"a":"{broken"}`},
		{"$.a", `{"a":"7"}`, `{"a":"7"}`},
		{"$.a", `{"a":{"b":"{}"}}`, `{"a":{"b":"{}"}}`},
		{"$[1]", `["{}","{}","{}"]`, `["{}",{},"{}"]`},
		{"$[*]", `["{}",1,"[]"]`, `[{},1,[]]`},
		{"$..a", `{"a":"{\"a\":\"{}\"}","b":[{"a":"[]"}]}`, `{"a":{"a":"{}"},"b":[{"a":[]}]}`},
		{"$", `"{\"a\":1}"`, `{"a":1}`},
		{"$.b", `[["[[]]"],{"b":"{}"}]`, `[["[[]]"],{"b":"{}"}]`},
		{"$[*][*]", `[["[[]]"],{"b":"{}"}]`, `[[[[]]],{"b":{}}]`},
		{"$.b.a", tooMuch, tooMuch},
	} {
		var paths []Path
		for _, text := range strings.Fields(tt.paths) {
			paths = append(paths, path(t, text))
		}
		if got := Unpack(tt.doc, paths); got != tt.want || !Valid(got) {
			t.Errorf("Unpack(%s, %.80s) = %.80s, want %.80s", tt.paths, tt.doc, got, tt.want)
		}
	}
}

func FuzzPath(f *testing.F) {
	for _, text := range []string{"$", "$.a", "$..a", "$.*[0]", "$[*].a", `$["a b"]`, "$.a..b"} {
		f.Add(text, `{"a":[{"a":"{\"b\":[1]}"}],"b":"[]"}`)
		f.Add(text, "\ufeff[1,\"{}\",{\"a b\":null}] ")
	}
	f.Fuzz(func(t *testing.T, text, doc string) {
		p, err := ParsePath(text)
		if err != nil || !Valid(doc) {
			return
		}
		first, ok := p.First(doc)
		n := 0
		p.Each(doc, func(v Value) bool {
			if n++; n == 1 && v != first || !json.Valid([]byte(v.Raw)) {
				t.Errorf("%s in %s: %q, first %q", text, doc, v.Raw, first.Raw)
			}
			return true
		})
		if ok != (n > 0) {
			t.Errorf("%s in %s: First says %v of %d values", text, doc, ok, n)
		}
		if out := Unpack(doc, []Path{p, p}); !Valid(out) || !json.Valid([]byte(strings.TrimPrefix(out, byteOrderMark))) {
			t.Errorf("Unpack(%s, %s) = %s", text, doc, out)
		}
	})
}
