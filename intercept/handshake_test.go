package intercept

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// met is what became of a handshake on both sides.
type met struct {
	server *tls.Conn
	hello  Hello
	err    error // of Handshake
	client *tls.Conn
	refuse error // of the client
	wire   net.Conn
}

// meet lets a client with that configuration come to a tunnel to host.
func meet(t testing.TB, a *Authority, host string, config *tls.Config) met {
	t.Helper()
	far, near := pipe(t)
	m := met{client: tls.Client(far, config), wire: far}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if m.refuse = m.client.HandshakeContext(t.Context()); m.refuse != nil {
			far.Close()
		}
	}()
	m.server, m.hello, m.err = a.Handshake(t.Context(), near, host)
	if m.err != nil {
		near.Close()
	}
	<-done
	return m
}

// pipe is a connection over loopback: unlike net.Pipe it buffers, as alerts need.
func pipe(t testing.TB) (far, near net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if far, err = net.Dial("tcp", l.Addr().String()); err == nil {
		near, err = l.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close(); near.Close() })
	return far, near
}

func TestHandshake(t *testing.T) {
	a := open(t)
	roots := pool(t, a)
	tests := []struct {
		name   string
		host   string
		client *tls.Config
		want   Hello
		chosen string // ALPN as the client sees it
	}{
		{"h2 first", "a.test", &tls.Config{ServerName: "a.test", NextProtos: []string{"http/1.1", "h2"}}, Hello{"a.test", "h2"}, "h2"},
		{"http/1.1 only", "a.test", &tls.Config{ServerName: "a.test", NextProtos: []string{"http/1.1"}}, Hello{"a.test", "http/1.1"}, "http/1.1"},
		{"known among unknown", "a.test", &tls.Config{ServerName: "a.test", NextProtos: []string{"spdy/1", "http/1.1"}}, Hello{"a.test", "http/1.1"}, "http/1.1"},
		{"no ALPN", "a.test", &tls.Config{ServerName: "a.test"}, Hello{"a.test", "http/1.1"}, ""},
		{"unknown only", "a.test", &tls.Config{ServerName: "a.test", NextProtos: []string{"http/1.0", "imap"}}, Hello{"a.test", "http/1.1"}, ""},
		{"address", "127.0.0.1", &tls.Config{ServerName: "127.0.0.1", NextProtos: []string{"h2"}}, Hello{"", "h2"}, "h2"},
		{"IPv6 address", "2001:db8::1", &tls.Config{ServerName: "2001:db8::1"}, Hello{"", "http/1.1"}, ""},
	}
	for _, test := range tests {
		for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
			t.Run(test.name+", "+name, func(t *testing.T) {
				config := test.client.Clone()
				config.RootCAs, config.MaxVersion = roots, version
				m := meet(t, a, test.host, config)
				if m.err != nil || m.refuse != nil {
					t.Fatalf("Handshake = %v, client %v", m.err, m.refuse)
				}
				if m.hello != test.want {
					t.Errorf("Hello = %v, want %v", m.hello, test.want)
				}
				if state := m.client.ConnectionState(); state.NegotiatedProtocol != test.chosen || state.Version != version {
					t.Errorf("the client has %q by %x", state.NegotiatedProtocol, state.Version)
				}
			})
		}
	}
}

// The certificate is for the host of the tunnel, whatever the client asks for.
func TestHandshakeWithAnotherName(t *testing.T) {
	a := open(t)
	m := meet(t, a, "a.test", &tls.Config{ServerName: "b.test", InsecureSkipVerify: true})
	if m.err != nil || m.hello.ServerName != "b.test" {
		t.Fatalf("Handshake = %v %v, want the name b.test", m.hello, m.err)
	}
	if got := m.client.ConnectionState().PeerCertificates[0].DNSNames; len(got) != 1 || got[0] != "a.test" {
		t.Errorf("the certificate is for %v, want a.test", got)
	}
}

