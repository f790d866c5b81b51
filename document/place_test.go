package document

import (
	"errors"
	"strings"
	"testing"

	"retryproxy/message"
)

func TestParsePlace(t *testing.T) {
	for _, text := range []string{"form:type", "query:a:b", "header:X-Method", "json:$.a.b", "path", "path:/orders/([^/]+)/ship"} {
		p, err := ParsePlace(text)
		if err != nil || p.String() != text {
			t.Errorf("ParsePlace(%s) = %q, %v", text, p, err)
		}
		written, err := p.MarshalText()
		var again Place
		if err != nil || again.UnmarshalText(written) != nil || again.String() != text {
			t.Errorf("%s does not come back: %q, %v", text, again, err)
		}
	}
	for _, text := range []string{"", "type", "form:", "query:", "header:", "json:", "path:", "body:x", "Form:x", "json:a", "path:(", "path:/orders"} {
		if p, err := ParsePlace(text); !errors.Is(err, ErrPlace) || p.String() != "" {
			t.Errorf("ParsePlace(%s) = %q, %v; want an error", text, p, err)
		}
	}
}

func TestReadPlace(t *testing.T) {
	const (
		form = "application/x-www-form-urlencoded"
		js   = "application/json"
	)
	for _, tt := range []struct{ name, place, target, media, body, want string }{
		{"form", "form:type", "/", form, "a=1&type=pdd.order.get", "pdd.order.get"},
		{"form with a charset", "form:type", "/", form + "; charset=UTF-8", "type=x", "x"},
		{"form with a broken media type", "form:type", "/", form + "; charset=", "type=x", "x"},
		{"form that does not say so", "form:type", "/", "", "type=x", "x"},
		{"plus and escapes", "form:a b", "/", form, "a+b=1+2%2B%e4%b8%ad", "1 2+中"},
		{"escaped name", "form:type", "/", form, "%74ype=x", "x"},
		{"broken escape of a value", "form:type", "/", form, "type=100%zz", "100%zz"},
		{"broken escape of a name", "form:%zz", "/", form, "%zz=1", "none"},
		{"the first of two", "form:a", "/", form, "a=1&a=2", "1"},
		{"no value", "form:a", "/", form, "b&a&c", ""},
		{"empty value", "form:a", "/", form, "&&a=&b", ""},
		{"value with an equals sign", "form:sign", "/", form, "sign=YWI=", "YWI="},
		{"white space", "form:a", "/", form, "a=+x%0a", "x"},
		{"not there", "form:aa", "/", form, "a=1&aaa=2", "none"},
		{"empty body", "form:a", "/", form, "", "none"},
		{"multipart", "form:type", "/", "multipart/form-data; boundary=x", "--x&type=y&", "none"},
		{"multipart with a broken parameter", "form:type", "/", "multipart/form-data; boundary=a=b", "--x&type=y&", "none"},
		{"JSON is no form", "form:type", "/", js, "type=x", "none"},
		{"JSON that does not say so", "form:type", "/", "", `{"url":"https://x.example/?a=1&type=evil&b"}`, "none"},
		{"JSON that says it is a form", "form:type", "/", form, `{"url":"?a&type=evil&b"}`, "none"},

		{"JSON", "json:$.type", "/", js, `{"type":" pdd.order.get "}`, "pdd.order.get"},
		{"JSON number", "json:$.id", "/", js, `{"id":17000000000000001}`, "17000000000000001"},
		{"JSON null", "json:$.id", "/", js, `{"id":null}`, ""},
		{"JSON as text", "json:$.id", "/", "text/plain", "\ufeff" + `{"id":1}`, "1"},
		{"JSON as a form", "json:$.id", "/", form, `{"id":1}`, "1"},
		{"cut JSON", "json:$.id", "/", js, `{"id":1,`, "none"},
		{"too deep", "json:$..id", "/", js, nested(deepest, `{"id":1}`), "none"},
		{"empty JSON", "json:$.id", "/", js, "", "none"},

		{"query", "query:method", "/rest?a=1&method=x%2Fy+z", "", "", "x/y z"},
		{"query with a question mark", "query:a", "/?a=b?c", "", "", "b?c"},
		{"no query", "query:a", "/a=1", "", "", "none"},

		{"header", "header:x-method", "/", "", "", "m"},
		{"header that is not there", "header:X-Other", "/", "", "", "none"},

		{"path", "path", "/a%20b/c?d=e", "", "", "/a%20b/c"},
		{"group of a path", "path:/orders/([^/]+)/ship", "/v1/orders/A%2F1/ship?x=/orders/B/ship", "", "", "A%2F1"},
		{"group that is not there", "path:/orders/([0-9]+)", "/orders/x", "", "", "none"},
		{"only the path counts", "path:(z+)", "/a?b=zz", "", "", "none"},
		{"empty group", "path:/orders/(x)?", "/orders/", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := ParsePlace(tt.place)
			if err != nil {
				t.Fatal(err)
			}
			r := Request{Target: tt.target, Body: []byte(tt.body), Fields: message.Fields{{Name: "X-Method", Value: " m "}, {Name: "X-Method", Value: "second"}}}
			if tt.media != "" {
				r.Fields.Add("Content-Type", tt.media)
			}
			for range 2 { // what was asked once is known
				got, ok := p.Read(&r)
				if !ok {
					got += "none"
				}
				if got != tt.want {
					t.Errorf("%s = %q, want %q", tt.place, got, tt.want)
				}
			}
		})
	}
	if v, ok := (Place{}).Read(&Request{Target: "/"}); ok || v != "" {
		t.Errorf("the zero place has %q", v)
	}
}

func FuzzPlace(f *testing.F) {
	f.Add("form:type", "/?type=1", "", "a=%zz&type=+")
	f.Add("json:$..type", "/", "application/json", `{"a":{"type":1}}`)
	f.Add("path:/(a*)", "/a?b", "multipart/form-data; boundary", "x")
	f.Fuzz(func(t *testing.T, place, target, media, body string) {
		p, err := ParsePlace(place)
		if err != nil {
			return
		}
		r := Request{Target: target, Fields: message.Fields{{Name: "Content-Type", Value: media}}, Body: []byte(body)}
		if v, ok := p.Read(&r); !ok && v != "" || v != strings.TrimSpace(v) {
			t.Errorf("%s in %q and %q = %q, %v", place, target, body, v, ok)
		}
	})
}
