package egress

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"

	"retryproxy/classify"
)

const (
	plainSOCKS = "socks5h://10.0.0.1"
	userSOCKS  = "socks5h://acct-name:" + secret + "@10.0.0.1"

	noneOffered = "\x05\x01\x00"
	noneChosen  = "\x05\x00"
	userOffered = "\x05\x01\x02"
	userChosen  = "\x05\x02"
	loginSent   = "\x01\x09acct-name\x0b" + secret
	loginTaken  = "\x01\x00"
	requestA    = "\x05\x01\x00\x03\x06a.test\x01\xbb"
	openedReply = "\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
)

func TestSOCKSRequest(t *testing.T) {
	long := strings.Repeat("x", 255)
	tests := []struct {
		name, url, host string
		turns           []turn
	}{
		{"name", plainSOCKS, "a.test", []turn{{noneOffered, noneChosen}, {requestA, openedReply}}},
		{"user", userSOCKS, "a.test", []turn{{userOffered, userChosen}, {loginSent, loginTaken}, {requestA, openedReply}}},
		{"user without password", "socks5://u@10.0.0.1", "a.test", []turn{{userOffered, userChosen}, {"\x01\x01u\x00", loginTaken}, {requestA, openedReply}}},
		{"IPv4", "socks5://10.0.0.1", "192.0.2.1", []turn{{noneOffered, noneChosen}, {"\x05\x01\x00\x01\xc0\x00\x02\x01\x01\xbb", openedReply}}},
		{"IPv6", "socks5://10.0.0.1", "2001:db8::1", []turn{{noneOffered, noneChosen}, {"\x05\x01\x00\x04\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01\x01\xbb", openedReply}}},
		{"IPv4 in IPv6", plainSOCKS, "::ffff:192.0.2.1", []turn{{noneOffered, noneChosen}, {"\x05\x01\x00\x01\xc0\x00\x02\x01\x01\xbb", openedReply}}},
		{"the longest name", plainSOCKS, long, []turn{{noneOffered, noneChosen}, {"\x05\x01\x00\x03\xff" + long + "\x01\xbb", openedReply}}},
		{"bound to IPv6", plainSOCKS, "a.test", []turn{{noneOffered, noneChosen}, {requestA, "\x05\x00\x00\x04" + strings.Repeat("\x01", 18)}}},
		{"bound to a name", plainSOCKS, "a.test", []turn{{noneOffered, noneChosen}, {requestA, "\x05\x00\x00\x03\x01x\x01\x01"}}},
		{"bound to no name", plainSOCKS, "a.test", []turn{{noneOffered, noneChosen}, {requestA, "\x05\x00\x00\x03\x00\x01\x01"}}},
		{"bound to the longest name", plainSOCKS, "a.test", []turn{{noneOffered, noneChosen}, {requestA, "\x05\x00\x00\x03\xff" + long + "\x01\x01"}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if conn, _, err := openScripted(t, test.url, test.host, test.turns...); err != nil {
				t.Error(err)
			} else if _, same := conn.(*preceded); same {
				t.Error("the connection is wrapped")
			}
		})
	}
}

