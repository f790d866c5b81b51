package template

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/config"
	"retryproxy/document"
	"retryproxy/message"
)

// read decodes a template as a preset's file does.
func read(t *testing.T, yaml string) *Template {
	t.Helper()
	tpl := &Template{}
	r := config.Decode("test.yaml", []byte("---\n"+yaml), tpl)
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	for _, f := range tpl.Validate() {
		t.Fatal(f)
	}
	return tpl
}

// order is a call with values that mean something wherever they are put.
func order() *Facts {
	return &Facts{
		Key: "k-1", CallID: "c0ffee", Shop: "s 17", TaskType: "charge", Operation: "order.create",
		BusinessKey: "A&B=1", OrderNo: "A&B=1-r2", Cred: map[string]string{"app": "App\"1", "secret": "S3CR3T"},
		Now: time.Date(2026, 12, 1, 2, 3, 4, 56_000_000, time.UTC), Random: "0123456789abcdef0123456789abcdef",
		Call: &document.Request{
			Method: "POST", Target: "/v1/orders/77%2F8/ship?x=1%26y&empty=", Fields: message.Fields{{Name: "X-Note", Value: "a, b"}},
			Body: []byte(`{"a":{"b":"q\"\n中"},"amount":100.50,"no":"00123","product":"p1","list":[{"x":1}],"none":null,"blank":""}`),
		},
	}
}

