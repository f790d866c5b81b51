package egresstest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strconv"
)

// Numbers of RFC 1928 and 1929.
const (
	socksVersion = 5
	authVersion  = 1

	methodNone     = 0
	methodPassword = 2
	methodRefused  = 0xff

	addressIPv4 = 1
	addressName = 3
	addressIPv6 = 4

	replyRefused = 5
)

// socks answers a CONNECT of SOCKS5; nil: there is no way to carry bytes on.
func (s *server) socks(conn net.Conn, in *bufio.Reader) net.Conn {
	user, ok := s.greet(conn, in)
	if !ok {
		return nil
	}
	target, ok := readTarget(in)
	if !ok {
		return nil
	}
	s.Record.add(Call{Kind: SOCKS5, Target: target, User: user})
	if s.Answer != nil {
		if code, ok := s.Answer(SOCKS5, target); ok {
			if !broken(code, in) {
				reply(conn, byte(code))
			}
			return nil
		}
	}
	way, err := s.Dial(s.ctx, target)
	if err != nil {
		reply(conn, replyRefused)
		return nil
	}
	reply(conn, 0)
	return way
}

// greet agrees on a method and checks the password.
func (s *server) greet(conn net.Conn, in *bufio.Reader) (user string, ok bool) {
	var head [2]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return "", false
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(in, methods); err != nil {
		return "", false
	}
	switch {
	case bytes.IndexByte(methods, methodPassword) >= 0:
		_, _ = conn.Write([]byte{socksVersion, methodPassword})
		return s.login(conn, in)
	case bytes.IndexByte(methods, methodNone) >= 0 && s.User == "":
		_, _ = conn.Write([]byte{socksVersion, methodNone})
		return "", true
	}
	s.Record.add(Call{Kind: SOCKS5})
	_, _ = conn.Write([]byte{socksVersion, methodRefused})
	return "", false
}

// login is the exchange of RFC 1929.
func (s *server) login(conn net.Conn, in *bufio.Reader) (user string, ok bool) {
	version, err := in.ReadByte()
	if err != nil || version != authVersion {
		return "", false
	}
	user, ok = readText(in)
	if !ok {
		return "", false
	}
	password, ok := readText(in)
	if !ok {
		return "", false
	}
	if s.User != "" && (user != s.User || password != s.Password) {
		s.Record.add(Call{Kind: SOCKS5, User: user})
		_, _ = conn.Write([]byte{authVersion, 1})
		return "", false
	}
	_, _ = conn.Write([]byte{authVersion, 0})
	return user, true
}

// readTarget reads a request to connect; its target is empty for any other.
func readTarget(in *bufio.Reader) (string, bool) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil || head[0] != socksVersion || head[1] != 1 {
		return "", false
	}
	host, ok := readHost(in, head[3])
	if !ok {
		return "", false
	}
	var port [2]byte
	if _, err := io.ReadFull(in, port[:]); err != nil {
		return "", false
	}
	return net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(port[:])))), true
}

func readHost(in *bufio.Reader, kind byte) (string, bool) {
	sizes := map[byte]int{addressIPv4: 4, addressIPv6: 16}
	if kind == addressName {
		return readText(in)
	}
	raw := make([]byte, sizes[kind])
	if _, err := io.ReadFull(in, raw); err != nil {
		return "", false
	}
	addr, ok := netip.AddrFromSlice(raw)
	return addr.String(), ok
}

// readText reads a text behind its length.
func readText(in *bufio.Reader) (string, bool) {
	size, err := in.ReadByte()
	if err != nil {
		return "", false
	}
	text := make([]byte, size)
	_, err = io.ReadFull(in, text)
	return string(text), err == nil
}

// reply answers code with an address of zeros.
func reply(conn net.Conn, code byte) {
	_, _ = conn.Write([]byte{socksVersion, code, 0, addressIPv4, 0, 0, 0, 0, 0, 0})
}
