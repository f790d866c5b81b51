package signer

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"retryproxy/message"
)

var now = time.Date(2026, time.December, 1, 2, 3, 4, 0, time.UTC)

const (
	nowSeconds = "1796090584"
	headerSign = "4737e4355fe23d07c11b69fc68e38f61d056145bbe2e8959c44987c2d1c51830"
)

// upperMD5 signs a text as most of these platforms do.
func upperMD5(text string) string {
	sum := md5.Sum([]byte(text))
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

func TestResignChangesOnlyWhatItNames(t *testing.T) {
	secrets := Credentials{"client_secret": "s", "app_secret": "s", "access_token": "new/token"}
	tests := map[string]struct {
		scheme     *Scheme
		before     Request
		signed     string // the text below the client's signature, SIGN stands for it
		after      Request
		signedThen string
	}{
		"form: escapes, order, odd pairs and plus signs stay": {
			scheme:     &pdd,
			before:     posted("/api/router?type=a.b", "note=a%20b+c%2f%zz&&timestamp=1760000000", "empty=", "bare", "access_token=old%2ftoken", "sign=SIGN", "flag=true"),
			signed:     "s" + "access_tokenold/token" + "bare" + "empty" + "flagtrue" + "notea b c/%zz" + "timestamp1760000000" + "typea.b" + "s",
			after:      posted("/api/router?type=a.b", "note=a%20b+c%2f%zz&&timestamp="+nowSeconds, "empty=", "bare", "access_token=new%2ftoken", "sign=SIGN", "flag=true"),
			signedThen: "s" + "access_tokennew/token" + "bare" + "empty" + "flagtrue" + "notea b c/%zz" + "timestamp" + nowSeconds + "typea.b" + "s",
		},
		"JSON: white space, order, numbers and escapes stay": {
			scheme: &temu,
			before: request("/", "application/json", "{ \"z\" : 1.0,\n\t\"access_token\":\"old\", \"list\":[ {\"b\":17000000000000001, \"a\":\"x<y&z>\"} ],\"ok\":true,\"none\":null,"+
				"\"s\":\"a\\u003cb\", \"timestamp\" : \"1760000000\" ,\"sign\":\"SIGN\"} "),
			signed: "s" + `access_tokenold` + `list[{"b":17000000000000001,"a":"x<y&z>"}]` + "none" + "oktrue" + "sa<b" + "timestamp1760000000" + "z1.0" + "s",
			after: request("/", "application/json", "{ \"z\" : 1.0,\n\t\"access_token\":\"new/token\", \"list\":[ {\"b\":17000000000000001, \"a\":\"x<y&z>\"} ],\"ok\":true,\"none\":null,"+
				"\"s\":\"a\\u003cb\", \"timestamp\" : \""+nowSeconds+"\" ,\"sign\":\"SIGN\"} "),
			signedThen: "s" + `access_tokennew/token` + `list[{"b":17000000000000001,"a":"x<y&z>"}]` + "none" + "oktrue" + "sa<b" + "timestamp" + nowSeconds + "z1.0" + "s",
		},
		"JSON: a client that signs characters and sends escapes": {
			scheme:     &temu,
			before:     request("/", "", `{"list": ["\u4e2d\ud83d\ude00\/\n\"", "\ud800"], "timestamp": 1760000000, "sign": "SIGN"}`),
			signed:     "s" + "list[\"中😀/\\n\\\"\",\"\\ud800\"]" + "timestamp1760000000" + "s",
			after:      request("/", "", `{"list": ["\u4e2d\ud83d\ude00\/\n\"", "\ud800"], "timestamp": `+nowSeconds+`, "sign": "SIGN"}`),
			signedThen: "s" + "list[\"中😀/\\n\\\"\",\"\\ud800\"]" + "timestamp" + nowSeconds + "s",
		},
		"JSON: a client that signs the escapes that it sends": {
			scheme:     &temu,
			before:     request("/", "", `{"list": ["\u4e2d", "\u003c"], "timestamp": 1760000000, "sign": "SIGN"}`),
			signed:     "s" + `list["\u4e2d","\u003c"]` + "timestamp1760000000" + "s",
			after:      request("/", "", `{"list": ["\u4e2d", "\u003c"], "timestamp": `+nowSeconds+`, "sign": "SIGN"}`),
			signedThen: "s" + `list["\u4e2d","\u003c"]` + "timestamp" + nowSeconds + "s",
		},
		"no value is no parameter where the platform skips it": {
			scheme:     &jd,
			before:     posted("/routerjson?timestamp=2026-11-30%2010:00:00&sign=SIGN&session=", "a=", "b=1"),
			signed:     "s" + "b1" + "timestamp2026-11-30 10:00:00" + "s",
			after:      posted("/routerjson?timestamp=2026-12-01%2010:03:04&sign=SIGN&session=", "a=", "b=1"),
			signedThen: "s" + "b1" + "timestamp2026-12-01 10:03:04" + "s",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before, want := fill(test.before, upperMD5(test.signed)), fill(test.after, upperMD5(test.signedThen))
			got, err := test.scheme.Resign(&before, secrets, now, noNonce(t))
			if err != nil {
				t.Fatal(err)
			}
			if got.Target != want.Target || string(got.Body) != string(want.Body) {
				t.Errorf("got\n%s\n%s\nwant\n%s\n%s", got.Target, got.Body, want.Target, want.Body)
			}
		})
	}
}

