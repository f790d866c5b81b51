package signer_test

import (
	"reflect"
	"testing"
	"time"

	"retryproxy/config"
	"retryproxy/signer"
)

// TestSchemeIsReadFromYAML shows every key of a scheme in a file.
func TestSchemeIsReadFromYAML(t *testing.T) {
	var got signer.Scheme
	reading := config.Decode("x.yaml", []byte(`
family: sorted_wrap
digest: md5
encoding: hex
case: upper
variants: {at: [form:sign_method], of: {hmac: {digest: hmac-md5, encoding: base64, case: lower}}}
secret: app_secret
signature: [form:sign, "json:$.sign"]
time: {at: [form:timestamp], unit: "2006-01-02 15:04:05", also: [ms], zone: "+08:00"}
window: 10m
nonce: {at: [form:nonce], kind: uuid}
token: [header:x-tts-access-token]
exclude: [a]
include: [b]
empty: skipped
wrap: both
suffix: "&key={secret}"
parts: ["{path}", "{secret}"]
joiner: ","
`), &got)
	if err := reading.Err(); err != nil {
		t.Fatal(err)
	}
	want := signer.Scheme{
		Family: signer.SortedWrap, Digest: "md5", Encoding: "hex", Case: "upper",
		Variants:  signer.Variants{At: []string{"form:sign_method"}, Of: map[string]signer.Variant{"hmac": {Digest: "hmac-md5", Encoding: "base64", Case: "lower"}}},
		Secret:    "app_secret",
		Signature: []string{"form:sign", "json:$.sign"},
		Time:      signer.Time{At: []string{"form:timestamp"}, Unit: time.DateTime, Also: []string{"ms"}, Zone: "+08:00"},
		Window:    10 * time.Minute,
		Nonce:     signer.Nonce{At: []string{"form:nonce"}, Kind: "uuid"},
		Token:     []string{"header:x-tts-access-token"},
		Exclude:   []string{"a"}, Include: []string{"b"}, Empty: "skipped", Wrap: "both",
		Suffix: "&key={secret}", Parts: []string{"{path}", "{secret}"}, Joiner: ",",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
