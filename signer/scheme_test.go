package signer

import (
	"strings"
	"testing"
	"time"
)

func TestValidateNamesFieldAndRule(t *testing.T) {
	tests := map[string]struct {
		change func(s *Scheme)
		want   string
	}{
		"family":          {func(s *Scheme) { s.Family = "sorted" }, `family: want sorted_wrap, kv_amp, fixed_concat, path_sorted_body, doudian, not "sorted"`},
		"digest":          {func(s *Scheme) { s.Digest = "" }, `digest: want md5, sha256, hmac-md5, hmac-sha1, hmac-sha256, not ""`},
		"encoding":        {func(s *Scheme) { s.Encoding = "base32" }, `encoding: want hex, base64, not "base32"`},
		"case":            {func(s *Scheme) { s.Case = "UPPER" }, `case: want upper, lower, not "UPPER"`},
		"empty":           {func(s *Scheme) { s.Empty = "no" }, `empty: want signed, skipped, not "no"`},
		"wrap":            {func(s *Scheme) { s.Wrap = "x" }, `wrap: want both, head, tail, none, not "x"`},
		"no secret":       {func(s *Scheme) { s.Secret = "" }, `secret: want the name of a credential`},
		"no signature":    {func(s *Scheme) { s.Signature = nil }, `signature: want at least one place`},
		"signature":       {func(s *Scheme) { s.Signature[0] = "body:sign" }, `signature[0]: want form:name, query:name, header:name or json:$.member.member, not "body:sign"`},
		"a list":          {func(s *Scheme) { s.Token = []string{"json:$.a[0]"} }, `token[0]: want`},
		"an empty member": {func(s *Scheme) { s.Token = []string{"json:$.a..b"} }, `token[0]: want`},
		"window":          {func(s *Scheme) { s.Window = -time.Second }, `window: want a duration of 0 or more`},
		"unit":            {func(s *Scheme) { s.Time.Unit = "seconds" }, `time.unit: want s, ms or a Go layout with date and time, not "seconds"`},
		"a day only":      {func(s *Scheme) { s.Time.Also = []string{"ms", "2006-01-02"} }, `time.also[1]: want s, ms or a Go layout`},
		"zone":            {func(s *Scheme) { s.Time.Zone = "Asia/Shanghai" }, `time.zone: want an offset such as +08:00`},
		"nonce":           {func(s *Scheme) { s.Nonce = Nonce{At: []string{"form:n"}, Kind: "int"} }, `nonce.kind: want uuid, hex16, digits, not "int"`},
		"half a variant":  {func(s *Scheme) { s.Variants.At = []string{"form:m"} }, `variants: want both at and of`},
		"variant": {func(s *Scheme) {
			s.Variants = Variants{At: []string{"form:m"}, Of: map[string]Variant{"a": {Digest: "crc"}}}
		}, `variants.of.a.digest: want md5`},
		"unsigned":       {func(s *Scheme) { s.Wrap = "none" }, `wrap: want another than none`},
		"no suffix":      {func(s *Scheme) { s.Family = KVAmp }, `suffix: want {secret} in it`},
		"another suffix": {func(s *Scheme) { s.Suffix = "&key={secret}" }, `suffix: only kv_amp has it`},
		"no parts":       {func(s *Scheme) { s.Family = FixedConcat }, `parts: want at least one`},
		"unsigned parts": {func(s *Scheme) { s.Family, s.Parts = FixedConcat, []string{"{path}"} }, `parts: want {secret} among them`},
		"a part":         {func(s *Scheme) { s.Family, s.Parts = FixedConcat, []string{"{secret}", "{shop}"} }, `parts[1]: want path, method`},
		"an open part":   {func(s *Scheme) { s.Family, s.Parts = FixedConcat, []string{"{secret}", "{path"} }, `parts[1]: want a closing brace in "{path"`},
		"other parts":    {func(s *Scheme) { s.Parts, s.Joiner = []string{"a"}, "," }, "parts: only fixed_concat has it\njoiner: only fixed_concat has it"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := pdd
			s.Signature = append([]string(nil), pdd.Signature...)
			test.change(&s)
			err := s.Validate()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestDates(t *testing.T) {
	china := time.FixedZone("+08:00", 8*3600)
	want := time.Date(2026, time.December, 1, 10, 3, 4, 0, china)
	tests := []struct {
		unit, text string
		want       time.Time // zero: not of this unit
	}{
		{"s", "1796090584", want},
		{"s", "1796090584000", time.Time{}},
		{"s", "+1796090584", time.Time{}},
		{"s", "17960905.84", time.Time{}},
		{"s", "", time.Time{}},
		{"ms", "1796090584007", want.Add(7 * time.Millisecond)},
		{"ms", "1796090584", time.Time{}},
		{"ms", "99999999999999999999", time.Time{}},
		{"2006-01-02 15:04:05", "2026-12-01 10:03:04", want},
		{"2006-01-02 15:04:05", "2026-12-01 10:03:04.000", time.Time{}},
		{"2006-01-02 15:04:05", "2026-13-01 10:03:04", time.Time{}},
		{"2006-01-02 15:04:05.000-0700", "2026-12-01 02:03:04.000+0000", want},
		{"20060102150405SSS", "20261201100304007", want.Add(7 * time.Millisecond)},
		{"20060102150405SSS", "20261201100304", time.Time{}},
		{"20060102150405SSS", "7", time.Time{}},
	}
	for _, test := range tests {
		got, unit, ok := (&Time{Unit: test.unit, Zone: "+08:00"}).read(test.text)
		if ok == test.want.IsZero() || ok && (!got.Equal(test.want) || unit != test.unit) {
			t.Errorf("%q as %q: %v, %v; want %v", test.text, test.unit, got, ok, test.want)
		}
	}
}