// fill puts a signature where SIGN stands.
func fill(r Request, signature string) Request {
	r.Target = strings.Replace(r.Target, "SIGN", signature, 1)
	r.Body = []byte(strings.Replace(string(r.Body), "SIGN", signature, 1))
	return r
}

func TestEncodeWritesAsTheClientDid(t *testing.T) {
	tests := []struct{ old, text, want string }{
		{"", "a b/c+d&é~", "a+b%2Fc%2Bd%26%C3%A9~"},
		{"x%20y", "a b", "a%20b"},
		{"x+y", "a b", "a+b"},
		{"a%2bb", "+/=", "%2b%2f%3d"},
		{"a/b=", "/=+", "/=%2B"},
		{"10:00", "a:b", "a:b"},
		{"100%", "%&", "%25%26"},
	}
	for _, test := range tests {
		if got := string(encode([]byte(test.old), test.text)); got != test.want || decode([]byte(got)) != test.text {
			t.Errorf("%q after %q: %q, want %q", test.text, test.old, got, test.want)
		}
	}
}

func TestWhatSaysTheSameKeepsItsBytes(t *testing.T) {
	r := request("/", "", `{"timestamp": "176000000\u0030", "sign": "`+upperMD5("s"+"timestamp1760000000"+"s")+`"}`)
	got, err := temu.Resign(&r, Credentials{"app_secret": "s"}, time.Unix(1760000000, 0), noNonce(t))
	if err != nil || string(got.Body) != string(r.Body) {
		t.Errorf("got %s, %v", got.Body, err)
	}
}

func TestResignRenewsEveryToken(t *testing.T) {
	e := computed["tiktok-shop body"]
	e.request.Fields.Add("X-TTS-Access-Token", "old")
	got, err := tiktok.Resign(&e.request, Credentials{"app_secret": "e59af819cc", "access_token": "new"}, now, noNonce(t))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(got.Target, "&access_token=new&") || got.Fields.Get("x-tts-access-token") != "new" {
		t.Errorf("got %s and %v", got.Target, got.Fields)
	}
	if e.request.Fields.Get("x-tts-access-token") != "old" {
		t.Error("the request that was given changed")
	}
}

func TestMultipartIsNotSignedByPath(t *testing.T) {
	r := request("/upload?timestamp=1760000000&sign=x", "multipart/form-data; boundary=b", "--b\r\nany\r\n--b--\r\n")
	text, err := tiktok.signed(newView(&r), Credentials{"app_secret": "s"}, form{asSent: true})
	if err != nil || text != "s/uploadtimestamp1760000000s" {
		t.Errorf("signed %q, %v", text, err)
	}
}

