package main

import (
	"bufio"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
)

const (
	instant = "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\nan order\n"
	later   = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7200\r\nContent-Length: 0\r\n\r\n"
)

// startUpstream answers every request at once: 201, or under /later a 429 with a
// Retry-After of hours.
func startUpstream() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answerAll(c)
		}
	}()
	return l, nil
}

func answerAll(c net.Conn) {
	defer c.Close()
	for in := textproto.NewReader(bufio.NewReader(c)); ; {
		line, length, err := head(in)
		if err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, in.R, length); err != nil {
			return
		}
		answer := instant
		if strings.Contains(line, " /later ") {
			answer = later
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// head reads a head: its first line, and the length of what follows.
func head(in *textproto.Reader) (line string, length int64, err error) {
	if line, err = in.ReadLine(); err != nil {
		return "", 0, err
	}
	for {
		field, err := in.ReadLine()
		if err != nil || field == "" {
			return line, length, err
		}
		if name, value, _ := strings.Cut(field, ":"); strings.EqualFold(name, "Content-Length") {
			if length, err = strconv.ParseInt(strings.TrimSpace(value), 10, 64); err != nil {
				return "", 0, err
			}
		}
	}
}