func TestBuild(t *testing.T) {
	tests := []struct {
		name, yaml string
		want       Request
	}{
		{
			"a form", `
url: https://b.example:8443/api/order
form: {out_no: "{order_no}", amount: "{json:$.amount}", note: "{json:$.a.b}", app: "{cred.app}", fixed: "a&b", "odd name": x}
headers: {X-Call: "{call_id}"}`,
			Request{
				Method: "POST", Scheme: "https", Authority: "b.example:8443", Target: "/api/order",
				Fields: message.Fields{{Name: "X-Call", Value: "c0ffee"}, {Name: "Content-Type", Value: "application/x-www-form-urlencoded"}},
				Body:   []byte("amount=100.50&app=App%221&fixed=a%26b&note=q%22%0A%E4%B8%AD&odd+name=x&out_no=A%26B%3D1-r2"),
			},
		},
		{
			"JSON keeps its order, texts and numbers apart", `
url: https://b.example
json: '{"z":"{json:$.a.b}/{key}","n":{json:$.amount},"s":"{json:$.amount}","items":{json:$.list},"nested":{"no":"{json:$.no}"},"{shop}":"<&>"}'`,
			Request{
				Method: "POST", Scheme: "https", Authority: "b.example", Target: "/",
				Fields: message.Fields{{Name: "Content-Type", Value: "application/json"}},
				Body:   []byte(`{"z":"q\"\n中/k-1","n":100.50,"s":"100.50","items":[{"x":1}],"nested":{"no":"00123"},"s 17":"<&>"}`),
			},
		},
		{
			"path and query", `
url: "https://b.example/o/{path:/orders/([^/]+)/}/{business_key}?a={query:x}"
query: {b: "{header:X-Note}", c: "{query:empty | default \"\"}"}`,
			Request{Method: "GET", Scheme: "https", Authority: "b.example", Target: "/o/77%252F8/A&B=1?a=1%26y&b=a%2C+b&c="},
		},
		{
			"XML", `
url: http://b.example/
headers: {content-type: text/xml}
body: "<o a=\"{json:$.a.b}\">{operation}</o>"`,
			Request{
				Method: "POST", Scheme: "http", Authority: "b.example", Target: "/",
				Fields: message.Fields{{Name: "content-type", Value: "text/xml"}},
				Body:   []byte("<o a=\"q&#34;&#xA;中\">order.create</o>"),
			},
		},
		{
			"a table, a brace, a query of its own", `
method: PUT
url: https://b.example/?
query: {p: "{json:$.product | map products}", d: "{json:$.gone | default \"x|y}\" | map products}"}
body: "{{{task_type}} {random:8} }"
tables: {products: {p1: "9 9", "x|y}": d}}`,
			Request{
				Method: "PUT", Scheme: "https", Authority: "b.example", Target: "/?d=d&p=9+9",
				Fields: message.Fields{{Name: "Content-Type", Value: "text/plain; charset=utf-8"}},
				Body:   []byte("{charge} 01234567 }"),
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := read(t, test.yaml).Build(order())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("Build (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	tests := []struct{ name, yaml, want string }{
		{"a missing value", "{url: https://b.example, form: {a: '{json:$.gone}'}}", "form.a: {json:$.gone}: the call has none"},
		{"null", "{url: https://b.example, form: {a: '{json:$.none}'}}", "form.a: {json:$.none}: the call has none"},
		{"an empty value", "{url: https://b.example, form: {a: '{json:$.blank}'}}", "form.a: {json:$.blank}: the call has none"},
		{"a credential that is not there", "{url: https://b.example, headers: {A: '{cred.gone}'}}", "headers.A: {cred.gone}: the call has none"},
		{"a product without an entry", "{url: https://b.example, form: {a: '{json:$.product | map p}'}, tables: {p: {}}}", "form.a: {json:$.product | map p}: the table p has no entry for it"},
		{"a header with a line break", "{url: https://b.example, headers: {A: 'x{json:$.a.b}'}}", "headers.A: {json:$.a.b}: holds a line break or another control character"},
		{"a text for a number", `{url: https://b.example, json: '{"a":{shop}}'}`, "json: {shop}: is not a number, true, false or null; put it in quotes"},
		{"a number with a leading zero", `{url: https://b.example, json: '{"a":{json:$.no}}'}`, "json: {json:$.no}: is not a number, true, false or null; put it in quotes"},
		{"an object in a text", `{url: https://b.example, json: '{"a":"{json:$.list}"}'}`, "json: {json:$.list}: is an object or list, which has a place in json outside of quotes only"},
		{"a path that climbs", "{url: 'https://b.example/a/{json:$.product | map p}/c', tables: {p: {p1: ..}}}", "url: a value makes a segment of dots"},
		{"too little chance", "{url: https://b.example, headers: {A: '{random:8}'}}", "headers.A: {random:8}: the call has none"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := order()
			if test.name == "too little chance" {
				f.Random = "0123"
			}
			got, err := read(t, test.yaml).Build(f)
			var at *Fault
			if got != nil || !errors.As(err, &at) || err.Error() != test.want {
				t.Errorf("Build = %v, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestFaultsOfFiles(t *testing.T) {
	tests := []struct{ name, yaml, want string }{
		{"no url", "{method: POST}", "url: is missing"},
		{"a url without a host", "{url: 'https:///a'}", "url: must be an absolute http or https URL without placeholders in its host"},
		{"a placeholder in the host", "{url: 'https://{shop}.example/'}", "url: must be an absolute"},
		{"another scheme", "{url: 'ftp://b.example/'}", "url: must be an absolute"},
		{"a password", "{url: 'https://u:p@b.example/'}", "url: holds no user and password"},
		{"a fragment", "{url: 'https://b.example/a#b'}", "url: a URL holds no spaces"},
		{"a method", "{url: 'https://b.example/', method: post}", "method: must be the name of a method in capitals"},
		{"two bodies", `{url: 'https://b.example/', form: {a: b}, json: '1'}`, "json: there is form already; a request has one body"},
		{"a GET with a body", `{url: 'https://b.example/', method: GET, json: '1'}`, "json: a GET has no body; use query"},
		{"a header of the connection", "{url: 'https://b.example/', headers: {host: a}}", "headers.host: is not for templates"},
		{"no header", "{url: 'https://b.example/', headers: {'a b': a}}", `is no name of a header`},
		{"a line break in a header", `{url: 'https://b.example/', headers: {A: "a\nb"}}`, "headers.A: a header holds no line break"},
		{"bad JSON", `{url: 'https://b.example/', json: '{"a":}'}`, "json: is not valid JSON"},
		{"a placeholder after a backslash", `{url: 'https://b.example/', json: '"\u00{key}"'}`, "json: is not valid JSON"},
		{"an unknown placeholder", "{url: 'https://b.example/', form: {a: '{shopp}'}}", "form.a: {shopp}: is neither a known placeholder"},
		{"a credential without a name", "{url: 'https://b.example/', form: {a: '{cred.}'}}", "form.a: {cred.}: is neither"},
		{"no end", "{url: 'https://b.example/', form: {a: '{key'}}", "form.a: {key: the placeholder has no end; write {{ for a brace"},
		{"an unknown step", "{url: 'https://b.example/', form: {a: '{key | upper}'}}", "form.a: {key | upper}: a step is map TABLE"},
		{"a default without quotes", "{url: 'https://b.example/', form: {a: '{key | default x}'}}", "default needs a text in double quotes"},
		{"no table", "{url: 'https://b.example/', form: {a: '{key | map t}'}}", "form.a: there is no table t"},
		{"too much chance", "{url: 'https://b.example/', form: {a: '{random:33}'}}", "random takes 1 to 32 characters"},
		{"no layout", "{url: 'https://b.example/', form: {a: '{now:soon}'}}", "now takes unix, unix_ms, a layout"},
		{"a layout of unknown letters", "{url: 'https://b.example/', form: {a: '{now:yyyy-ww}'}}", "now takes"},
		{"a key that is not known", "{url: 'https://b.example/', forms: {}}", "did you mean form"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tpl := &Template{}
			var got []string
			if err := config.Decode("test.yaml", []byte("---\n"+test.yaml), tpl).Err(); err != nil {
				got = append(got, err.Error())
			}
			for _, f := range tpl.Validate() {
				got = append(got, f.Error())
			}
			if !strings.Contains(strings.Join(got, "\n"), test.want) {
				t.Errorf("faults = %q, want %q", got, test.want)
			}
		})
	}
}

func TestClock(t *testing.T) {
	at := time.Date(2026, 12, 31, 20, 3, 4, 56_000_000, time.UTC)
	for layout, want := range map[string]string{
		"unix":                          "1798747384",
		"unix_ms":                       "1798747384056",
		"yyyyMMddHHmmss":                "20270101040304",
		"yyyyMMddHHmmssSSS":             "20270101040304056",
		"yyyy-MM-dd'T'HH:mm":            "2027-01-01'T'04:03",
		"yyyy-MM-dd HH:mm:ss.SSS Z":     "2026-12-31 20:03:04.056",
		"yyyy/MM/dd HH:mm -05:00":       "2026/12/31 15:03",
		"2006-01-02 15:04:05":           "2027-01-01 04:03:04",
		"2006-01-02T15:04:05Z07:00":     "2027-01-01T04:03:04+08:00",
		"2006-01-02T15:04:05.000-07:00": "2027-01-01T04:03:04.056+08:00",
		"20060102150405 +00:00":         "20261231200304",
	} {
		write, err := clock(layout)
		if err != nil {
			t.Errorf("clock(%q): %v", layout, err)
			continue
		}
		if got := write(at); got != want {
			t.Errorf("clock(%q) = %q, want %q", layout, got, want)
		}
	}
}

func TestGuard(t *testing.T) {
	tables := map[string]map[string]string{"cost": {"p1": "99.9"}}
	tests := []struct{ name, value, most, want string }{
		{"below", "{json:$.amount}", "100.51", ""},
		{"equal, as decimals", "{json:$.amount}", "100.5", ""},
		{"above", "{json:$.amount}", "100.49", "guard[0]: {json:$.amount} is above 100.49"},
		{"what it costs is below what was paid", "{json:$.product | map cost}", "{json:$.amount}", ""},
		{"no number", "{json:$.a.b}", "1", "guard[0].value: {json:$.a.b}: holds a line break or another control character"},
		{"a word", "{shop}", "1", "guard[0].value: {shop} is not a plain decimal number"},
		{"missing", "{json:$.gone}", "1", "guard[0].value: {json:$.gone}: the call has none"},
		{"infinite", "1e9", "1", "guard[0].value: 1e9 is not a plain decimal number"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var g Guard
			if err := errors.Join(g.Value.UnmarshalText([]byte(test.value)), g.Most.UnmarshalText([]byte(test.most))); err != nil {
				t.Fatal(err)
			}
			if f := g.Validate("guard[0]", tables); f != nil {
				t.Fatal(f)
			}
			got := ""
			if err := g.Check("guard[0]", order(), tables); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("Check = %q, want %q", got, test.want)
			}
		})
	}
	bad := Guard{}
	_ = bad.Most.UnmarshalText([]byte("cheap"))
	_ = bad.Value.UnmarshalText([]byte("{key | map gone}"))
	if f := bad.Validate("guard[0]", tables); len(f) != 1 || f[0].Error() != "guard[0].value: there is no table gone" {
		t.Errorf("Validate = %v", f)
	}
	_ = bad.Value.UnmarshalText([]byte("{key}"))
	if f := bad.Validate("guard[0]", tables); len(f) != 1 || f[0].Path != "guard[0].most" {
		t.Errorf("Validate = %v", f)
	}
}

// FuzzTemplate holds that whatever is read is built into a request whose values stay
// where they were put, and that no fault shows one.
func FuzzTemplate(f *testing.F) {
	f.Add(`{"a":"{json:$.v}","n":{json:$.n}}`, "{query:x | default \"y\"}", "plain", `S3"CR3T`)
	f.Add(`["{key}"]`, "{now:yyyyMMddHHmmssSSS Z}{random:4}{{", "{", "a&b=c\r\nX: y")
	f.Add(`{json:$}`, "{cred.a | map t}", "{path:/(..)}", "\xff\x00/../?")
	f.Fuzz(func(t *testing.T, doc, value, head, secret string) {
		var tpl Template
		var q Query
		var h Header
		if tpl.URL.UnmarshalText([]byte("https://b.example/a/{cred.a}?q={cred.a}")) != nil || tpl.JSON.UnmarshalText([]byte(doc)) != nil ||
			q.UnmarshalText([]byte(value)) != nil || h.UnmarshalText([]byte(head)) != nil {
			return
		}
		tpl.Query, tpl.Headers = map[string]Query{"v": q, "s": q}, map[string]Header{"X-A": h}
		tpl.Tables = map[string]map[string]string{"t": {secret: secret}}
		if tpl.Validate() != nil {
			return
		}
		body, _ := json.Marshal(map[string]any{"v": secret, "n": 1})
		r, err := tpl.Build(&Facts{
			Key: secret, Cred: map[string]string{"a": secret}, Now: time.Unix(1e9, 0), Random: strings.Repeat("r", MaxRandom),
			Call: &document.Request{Method: "POST", Target: "/" + secret, Fields: message.Fields{{Name: "A", Value: secret}}, Body: body},
		})
		if err != nil {
			if len(secret) > 8 && strings.Contains(err.Error(), secret) && !strings.Contains(doc+value+head, secret) {
				t.Errorf("a fault shows a value: %v", err)
			}
			return
		}
		u, err := url.Parse("https://b.example" + r.Target)
		if err != nil || strings.ContainsAny(r.Target, " \r\n#") || u.Query().Get("q") != secret || len(u.Query()) != 3 {
			t.Errorf("target %q does not hold the value %q: %v", r.Target, secret, err)
		}
		if len(r.Body) > 0 && !json.Valid(r.Body) {
			t.Errorf("body is no JSON: %q", r.Body)
		}
		for _, field := range r.Fields {
			if hasControls(field.Value) {
				t.Errorf("header %q", field.Value)
			}
		}
	})
}