func TestNonce(t *testing.T) {
	random := [16]byte{0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	for kind, want := range map[string]string{
		"uuid": "ff010203-0405-4607-8809-0a0b0c0d0e0f", "hex16": "ff01020304050607", "digits": "474970166623929863",
	} {
		if got := (Nonce{Kind: kind}).Write(random); got != want {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
	body := func(date, nonce string) string {
		sign := strings.ToLower(upperMD5("s" + "nonce" + nonce + "timestamp" + date + "s"))
		return "nonce=" + nonce + "&timestamp=" + date + "&sign=" + sign
	}
	r := request("/", "", body("1760000000", "one"))
	got, err := supplier.Resign(&r, Credentials{"app_secret": "s"}, now, func() string { return "two" })
	if err != nil || string(got.Body) != body(nowSeconds, "two") {
		t.Errorf("got %s, %v; want %s", got.Body, err, body(nowSeconds, "two"))
	}
}

func TestFreshUntil(t *testing.T) {
	r := posted("/", "timestamp=1760000000", "sign=x")
	signed := time.Unix(1760000000, 0)
	tests := map[string]struct {
		scheme Scheme
		skew   time.Duration
		want   time.Duration // after the date; 0: not known
	}{
		"four fifths of the window":       {pdd, 0, 8 * time.Minute},
		"our clock is ahead":              {pdd, 90 * time.Second, 9*time.Minute + 30*time.Second},
		"our clock is behind":             {pdd, -90 * time.Second, 6*time.Minute + 30*time.Second},
		"a short window":                  {supplier, 0, 24 * time.Second},
		"the window is not known":         {kuaishou, 0, 0},
		"the date is somewhere else":      {temu, 0, 0},
		"the date is in another unit":     {Scheme{Window: time.Minute, Time: Time{At: pdd.Time.At, Unit: "ms"}}, 0, 0},
		"the date is a layout's":          {Scheme{Window: time.Minute, Time: Time{At: pdd.Time.At, Unit: time.DateTime}}, 0, 0},
		"the platform does not date them": {Scheme{Window: time.Minute}, 0, 0},
	}
	for name, test := range tests {
		until, ok := test.scheme.FreshUntil(&r, test.skew)
		if ok != (test.want > 0) || ok && !until.Equal(signed.Add(test.want)) {
			t.Errorf("%s: %v, %v; want %v after the date", name, until, ok, test.want)
		}
	}
}

func TestChecksumOfABodyThatWouldChange(t *testing.T) {
	for name, want := range map[string]error{"xinya": ErrUnreadable, "goofish": nil} { // goofish signs in the query
		e := computed[name]
		e.request.Fields = append(e.request.Fields.Clone(1), message.Field{Name: "content-digest", Value: "md5=:x:"})
		if _, err := e.scheme.Resign(&e.request, e.secrets, now, noNonce(t)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// A request that was made here is signed as one of a client would be.
func TestSignOfARequestMadeHere(t *testing.T) {
	secrets := Credentials{"client_secret": "hush"}
	made := posted("/", "a=1", "sign=-", "timestamp=1760000000")
	got, err := pdd.Sign(&made, secrets)
	if want := "a=1&sign=" + upperMD5("hush"+"a1"+"timestamp1760000000"+"hush") + "&timestamp=1760000000"; err != nil || string(got.Body) != want {
		t.Errorf("Sign = %s, %v, want %s", got.Body, err, want)
	}
	if err := pdd.Check(&got, secrets); err != nil {
		t.Errorf("Check = %v", err)
	}
	if _, err := pdd.Sign(&made, nil); !errors.Is(err, ErrNoSecret) {
		t.Errorf("without a secret: %v", err)
	}
	made = posted("/", "a=1")
	if _, err := pdd.Sign(&made, secrets); !errors.Is(err, ErrNotSigned) {
		t.Errorf("without a place: %v", err)
	}
}

func TestErrorsSayWhatIsMissing(t *testing.T) {
	secrets := Credentials{"client_secret": "hush", "app_secret": "hush", "partner_key": "hush"}
	good := "sign=" + upperMD5("hush"+"a1"+"timestamp1760000000"+"hush")
	tests := map[string]struct {
		scheme  *Scheme
		request Request
		secrets Credentials
		want    error
		text    string
	}{
		"no signature":       {&pdd, posted("/", "a=1"), secrets, ErrNotSigned, "form:sign, json:$.sign, query:sign"},
		"an empty signature": {&pdd, posted("/", "sign="), secrets, ErrNotSigned, "nothing at"},
		"a bare signature":   {&pdd, posted("/", "sign"), secrets, ErrNotSigned, "nothing at"},
		"no secret":          {&pdd, posted("/", good), Credentials{"app_secret": "x"}, ErrNoSecret, `"client_secret"`},
		"no other secret":    {&goofish, computed["goofish"].request, Credentials{"app_secret": "hush"}, ErrNoSecret, `"app_id"`},
		"another signature":  {&pdd, posted("/", "a=2", "timestamp=1760000000", good), secrets, ErrNotReproduced, ""},
		"a name twice":       {&pdd, posted("/?a=1", "a=1", "timestamp=1760000000", good), secrets, ErrUnreadable, `"a"`},
		"no part":            {&shopee, request("/?sign=x&timestamp=1760000000", "", ""), secrets, ErrUnreadable, "query:partner_id"},
		"no parameter":       {&doudian, request("/?sign=x&app_key=k", "", ""), secrets, ErrUnreadable, `"param_json"`},
		"another date": {
			&pdd, posted("/", "a=1", "timestamp=yesterday", "sign="+upperMD5("hush"+"a1"+"timestampyesterday"+"hush")),
			secrets, ErrNotSigned, "written in another way",
		},
		"no date": {&pdd, posted("/", "a=1", "sign="+upperMD5("hush"+"a1"+"hush")), secrets, ErrNotSigned, "no date"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := test.scheme.Resign(&test.request, test.secrets, now, noNonce(t))
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%v, want %v with %q", err, test.want, test.text)
			}
			if strings.Contains(err.Error(), "hush") {
				t.Errorf("the secret is in %q", err)
			}
		})
	}
}

func TestCredentialsDoNotPrintTheirValues(t *testing.T) {
	c := Credentials{"app_secret": "hush", "access_token": "hush"}
	for _, verb := range []string{"%v", "%s", "%+v", "%#v"} {
		if got := fmt.Sprintf(verb, c); strings.Contains(got, "hush") || !strings.Contains(got, "app_secret") {
			t.Errorf("%s prints %q", verb, got)
		}
	}
}

func TestCaseFollowsTheClientWhereTheSchemeLeavesItOpen(t *testing.T) {
	for _, write := range []func(string) string{strings.ToUpper, strings.ToLower} {
		sign := func(date string) string { return write(upperMD5("timestamp=" + date + "&key=k")) }
		r := posted("/", "timestamp=1760000000", "sign="+sign("1760000000"))
		got, err := xinya.Resign(&r, Credentials{"key": "k"}, now, noNonce(t))
		if want := "timestamp=" + nowSeconds + "&sign=" + sign(nowSeconds); err != nil || string(got.Body) != want {
			t.Errorf("got %s, %v; want %s", got.Body, err, want)
		}
	}
}

func TestPlacesInHeadersAndNestedMembers(t *testing.T) {
	scheme := Scheme{
		Family: FixedConcat, Digest: "sha256", Secret: "key", Joiner: "\n",
		Parts:     []string{"{method}", "{path}", "{json:$.head.app}", "{timestamp}", "{body}", "{secret}"},
		Signature: []string{"header:X-Sign"}, Time: Time{At: []string{"header:X-Date"}, Unit: "ms"},
	}
	if err := scheme.Validate(); err != nil {
		t.Fatal(err)
	}
	r := request("/a?b=c", "application/json", `{"head": {"app": "x"}}`)
	r.Fields = append(r.Fields, message.Field{Name: "x-date", Value: "1760000000123"}, message.Field{Name: "x-sign"})
	// printf 'POST\n/a\nx\n1760000000123\n{"head": {"app": "x"}}\nk' | openssl dgst -sha256
	r.Fields.Set("x-sign", headerSign)
	got, err := scheme.Resign(&r, Credentials{"key": "k"}, time.UnixMilli(1760000000123), noNonce(t))
	if err != nil {
		t.Fatal(err)
	}
	if got.Fields.Get("x-sign") != headerSign || got.Fields.Get("x-date") != "1760000000123" {
		t.Errorf("got %v", got.Fields)
	}
	later, err := scheme.Resign(&r, Credentials{"key": "k"}, now, noNonce(t))
	if err != nil || scheme.Check(&later, Credentials{"key": "k"}) != nil || later.Fields.Get("x-date") != nowSeconds+"000" {
		t.Errorf("later %v, %v", later.Fields, err)
	}
}
