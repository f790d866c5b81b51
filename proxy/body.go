package proxy

import (
	"errors"
	"io"
	"strconv"

	"retryproxy/classify"
	"retryproxy/inbound"
	"retryproxy/internal/spool"
	"retryproxy/message"
)

// requestBody is the content of a call as its attempts need it: none, kept
// whole, or streamed once.
type requestBody struct {
	kept   *spool.Buffer
	stream *streamed
	call   *inbound.Call
}

// readBody reads the content before attempt 1, so that every attempt carries
// the same bytes; what is over the limit is streamed once, without a key.
func (x *exchange) readBody() *refusal {
	x.call.BodyIdle = x.policy.BodyIdleTimeout
	x.body.call = x.call
	if x.call.Length == 0 {
		x.call.Watch()
		return nil
	}
	limit := x.set.Body.Limit
	if x.call.Length > limit {
		return x.overLimit(nil)
	}
	buf, err := x.p.Spool.Fill(x.call, x.call.Length, limit)
	switch {
	case errors.Is(err, spool.ErrTooLarge):
		return x.overLimit(buf)
	case errors.Is(err, spool.ErrFull):
		return refuse("local_resource", "no room to keep the request body (body.memory_total, body.disk_total)")
	case errors.Is(err, inbound.ErrBodyShort), errors.Is(err, inbound.ErrBodyStalled):
		x.call.KeepAlive = false
		return refuse("client_gone", err.Error()) // the request was not wrong: it may come again
	case err != nil:
		x.call.KeepAlive = false
		return refuse("bad_request", "the request body: "+err.Error())
	}
	x.body.kept = buf
	x.call.Watch()
	return nil
}

// overLimit decides about a body that cannot be kept.
func (x *exchange) overLimit(prefix *spool.Buffer) *refusal {
	if x.key == "" && x.set.Body.Stream {
		x.body.stream = &streamed{prefix: prefix, call: x.call}
		x.call.Watch()
		return nil
	}
	if prefix != nil {
		prefix.Close()
	}
	x.call.KeepAlive = false
	return refuse("body_too_large", "the body is over body.limit ("+strconv.FormatInt(x.set.Body.Limit, 10)+" bytes) and a keyed call must be repeatable")
}

// message is the body of one attempt; nil when there is none.
func (b *requestBody) message() message.Body {
	switch {
	case b.kept != nil:
		return keptBody{b.kept, b.call}
	case b.stream != nil:
		return b.stream
	}
	return nil
}

// copyTo writes the whole content to w, for the fingerprint.
func (b *requestBody) copyTo(w io.Writer) error {
	if b.kept == nil {
		return nil
	}
	if whole, ok := b.kept.Bytes(); ok {
		_, err := w.Write(whole)
		return err
	}
	r, err := b.kept.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(w, r)
	return err
}

// repeatable says whether another attempt can carry the whole body. A streamed
// one can until the first byte of the client's part is used.
func (b *requestBody) repeatable(v *classify.Verdict) bool {
	return b.stream == nil || v.Basis == classify.BasisNotSent && !b.stream.used
}

// close gives back memory and disk.
func (b *requestBody) close() {
	if b.kept != nil {
		b.kept.Close()
	}
	if b.stream != nil && b.stream.prefix != nil {
		b.stream.prefix.Close()
	}
}

// keptBody is a body that every attempt can carry.
type keptBody struct {
	*spool.Buffer
	call *inbound.Call
}

// Len is the size, or -1 when the client sent trailers, which need chunks.
func (b keptBody) Len() int64 {
	if len(b.call.Trailers()) > 0 {
		return -1
	}
	return b.Buffer.Len()
}

// Trailers are those the client sent.
func (b keptBody) Trailers() message.Fields { return b.call.Trailers() }

// streamed is a body over the limit: what was read of it, then the client itself.
type streamed struct {
	prefix *spool.Buffer
	call   *inbound.Call
	used   bool // the client's part was touched; read by others once the attempt is over
}

// Len is what the client declared.
func (s *streamed) Len() int64 { return s.call.Length }

// Trailers are those the client sent.
func (s *streamed) Trailers() message.Fields { return s.call.Trailers() }

// Open fails once the client's part was touched.
func (s *streamed) Open() (io.ReadCloser, error) {
	if s.used {
		return nil, message.ErrBodyUsed
	}
	if s.prefix == nil {
		return &streamReader{s, nil}, nil
	}
	r, err := s.prefix.Open()
	if err != nil {
		return nil, err
	}
	return &streamReader{s, r}, nil
}

// streamReader gives the kept part, then the client's.
type streamReader struct {
	*streamed
	prefix io.ReadCloser // nil: used up
}

// Read gives the kept part first.
func (r *streamReader) Read(p []byte) (int, error) {
	if r.prefix == nil {
		return r.read(p)
	}
	n, err := r.prefix.Read(p)
	if err == io.EOF {
		err = r.prefix.Close()
		r.prefix = nil
	}
	return n, err
}

// Close ends a Read of the client's part that may be in progress.
func (r *streamReader) Close() error {
	if r.used {
		r.call.CloseRead()
	}
	if r.prefix != nil {
		return r.prefix.Close()
	}
	return nil
}

func (s *streamed) read(p []byte) (int, error) {
	s.used = true
	return s.call.Read(p)
}