func TestHandshakeOldTLS(t *testing.T) {
	m := meet(t, open(t), "a.test", &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	if m.err == nil || Refused(m.err) {
		t.Errorf("Handshake by TLS 1.1 = %v, want an error that is no refusal", m.err)
	}
}

func TestHandshakeBadHost(t *testing.T) {
	if _, _, err := open(t).Handshake(t.Context(), nil, "*.test"); !errors.Is(err, ErrHost) {
		t.Errorf("Handshake = %v, want ErrHost", err)
	}
}

func TestHandshakeEndsWithContext(t *testing.T) {
	far, near := pipe(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = far.Write([]byte{0x16, 3, 1}) // the client begins, and stalls
		cancel()
	}()
	if _, _, err := open(t).Handshake(ctx, near, "a.test"); !errors.Is(err, context.Canceled) || Refused(err) {
		t.Errorf("Handshake = %v, want canceled", err)
	}
}

// Real clients that refuse, in both versions.
func TestRefused(t *testing.T) {
	a := open(t)
	trusting := pool(t, a)
	other := x509.NewCertPool()
	other.AddCert(open(t).root())
	tests := []struct {
		name   string
		client *tls.Config
		want   bool
	}{
		{"unknown authority", &tls.Config{ServerName: "a.test", RootCAs: other}, true},
		{"no authority at all", &tls.Config{ServerName: "a.test", RootCAs: x509.NewCertPool()}, true},
		{"clock far ahead", &tls.Config{ServerName: "a.test", RootCAs: trusting, Time: func() time.Time { return time.Now().Add(99 * 24 * time.Hour) }}, true},
		{"pinned", &tls.Config{ServerName: "a.test", RootCAs: trusting, VerifyConnection: func(tls.ConnectionState) error { return errors.New("another key") }}, true},
		{"clock behind", &tls.Config{ServerName: "a.test", RootCAs: trusting, Time: func() time.Time { return time.Now().Add(-47 * time.Hour) }}, false},
		{"trusting", &tls.Config{ServerName: "a.test", RootCAs: trusting}, false},
	}
	for _, test := range tests {
		for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
			t.Run(test.name+", "+name, func(t *testing.T) {
				config := test.client.Clone()
				config.MaxVersion = version
				m := meet(t, a, "a.test", config)
				if errors.Is(m.err, ErrRefused) != test.want || Refused(m.err) != test.want || (m.err != nil) != test.want {
					t.Errorf("Handshake = %v (the client: %v), want refused %v", m.err, m.refuse, test.want)
				}
			})
		}
	}
}

// With TLS 1.3 the alert may come when our side has finished: by the first Read.
func TestRefusedLate(t *testing.T) {
	tests := []struct {
		name  string
		alert byte
		want  bool
	}{
		{"bad_certificate", 42, true},
		{"unsupported_certificate", 43, true},
		{"certificate_revoked", 44, true},
		{"certificate_expired", 45, true},
		{"certificate_unknown", 46, true},
		{"illegal_parameter", 47, false},
		{"unknown_ca", 48, true},
		{"access_denied", 49, true},
		{"internal_error", 80, false},
		{"close_notify", 0, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var keys bytes.Buffer
			m := meet(t, open(t), "a.test", &tls.Config{InsecureSkipVerify: true, KeyLogWriter: &keys})
			if m.err != nil || m.refuse != nil {
				t.Fatalf("Handshake = %v, client %v", m.err, m.refuse)
			}
			if m.client.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
				t.Skip("this machine prefers another cipher")
			}
			if _, err := m.wire.Write(alertRecord(t, keys.String(), test.alert)); err != nil {
				t.Fatal(err)
			}
			_, err := m.server.Read(make([]byte, 1))
			if Refused(err) != test.want || err == nil {
				t.Errorf("Refused(%v) = %v, want %v", err, !test.want, test.want)
			}
		})
	}
	if Refused(nil) || Refused(io.EOF) || Refused(&net.OpError{Op: "remote error"}) || Refused(&net.OpError{Op: "read", Err: tls.AlertError(42)}) {
		t.Error("Refused is true without an alert of the client's")
	}
}

