package signer

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

var fuzzed = []*Scheme{
	&pdd, &temu, &top, &jd, &doudian, &kuaishou, &xiaohongshu, &shopee, &tiktok, &lazada, &goofish, &xinya, &supplier,
	{
		Family: SortedWrap, Digest: "hmac-sha1", Encoding: "base64", Secret: "s", Wrap: "tail", Token: []string{"json:$.a.token", "form:token", "json:$.a"},
		Signature: []string{"json:$.a.sign", "form:sign"}, Nonce: Nonce{At: []string{"form:nonce", "json:$.a.n"}, Kind: "digits"},
	},
}

// FuzzResign: whatever the request, nothing panics; a request that has our
// signature is signed again so that it passes Check, with no byte changed but
// those of the places that the scheme names.
func FuzzResign(f *testing.F) {
	for _, examples := range []map[string]example{published, computed} {
		for _, e := range examples {
			f.Add(e.request.Target, e.request.Fields.Get("Content-Type"), e.request.Body)
		}
	}
	f.Add("/?sign=&timestamp=1760000000", "", []byte(`{"a":{"sign":"x","n":[],"token":null},"timestamp":1760000000}`))
	f.Add("?&&=&sign&timestamp=1760000000123", "", []byte("sign=%&timestamp=1760000000&nonce&token=%2B%zz"))
	f.Fuzz(func(t *testing.T, target, media string, body []byte) {
		for _, s := range fuzzed {
			r := request(target, media, string(body))
			secrets := Credentials{s.Secret: "k&%\"", "app_id": "a", "mch_secret": "m", TokenCredential: "t +/\\"}
			r, err := s.sign(&r, secrets, s.forms()[0])
			if err != nil {
				continue
			}
			resignHolds(t, s, &r, secrets)
		}
	})
}

func resignHolds(t *testing.T, s *Scheme, r *Request, secrets Credentials) {
	t.Helper()
	if err := s.Check(r, secrets); err != nil {
		return // the signature's place is one that cannot be written, such as an object
	}
	got, err := s.Resign(r, secrets, time.UnixMilli(1796090584123), func() string { return "123456789012345678" })
	if err != nil {
		return
	}
	if err := s.Check(&got, secrets); err != nil {
		t.Fatalf("%s: %v\n%s\n%s\n%s\n%s", s.Family, err, r.Target, r.Body, got.Target, got.Body)
	}
	var named []string
	for _, first := range [][]string{s.Time.At, s.Nonce.At, s.Signature} {
		for _, place := range first {
			if _, ok := newView(r).at(place); ok {
				named = append(named, place)
				break
			}
		}
	}
	named = append(named, s.Token...)
	if before, after := without(r, named), without(&got, named); before != after {
		t.Fatalf("%s changed\n%s\nto\n%s", s.Family, before, after)
	}
}

// FuzzForms: nested values are written as JSON that says the same, compact and
// in order as json.Compact writes it.
func FuzzForms(f *testing.F) {
	f.Add([]byte(`{"b": [1.0, 17000000000000001, {"\u0061": "<\u003c\/\ud83d\ude00\ud800"}], "a": null, "": []}`))
	f.Add([]byte("[ ]"))
	f.Add([]byte(strings.Repeat(`[{"b":1,"a":`, 80) + "0" + strings.Repeat("}]", 80)))
	f.Add([]byte(`"\\\""`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		raw = bytes.TrimSpace(raw)
		if !json.Valid(raw) {
			t.Skip()
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			t.Fatal(err)
		}
		if got := (form{}).in(raw); got != compact.String() {
			t.Fatalf("compact %q, want %q", got, compact.String())
		}
		want := normal(t, raw)
		for _, f := range []form{{plain: true}, {sorted: true}, {sorted: true, plain: true}} {
			if got := normal(t, []byte(f.in(raw))); !bytes.Equal(got, want) {
				t.Fatalf("%+v says %s, want %s", f, got, want)
			}
		}
	})
}

// normal is what JSON says, whatever the order of its members.
func normal(t *testing.T, raw []byte) []byte {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
