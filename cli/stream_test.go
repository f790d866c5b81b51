package cli

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowly is an answer that comes piece by piece; at the end it is over, or silent.
type slowly struct {
	ctx    context.Context //nolint:containedctx // of the request, as the transport of net/http has it
	pieces []string
	silent bool
}

func (s *slowly) Read(p []byte) (int, error) {
	time.Sleep(askFor - time.Second)
	if len(s.pieces) == 0 && s.silent {
		<-s.ctx.Done()
	}
	if s.ctx.Err() != nil {
		return 0, s.ctx.Err()
	}
	if len(s.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.pieces[0])
	s.pieces = s.pieces[1:]
	return n, nil
}

func (*slowly) Close() error { return nil }

func (s *slowly) RoundTrip(r *http.Request) (*http.Response, error) {
	s.ctx = r.Context()
	return &http.Response{StatusCode: http.StatusOK, Body: s, Request: r}, nil
}

// reader takes his time with each piece.
type reader struct{ strings.Builder }

func (r *reader) Write(p []byte) (int, error) {
	time.Sleep(10 * askFor)
	return r.Builder.Write(p)
}

// A long answer goes on while something comes, however slowly it is read, and never hangs.
func TestStream(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, err := newClient("127.0.0.1:1", "")
			if err != nil {
				t.Fatal(err)
			}
			c.http.Transport = &slowly{pieces: []string{"a\n", "b\n", "c\n"}, silent: silent}
			var got reader
			err = c.stream("/x", &got)
			if got.String() != "a\nb\nc\n" || (err != nil) != silent || silent && !strings.Contains(err.Error(), "what came is not all") {
				t.Errorf("silent %v: %q, %v", silent, got.String(), err)
			}
		})
	}
}
