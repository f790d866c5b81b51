package intercept

import "net"

// listener remembers the last bytes that a client sent during the handshake.
// OpenSSL (curl, Python) refuses a certificate of TLS 1.3 by an alert that is not
// encrypted; crypto/tls expects it to be, and makes a bad record of it.
type listener struct {
	net.Conn
	done bool // the handshake is over
	last [alertSize]byte
}

// alertSize is a record with a plain alert: type, version, length, level, alert.
const alertSize = 7

// Read reads, and listens until the handshake is done.
func (l *listener) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if l.done {
		return n, err
	}
	if n >= alertSize {
		copy(l.last[:], p[n-alertSize:n])
	} else {
		copy(l.last[:], l.last[n:])
		copy(l.last[alertSize-n:], p[:n])
	}
	return n, err
}

// NetConn is the connection underneath, so that it can be reset.
func (l *listener) NetConn() net.Conn { return l.Conn }

// refusal says whether the last that came was a plain alert about the
// certificate. An encrypted one is longer (TLS 1.2) or of another type (1.3).
func (l *listener) refusal() bool {
	return [3]byte(l.last[:3]) == [3]byte{0x15, 3, 3} && l.last[3] == 0 && l.last[4] == 2 && turnsDown(l.last[6])
}
