package classify

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestSuspect(t *testing.T) {
	const js = "application/json"
	tests := []struct {
		name, contentType, body string
		want                    bool
	}{
		{"error_response", js, `{"error_response":{"error_code":10001,"error_msg":"x"}}`, true},
		{"error_response after others", js, `{"a":[1,{"b":"}"}],"error_response":{"x":1}}`, true},
		{"error_response null", js, `{"error_response":null}`, false},
		{"error_response empty", js, `{"error_response":{ }}`, false},
		{"error_response zero", js, `{"error_response":0}`, false},
		{"error_response text", js, `{"error_response":"no"}`, true},
		{"success false", js, "\t{ \"success\" :\nfalse }", true},
		{"success false as a string", js, `{"success":"false"}`, true},
		{"success true", js, `{"success":true}`, false},
		{"errcode", js, `{"errcode":40001,"errmsg":"x"}`, true},
		{"errcode zero", js, `{"errcode":0,"errmsg":"ok"}`, false},
		{"errcode zero as a string", js, `{"errcode":"0"}`, false},
		{"errcode many zeros", js, `{"errcode":"00000"}`, false},
		{"errcode empty", js, `{"errcode":""}`, false},
		{"error_code as a string", js, `{"error_code":"ISV.missing"}`, true},
		{"error_code ok", js, `{"error_code":"OK"}`, false},
		{"errorCode", js, `{"errorCode":-1}`, true},
		{"errorCode null", js, `{"errorCode":null}`, false},
		{"errorCode nested", js, `{"errorCode":[5]}`, false},
		{"zero with an exponent", js, `{"errcode":0e5}`, false},
		{"zero with a fraction", js, `{"errcode":-0.0}`, false},
		{"fraction", js, `{"errcode":0.5}`, true},
		{"success as TEMU says it", js, `{"success":true,"requestId":"x","errorCode":1000000,"errorMsg":"","result":{}}`, false},
		{"failure as TEMU says it", js, `{"success":false,"errorCode":4000004}`, true},
		{"success true behind a code", js, `{"errorCode":1000000,"success":true}`, false},
		{"success true as a string", js, `{"success":"true","error_code":7}`, false},
		{"success true and error_response", js, `{"success":true,"error_response":{"x":1}}`, true},
		{"error_response and success true", js, `{"error_response":{"x":1},"success":true}`, true},
		{"success unclear and a code", js, `{"success":1,"errcode":7}`, true},
		{"success true deeper in", js, `{"errorCode":7,"result":{"success":true}}`, true},
		{"code before a cut", js, `{"errorCode":7,"result":{"a":1`, true},
		{"no member", js, `{"a","success":false}`, false},
		{"not at the top level", js, `{"data":{"success":false,"errcode":1}}`, false},
		{"in an array", js, `[{"success":false}]`, false},
		{"in a string", js, `{"text":"{\"success\":false}"}`, false},
		{"as a value", js, `{"key":"success","value":false}`, false},
		{"key with an escaped quote before it", js, `{"a\"":1,"success":false}`, true},
		{"string that ends in a backslash", js, `{"a":"\\","success":false}`, true},
		{"byte order mark", js, "\xef\xbb\xbf{\"success\":false}", true},
		{"JSON with a charset", "application/json; charset=utf-8", `{"success":false}`, true},
		{"vendor JSON", "application/vnd.x+json", `{"success":false}`, true},
		{"JSON as text/html", "text/html", `{"success":false}`, true},
		{"no content type", "", `{"success":false}`, true},
		{"image", "image/png", `{"success":false}`, false},
		{"HTML", "text/html", `<p>"success"</p>`, false},
		{"other member only", js, `{"error":"x","code":7}`, false},
		{"cut in the literal", js, `{"success":fals`, false},
		{"cut after the literal", js, `{"success":false`, false},
		{"cut in a number", js, `{"errcode":1`, false},
		{"cut later", js, `{"success":false,"data":[1,2`, true},
		{"cut before", js, `{"data":{"a":1`, false},
		{"empty", js, ``, false},
		{"empty object", js, `{}`, false},
		{"broken", js, `{"success" false}`, false},
		{"too far in", js, `{"pad":"` + strings.Repeat("x", inspectMost) + `","success":false}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Suspect(tt.contentType, []byte(tt.body)); got != tt.want {
				t.Errorf("Suspect(%q, %.80q) = %v, want %v", tt.contentType, tt.body, got, tt.want)
			}
		})
	}
}

// oracle decides by encoding/json; it is right for complete documents only.
func oracle(doc []byte) bool {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		return false
	}
	failure, code, success := false, false, false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return false
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return false
		}
		name, _ := json.Marshal(key)
		switch signOf(name, value) {
		case saysFailure:
			failure = true
		case saysCode:
			code = true
		case saysSuccess:
			success = true
		}
	}
	return failure || code && !success
}

func FuzzSuspect(f *testing.F) {
	for _, seed := range []string{
		`{"success":false}`, `{"a":{"b":[1,"]"]},"errcode":"1"}`, `{"error_response":{},"errorCode":0}`,
		`{"a":"\\\"","error_code":1e9}`, `{"errorCode":1,"success":true}`, `{"success":fal`, `[]`, `{"errcode":1,}`, "\xef\xbb\xbf{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		got := Suspect("application/json", doc)
		complete := json.Valid(doc) && len(doc) <= inspectMost
		// An escaped spelling of a key is nobody's; the scanner does not read it.
		if want := oracle(doc); complete && got != want && !bytes.Contains(doc, []byte(`\u`)) {
			t.Errorf("Suspect(%q) = %v, want %v", doc, got, want)
		}
		if again := Suspect("application/json", doc); again != got {
			t.Errorf("Suspect(%q) differs between two calls", doc)
		}
	})
}

func BenchmarkSuspect(b *testing.B) {
	for name, body := range map[string]string{
		"plain 4KiB": `{"data":"` + strings.Repeat("x", 4<<10) + `"}`,
		"success":    `{"success":true,"data":{"list":[` + strings.Repeat(`{"id":"17","name":"x"},`, 180) + `{}]}}`,
	} {
		b.Run(name, func(b *testing.B) {
			head := []byte(body)
			b.ReportAllocs()
			b.SetBytes(int64(len(head)))
			for b.Loop() {
				Suspect("application/json;charset=UTF-8", head)
			}
		})
	}
}
