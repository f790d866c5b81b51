package inbound

import (
	"slices"
	"strings"
	"testing"

	"retryproxy/message"
)

// parse runs a raw head through scan and parseHead as a connection does.
func parse(raw string) (*Call, *Bad) {
	var s scan
	c := &Call{}
	c.Request.Version = "1.1"
	complete, fault := s.look([]byte(raw))
	if fault != nil {
		return c, fault
	}
	if !complete {
		return nil, nil
	}
	return c, parseHead(c, raw[s.start:s.end], s.lines)
}

func TestHeadRefused(t *testing.T) {
	const host = "Host: u1.test\r\n"
	for _, tt := range []struct {
		name   string
		raw    string
		status int
	}{
		{"bare LF after the request line", "GET / HTTP/1.1\n" + host + "\r\n", 400},
		{"bare LF after a field", "GET / HTTP/1.1\r\nHost: u1.test\n\r\n", 400},
		{"bare LF as the empty line", "GET / HTTP/1.1\r\n" + host + "\n", 400},
		{"bare CR in a value", "GET / HTTP/1.1\r\n" + host + "A: 1\r2\r\n\r\n", 400},
		{"CR CR LF", "GET / HTTP/1.1\r\n" + host + "A: 1\r\r\n\r\n", 400},
		{"NUL in a value", "GET / HTTP/1.1\r\n" + host + "A: 1\x002\r\n\r\n", 400},
		{"control in a value", "GET / HTTP/1.1\r\n" + host + "A: 1\x0b2\r\n\r\n", 400},
		{"DEL in a value", "GET / HTTP/1.1\r\n" + host + "A: 1\x7f2\r\n\r\n", 400},
		{"space before the colon", "GET / HTTP/1.1\r\n" + host + "A : 1\r\n\r\n", 400},
		{"space before the colon of Transfer-Encoding", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\n\r\n", 400},
		{"tab before the colon", "GET / HTTP/1.1\r\n" + host + "A\t: 1\r\n\r\n", 400},
		{"obs-fold", "GET / HTTP/1.1\r\n" + host + "A: 1\r\n 2\r\n\r\n", 400},
		{"obs-fold with tab", "GET / HTTP/1.1\r\n" + host + "A: 1\r\n\t2\r\n\r\n", 400},
		{"space before the first field", "GET / HTTP/1.1\r\n " + host + "\r\n", 400},
		{"line of spaces", "GET / HTTP/1.1\r\n" + host + "  \r\n\r\n", 400},
		{"no colon", "GET / HTTP/1.1\r\n" + host + "A\r\n\r\n", 400},
		{"empty name", "GET / HTTP/1.1\r\n" + host + ": 1\r\n\r\n", 400},
		{"name with byte over 0x7f", "GET / HTTP/1.1\r\n" + host + "\xc3\xa4: 1\r\n\r\n", 400},

		{"HTTP/0.9", "GET /\r\n\r\n", 400},
		{"two spaces", "GET  / HTTP/1.1\r\n" + host + "\r\n", 400},
		{"two spaces before the version", "GET /  HTTP/1.1\r\n" + host + "\r\n", 400},
		{"tab for space", "GET\t/ HTTP/1.1\r\n" + host + "\r\n", 400},
		{"space behind the version", "GET / HTTP/1.1 \r\n" + host + "\r\n", 400},
		{"method with brackets", "G(T / HTTP/1.1\r\n" + host + "\r\n", 400},
		{"begins with space", " GET / HTTP/1.1\r\n" + host + "\r\n", 400},
		{"TLS", "\x16\x03\x01\x02\x00\x01", 400},
		{"three empty lines first", "\r\n\r\n\r\nGET / HTTP/1.1\r\n" + host + "\r\n", 400},
		{"lower-case version", "GET / http/1.1\r\n" + host + "\r\n", 400},
		{"long version", "GET / HTTP/1.10\r\n" + host + "\r\n", 400},
		{"version without minor", "GET / HTTP/1\r\n" + host + "\r\n", 400},
		{"version with letters", "GET / HTTP/1.x\r\n" + host + "\r\n", 400},
		{"HTTP/2.0", "GET / HTTP/2.0\r\n" + host + "\r\n", 505},
		{"HTTP/0.9 named", "GET / HTTP/0.9\r\n" + host + "\r\n", 505},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},

		{"control in the target", "GET /a\x01b HTTP/1.1\r\n" + host + "\r\n", 400},
		{"tab in the target", "GET /a\tb HTTP/1.1\r\n" + host + "\r\n", 400},
		{"DEL in the target", "GET /a\x7fb HTTP/1.1\r\n" + host + "\r\n", 400},
		{"fragment", "GET /a#b HTTP/1.1\r\n" + host + "\r\n", 400},

		{"no Host", "GET / HTTP/1.1\r\n\r\n", 400},
		{"two Hosts", "GET / HTTP/1.1\r\n" + host + host + "\r\n", 400},
		{"two Hosts in HTTP/1.0", "GET / HTTP/1.0\r\n" + host + host + "\r\n", 400},
		{"empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
		{"Host with space", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
		{"Host with path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
		{"Host with userinfo", "GET / HTTP/1.1\r\nHost: u:p@a\r\n\r\n", 400},
		{"Host with bad port", "GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n", 400},
		{"Host as list", "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", 400},
		{"no Host beside absolute-form", "GET http://u1.test/ HTTP/1.1\r\n\r\n", 400},
		{"bad Host beside absolute-form", "GET http://u1.test/ HTTP/1.1\r\nHost: a b\r\n\r\n", 400},

		{"SM-03 lengths differ", "POST / HTTP/1.1\r\n" + host + "Content-Length: 4\r\nContent-Length: 5\r\n\r\n", 400},
		{"SM-03 length as list", "POST / HTTP/1.1\r\n" + host + "Content-Length: 4, 4\r\n\r\n", 400},
		{"SM-03 length with sign", "POST / HTTP/1.1\r\n" + host + "Content-Length: +4\r\n\r\n", 400},
		{"length negative", "POST / HTTP/1.1\r\n" + host + "Content-Length: -4\r\n\r\n", 400},
		{"length empty", "POST / HTTP/1.1\r\n" + host + "Content-Length:\r\n\r\n", 400},
		{"length hex", "POST / HTTP/1.1\r\n" + host + "Content-Length: 0x4\r\n\r\n", 400},
		{"length with underscore", "POST / HTTP/1.1\r\n" + host + "Content-Length: 4_0\r\n\r\n", 400},
		{"length overflows", "POST / HTTP/1.1\r\n" + host + "Content-Length: 9223372036854775808\r\n\r\n", 400},
		{"equal lengths spelled differently", "POST / HTTP/1.1\r\n" + host + "Content-Length: 4\r\nContent-Length: 04\r\n\r\n", 400},
		{"Content_Length", "POST / HTTP/1.1\r\n" + host + "Content_Length: 4\r\n\r\n", 400},
		{"Transfer_Encoding", "POST / HTTP/1.1\r\n" + host + "Transfer_Encoding: chunked\r\n\r\n", 400},
		{"SM-01 both framings", "POST / HTTP/1.1\r\n" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		{"both framings, coding first", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n", 400},
		{"SM-03 unknown coding", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n", 501},
		{"SM-03 chunked is not last", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked, identity\r\n\r\n", 400},
		{"chunked twice", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked, chunked\r\n\r\n", 400},
		{"chunked in two lines", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		{"gzip before chunked", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
		{"coding empty", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding:\r\n\r\n", 400},
		{"coding quoted", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: \"chunked\"\r\n\r\n", 400},
		{"coding with parameter", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked;a=b\r\n\r\n", 400},
		{"coding in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
		{"CONNECT with content", "CONNECT u1.test:443 HTTP/1.1\r\n" + host + "Content-Length: 4\r\n\r\n", 400},
		{"CONNECT chunked", "CONNECT u1.test:443 HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", 400},
		{"other expectation", "POST / HTTP/1.1\r\n" + host + "Content-Length: 4\r\nExpect: a-miracle\r\n\r\n", 417},
		{"too many fields", "GET / HTTP/1.1\r\n" + host + strings.Repeat("A: 1\r\n", maxFields) + "\r\n", 431},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, fault := parse(tt.raw)
			if fault == nil || fault.Status != tt.status {
				t.Fatalf("parse(%q) = %+v, want status %d", tt.raw, fault, tt.status)
			}
			if want := map[bool]string{true: "header_too_large", false: "bad_request"}[tt.status == 431]; fault.Reason != want {
				t.Errorf("Reason = %q, want %q", fault.Reason, want)
			}
		})
	}
}

func TestHeadAccepted(t *testing.T) {
	for _, tt := range []struct {
		name string
		raw  string
		want Call // Request without Fields, Form, Length, KeepAlive, expect
	}{
		{
			"plain", "GET /a?b HTTP/1.1\r\nHost: u1.test\r\n\r\n",
			Call{Request: message.Request{Method: "GET", Authority: "u1.test", Target: "/a?b", Version: "1.1"}, KeepAlive: true},
		},
		{
			"two empty lines first", "\r\n\r\nGET / HTTP/1.1\r\nHost: u1.test\r\n\r\n",
			Call{Request: message.Request{Method: "GET", Authority: "u1.test", Target: "/", Version: "1.1"}, KeepAlive: true},
		},
		{
			"later minor version", "GET / HTTP/1.3\r\nHost: u1.test\r\n\r\n",
			Call{Request: message.Request{Method: "GET", Authority: "u1.test", Target: "/", Version: "1.1"}, KeepAlive: true},
		},
		{
			"close", "GET / HTTP/1.1\r\nHost: u1.test\r\nConnection: x, Close\r\n\r\n",
			Call{Request: message.Request{Method: "GET", Authority: "u1.test", Target: "/", Version: "1.1"}},
		},
		{
			"HTTP/1.0", "GET / HTTP/1.0\r\n\r\n",
			Call{Request: message.Request{Method: "GET", Target: "/", Version: "1.0"}},
		},
		{
			"HTTP/1.0 keep-alive", "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
			Call{Request: message.Request{Method: "GET", Target: "/", Version: "1.0"}, KeepAlive: true},
		},
		{
			"HTTP/1.0 both", "GET / HTTP/1.0\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n",
			Call{Request: message.Request{Method: "GET", Target: "/", Version: "1.0"}},
		},
		{
			"unknown method", "FOO / HTTP/1.1\r\nHost: u1.test:8080\r\n\r\n",
			Call{Request: message.Request{Method: "FOO", Authority: "u1.test:8080", Target: "/", Version: "1.1"}, KeepAlive: true},
		},
		{
			"SM-03 equal lengths fold", "POST / HTTP/1.1\r\nHost: u1.test\r\nContent-Length: 4\r\ncontent-length: 4\r\n\r\n",
			Call{Request: message.Request{Method: "POST", Authority: "u1.test", Target: "/", Version: "1.1"}, Length: 4, KeepAlive: true},
		},
		{
			"SM-03 coding in capitals", "POST / HTTP/1.1\r\nHost: u1.test\r\nTransfer-Encoding: CHUNKED\r\n\r\n",
			Call{Request: message.Request{Method: "POST", Authority: "u1.test", Target: "/", Version: "1.1"}, Length: -1, KeepAlive: true},
		},
		{
			"expect", "POST / HTTP/1.1\r\nHost: u1.test\r\nContent-Length: 4\r\nExpect: 100-Continue\r\n\r\n",
			Call{Request: message.Request{Method: "POST", Authority: "u1.test", Target: "/", Version: "1.1"}, Length: 4, KeepAlive: true, expect: true},
		},
		{
			"expect without content", "GET / HTTP/1.1\r\nHost: u1.test\r\nExpect: 100-continue\r\n\r\n",
			Call{Request: message.Request{Method: "GET", Authority: "u1.test", Target: "/", Version: "1.1"}, KeepAlive: true},
		},
		{
			"expect in HTTP/1.0", "POST / HTTP/1.0\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n",
			Call{Request: message.Request{Method: "POST", Target: "/", Version: "1.0"}, Length: 4},
		},
		{
			"CONNECT", "CONNECT u1.test:443 HTTP/1.1\r\nHost: other\r\n\r\n",
			Call{Form: Authority, Request: message.Request{Method: "CONNECT", Authority: "u1.test:443", Version: "1.1"}, KeepAlive: true},
		},
		{
			"absolute-form wins over Host", "GET HTTP://u1.test:81/x HTTP/1.1\r\nHost: evil.test\r\n\r\n",
			Call{Form: Absolute, Request: message.Request{Method: "GET", Scheme: "http", Authority: "u1.test:81", Target: "/x", Version: "1.1"}, KeepAlive: true},
		},
		{
			"absolute-form with empty Host", "GET http://u1.test/x HTTP/1.1\r\nHost:\r\n\r\n",
			Call{Form: Absolute, Request: message.Request{Method: "GET", Scheme: "http", Authority: "u1.test", Target: "/x", Version: "1.1"}, KeepAlive: true},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, fault := parse(tt.raw)
			if fault != nil {
				t.Fatalf("parse(%q) = %+v, want no fault", tt.raw, fault)
			}
			got := *c
			got.Request.Fields = nil
			if g, w := summary(&got), summary(&tt.want); g != w {
				t.Errorf("parse(%q) =\n%v, want\n%v", tt.raw, g, w)
			}
		})
	}
}

func summary(c *Call) any {
	return struct {
		method, scheme, authority, target, version string
		form                                       Form
		length                                     int64
		keep, expect                               bool
	}{c.Request.Method, c.Request.Scheme, c.Request.Authority, c.Request.Target, c.Request.Version, c.Form, c.Length, c.KeepAlive, c.expect}
}

func TestFieldsKeepOrderAndBytes(t *testing.T) {
	c, fault := parse("POST /a//b/../c?x=1;y=2&sign=%zz+\xff HTTP/1.1\r\nCookie: a=1\r\nHost: u1.test\r\n" +
		"X-EMPTY:\r\nConnection: X-Foo\r\nExpect: 100-continue\r\ncookie:\t b=2 \t\r\nContent-Length: 1\r\nX-Bytes: \xe4\xf6\t1\r\n\r\n")
	if fault != nil {
		t.Fatal(fault)
	}
	want := message.Fields{
		{Name: "Cookie", Value: "a=1"},
		{Name: "X-EMPTY"},
		{Name: "Connection", Value: "X-Foo"},
		{Name: "Expect", Value: "100-continue"},
		{Name: "cookie", Value: "b=2"},
		{Name: "X-Bytes", Value: "\xe4\xf6\t1"},
	}
	if !slices.Equal(c.Request.Fields, want) {
		t.Errorf("Fields = %q, want %q", c.Request.Fields, want)
	}
	if got, want := c.Request.Target, "/a//b/../c?x=1;y=2&sign=%zz+\xff"; got != want {
		t.Errorf("Target = %q, want %q", got, want)
	}
}

func TestTargets(t *testing.T) {
	for _, tt := range []struct {
		method, raw string
		want        target
		ok          bool
	}{
		{"GET", "/", target{path: "/"}, true},
		{"GET", "//x", target{path: "//x"}, true},
		{"GET", "/\xe4?\\\"<>", target{path: "/\xe4?\\\"<>"}, true},
		{"GET", "http://u1.test", target{Absolute, "http", "u1.test", "/"}, true},
		{"GET", "hTTpS://u1.test:8443/x?y", target{Absolute, "https", "u1.test:8443", "/x?y"}, true},
		{"GET", "http://u1.test?a=%zz;b+c", target{Absolute, "http", "u1.test", "/?a=%zz;b+c"}, true},
		{"GET", "http://[::1]:80/", target{Absolute, "http", "[::1]:80", "/"}, true},
		{"GET", "http://[2001:db8::1]/", target{Absolute, "http", "[2001:db8::1]", "/"}, true},
		{"GET", "http://u:p%40@u1.test/x", target{Absolute, "http", "u1.test", "/x"}, true},
		{"GET", "http://u1.test/a@b", target{Absolute, "http", "u1.test", "/a@b"}, true},
		{"GET", "http://a_b.test/", target{Absolute, "http", "a_b.test", "/"}, true},
		{"OPTIONS", "http://u1.test:81", target{Absolute, "http", "u1.test:81", "*"}, true},
		{"OPTIONS", "http://u1.test/", target{Absolute, "http", "u1.test", "/"}, true},
		{"OPTIONS", "http://u1.test?x", target{Absolute, "http", "u1.test", "/?x"}, true},
		{"OPTIONS", "*", target{form: Asterisk, path: "*"}, true},
		{method: "GET", raw: "*"},
		{method: "GET", raw: ""},
		{method: "GET", raw: "u1.test"},
		{method: "GET", raw: "u1.test:80"},
		{method: "GET", raw: "ftp://u1.test/"},
		{method: "GET", raw: "http:/u1.test/"},
		{method: "GET", raw: "http:///x"},
		{method: "GET", raw: "http://:80/x"},
		{method: "GET", raw: "http://u1.test:/x"},
		{method: "GET", raw: "http://u1.test:0/x"},
		{method: "GET", raw: "http://u1.test:99999/x"},
		{method: "GET", raw: "http://u1.test:+80/x"},
		{method: "GET", raw: "http://bot:s3cret@u1.test:99999/x"},
		{method: "GET", raw: "http://bot:p@ss@u1.test/x"},
		{method: "GET", raw: "http://a.test\\@b.test/x"},
		{method: "GET", raw: "http://u1.test/x#f"},
		{method: "GET", raw: "http://u1%2etest/"},
		{method: "GET", raw: "http://[::1/"},
		{method: "GET", raw: "http://[fe80::1%25eth0]/"},
		{method: "GET", raw: "http://[127.0.0.1]/"},
		{method: "GET", raw: "http://::1:80/"},
		{method: "GET", raw: "http://u1.test,u2.test/"},
	} {
		got, fault := parseTarget(tt.method, tt.raw)
		if got != tt.want || (fault == nil) != tt.ok {
			t.Errorf("parseTarget(%s, %q) = %+v, %+v, want %+v, ok %v", tt.method, tt.raw, got, fault, tt.want, tt.ok)
		}
		if fault != nil && strings.Contains(fault.Detail, "s3cret") {
			t.Errorf("parseTarget(%q) shows credentials: %q", tt.raw, fault.Detail)
		}
	}
}

func TestCase_PX_06_connect_targets(t *testing.T) {
	for raw, ok := range map[string]bool{
		"u1.test": false, "u1.test:": false, ":443": false, "u1.test:99999": false, "u1.test:443/path": false,
		"user:pw@u1.test:443": false, "::1:443": false, "http://u1.test:443": false, "*": false, "/": false, "u1.test:443?x": false,
		"[::1]:8443": true, "u1.test:443": true,
	} {
		got, fault := parseTarget("CONNECT", raw)
		if (fault == nil) != ok || ok && got.authority != raw {
			t.Errorf("parseTarget(CONNECT, %q) = %+v, %v, want ok %v", raw, got, fault, ok)
		}
	}
}

func TestScanInPieces(t *testing.T) {
	raw := "\r\nGET / HTTP/1.1\r\nHost: u1.test\r\nA: b\r\n\r\nsurplus"
	var s scan
	for i := range len(raw) {
		complete, fault := s.look([]byte(raw[:i]))
		if want := i >= len(raw)-len("surplus"); complete != want || fault != nil {
			t.Fatalf("look(%q) = %v, %v, want %v, nil", raw[:i], complete, fault, want)
		}
		if complete {
			break
		}
	}
	if got, want := raw[s.start:s.end], "GET / HTTP/1.1\r\nHost: u1.test\r\nA: b\r\n\r\n"; got != want || s.lines != 3 {
		t.Errorf("head = %q with %d lines, want %q with 3", got, s.lines, want)
	}
}

func FuzzHead(f *testing.F) {
	f.Add("GET / HTTP/1.1\r\nHost: u1.test\r\n\r\n")
	f.Add("POST http://u:p@[::1]:80?x HTTP/1.0\r\nContent-Length: 4\r\nConnection: keep-alive\r\n\r\nabcd")
	f.Add("CONNECT a:1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
	f.Fuzz(func(t *testing.T, raw string) {
		c, fault := parse(raw)
		if c == nil || fault != nil {
			if fault != nil && (fault.Status < 400 || fault.Reason == "") {
				t.Fatalf("fault %+v", fault)
			}
			return
		}
		r := c.Request
		switch {
		case r.Method == "" || !all(r.Method, inToken):
			t.Errorf("method %q", r.Method)
		case (c.Form == Authority) != (r.Method == "CONNECT"):
			t.Errorf("form %d of %s", c.Form, r.Method)
		case r.Authority != "" && !validAuthority(r.Authority, c.Form == Authority):
			t.Errorf("authority %q", r.Authority)
		case r.Authority == "" && r.Version == "1.1":
			t.Errorf("no authority in HTTP/1.1")
		case !strings.Contains(raw, strings.TrimPrefix(r.Target, "/")) && r.Target != "*":
			t.Errorf("target %q is not in the request", r.Target)
		case c.Form != Authority && r.Target != "*" && !strings.HasPrefix(r.Target, "/"):
			t.Errorf("target %q", r.Target)
		case c.Length < -1 || c.expect && c.Length == 0:
			t.Errorf("length %d, expect %v", c.Length, c.expect)
		}
		for _, x := range r.Fields {
			if framesMessage(x.Name) && !strings.EqualFold(x.Name, "Connection") || !all(x.Name, inToken) || !all(x.Value, inValue) || strings.Trim(x.Value, " \t") != x.Value {
				t.Errorf("field %q: %q", x.Name, x.Value)
			}
		}
	})
}

func FuzzTarget(f *testing.F) {
	for _, s := range []string{"/", "*", "http://a/", "https://u@[::1]:1?x", "a:443"} {
		f.Add("GET", s)
		f.Add("CONNECT", s)
	}
	f.Fuzz(func(t *testing.T, method, raw string) {
		got, fault := parseTarget(method, raw)
		if fault != nil {
			if got != (target{}) {
				t.Errorf("parseTarget(%q, %q) = %+v with a fault", method, raw, got)
			}
			return
		}
		if strings.ContainsAny(got.authority, "@/?#\\ ") || (got.authority == "") != (got.form == Origin || got.form == Asterisk) {
			t.Errorf("parseTarget(%q, %q): authority %q, form %d", method, raw, got.authority, got.form)
		}
		if !strings.HasSuffix(raw, strings.TrimPrefix(got.path, "/")) && got.path != "*" {
			t.Errorf("parseTarget(%q, %q): path %q changed", method, raw, got.path)
		}
	})
}
