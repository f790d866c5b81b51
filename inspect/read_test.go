package inspect

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/unicode"

	"retryproxy/document"
	"retryproxy/message"
)

// answer is a body to read, coded in this order.
type answer struct {
	media, charset, format string
	codings                []string
	unpack                 string
	body                   string
	cut                    bool
}

func (a *answer) read(t testing.TB) Reading {
	t.Helper()
	body := []byte(a.body)
	for _, coding := range a.codings {
		body = coded(t, coding, string(body))
	}
	f := message.Fields{{Name: "Content-Encoding", Value: strings.NewReplacer("zlib", "deflate", "flate", "deflate").Replace(strings.Join(a.codings, ", "))}}
	if a.media != "" {
		f.Add("Content-Type", a.media)
	}
	o := Options{Limit: 1 << 20, Charset: a.charset, Format: a.format}
	if a.unpack != "" {
		o.Unpack = make([]document.Path, 1)
		if err := o.Unpack[0].UnmarshalText([]byte(a.unpack)); err != nil {
			t.Fatal(err)
		}
	}
	return Read(f, body, !a.cut, o)
}

func gb(t testing.TB, text string) string {
	t.Helper()
	out, err := simplifiedchinese.GB18030.NewEncoder().String(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRead(t *testing.T) {
	const (
		js   = "application/json"
		doc  = `{"msg":"超时","id":17000000000000001}`
		page = "<html><body>busy</body></html>"
	)
	utf16, err := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewEncoder().String(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		a     answer
		doc   string // empty: as the body
		fault string
	}{
		{"JSON", answer{media: js, body: doc}, doc, ""},
		{"JSON of no type", answer{body: doc}, doc, ""},
		{"JSON of a wrong type", answer{media: "application/octet-stream", body: " " + doc}, " " + doc, ""},
		{"JSON as a page", answer{media: "text/html; charset=utf-8", body: doc}, doc, ""},
		{"byte order mark", answer{media: js, body: "\ufeff" + doc}, "\ufeff" + doc, ""},
		{"JSON where the preset wants XML", answer{media: js, format: "xml", body: doc}, "", FaultNotXML},
		{"unpacked", answer{media: js, unpack: "$.r", body: `{"r":"{\"code\":1.0}"}`}, `{"r":{"code":1.0}}`, ""},
		{"not JSON", answer{media: js, body: `{"a":1`}, "", FaultNotJSON},
		{"text", answer{media: "text/plain", body: "ok"}, "", FaultNotJSON},
		{"JSON and more", answer{media: js, body: doc + "x"}, "", FaultNotJSON},
		{"too deep", answer{media: js, body: strings.Repeat("[", 5000) + strings.Repeat("]", 5000)}, "", FaultNotJSON},
		{"cut", answer{media: js, body: doc[:9], cut: true}, "", FaultCut},
		{"cut, whole JSON", answer{media: js, body: doc, cut: true}, "", FaultCut},
		{"over the limit", answer{media: js, body: "[" + strings.Repeat(" ", 1<<20) + "]"}, "", FaultCut},
		{"over the limit once decoded", answer{media: js, body: "[" + strings.Repeat(" ", 1<<20) + "]", codings: []string{"gzip"}}, "", FaultCut},
		{"empty", answer{media: js}, "", FaultEmpty},
		{"white space", answer{media: js, body: " \r\n"}, "", FaultEmpty},
		{"nothing of it came", answer{media: js, cut: true}, "", FaultCut},

		{"gzip", answer{media: js, body: doc, codings: []string{"gzip"}}, doc, ""},
		{"br", answer{media: js, body: doc, codings: []string{"br"}}, doc, ""},
		{"zstd", answer{media: js, body: doc, codings: []string{"zstd"}}, doc, ""},
		{"deflate", answer{media: js, body: doc, codings: []string{"zlib"}}, doc, ""},
		{"bare deflate", answer{media: js, body: doc, codings: []string{"flate"}}, doc, ""},
		{"two codings", answer{media: js, body: doc, codings: []string{"zstd", "gzip"}}, doc, ""},
		{"three codings", answer{media: js, body: doc, codings: []string{"br", "zlib", "gzip"}}, doc, ""},
		{"four codings", answer{media: js, body: doc, codings: []string{"gzip", "gzip", "gzip", "gzip"}}, "", FaultCoding},
		{"unknown coding", answer{media: js, body: doc, codings: []string{"compress"}}, "", FaultCoding},
		{"empty in a coding", answer{media: js, codings: []string{"gzip"}}, "", FaultEmpty},
		{"binary in a coding", answer{media: "image/png", body: "\x89PNG", codings: []string{"gzip"}}, "", FaultBinary},

		{"GBK by header", answer{media: js + "; charset=GBK", body: gb(t, doc)}, doc, ""},
		{"GB2312 by header", answer{media: js + `; charset="gb2312"`, body: gb(t, doc)}, doc, ""},
		{"GB18030 by header", answer{media: js + "; charset=gb18030", body: gb(t, `{"a":"㐀😀"}`)}, `{"a":"㐀😀"}`, ""},
		{"GBK by the preset", answer{media: js + "; charset=utf-8", charset: "gbk", body: gb(t, doc)}, doc, ""},
		{"GBK by guess", answer{media: js, body: gb(t, doc)}, doc, ""},
		{"GBK by guess, in a coding", answer{body: gb(t, doc), codings: []string{"gzip"}}, doc, ""},
		{"UTF-16 by header", answer{media: js + "; charset=utf-16", body: utf16}, "\ufeff" + doc, ""},
		{"not the UTF-8 that it says", answer{media: js + "; charset=utf-8", body: "{\"a\":\"\xd6\"}"}, "{\"a\":\"\ufffd\"}", ""},
		{"unknown set, UTF-8 all the same", answer{media: js + "; charset=utf8mb4", body: doc}, doc, ""},
		{"unknown set", answer{media: js + "; charset=klingon", body: gb(t, doc)}, "", FaultCharset},

		{"XML", answer{media: "text/xml", body: "<r><a>1</a></r>"}, `{"r":{"a":"1"}}`, ""},
		{"XML of no type", answer{body: "\ufeff <?xml version=\"1.0\"?><r><a>1</a></r>"}, `{"r":{"a":"1"}}`, ""},
		{"XML of a wrong type", answer{media: "application/octet-stream", body: `<?xml version="1.0"?><r/>`}, `{"r":""}`, ""},
		{"XML in GB2312 by its declaration", answer{media: "text/xml", body: gb(t, `<?xml version="1.0" encoding="GB2312"?><r>超时</r>`)}, `{"r":"超时"}`, ""},
		{"XML in GBK by guess", answer{media: "text/xml", body: gb(t, `<r>超时</r>`)}, `{"r":"超时"}`, ""},
		{"XML, another set by header", answer{media: "text/xml; charset=gbk", body: gb(t, `<?xml version='1.0' encoding='utf-8'?><r>超时</r>`)}, `{"r":"超时"}`, ""},
		{"XML where the preset wants JSON", answer{media: "text/xml", format: "json", body: "<r/>"}, "", FaultNotJSON},
		{"broken XML", answer{media: "text/xml", body: "<r><a></r>"}, "", FaultNotXML},

		{"page", answer{media: "text/html", body: page}, "", FaultNotJSON},
		{"page that calls itself JSON", answer{media: js, body: "\n<!DOCTYPE html>" + page}, "", FaultNotJSON},
		{"page where the preset wants XML", answer{media: "text/html", format: "xml", body: page}, "", FaultNotXML},
		{"XHTML", answer{media: "application/xhtml+xml", body: `<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body/></html>`}, "", FaultNotJSON},
		{"page behind a comment", answer{media: "text/html", body: "<!-- " + strings.Repeat("x", 600) + " -->" + page}, "", FaultNotXML},
		{"part of a page", answer{media: "text/html", body: `<script>location.href="/punish"</script>`}, "", FaultNotXML},

		{"picture", answer{media: "image/png", body: "\x89PNG\r\n"}, "", FaultBinary},
		{"workbook", answer{media: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", body: "PK\x03\x04\xff"}, "", FaultBinary},
		{"archive of no type", answer{body: "PK\x03\x04\x14\x00\x08"}, "", FaultBinary},
		{"multipart", answer{media: "multipart/form-data; boundary=x", body: "--x"}, "", FaultBinary},
		{"cut picture", answer{media: "image/png", body: "\x89PNG\r\n", cut: true}, "", FaultBinary},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.a.read(t)
			if got.Doc != tt.doc || got.Fault != tt.fault {
				t.Errorf("Read = %.80q, fault %q; want %.80q, fault %q", got.Doc, got.Fault, tt.doc, tt.fault)
			}
			if unread := got.Fault == FaultCoding || got.Fault == FaultCharset || got.Fault == FaultBinary || got.Fault == FaultEmpty; unread != (got.Text == "") && got.Fault != FaultCut {
				t.Errorf("fault %q with the text %.40q", got.Fault, got.Text)
			}
		})
	}
}

// A body whose coding is broken is no list that is too long; one that was cut before it came here is.
func TestReadBrokenCodings(t *testing.T) {
	text := `{"a":"` + strings.Repeat("abcdefg ", 400) + `"}`
	for _, coding := range []string{"gzip", "br", "zstd", "zlib", "flate"} {
		body := coded(t, coding, text)
		name := strings.NewReplacer("zlib", "deflate", "flate", "deflate").Replace(coding)
		f := message.Fields{{Name: "Content-Encoding", Value: name}, {Name: "Content-Type", Value: "application/json"}}
		half := body[:len(body)-3]
		junk := append([]byte("\x01\x02 no coding at all"), body...)
		for what, c := range map[string]struct {
			body  []byte
			whole bool
			want  string
		}{"half of it": {half, true, FaultCoding}, "half of it so far": {half, false, FaultCut}, "junk": {junk, true, FaultCoding}} {
			if got := Read(f, c.body, c.whole, Options{Limit: 1 << 20}); got.Fault != c.want || got.Doc != "" {
				t.Errorf("%s, %s: fault %q, want %q", coding, what, got.Fault, c.want)
			}
		}
	}
}

// The last character may be cut in two; what came is read all the same.
func TestReadACutCharacter(t *testing.T) {
	const text = "{\"a\":\"超时"
	for cut := 1; cut <= 2; cut++ {
		a := answer{body: text[:len(text)-cut], cut: true}
		if got := a.read(t); !strings.Contains(got.Text, "超") || got.Fault != FaultCut {
			t.Errorf("%d bytes off: %q, fault %q", cut, got.Text, got.Fault)
		}
	}
}

// A few bytes that decode to many take no more memory than the limit and their decoder.
func TestReadBombs(t *testing.T) {
	spaces := strings.Repeat(" ", 16<<20)
	for _, codings := range []string{"gzip", "br", "zstd", "zlib", "gzip, gzip"} {
		t.Run(codings, func(t *testing.T) {
			body := spaces
			for _, coding := range strings.Split(codings, ", ") {
				body = string(coded(t, coding, body))
			}
			f := message.Fields{{Name: "Content-Encoding", Value: strings.ReplaceAll(codings, "zlib", "deflate")}}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := Read(f, []byte(body), true, Options{Limit: 64 << 10})
			runtime.ReadMemStats(&after)
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 12<<20 || got.Fault != FaultCut || len(got.Text) != 64<<10 {
				t.Errorf("%d bytes took %d bytes of memory and gave %d, fault %q", len(body), spent, len(got.Text), got.Fault)
			}
		})
	}
}

// Coded nothing, a million times in a coding, takes time and gives no byte: it is not gone through.
func TestReadNothingOften(t *testing.T) {
	nothing := bytes.Repeat(coded(t, "gzip", ""), 8<<10)
	body := coded(t, "gzip", string(append(nothing, coded(t, "gzip", "{}")...)))
	f := message.Fields{{Name: "Content-Encoding", Value: "gzip, gzip"}}
	if got := Read(f, body, true, Options{Limit: 64 << 10}); got.Fault != FaultCoding {
		t.Errorf("%d bytes are read as %q, fault %q", len(body), got.Doc, got.Fault)
	}
}

func TestFromXML(t *testing.T) {
	for _, tt := range []struct{ name, xml, want string }{
		{"attributes", `<r code="7" x=""><a b='1'>t</a></r>`, `{"r":{"@code":"7","@x":"","a":{"@b":"1","#text":"t"}}}`},
		{"repeated", `<r><i>1</i><n/><i>2</i></r>`, `{"r":{"i":["1","2"],"n":""}}`},
		{"text beside children", `<r> one <a/> two </r>`, `{"r":{"a":"","#text":"one  two"}}`},
		{"empty", `<r></r>`, `{"r":""}`},
		{"CDATA", `<r><![CDATA[{"a":"<b>"}]]></r>`, `{"r":"{\"a\":\"\u003cb\u003e\"}"}`},
		{"the five entities", `<r>&lt;&gt;&amp;&quot;&apos;&#20013;</r>`, `{"r":"\u003c\u003e\u0026\"'中"}`},
		{"namespaces", `<s:r xmlns:s="urn:x" xmlns="urn:y"><s:a s:b="1">t</s:a></s:r>`, `{"r":{"a":{"@b":"1","#text":"t"}}}`},
		{"comments and instructions", "<?xml version=\"1.0\"?>\n<!-- x --><?pi y?><r><!-- z -->1</r>\n<!-- -->", `{"r":"1"}`},
		{"document type", `<!DOCTYPE r><r>1</r>`, `{"r":"1"}`},
		{"byte order mark", "\ufeff<r/>", `{"r":""}`},
		{"another set in the declaration", `<?xml version="1.0" encoding="GB2312"?><r>超</r>`, `{"r":"超"}`},

		{"entity bomb", `<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><r>&b;</r>`, ""},
		{"outside entity", `<!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]><r>&a;</r>`, ""},
		{"too deep", strings.Repeat("<a>", 101) + strings.Repeat("</a>", 101), ""},
		{"not closed", `<r><a>`, ""},
		{"closed twice", `<r/></r>`, ""},
		{"crossed", `<r><a></r></a>`, ""},
		{"two roots", `<r/><s/>`, ""},
		{"two roots of one name", `<r/><r/>`, ""},
		{"text after it", `<r/>x`, ""},
		{"no element", `<?xml version="1.0"?>`, ""},
		{"empty text", ``, ""},
		{"control character", "<r>\x01</r>", ""},
		{"page", `<HTML><body/></HTML>`, ""},
	} {
		if got := fromXML(tt.xml); got != tt.want || got != "" && !document.Valid(got) {
			t.Errorf("%s: fromXML = %s, want %s", tt.name, got, tt.want)
		}
	}
	deep := strings.Repeat("<a>", 99) + strings.Repeat("</a>", 99)
	if got := fromXML(deep); !document.Valid(got) {
		t.Errorf("%d elements in each other are %q", 99, got)
	}
}

func TestCheckCharset(t *testing.T) {
	for name, ok := range map[string]bool{"": true, "utf-8": true, "GBK": true, "gb18030": true, "klingon": false, "utf8mb4": false} {
		if err := CheckCharset(name); (err == nil) != ok {
			t.Errorf("CheckCharset(%q) = %v", name, err)
		}
	}
}

func FuzzFromXML(f *testing.F) {
	for _, text := range []string{`<r a="1">t<b/><b>2</b></r>`, `<!DOCTYPE r [<!ENTITY a "b">]><r>&a;</r>`, "<r><![CDATA[x]]></r>", "<a:b xmlns:a='c'/>", "<r/><r/>"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if doc := fromXML(text); doc != "" && (!json.Valid([]byte(doc)) || !document.Valid(doc)) {
			t.Errorf("fromXML(%q) = %q", text, doc)
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add("gzip", "application/json", "", coded(f, "gzip", `{"a":"{}"}`), true)
	f.Add("zstd, br", "", "", coded(f, "br", string(coded(f, "zstd", "[1]"))), true)
	f.Add("", "text/xml; charset=gbk", "", []byte(`<?xml version="1.0" encoding="x"?><r>`+"\xb3\xac</r>"), false)
	f.Add("", "text/html", "xml", []byte("<html/>"), true)
	f.Fuzz(func(t *testing.T, coding, media, format string, head []byte, whole bool) {
		const limit = 4 << 10
		unpack, err := document.ParsePath("$..a")
		if err != nil {
			t.Fatal(err)
		}
		fields := message.Fields{{Name: "Content-Encoding", Value: coding}, {Name: "Content-Type", Value: media}}
		r := Read(fields, head, whole, Options{Limit: limit, Format: format, Unpack: []document.Path{unpack}})
		if (r.Doc == "") == (r.Fault == "") || r.Doc != "" && !document.Valid(r.Doc) || len(r.Text) > 3*limit {
			t.Errorf("Read = %q with %d bytes of text, fault %q", r.Doc, len(r.Text), r.Fault)
		}
	})
}
