package redact

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	n := New([]string{"outer_pwd"})
	for _, c := range []struct{ text, want string }{
		{`{"access_token":"abc","x":1}`, `{"access_token":"***","x":1}`},
		{`{"Access_Token" : "a\"b\\" , "x":1}`, `{"Access_Token" : "***" , "x":1}`},
		{`{"sign":17,"x":{"outer_pwd":null}}`, `{"sign":***,"x":{"outer_pwd":***}}`},
		{`{"cards":[{"card_no":"1","card_pwd":"2"}],"x":1}`, `{"cards":***,"x":1}`},
		{`{"cards":{"a":["}"]},"x":1}`, `{"cards":***,"x":1}`},
		{`{"cards":[]}`, `{"cards":***}`},
		{`{"cards":[{"card_no":"1"`, `{"cards":***`},
		{`{"sign":"cut of`, `{"sign":"***`},
		{`{"p":"{\"access_token\":\"abc\",\"y\":\"z\"}","x":1}`, `{"p":"{\"access_token\":\"***\",\"y\":\"z\"}","x":1}`},
		{`{"design":"abc","signed":1,"text":"sign: abc"}`, `{"design":"abc","signed":1,"text":"sign: abc"}`},
		{"type=a&access_token=abc&sign=DEF&x=1", "type=a&access_token=***&sign=***&x=1"},
		{"param_json=%7B%22card_pwd%22%3A%22s3%22%7D&x=1", "param_json=%7B%22card_pwd%22%3A%22%2A%2A%2A%22%7D&x=1"},
		{"<o><card_pwd>abc</card_pwd><x>1</x></o>", "<o><card_pwd>***</card_pwd><x>1</x></o>"},
		{`<o><sign type="a">abc</sign><signs>1</signs></o>`, `<o><sign type="a">***</sign><signs>1</signs></o>`},
		{"<o><sign>cut", "<o><sign>***"},
		{"<o><sign/></o>", "<o><sign/></o>"},
		{`{"卡密":"9988","面值":"50"}`, `{"卡密":"***","面值":"50"}`},
		{"", ""},
		{"nothing of the kind", "nothing of the kind"},
	} {
		if got := n.Text(c.text); got != c.want {
			t.Errorf("Text(%s) =\n%s, want\n%s", c.text, got, c.want)
		}
	}
}

func TestTargetAndHeader(t *testing.T) {
	n := New([]string{"X-Shop-Token"})
	if got := n.Target("https://h/p?app%5Fsecret=a&x=1&sign"); got != "https://h/p?app%5Fsecret=***&x=1&sign=***" {
		t.Errorf("Target = %s", got)
	}
	if got := n.Target("/sign/secret"); got != "/sign/secret" {
		t.Errorf("Target of a path = %s", got)
	}
	for name, want := range map[string]string{"authorization": Hidden, "x-shop-token": Hidden, "Cookie": Hidden, "Accept": "v"} {
		if got := n.Header(name, "v"); got != want {
			t.Errorf("Header(%s) = %s, want %s", name, got, want)
		}
	}
}

// What is hidden is gone, at any depth of strings in strings.
func FuzzText(f *testing.F) {
	f.Add("abc", 2, true)
	f.Add(`a"b\c`, 1, false)
	f.Fuzz(func(t *testing.T, secret string, depth int, form bool) {
		secret = "S" + strings.ToValidUTF8(secret, "") + "S3CR3T"
		text := map[string]any{"x": 1, "card_pwd": secret, "y": "z"}
		out, err := json.Marshal(text)
		if err != nil {
			t.Skip()
		}
		for range depth % 4 {
			if out, err = json.Marshal(map[string]string{"inner": string(out)}); err != nil {
				t.Skip()
			}
		}
		if got := New(nil).Text(string(out)); strings.Contains(got, "S3CR3T") {
			t.Errorf("Text(%s) = %s", out, got)
		}
		_ = New(nil).Text(secret)
		_ = New(nil).Target("/?" + secret)
	})
}
