package presets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFaultsOfSubmit(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"nothing to send":         {"submit: {order_no: same}", "submit.request.url: is missing"},
		"a fault of the template": {"submit: {request: {url: 'https://b.test', form: {a: '{key | map t}'}}}", "submit.request.form.a: there is no table t"},
		"an unknown placeholder":  {"submit: {request: {url: 'https://b.test', form: {a: '{kee}'}}}", "submit.request.form.a: {kee}: is neither a known placeholder"},
		"a guard without a bound": {"submit: {request: {url: 'https://b.test'}, guard: [{value: '{json:$.a}'}]}", "submit.guard[0].most: is missing"},
		"another rule of numbers": {"submit: {request: {url: 'https://b.test'}, order_no: new}", "submit.order_no: want same, new_suffix"},
		"no place to sign": {
			"sign: {family: sorted_wrap, digest: md5, case: lower, secret: s, signature: [form:sign, query:sig]}\nsubmit: {request: {url: 'https://b.test', form: {a: b}}}",
			"submit.request: has no place for the signature, such as form:sign, query:sig",
		},
		"a signature of any case": {
			"sign: {family: sorted_wrap, digest: md5, secret: s, signature: [form:sign]}\nsubmit: {request: {url: 'https://b.test', form: {sign: '-'}}}",
			"sign.case: want upper or lower",
		},
		"a place in the url": {"sign: {family: sorted_wrap, digest: md5, case: lower, secret: s, signature: [query:sig]}\nsubmit: {request: {url: 'https://b.test?sig=-'}}", ""},
		"a header":           {"sign: {family: sorted_wrap, digest: md5, case: lower, secret: s, signature: [header:x-sign]}\nsubmit: {request: {url: 'https://b.test', headers: {X-Sign: '-'}}}", ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "b.yaml"), []byte("preset: b\n"+test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		set, err := Load(dir)
		switch {
		case test.want == "" && (err != nil || set.Named("b").Submit == nil || set.Named("b").Submit.OrderNo != SameNumber):
			t.Errorf("%s: Load = %v", name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: Load = %v, want %q", name, err, test.want)
		}
	}
}
