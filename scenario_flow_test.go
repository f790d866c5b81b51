package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"
)

// On real sockets the kernel copies what flows through a tunnel. What was read
// ahead comes first, both ways, a half-close is passed on, and small portions in
// between arrive at once.
func TestTunnelOnSockets(t *testing.T) {
	const size = 8 << 20
	up, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	ended := make(chan error, 1)
	go func() { ended <- echoAndCount(up) }()
	a, stop := onSockets(t, fmt.Sprintf("destinations: {connect_ports: [%d]}", up.Addr().(*net.TCPAddr).Port))
	c, err := net.Dial("tcp", a.proxies[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The first bytes come in the packet of the request, as a hasty client sends them.
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n\x16ping", up.Addr())
	in := bufio.NewReader(c)
	if head := responseHead(t, in); !bytes.HasPrefix([]byte(head), []byte("HTTP/1.1 200")) {
		t.Fatalf("answer to CONNECT = %q, want 200", head)
	}
	expect := func(want []byte) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(in, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("read %d bytes with %v that differ, want %d sent ones", len(got), err, len(want))
		}
	}
	expect([]byte("\x16ping"))
	pattern := make([]byte, size)
	for i := range pattern {
		pattern[i] = byte(i * 7 >> 3)
	}
	for range 2 { // flowing, then small again, then flowing again
		go func() { _, _ = c.Write(pattern) }()
		expect(pattern)
		_, _ = c.Write([]byte("pong"))
		expect([]byte("pong"))
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(in)
	if err != nil || string(rest) != "bye" {
		t.Errorf("after the half-close came %q, %v; want bye and the end", rest, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	stop()
}

// echoAndCount answers one connection with what it gets, and says bye at its end.
func echoAndCount(l net.Listener) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.Copy(c, c); err != nil {
		return err
	}
	_, err = c.Write([]byte("bye"))
	return err
}
