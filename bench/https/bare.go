package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
)

// Roles of the processes to compare with.
const (
	roleLoop   = "go-loop"   // http.ReadRequest and Response.Write in a loop
	roleServer = "go-server" // an http.Server behind TLS, which has HTTP/2 too
)

// bareConfig is what a bare proxy is told.
type bareConfig struct {
	listen string
	open   string // the target whose tunnels are opened
	dir    string // of the certificate
}

// bare is the plainest proxy: it opens tunnels to one target and joins the
// others. No retry, no log, no limit.
type bare struct {
	open      string
	tls       *tls.Config
	transport *http.Transport
	serve     func(raw net.Conn) // what is inside an opened tunnel
}

// serveBare runs a bare proxy until the process is killed.
func serveBare(role string, c bareConfig) error {
	show, trust, err := readCertificate(c.dir)
	if err != nil {
		return err
	}
	b := &bare{open: c.open, tls: show, transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trust}, MaxIdleConnsPerHost: 256, DisableCompression: true,
	}}
	switch role {
	case roleLoop:
		b.serve = b.loop
	case roleServer:
		b.serve = b.server()
	default:
		return fmt.Errorf("no role %q", role)
	}
	l, err := net.Listen("tcp", c.listen)
	if err != nil {
		return err
	}
	for {
		raw, err := l.Accept()
		if err != nil {
			return err
		}
		go b.connect(raw)
	}
}

// connect answers a CONNECT. Its client is silent until then, so that nothing
// is left in the buffer.
func (b *bare) connect(raw net.Conn) {
	r, err := http.ReadRequest(bufio.NewReader(raw))
	if err != nil {
		raw.Close()
		return
	}
	if r.Host == b.open {
		_, _ = io.WriteString(raw, established)
		b.serve(raw)
		return
	}
	up, err := net.Dial("tcp", r.Host)
	if err != nil {
		raw.Close()
		return
	}
	_, _ = io.WriteString(raw, established)
	join(raw, up)
}

const established = "HTTP/1.1 200 OK\r\n\r\n"

// join copies both ways; between two TCP connections io.Copy does it in the
// kernel (splice).
func join(client, up net.Conn) {
	defer client.Close()
	defer up.Close()
	var group sync.WaitGroup
	group.Go(func() { pump(up, client) })
	pump(client, up)
	group.Wait()
}

func pump(dst, src net.Conn) {
	_, _ = io.Copy(dst, src) // either end may leave
	_ = dst.(*net.TCPConn).CloseWrite()
}

// loop serves requests the shortest way that net/http has.
func (b *bare) loop(raw net.Conn) {
	c := tls.Server(raw, b.tls)
	defer c.Close()
	r, w := bufio.NewReader(c), bufio.NewWriter(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		res, err := b.transport.RoundTrip(b.outgoing(req))
		if err != nil {
			return
		}
		err = res.Write(w)
		res.Body.Close()
		if err != nil || w.Flush() != nil {
			return
		}
	}
}

// outgoing turns a request of a client into ours.
func (b *bare) outgoing(r *http.Request) *http.Request {
	r.RequestURI, r.URL.Scheme, r.URL.Host = "", "https", b.open
	return r
}

// server hands connections to an http.Server.
func (b *bare) server() func(net.Conn) {
	inside := make(tunnels)
	s := &http.Server{Handler: http.HandlerFunc(b.handle), TLSConfig: b.tls}
	go func() { _ = s.ServeTLS(inside, "", "") }() // as long as the process
	return func(raw net.Conn) { inside <- raw }
}

func (b *bare) handle(w http.ResponseWriter, r *http.Request) {
	res, err := b.transport.RoundTrip(b.outgoing(r))
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer res.Body.Close()
	maps.Copy(w.Header(), res.Header)
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body) // the client may leave
}

// tunnels is a listener for connections that came through CONNECT.
type tunnels chan net.Conn

// Accept gives the next one.
func (t tunnels) Accept() (net.Conn, error) { return <-t, nil }

// Close is never called.
func (t tunnels) Close() error { return nil }

// Addr is of no interest.
func (t tunnels) Addr() net.Addr { return &net.TCPAddr{} }
