package inbound

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"retryproxy/message"
)

// listen serves s on a real socket until the test ends.
func listen(t *testing.T, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l, &Listener{}) }()
	t.Cleanup(func() {
		if err := s.Shutdown(t.Context()); err != nil && !errors.Is(err, t.Context().Err()) {
			t.Errorf("Shutdown = %v, want nil", err)
		}
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("Serve = %v, want ErrClosed", err)
		}
	})
	return l.Addr().String()
}

// The client of net/http is served in parallel: sized, chunked, trailers, 100.
func TestNetHTTPClient(t *testing.T) {
	addr := listen(t, &Server{IdleTimeout: time.Minute, Handler: func(c *Call) {
		var content bytes.Buffer
		if _, err := io.Copy(&content, c); err != nil {
			t.Errorf("content: %v", err)
		}
		c.Watch()
		sum := c.Trailers().Get("X-Sum")
		_, _ = c.Answer(&message.Response{
			Status: 200, Length: -1, Body: io.NopCloser(&content),
			Fields:   message.Fields{{Name: "Trailer", Value: "X-Sum"}},
			Trailers: func() message.Fields { return message.Fields{{Name: "X-Sum", Value: sum}} },
		}, time.Minute)
	}})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8, ExpectContinueTimeout: time.Minute}}
	defer client.CloseIdleConnections()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 50 {
				content := strings.Repeat(fmt.Sprint(i, j), 1+j*37)
				req, _ := http.NewRequest("POST", "http://"+addr+"/", struct{ io.Reader }{strings.NewReader(content)})
				switch j % 3 {
				case 0:
					req.Trailer = http.Header{"X-Sum": {fmt.Sprint(j)}}
				case 1:
					req.ContentLength = int64(len(content))
					req.Header.Set("Expect", "100-continue")
				}
				res, err := client.Do(req)
				if err != nil {
					t.Errorf("Do = %v, want nil", err)
					return
				}
				got, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if string(got) != content || err != nil {
					t.Errorf("answer = %d bytes, %v, want %d", len(got), err, len(content))
				}
				if want := req.Trailer.Get("X-Sum"); res.Trailer.Get("X-Sum") != want {
					t.Errorf("trailer = %q, want %q", res.Trailer.Get("X-Sum"), want)
				}
			}
		})
	}
	group.Wait()
}

// A client that leaves is noticed on a real socket as well, over TLS too.
func TestClientGoneOnSockets(t *testing.T) {
	config := testTLS(t)
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("tls ", secure), func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			waits, gone := make(chan struct{}), make(chan struct{})
			s := &Server{Handler: func(c *Call) {
				if c.Request.Target == "/fast" {
					echo(c)
					return
				}
				c.Watch()
				close(waits)
				<-c.Context().Done()
				close(gone)
			}}
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if secure {
					c = tls.Server(c, config)
				}
				s.ServeInside(c, &Listener{}, clientAddr(c), &Tunnel{})
			}()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if secure {
				c = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
			}
			in := bufio.NewReader(c)
			for range 3 {
				_, _ = io.WriteString(c, "GET /fast HTTP/1.1\r\nHost: a\r\n\r\n")
				res, err := http.ReadResponse(in, nil)
				if err != nil || res.StatusCode != 200 {
					t.Fatalf("answer = %v, %v, want 200", res, err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
			}
			_, _ = io.WriteString(c, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
			<-waits
			_ = c.Close()
			<-gone
		})
	}
}

// A body that breaks resets the TCP connection, below TLS too.
func TestResetOnSockets(t *testing.T) {
	config := testTLS(t)
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("tls ", secure), func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			answered := make(chan struct{})
			s := &Server{Handler: func(c *Call) {
				<-answered
				_, _ = c.Answer(&message.Response{Status: 200, Length: -1, Body: &script{pieces: []string{"x"}, err: io.ErrClosedPipe}}, time.Minute)
			}}
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if secure {
					c = tls.Server(c, config)
				}
				s.ServeInside(c, &Listener{}, clientAddr(c), nil)
			}()
			raw, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			c := raw
			if secure {
				c = tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
			}
			_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
			close(answered)
			if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("ReadAll = %v, want ECONNRESET", err)
			}
		})
	}
}

// testTLS makes a certificate for tests.
func testTLS(t testing.TB) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}
