package egresstest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"retryproxy/internal/memnet"
)

// talk sends each text and expects the answer behind it; "" expects EOF.
func talk(t *testing.T, addr string, turns ...string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for i := 0; i < len(turns); i += 2 {
		if _, err := io.WriteString(conn, turns[i]); err != nil {
			t.Fatal(err)
		}
		if turns[i+1] == "" {
			if rest, _ := io.ReadAll(in); len(rest) > 0 {
				t.Errorf("after %q: %q, want EOF", turns[i], rest)
			}
			return
		}
		got := make([]byte, len(turns[i+1]))
		if _, err := io.ReadFull(in, got); err != nil || string(got) != turns[i+1] {
			t.Errorf("after %q: %q, %v, want %q", turns[i], got, err, turns[i+1])
		}
	}
}

// echo is a way to a host that repeats what it hears.
func echo(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	go func() {
		_, _ = io.Copy(far, far)
		far.Close()
	}()
	return near, nil
}

func TestServe(t *testing.T) {
	const (
		head   = "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n"
		basic  = "Proxy-Authorization: Basic dTpw\r\n" // u:p
		opened = "HTTP/1.1 200 Connection established\r\n\r\n"
		login  = "\x01\x01u\x01p"
		name   = "\x05\x01\x00\x03\x06a.test\x01\xbb"
	)
	refuse := func(status int) func(string, string) (int, bool) {
		return func(string, string) (int, bool) { return status, true }
	}
	tests := []struct {
		name   string
		config Config
		turns  []string
		want   []Call
	}{
		{"http", Config{}, []string{head + "\r\n", opened, "ping", "ping"}, []Call{{HTTP, "a.test:443", "", strings.TrimSuffix(head, "\r\n")}}},
		{"http user", Config{User: "u", Password: "p"}, []string{head + basic + "\r\n", opened}, []Call{{HTTP, "a.test:443", "u", head + strings.TrimSuffix(basic, "\r\n")}}},
		{"http no user", Config{User: "u", Password: "p"}, []string{head + "\r\n", "HTTP/1.1 407 "}, []Call{{HTTP, "a.test:443", "", strings.TrimSuffix(head, "\r\n")}}},
		{"http told", Config{Answer: refuse(503)}, []string{head + "\r\n", "HTTP/1.1 503 "}, []Call{{HTTP, "a.test:443", "", strings.TrimSuffix(head, "\r\n")}}},
		{"http hang up", Config{Answer: refuse(HangUp)}, []string{head + "\r\n", ""}, []Call{{HTTP, "a.test:443", "", strings.TrimSuffix(head, "\r\n")}}},
		{"http hang", Config{Answer: refuse(Hang)}, nil, nil},
		{"socks", Config{}, []string{"\x05\x01\x00", "\x05\x00", name, "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00", "ping", "ping"}, []Call{{SOCKS5, "a.test:443", "", ""}}},
		{"socks user", Config{User: "u", Password: "p"}, []string{"\x05\x01\x02", "\x05\x02", login, "\x01\x00", name, "\x05\x00"}, []Call{{SOCKS5, "a.test:443", "u", ""}}},
		{"socks wrong user", Config{User: "u", Password: "q"}, []string{"\x05\x01\x02", "\x05\x02", login, "\x01\x01", "", ""}, []Call{{SOCKS5, "", "u", ""}}},
		{"socks no method", Config{User: "u", Password: "q"}, []string{"\x05\x01\x00", "\x05\xff", "", ""}, []Call{{SOCKS5, "", "", ""}}},
		{"socks IPv6", Config{}, []string{"\x05\x01\x00", "\x05\x00", "\x05\x01\x00\x04\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01\x01\xbb", "\x05\x00"}, []Call{{SOCKS5, "[2001:db8::1]:443", "", ""}}},
		{"socks told", Config{Answer: refuse(2)}, []string{"\x05\x01\x00", "\x05\x00", name, "\x05\x02"}, []Call{{SOCKS5, "a.test:443", "", ""}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var record Record
			test.config.Record, test.config.Dial = &record, echo
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			stop := Serve(l, test.config)
			talk(t, l.Addr().String(), test.turns...)
			stop()
			if diff := cmp.Diff(test.want, record.Calls()); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStop: neither a client that is kept waiting nor an open way keeps stop.
func TestStop(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	stop := Serve(l, Config{Answer: func(string, string) (int, bool) {
		close(asked)
		return Hang, true
	}})
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "CONNECT a.test:443 HTTP/1.1\r\n\r\n")
	<-asked
	stop()
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("after stop: %d bytes, %v", n, err)
	}
}

func TestDialFailure(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fail := func(context.Context, string) (net.Conn, error) { return nil, errors.New("no") }
	defer Serve(l, Config{Dial: fail})()
	talk(t, l.Addr().String(), "CONNECT a.test:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 502 ")
	talk(t, l.Addr().String(), "\x05\x01\x00", "\x05\x00", "\x05\x01\x00\x03\x06a.test\x01\xbb", "\x05\x05")
}

// TestInABubble: over the in-memory network nothing is left behind.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		l, err := network.Listen("192.0.2.1:1080")
		if err != nil {
			t.Fatal(err)
		}
		defer Serve(l, Config{Dial: echo})()
		conn, err := network.Dial(t.Context(), "192.0.2.1:1080")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "CONNECT a.test:443 HTTP/1.1\r\n\r\nping")
		const want = "HTTP/1.1 200 Connection established\r\n\r\nping"
		got := make([]byte, len(want))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
			t.Errorf("read %q, %v, want %q", got, err, want)
		}
	})
}
