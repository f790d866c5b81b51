package intercept

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"time"
)

// Protocols inside a tunnel, as ALPN spells them.
const (
	h2     = "h2"
	http11 = "http/1.1"
)

// Hello is what the client asked for.
type Hello struct {
	ServerName string // its SNI; empty: none, as for addresses
	Protocol   string // h2 or http/1.1, which is also for those who name neither
}

// ErrRefused says that the client does not trust our certificate.
var ErrRefused = errors.New("the client refused our certificate")

// Handshake speaks TLS to a client as host, whatever name the client asks for:
// comparing is the caller's. ctx ends it by closing c; after any other error c
// is still the caller's to close. ErrRefused: the client does not trust us;
// ErrHost: no certificate can be for this host.
func (a *Authority) Handshake(ctx context.Context, c net.Conn, host string) (*tls.Conn, Hello, error) {
	l, err := a.leaf(host, time.Now())
	if err != nil {
		return nil, Hello{}, fmt.Errorf("intercept: certificate for %q: %w", host, err)
	}
	heard := &listener{Conn: c}
	conn := tls.Server(heard, l.config)
	err = conn.HandshakeContext(ctx)
	heard.done = true
	state := conn.ConnectionState()
	hello := Hello{state.ServerName, state.NegotiatedProtocol}
	if hello.Protocol == "" {
		hello.Protocol = http11
	}
	switch {
	case refusal(err), err != nil && heard.refusal():
		return nil, hello, fmt.Errorf("intercept: speak as %s: %w: %w", host, ErrRefused, err)
	case err != nil:
		return nil, hello, fmt.Errorf("intercept: speak as %s: %w", host, err)
	}
	return conn, hello, nil
}

// Refused says whether an error of Handshake, or of the first Read after it,
// means that the client does not trust our certificate. With TLS 1.3 a client
// may finish its side of the handshake first and refuse afterwards.
func Refused(err error) bool { return errors.Is(err, ErrRefused) || refusal(err) }

// newConfig is TLS as one host. A ticket is good for the Config that made it
// only, hence a session is never resumed as another host.
func newConfig(cert tls.Certificate) *tls.Config {
	config := &tls.Config{
		Certificates: []tls.Certificate{cert},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{h2, http11},
	}
	// By RFC 7301 a client that names only what we do not speak is turned away;
	// here it may be a program that never looks at the answer.
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if len(hello.SupportedProtos) == 0 || slices.ContainsFunc(hello.SupportedProtos, spoken) {
			return nil, nil
		}
		without := config.Clone()
		without.NextProtos = nil
		return without, nil
	}
	return config
}

func spoken(protocol string) bool { return protocol == h2 || protocol == http11 }

// refusal says whether err is an alert by which a client turns a certificate
// down. crypto/tls does not export its alerts: they are numbers of one byte
// inside a net.OpError.
func refusal(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" || op.Err == nil {
		return false
	}
	v := reflect.ValueOf(op.Err)
	if v.Kind() != reflect.Uint8 {
		return false
	}
	return turnsDown(uint8(v.Uint()))
}

// turnsDown says whether an alert is about the certificate (RFC 8446 section 6.2).
func turnsDown(alert uint8) bool {
	switch alert {
	case 42, // bad_certificate
		43, // unsupported_certificate
		44, // certificate_revoked
		45, // certificate_expired
		46, // certificate_unknown
		48, // unknown_ca
		49: // access_denied: a policy of the client's own
		return true
	}
	return false
}