// OpenSSL's clients send this alert in plain text where TLS 1.3 wants it encrypted.
func TestRefusedInPlainText(t *testing.T) {
	tests := []struct {
		name   string
		pieces []string // of what the client sends when it has the certificate
		want   bool
	}{
		{"unknown_ca", []string{"\x15\x03\x03\x00\x02\x02\x30"}, true},
		{"after another record", []string{"\x14\x03\x03\x00\x01\x01\x15\x03\x03\x00\x02\x02\x2a"}, true},
		{"in pieces", []string{"\x14\x03\x03\x00\x01\x01\x15\x03", "\x03\x00", "\x02\x02", "\x2e"}, true},
		{"illegal_parameter", []string{"\x15\x03\x03\x00\x02\x02\x2f"}, false},
		{"nothing", nil, false},
		{"encrypted garbage", []string{"\x17\x03\x03\x00\x12\x02\x300123456789abcdef"}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			far, near := pipe(t)
			client := tls.Client(&mute{Conn: far, pieces: test.pieces}, &tls.Config{ServerName: "a.test", RootCAs: x509.NewCertPool()})
			go func() { _ = client.HandshakeContext(t.Context()) }()
			_, _, err := open(t).Handshake(t.Context(), near, "a.test")
			if err == nil || errors.Is(err, ErrRefused) != test.want {
				t.Errorf("Handshake = %v, want refused %v", err, test.want)
			}
		})
	}
}

// mute is a client that sends its hello, and then what the test says.
type mute struct {
	net.Conn
	pieces []string
	begun  bool
}

func (m *mute) Write(p []byte) (int, error) {
	if !m.begun {
		m.begun = true
		return m.Conn.Write(p)
	}
	for _, piece := range m.pieces {
		if _, err := m.Conn.Write([]byte(piece)); err != nil {
			return 0, err
		}
	}
	return len(p), m.Conn.Close()
}

// alertRecord is a fatal alert as the client would encrypt it in its first
// record after the handshake (RFC 8446 section 5.2).
func alertRecord(t *testing.T, keyLog string, alert byte) []byte {
	t.Helper()
	_, line, _ := strings.Cut(keyLog, "CLIENT_TRAFFIC_SECRET_0 ")
	line, _, _ = strings.Cut(line, "\n")
	_, text, _ := strings.Cut(line, " ")
	secret, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	expand := func(label string, n int) []byte {
		info := string([]byte{0, byte(n), byte(len("tls13 " + label))}) + "tls13 " + label + "\x00"
		out, err := hkdf.Expand(sha256.New, secret, info, n)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	block, err := aes.NewCipher(expand("key", 16))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	header := []byte{0x17, 3, 3, 0, byte(3 + aead.Overhead())}
	return aead.Seal(header, expand("iv", 12), []byte{2, alert, 0x15}, header)
}

// sessions gives every host the same ticket: a client that would resume across
// hosts if it were let.
type sessions struct{ last *tls.ClientSessionState }

func (s *sessions) Get(string) (*tls.ClientSessionState, bool)  { return s.last, s.last != nil }
func (s *sessions) Put(_ string, state *tls.ClientSessionState) { s.last = state }

func TestResumption(t *testing.T) {
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			a := open(t)
			// Verified by hand: crypto/tls clients drop a ticket that is for another name.
			config := &tls.Config{InsecureSkipVerify: true, ServerName: "a.test", MaxVersion: version, ClientSessionCache: &sessions{}}
			resumed := func(host string, protocols ...string) bool {
				config.NextProtos = protocols
				m := meet(t, a, host, config)
				if m.err != nil || m.refuse != nil {
					t.Fatalf("Handshake as %s = %v, client %v", host, m.err, m.refuse)
				}
				go func() { _, _ = m.server.Write([]byte("x")); m.server.Close() }()
				_, _ = io.ReadAll(m.client) // takes the ticket
				return m.server.ConnectionState().DidResume
			}
			if resumed("a.test") {
				t.Fatal("the first connection was resumed")
			}
			if !resumed("a.test") {
				t.Error("the same host was not resumed")
			}
			if !resumed("a.test", "imap") || !resumed("a.test") {
				t.Error("the same host was not resumed with an unknown protocol, or after it")
			}
			if resumed("b.test") {
				t.Error("a session of a.test was resumed as b.test")
			}
			if resumed("a.test") {
				t.Error("a session of b.test was resumed as a.test")
			}
		})
	}
}

func BenchmarkHandshake(b *testing.B) {
	a := open(b)
	config := &tls.Config{RootCAs: pool(b, a), ServerName: "a.test"}
	b.ReportAllocs()
	for b.Loop() {
		if m := meet(b, a, "a.test", config); m.err != nil {
			b.Fatal(m.err)
		}
	}
}
