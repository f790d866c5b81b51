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

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"retryproxy/message"
)

// mostCodings bounds how many are undone: more than one is rare, more than a few is an attack.
const mostCodings = 3

// codedMore is how much longer than the content it may be between two codings. Without a
// bound there, coded nothing in coded nothing takes time without giving a byte.
const codedMore = 64 << 10

// windowMost bounds the memory of one zstd decoder: RFC 9659 asks for 8 MiB in HTTP.
const windowMost = 8 << 20

// Plain gives the start of a body as its sender meant it, at most limit bytes
// of it. head may be cut anywhere; what can be decoded of it is decoded. nil: the
// content coding is one that we cannot read.
func Plain(fields message.Fields, head []byte, limit int) []byte {
	plain, _ := decode(fields, head, limit)
	return plain
}

// ending is how far the content of a body was decoded.
type ending uint8

const (
	atEnd   ending = iota
	atLimit        // there is more
	atFault        // the rest is cut off or broken
)

// decode is Plain, and says how it ended.
func decode(fields message.Fields, head []byte, limit int) (plain []byte, end ending) {
	codings := codingsOf(fields)
	switch {
	case len(codings) > mostCodings:
		return nil, atFault
	case len(codings) == 0 && len(head) > limit:
		return head[:limit], atLimit
	case len(codings) == 0, len(head) == 0: // nothing is nothing in every coding
		return head, atEnd
	}
	var r io.Reader = bytes.NewReader(head)
	for i := len(codings) - 1; i >= 0; i-- { // the last one was applied last (RFC 9110 section 8.4)
		next, closer := decoder(codings[i], r)
		if next == nil {
			return nil, atFault
		}
		if closer != nil {
			defer closer()
		}
		if r = next; i > 0 {
			r = io.LimitReader(r, int64(limit)+codedMore)
		}
	}
	plain, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	switch {
	case len(plain) > limit:
		return plain[:limit], atLimit
	case err != nil:
		return plain, atFault
	}
	return plain, atEnd
}

// codingsOf are the content codings in the order in which they were applied.
func codingsOf(fields message.Fields) (list []string) {
	for i := range fields {
		if !strings.EqualFold(fields[i].Name, "Content-Encoding") {
			continue
		}
		for part := range strings.SplitSeq(fields[i].Value, ",") {
			part = strings.ToLower(strings.TrimSpace(part))
			if part != "" && part != "identity" {
				list = append(list, part)
			}
		}
	}
	return list
}

// decoder undoes one coding; nil: it cannot be.
func decoder(coding string, r io.Reader) (plain io.Reader, closer func()) {
	switch coding {
	case "gzip", "x-gzip":
		if z, err := gzip.NewReader(r); err == nil {
			return z, nil
		}
	case "deflate": // zlib by RFC 9110 section 8.4.1.2; some send it bare
		head, _ := io.ReadAll(io.LimitReader(r, 2))
		r = io.MultiReader(bytes.NewReader(head), r)
		if len(head) == 2 && head[0]&0x0f == 8 && (uint16(head[0])<<8|uint16(head[1]))%31 == 0 {
			if z, err := zlib.NewReader(r); err == nil {
				return z, nil
			}
			return nil, nil
		}
		return flate.NewReader(r), nil
	case "br":
		return brotli.NewReader(r), nil
	case "zstd":
		if z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(windowMost)); err == nil {
			return z, z.Close
		}
	}
	return nil, nil
}
