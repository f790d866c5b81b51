package memnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// connect returns both ends of a connection over a fresh network.
func connect(t *testing.T) (client, server *Conn) {
	t.Helper()
	n := New()
	l, err := n.Listen("127.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	c, err := n.Dial(t.Context(), "127.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return c.(*Conn), s.(*Conn)
}

func write(t *testing.T, c *Conn, s string) {
	t.Helper()
	if n, err := c.Write([]byte(s)); n != len(s) || err != nil {
		t.Fatalf("Write(%q) = %d, %v, want %d, nil", s, n, err, len(s))
	}
}

func TestDialAndAddresses(t *testing.T) {
	n := New()
	if _, err := n.Dial(t.Context(), "127.0.0.1:1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("Dial without listener = %v, want ECONNREFUSED", err)
	}
	l, err := n.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Listen(l.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("second Listen = %v, want EADDRINUSE", err)
	}
	c, err := n.DialFrom(t.Context(), netip.MustParseAddr("10.1.2.3"), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, _ := l.Accept()
	if got, want := s.RemoteAddr().(*net.TCPAddr).IP.String(), "10.1.2.3"; got != want {
		t.Errorf("RemoteAddr = %v, want %v", got, want)
	}
	if c.RemoteAddr().String() != l.Addr().String() || c.LocalAddr().String() != s.RemoteAddr().String() {
		t.Errorf("addresses %v->%v and %v->%v do not match", c.LocalAddr(), c.RemoteAddr(), s.RemoteAddr(), s.LocalAddr())
	}
}

func TestListenerClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		l, _ := n.Listen(":80")
		c, err := n.Dial(t.Context(), "127.0.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			_, _ = l.Accept()
			_, err := l.Accept()
			done <- err
		}()
		synctest.Wait()
		_ = l.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close = %v, want net.ErrClosed", err)
		}
		if _, err := n.Dial(t.Context(), "127.0.0.1:80"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dial after Close = %v, want ECONNREFUSED", err)
		}
		_ = c.Close()
	})
}

func TestListenerCloseResetsUnaccepted(t *testing.T) {
	n := New()
	l, _ := n.Listen("127.0.0.1:80")
	c, _ := n.Dial(t.Context(), "127.0.0.1:80")
	_ = l.Close()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Read = %v, want ECONNRESET", err)
	}
}

func TestHalfClose(t *testing.T) {
	c, s := connect(t)
	write(t, c, "question")
	_ = c.CloseWrite()
	if got, err := io.ReadAll(s); string(got) != "question" || err != nil {
		t.Fatalf("ReadAll = %q, %v, want question, nil", got, err)
	}
	write(t, s, "answer")
	_ = s.Close()
	if got, err := io.ReadAll(c); string(got) != "answer" || err != nil {
		t.Fatalf("ReadAll = %q, %v, want answer, nil", got, err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("Write after CloseWrite = %v, want EPIPE", err)
	}
}

func TestResets(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(t *testing.T, c, s *Conn)
	}{
		{"explicit", func(t *testing.T, c, s *Conn) { _ = s.Reset() }},
		{"close with unread bytes", func(t *testing.T, c, s *Conn) { write(t, c, "unread"); _ = s.Close() }},
		{"linger 0", func(t *testing.T, c, s *Conn) { _ = s.SetLinger(0); _ = s.Close() }},
		{"write after the peer's close", func(t *testing.T, c, s *Conn) {
			write(t, s, "lost")
			_ = s.Close()
			write(t, c, "late")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, s := connect(t)
			tt.end(t, c, s)
			if _, err := c.Read(make([]byte, 9)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("Read = %v, want ECONNRESET", err)
			}
			if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("Write = %v, want ECONNRESET", err)
			}
		})
	}
}

func TestBufferIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := connect(t)
		data := bytes.Repeat([]byte("x"), BufferSize+10)
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		start := time.Now()
		n, err := c.Write(data)
		if n != BufferSize || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
			t.Fatalf("Write = %d, %v after %v, want %d, deadline exceeded after 1s", n, err, time.Since(start), BufferSize)
		}
		_ = c.SetWriteDeadline(time.Time{})
		go func() { _, _ = c.Write(data[n:]); _ = c.Close() }()
		if got, err := io.ReadAll(s); len(got) != len(data) || err != nil {
			t.Errorf("ReadAll = %d bytes, %v, want %d, nil", len(got), err, len(data))
		}
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := connect(t)
		done := make(chan error)
		read := func() { _, err := c.Read(make([]byte, 1)); done <- err }

		go read()
		synctest.Wait()
		_ = c.SetReadDeadline(time.Unix(1, 0))
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read with a past deadline = %v, want deadline exceeded", err)
		}
		start := time.Now()
		_ = c.SetReadDeadline(start.Add(3 * time.Second))
		go read()
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("Read = %v after %v, want deadline exceeded after 3s", err, time.Since(start))
		}
		var timeout net.Error
		if _, err := c.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("Read error %v is no time-out", err)
		}
		_ = c.SetDeadline(time.Time{})
		go read()
		synctest.Wait()
		write(t, s, "x")
		if err := <-done; err != nil {
			t.Errorf("Read after the deadline was lifted = %v, want nil", err)
		}
		go read()
		synctest.Wait()
		_ = c.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read over Close = %v, want net.ErrClosed", err)
		}
	})
}

func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		_ = n.Silence("127.0.0.1:9", true)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		_, err := n.Dial(ctx, "127.0.0.1:9")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Second {
			t.Errorf("Dial = %v after %v, want deadline exceeded after 5s", err, time.Since(start))
		}
	})
}
