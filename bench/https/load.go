package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/sync/errgroup"
)

const connections = 16 // of the closed loops

// load is what a workload does to a proxy until ctx ends; what it got is counted
// in the lab.
type load func(ctx context.Context, l *lab, p *peer) error

var content = strings.Repeat("x", 1<<10)

// dialTunnel opens a tunnel; it is closed when ctx ends.
func dialTunnel(ctx context.Context, p *peer, target string) (net.Conn, error) {
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { c.Close() })
	if _, err = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target); err != nil {
		return nil, err
	}
	in := wire{conn: c}
	head, err := in.next()
	if err == nil && !accepted(head) {
		err = fmt.Errorf("CONNECT: %s", head)
	}
	return c, err
}

func accepted(head string) bool { return strings.HasPrefix(head, "HTTP/1.1 200 ") }

// many runs f on several connections until ctx ends.
func many(ctx context.Context, n int, f func() error) error {
	var g errgroup.Group
	for range n {
		g.Go(func() error {
			err := f()
			if ctx.Err() != nil {
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

// getLoad is GET over kept HTTP/1.1 connections.
func getLoad(ctx context.Context, l *lab, p *peer) error {
	request := fmt.Sprintf("GET /orders HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n", l.up.target())
	return many(ctx, connections, func() error {
		return callInside(ctx, l, p, func() string { return request })
	})
}

// postLoad is POST of 1 KiB, each with a key of its own.
func postLoad(ctx context.Context, l *lab, p *peer) error {
	head := fmt.Sprintf("POST /orders HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n", l.up.target(), len(content))
	return many(ctx, connections, func() error {
		return callInside(ctx, l, p, func() string {
			return fmt.Sprintf("%sX-Idempotency-Key: bench-%d\r\n\r\n%s", head, l.keys.Add(1), content)
		})
	})
}

// callInside sends requests over one connection, one after the other.
func callInside(ctx context.Context, l *lab, p *peer, request func() string) error {
	raw, err := dialTunnel(ctx, p, l.up.target())
	if err != nil {
		return err
	}
	defer raw.Close()
	c := tls.Client(raw, &tls.Config{RootCAs: p.roots, ServerName: hostName, NextProtos: []string{"http/1.1"}})
	for in := (wire{conn: c}); ; l.done.Add(1) {
		if _, err := io.WriteString(c, request()); err != nil {
			return err
		}
		head, err := in.next()
		if err != nil {
			return err
		}
		if !accepted(head) {
			return fmt.Errorf("answer: %s", head)
		}
	}
}

// h2Load is GET over one HTTP/2 connection.
func h2Load(ctx context.Context, l *lab, p *peer) error {
	t := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: p.Addr}),
		TLSClientConfig: &tls.Config{RootCAs: p.roots}, ForceAttemptHTTP2: true, DisableCompression: true,
	}
	defer t.CloseIdleConnections()
	return many(ctx, connections, func() error {
		for ; ; l.done.Add(1) {
			if err := getOnce(ctx, t, "https://"+l.up.target()+"/orders"); err != nil {
				return err
			}
		}
	})
}

func getOnce(ctx context.Context, t *http.Transport, address string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	res, err := t.RoundTrip(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || res.ProtoMajor != 2 {
		return fmt.Errorf("answer: %s %s", res.Proto, res.Status)
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// download receives through n tunnels.
func download(n int) load {
	return func(ctx context.Context, l *lab, p *peer) error {
		return many(ctx, n, func() error {
			c, err := askTunnel(ctx, l, p, askDownload)
			if err != nil {
				return err
			}
			defer c.Close()
			drain(c, &l.done)
			return io.ErrUnexpectedEOF
		})
	}
}

// upload sends through n tunnels; what arrives counts.
func upload(n int) load {
	return func(ctx context.Context, l *lab, p *peer) error {
		return many(ctx, n, func() error {
			c, err := askTunnel(ctx, l, p, askUpload)
			if err != nil {
				return err
			}
			defer c.Close()
			pour(c)
			return io.ErrUnexpectedEOF
		})
	}
}

// askTunnel opens a tunnel to the upstream that speaks bytes.
func askTunnel(ctx context.Context, l *lab, p *peer, ask string) (net.Conn, error) {
	c, err := dialTunnel(ctx, p, l.up.bytes.Addr().String())
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(c, ask)
	return c, err
}

// tunnelLoad opens tunnels for one small exchange each.
func tunnelLoad(ctx context.Context, l *lab, p *peer) error {
	return many(ctx, connections, func() error {
		for ; ; l.done.Add(1) {
			if err := echoOnce(ctx, l, p); err != nil {
				return err
			}
		}
	})
}

func echoOnce(ctx context.Context, l *lab, p *peer) error {
	ctx, cancel := context.WithCancel(ctx) // frees what watches ctx for the connection
	defer cancel()
	c, err := askTunnel(ctx, l, p, askEcho)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = io.ReadFull(c, make([]byte, 1))
	return err
}