func TestSOCKSFaults(t *testing.T) {
	const (
		auth    = classify.FaultEgressAuth
		denied  = classify.FaultEgressDenied
		failed  = classify.FaultEgressFailed
		timeout = classify.FaultEgressTimeout
	)
	const broke = "closed the connection before its answer was complete"
	greeted := turn{userOffered, userChosen}
	said := func(answer string) []turn { return []turn{greeted, {loginSent, loginTaken}, {requestA, answer}} }
	tests := []struct {
		name   string
		url    string
		turns  []turn
		fault  classify.Fault
		detail string // end of the error
	}{
		{"no method with user", userSOCKS, []turn{{userOffered, "\x05\xff"}}, auth, "takes no user and password"},
		{"no method without user", plainSOCKS, []turn{{noneOffered, "\x05\xff"}}, auth, "wants a user and password"},
		{"none chosen for a user", userSOCKS, []turn{{userOffered, "\x05\x00"}}, failed, "method 0, which was not offered"},
		{"user chosen for none", plainSOCKS, []turn{{noneOffered, "\x05\x02"}}, failed, "method 2, which was not offered"},
		{"SOCKS4", plainSOCKS, []turn{{noneOffered, "\x00\x5b"}}, failed, "did not answer in SOCKS5"},
		{"HTTP", plainSOCKS, []turn{{noneOffered, "HTTP/1.1 400 Bad\r\n\r\n"}}, failed, "did not answer in SOCKS5"},
		{"silence", plainSOCKS, []turn{{noneOffered, ""}}, failed, broke},
		{"half a method", plainSOCKS, []turn{{noneOffered, "\x05"}}, failed, broke},
		{"wrong password", userSOCKS, []turn{greeted, {loginSent, "\x01\x01"}}, auth, "does not take our user and password"},
		{"login of another version", userSOCKS, []turn{greeted, {loginSent, "\x05\x00"}}, failed, "did not answer in SOCKS5"},
		{"silence after the login", userSOCKS, []turn{greeted, {loginSent, ""}}, failed, broke},
		{"1", userSOCKS, said("\x05\x01"), failed, "egress r (10.0.0.1:1080): a.test:443: the egress proxy answered: general failure"},
		{"2", userSOCKS, said("\x05\x02"), denied, "not allowed by its rules"},
		{"3", userSOCKS, said("\x05\x03"), failed, "network unreachable"},
		{"4", userSOCKS, said("\x05\x04"), failed, "host unreachable"},
		{"5", userSOCKS, said("\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00"), failed, "connection refused"},
		{"6", userSOCKS, said("\x05\x06"), timeout, "TTL expired"},
		{"7", userSOCKS, said("\x05\x07"), failed, "command not supported"},
		{"8", userSOCKS, said("\x05\x08"), failed, "address type not supported"},
		{"unknown", userSOCKS, said("\x05\x09"), failed, "unknown SOCKS5 code 9"},
		{"reply of another version", userSOCKS, said("\x04\x00"), failed, "did not answer in SOCKS5"},
		{"unknown address", userSOCKS, said("\x05\x00\x00\x02"), failed, "did not answer in SOCKS5"},
		{"half a reply", userSOCKS, said("\x05\x00\x00\x01\x00"), failed, broke},
		{"half a name", userSOCKS, said("\x05\x00\x00\x03"), failed, broke},
		{"no reply", userSOCKS, said(""), failed, broke},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, fault, err := openScripted(t, test.url, "a.test", test.turns...)
			if err == nil || fault != test.fault || !strings.HasSuffix(err.Error(), test.detail) {
				t.Errorf("Open = %v, %v, want %v, %q", fault, err, test.fault, test.detail)
			}
		})
	}
}

// TestHostsThatCannotBeSent fail before a byte is written.
func TestHostsThatCannotBeSent(t *testing.T) {
	for _, url := range []string{plainProxy, plainSOCKS} {
		for _, host := range []string{"", strings.Repeat("x", 256), "a b", "a\r\nX: y", "a:1", "[::1]", "a/b", "u@a", "fe80::1%eth0", "店.test"} {
			near, far := net.Pipe()
			far.Close()
			_, fault, err := exitTo(t, url).Open(t.Context(), near, host, 443)
			if fault != classify.FaultEgressFailed || err == nil || !strings.Contains(err.Error(), "no name") {
				t.Errorf("Open(%q) = %v, %v", host, fault, err)
			}
		}
	}
}

// FuzzReadReply: a reply is read to its last byte and no further, however it
// comes.
func FuzzReadReply(f *testing.F) {
	for _, s := range []string{openedReply, "\x05\x00\x00\x03\x02ab\x01\x01more", "\x05\x02", "\x05\x00\x00\x04", "x"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		err := readReply(r)
		slow := bytes.NewReader(b)
		if err2 := readReply(iotest.OneByteReader(slow)); (err == nil) != (err2 == nil) || r.Len() != slow.Len() {
			t.Fatalf("%q: %v with %d left at once, %v with %d left by bytes", b, err, r.Len(), err2, slow.Len())
		}
		if err != nil {
			return
		}
		size := map[byte]int{1: 10, 4: 22}[b[3]]
		if b[3] == 3 {
			size = 7 + int(b[4])
		}
		if used := len(b) - r.Len(); b[0] != 5 || b[1] != 0 || used != size {
			t.Errorf("%q: %d bytes used, want %d", b, used, size)
		}
	})
}

// FuzzGreet: whatever a proxy answers, the password is in no error.
func FuzzGreet(f *testing.F) {
	for _, s := range []string{"\x05\x02\x01\x00" + openedReply, "\x05\x02\x01\x01", "\x05\xff", "\x05\x02" + secret} {
		f.Add([]byte(s))
	}
	p := proxies(f, userSOCKS)[0]
	f.Fuzz(func(t *testing.T, b []byte) {
		var sent bytes.Buffer
		err := askSOCKS5(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(b), &sent}, &p, destination{host: "a.test", port: 443})
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", b, err)
		}
		if err == nil && sent.String() != userOffered+loginSent+requestA {
			t.Errorf("%q: sent %q", b, sent.String())
		}
	})
}
