package inbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"retryproxy/internal/memnet"
)

// within is a listener whose connections are served inside a tunnel.
type within struct {
	net.Listener
	serve func(net.Conn)
}

func (w *within) Accept() (net.Conn, error) {
	for {
		c, err := w.Listener.Accept()
		if err != nil {
			return nil, err
		}
		go w.serve(c)
	}
}

// startInside serves s over TLS inside a tunnel.
func (r *rig) startInside(s *Server, tunnel *Tunnel, protocols ...string) {
	r.t.Helper()
	l, err := r.net.Listen(rigAddr)
	if err != nil {
		r.t.Fatal(err)
	}
	config := testTLS(r.t)
	config.NextProtos = protocols
	r.server = s
	serve := func(c net.Conn) {
		tc := tls.Server(c, config)
		if tc.Handshake() != nil {
			_ = c.Close()
			return
		}
		s.ServeInside(tc, &Listener{Addr: rigAddr}, clientAddr(c), tunnel)
	}
	go func() { r.served <- s.Serve(&within{l, serve}, &Listener{}) }()
}

// h2Ways are the two ways HTTP/2 comes in.
var h2Ways = []string{"tls", "h2c"}

// startH2 serves s one way and returns a client for it and the URL to use.
func (r *rig) startH2(way string, s *Server) (*http.Transport, string) {
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return r.net.Dial(ctx, rigAddr) },
		Protocols:   new(http.Protocols), DisableCompression: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	if way == "tls" {
		tr.Protocols.SetHTTP2(true)
		r.startInside(s, &Tunnel{Authority: "u1.test:443", Scheme: "https"}, "h2", "http/1.1")
		return tr, "https://u1.test"
	}
	tr.Protocols.SetUnencryptedHTTP2(true)
	s.H2C = true
	r.start(s)
	return tr, "http://u1.test"
}

// inBothWays runs a test of HTTP/2 over TLS inside a tunnel, and as h2c.
func inBothWays(t *testing.T, test func(r *rig, start func(*Server) (*http.Transport, string))) {
	t.Helper()
	for _, way := range h2Ways {
		t.Run(way, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				var tr *http.Transport
				test(r, func(s *Server) (*http.Transport, string) {
					var url string
					tr, url = r.startH2(way, s)
					return tr, url
				})
				if tr != nil {
					tr.CloseIdleConnections()
				}
			})
		})
	}
}

// got is what a client of net/http received.
type got struct {
	*http.Response
	body string
	err  error
}

// do sends one request and reads its whole answer.
func do(tr http.RoundTripper, method, url string, content io.Reader, change func(*http.Request)) got {
	req, err := http.NewRequest(method, url, content)
	if err != nil {
		return got{err: err}
	}
	if change != nil {
		change(req)
	}
	res, err := tr.RoundTrip(req)
	if err != nil {
		return got{err: err}
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	return got{res, string(body), err}
}

// framer is a client that writes frames itself, over h2c.
type framer struct {
	*http2.Framer
	conn *memnet.Conn
	t    *testing.T
	head bytes.Buffer
	enc  *hpack.Encoder
}

func (r *rig) frames() *framer {
	r.t.Helper()
	c, err := r.net.Dial(r.t.Context(), rigAddr)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		r.t.Fatal(err)
	}
	f := &framer{Framer: http2.NewFramer(c, c), conn: c.(*memnet.Conn), t: r.t}
	f.enc = hpack.NewEncoder(&f.head)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := f.WriteSettings(); err != nil {
		r.t.Fatal(err)
	}
	return f
}

// request opens a stream with "name: value" lines behind those of a request.
func (f *framer) request(id uint32, end bool, method, path string, lines ...string) {
	f.t.Helper()
	f.raw(id, end, append([]string{":method: " + method, ":scheme: http", ":path: " + path, ":authority: u1.test"}, lines...)...)
}

func (f *framer) raw(id uint32, end bool, lines ...string) {
	f.t.Helper()
	f.head.Reset()
	for _, line := range lines {
		name, value, _ := strings.Cut(line[1:], ": ")
		if err := f.enc.WriteField(hpack.HeaderField{Name: line[:1] + name, Value: value}); err != nil {
			f.t.Fatal(err)
		}
	}
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.head.Bytes(), EndStream: end, EndHeaders: true})
	if err != nil {
		f.t.Fatal(err)
	}
}

// outcome reads frames until stream id ends; it says how, as "200 body",
// "200 body RST INTERNAL_ERROR", "GOAWAY code" or the error of the connection.
func (f *framer) outcome(id uint32) string {
	f.t.Helper()
	var said []string
	var body strings.Builder
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return strings.TrimSpace(strings.Join(append(said, body.String(), err.Error()), " "))
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeNo {
				return "GOAWAY " + frame.ErrCode.String()
			}
		}
		if frame.Header().StreamID != id || id == 0 {
			continue
		}
		ended := false
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			said = append(said, frame.PseudoValue("status"))
			ended = frame.StreamEnded()
		case *http2.DataFrame:
			body.Write(frame.Data())
			ended = frame.StreamEnded()
		case *http2.RSTStreamFrame:
			return strings.Join(strings.Fields(fmt.Sprint(strings.Join(said, " "), " ", body.String(), " RST ", frame.ErrCode)), " ")
		}
		if ended {
			return strings.Join(strings.Fields(strings.Join(said, " ")+" "+body.String()), " ")
		}
	}
}

// later is a body whose pieces come one each pause.
type later struct {
	pieces []string
	pause  time.Duration
	err    error // at the end; nil: io.EOF
}

func (l *later) Read(p []byte) (int, error) {
	if len(l.pieces) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		return 0, io.EOF
	}
	time.Sleep(l.pause)
	n := copy(p, l.pieces[0])
	if l.pieces[0] = l.pieces[0][n:]; l.pieces[0] == "" {
		l.pieces = l.pieces[1:]
	}
	return n, nil
}

func (l *later) Close() error { return nil }
