package egress

import (
	"encoding/binary"
	"io"

	"retryproxy/classify"
)

// Numbers of SOCKS5 (RFC 1928) and of its user and password (RFC 1929).
const (
	socksVersion = 5
	authVersion  = 1

	methodNone     = 0
	methodPassword = 2
	methodRefused  = 0xff

	commandConnect = 1

	addressIPv4 = 1
	addressName = 3
	addressIPv6 = 4
)

// replies are the failures that a proxy can name (RFC 1928 section 6).
var replies = map[byte]struct {
	fault classify.Fault
	text  string
}{
	1: {classify.FaultEgressFailed, "general failure"},
	2: {classify.FaultEgressDenied, "not allowed by its rules"},
	3: {classify.FaultEgressFailed, "network unreachable"},
	4: {classify.FaultEgressFailed, "host unreachable"},
	5: {classify.FaultEgressFailed, "connection refused"},
	6: {classify.FaultEgressTimeout, "TTL expired"},
	7: {classify.FaultEgressFailed, "command not supported"},
	8: {classify.FaultEgressFailed, "address type not supported"},
}

// askSOCKS5 has the way opened. It reads not one byte more than the proxy's
// answers have.
func askSOCKS5(conn io.ReadWriter, p *Proxy, d destination) error {
	if err := greet(conn, p); err != nil {
		return err
	}
	if _, err := conn.Write(socksRequest(d)); err != nil {
		return err
	}
	return readReply(conn)
}

// greet offers just the method that is configured: a proxy that could do without
// the user name would send us out by no session, or by another one's.
func greet(conn io.ReadWriter, p *Proxy) error {
	method := byte(methodNone)
	if p.User != "" {
		method = methodPassword
	}
	if _, err := conn.Write([]byte{socksVersion, 1, method}); err != nil {
		return err
	}
	var chosen [2]byte
	if _, err := io.ReadFull(conn, chosen[:]); err != nil {
		return err
	}
	switch {
	case chosen[0] != socksVersion:
		return errVersion()
	case chosen[1] == methodRefused && method == methodNone:
		return refuse(classify.FaultEgressAuth, "the egress proxy wants a user and password")
	case chosen[1] == methodRefused:
		return refuse(classify.FaultEgressAuth, "the egress proxy takes no user and password")
	case chosen[1] != method:
		return refuse(classify.FaultEgressFailed, "the egress proxy chose SOCKS5 method %d, which was not offered", chosen[1])
	case method == methodPassword:
		return login(conn, p)
	}
	return nil
}

func errVersion() error {
	return refuse(classify.FaultEgressFailed, "the egress proxy did not answer in SOCKS5")
}

// login is the exchange of RFC 1929.
func login(conn io.ReadWriter, p *Proxy) error {
	b := make([]byte, 0, 3+len(p.User)+len(p.Password))
	b = append(b, authVersion, byte(len(p.User)))
	b = append(b, p.User...)
	b = append(b, byte(len(p.Password)))
	b = append(b, p.Password...)
	if _, err := conn.Write(b); err != nil {
		return err
	}
	var said [2]byte
	if _, err := io.ReadFull(conn, said[:]); err != nil {
		return err
	}
	switch {
	case said[0] != authVersion:
		return errVersion()
	case said[1] != 0:
		return refuse(classify.FaultEgressAuth, "the egress proxy does not take our user and password")
	}
	return nil
}

// socksRequest asks for a connection; the length of a name was checked.
func socksRequest(d destination) []byte {
	b := append(make([]byte, 0, 7+len(d.host)), socksVersion, commandConnect, 0)
	switch {
	case d.addr.Is4():
		b = append(append(b, addressIPv4), d.addr.AsSlice()...)
	case d.addr.Is6():
		b = append(append(b, addressIPv6), d.addr.AsSlice()...)
	default:
		b = append(append(b, addressName, byte(len(d.host))), d.host...)
	}
	return binary.BigEndian.AppendUint16(b, d.port)
}

// readReply reads the answer to a request. Of one that is a failure no more than
// its code is waited for.
func readReply(r io.Reader) error {
	var b [2 + longestName]byte
	if _, err := io.ReadFull(r, b[:2]); err != nil {
		return err
	}
	if b[0] != socksVersion {
		return errVersion()
	}
	if code := b[1]; code != 0 {
		known, ok := replies[code]
		if !ok {
			return refuse(classify.FaultEgressFailed, "the egress proxy answered with the unknown SOCKS5 code %d", code)
		}
		return refuse(known.fault, "the egress proxy answered: %s", known.text)
	}
	if _, err := io.ReadFull(r, b[:2]); err != nil {
		return err
	}
	size, err := boundSize(r, b[1])
	if err != nil {
		return err
	}
	_, err = io.ReadFull(r, b[:size+2])
	return err
}

// boundSize is the length of the address that a reply of this type holds.
func boundSize(r io.Reader, kind byte) (int, error) {
	switch kind {
	case addressIPv4:
		return 4, nil
	case addressIPv6:
		return 16, nil
	case addressName:
		var size [1]byte
		_, err := io.ReadFull(r, size[:])
		return int(size[0]), err
	}
	return 0, errVersion()
}
