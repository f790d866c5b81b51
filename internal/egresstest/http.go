package egresstest

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
)

// http answers a CONNECT; nil: there is no way to carry bytes on.
func (s *server) http(conn net.Conn, in *bufio.Reader) net.Conn {
	head, ok := readHead(in)
	if !ok {
		return nil
	}
	method, rest, _ := strings.Cut(head, " ")
	target, _, _ := strings.Cut(rest, " ")
	user, password := credentials(head)
	s.Record.add(Call{HTTP, target, user, head})
	switch {
	case s.User != "" && (user != s.User || password != s.Password):
		say(conn, 407, "Proxy-Authenticate: Basic realm=\"test\"\r\n")
		return nil
	case method != "CONNECT":
		say(conn, 405, "")
		return nil
	}
	if s.Answer != nil {
		if status, ok := s.Answer(HTTP, target); ok {
			if !broken(status, in) {
				say(conn, status, "")
			}
			return nil
		}
	}
	way, err := s.Dial(s.ctx, target)
	if err != nil {
		say(conn, 502, "")
		return nil
	}
	fmt.Fprintf(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	return way
}

// readHead reads up to the empty line.
func readHead(in *bufio.Reader) (string, bool) {
	var lines []string
	for {
		line, err := in.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		switch {
		case err != nil:
			return "", false
		case line == "":
			return strings.Join(lines, "\r\n"), true
		}
		lines = append(lines, line)
	}
}

// credentials are those of the Proxy-Authorization in head, if there are any.
func credentials(head string) (user, password string) {
	for _, line := range strings.Split(head, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if !strings.EqualFold(name, "Proxy-Authorization") {
			continue
		}
		_, token, _ := strings.Cut(strings.TrimSpace(value), " ")
		text, _ := base64.StdEncoding.DecodeString(token)
		user, password, _ = strings.Cut(string(text), ":")
	}
	return user, password
}

// say answers status with an empty body.
func say(conn net.Conn, status int, fields string) {
	fmt.Fprintf(conn, "HTTP/1.1 %d As told\r\n%sContent-Length: 0\r\nConnection: close\r\n\r\n", status, fields)
}
