// Package inspect answers one question: what does a body say once it is decoded?
//
// It looks at copies of the first bytes; what goes to the client is never touched.
package inspect

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"

	"retryproxy/message"
)

// Plain gives the start of a body as its sender meant it, at most limit bytes
// of it. head may be cut anywhere; what can be decoded of it is decoded. nil: the
// content coding is one that we cannot read.
func Plain(fields message.Fields, head []byte, limit int) []byte {
	coding := strings.ToLower(strings.TrimSpace(fields.Get("Content-Encoding")))
	switch coding {
	case "", "identity":
		return head[:min(len(head), limit)]
	case "gzip", "x-gzip":
		r, err := gzip.NewReader(bytes.NewReader(head))
		if err != nil {
			return nil
		}
		return decoded(r, limit)
	case "deflate": // zlib by RFC 9110 section 8.4.1.2; some send it bare
		if r, err := zlib.NewReader(bytes.NewReader(head)); err == nil {
			return decoded(r, limit)
		}
		return decoded(flate.NewReader(bytes.NewReader(head)), limit)
	}
	return nil
}

// decoded reads what there is; an error only says that head was cut.
func decoded(r io.Reader, limit int) []byte {
	out, _ := io.ReadAll(io.LimitReader(r, int64(limit)))
	return out
}
