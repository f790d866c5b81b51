package inspect

import (
	"bytes"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/simplifiedchinese"

	"retryproxy/document"
	"retryproxy/message"
)

// Options say how an answer is to be read.
type Options struct {
	Limit   int             // bytes that are looked at, decoded
	Charset string          // empty: what the answer says, else UTF-8 where it is that, else GB18030
	Format  string          // json, xml; empty or auto: what it looks like
	Unpack  []document.Path // strings that hold JSON
}

// Reading is what a body says.
type Reading struct {
	Doc  string // JSON, also of XML; empty: it is neither, or not whole
	Text string // UTF-8; empty: it is binary or cannot be decoded
	// Fault is why there is no Doc: empty, cut, coding, charset, binary, not json or not xml.
	Fault string
}

// Faults of a Reading.
const (
	FaultEmpty   = "empty"
	FaultCut     = "cut"
	FaultCoding  = "coding"
	FaultCharset = "charset"
	FaultBinary  = "binary"
	FaultNotJSON = "not json"
	FaultNotXML  = "not xml"
)

// CheckCharset says what is wrong with the name of a character set; empty is fine.
func CheckCharset(name string) error {
	if name == "" {
		return nil
	}
	if _, err := htmlindex.Get(name); err != nil {
		return fmt.Errorf("%q is no character set that can be read, such as utf-8 or gb18030", name)
	}
	return nil
}

// Read reads the first part of a body as it came; whole says that it is all of it.
func Read(fields message.Fields, head []byte, whole bool, o Options) Reading {
	plain, end := decode(fields, head, o.Limit)
	switch {
	case end == atFault && (whole || plain == nil):
		return Reading{Fault: FaultCoding}
	case len(bytes.TrimSpace(plain)) == 0 && whole && end == atEnd:
		return Reading{Fault: FaultEmpty}
	}
	media, params, _ := mime.ParseMediaType(fields.Get("Content-Type"))
	whole = whole && end == atEnd
	if isBinary(media, plain) {
		return Reading{Fault: FaultBinary}
	}
	decoded, ok := inUTF8(plain, charsetOf(o.Charset, params["charset"], plain), whole)
	if !ok {
		return Reading{Fault: FaultCharset}
	}
	text := string(decoded)
	r := Reading{Text: text}
	switch {
	case !whole:
		r.Fault = FaultCut
	case o.Format == "xml" || o.Format != "json" && looksLikeXML(text):
		if r.Doc = fromXML(text); r.Doc == "" {
			r.Fault = FaultNotXML
		}
	case document.Valid(text):
		r.Doc = text
	default:
		r.Fault = FaultNotJSON
	}
	if r.Doc != "" && len(o.Unpack) > 0 {
		r.Doc = document.Unpack(r.Doc, o.Unpack)
	}
	return r
}

// isBinary says whether content is none that can be read, by its media type, or where
// there is none by its bytes.
func isBinary(media string, plain []byte) bool {
	if media == "" {
		return bytes.IndexByte(plain, 0) >= 0
	}
	return !readable(media) && !looksReadable(plain)
}

// readable says whether content of a media type is text. Names of office documents have
// xml in them and are archives.
func readable(media string) bool {
	kind, sub, _ := strings.Cut(media, "/")
	return kind == "text" || sub == "xml" || strings.HasSuffix(sub, "+xml") || strings.Contains(sub, "json") ||
		strings.Contains(sub, "javascript") || sub == "x-www-form-urlencoded"
}

// looksReadable says whether content of another type is JSON or XML all the same.
func looksReadable(plain []byte) bool {
	plain = bytes.TrimLeft(bytes.TrimPrefix(plain, []byte("\ufeff")), " \t\r\n")
	return len(plain) > 0 && (plain[0] == '{' || plain[0] == '[' || bytes.HasPrefix(plain, []byte("<?xml")))
}

func looksLikeXML(text string) bool {
	text = strings.TrimLeft(strings.TrimPrefix(text, "\ufeff"), " \t\r\n")
	return strings.HasPrefix(text, "<") && !isHTML(text)
}

// isHTML sees the pages that gateways and risk controls send.
func isHTML(text string) bool {
	start := strings.ToLower(text[:min(len(text), 512)])
	if strings.HasPrefix(start, "<?xml") { // XHTML
		return strings.Contains(start, "<!doctype html") || strings.Contains(start, "<html")
	}
	return strings.HasPrefix(start, "<!doctype html") || strings.HasPrefix(start, "<html")
}

// charsetOf is the one in the preset, else that of the header, else that of an XML
// declaration; empty: none is named.
func charsetOf(preset, header string, plain []byte) string {
	if preset != "" {
		return preset
	}
	if header != "" {
		return header
	}
	return declared(plain)
}

// declared is the encoding of an XML declaration.
func declared(plain []byte) string {
	line, _, ok := bytes.Cut(plain[:min(len(plain), 256)], []byte("?>"))
	if !ok || !bytes.HasPrefix(bytes.TrimLeft(line, " \t\r\n"), []byte("<?xml")) {
		return ""
	}
	_, after, ok := bytes.Cut(line, []byte("encoding="))
	if !ok || len(after) < 2 {
		return ""
	}
	name, _, _ := bytes.Cut(after[1:], after[:1])
	return string(name)
}

// inUTF8 is content in UTF-8. Of content that was cut the last character may be missing.
func inUTF8(plain []byte, charset string, whole bool) ([]byte, bool) {
	var enc encoding.Encoding
	if charset != "" {
		var err error
		if enc, err = htmlindex.Get(charset); err != nil {
			return plain, validText(plain, whole) // utf8mb4 and the like
		}
		switch name, _ := htmlindex.Name(enc); name {
		case "utf-8":
			enc = nil
		case "gbk": // also what gb2312 is taken for: those who say so send more
			enc = simplifiedchinese.GB18030
		}
	}
	if enc == nil && validText(plain, whole) {
		return plain, true
	}
	if enc == nil {
		if charset != "" {
			return bytes.ToValidUTF8(plain, []byte("\ufffd")), true
		}
		enc = simplifiedchinese.GB18030 // of which GBK and GB2312 are parts
	}
	out, err := enc.NewDecoder().Bytes(plain)
	return out, err == nil
}

// validText allows for a last character that is cut off.
func validText(b []byte, whole bool) bool {
	if utf8.Valid(b) {
		return true
	}
	for i := 1; !whole && i < utf8.UTFMax && i <= len(b); i++ {
		if utf8.Valid(b[:len(b)-i]) {
			return true
		}
	}
	return false
}
