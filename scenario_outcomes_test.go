package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"retryproxy/internal/memnet"
)

// firstly gives the first caller a and all later ones b.
func firstly[T any](a, b T) func() T {
	first := true
	return func() T {
		if first {
			first = false
			return a
		}
		return b
	}
}

// fails is an upstream whose first attempt fails and whose others succeed.
type fails func(r *rig) *scripted

// first is an upstream whose first request is answered by s.
func first(s step) fails {
	return func(r *rig) *scripted { return r.upstream("u1.test:80", s, answer(200, "ok")) }
}

// status is an upstream that first answers with a status.
func status(code int, headers ...string) fails { return first(answer(code, "first", headers...)) }

// says is an upstream that first answers with a status and a text.
func says(code int, text string) fails { return first(answer(code, text)) }

// unresolved is an upstream whose name is not found at the first times.
func unresolved(errs ...net.DNSError) fails {
	return func(r *rig) *scripted {
		left := errs
		r.lookup = func() error {
			if len(left) == 0 {
				return nil
			}
			err := left[0]
			left = left[1:]
			return &err
		}
		return r.upstream("u1.test:80", answer(200, "ok"))
	}
}

// failingWrite is a connection that breaks before the first byte is written.
type failingWrite struct{ net.Conn }

func (failingWrite) Write([]byte) (int, error) {
	return 0, os.NewSyscallError("write", syscall.ECONNRESET)
}

// firstDial replaces what the first dial gives.
func firstDial(f func(net.Conn) (net.Conn, error)) fails {
	return func(r *rig) *scripted {
		same := func(c net.Conn) (net.Conn, error) { return c, nil }
		next := firstly(f, same)
		r.dialled = func(c net.Conn) (net.Conn, error) { return next()(c) }
		return r.upstream("u1.test:80", answer(200, "ok"))
	}
}

// noAnswer lets dials hang at first.
func noAnswer(r *rig) *scripted {
	u := r.upstream("u1.test:80", answer(200, "ok"))
	at := u.l.Addr().String()
	r.net.Silence(at, true)
	time.AfterFunc(500*time.Millisecond, func() { r.net.Silence(at, false) })
	return u
}

const (
	sentOn = "Proxy-Status: cdn; error=http_response_timeout"
	envoy  = "upstream connect error or disconnect/reset before headers. reset reason: "
	early  = "Early-Data: 1"
)

// TestOutcomes walks through the table of outcomes end to end: what a failed
// first attempt means for a GET and for a keyless POST, and what becomes of the
// call.
func TestOutcomes(t *testing.T) {
	const (
		same      = "same"
		transient = "transient"
		unknown   = "unknown"
		permanent = "permanent"
	)
	for _, tt := range []struct {
		name         string
		upstream     fails
		reason       string
		safe, unsafe string
		header       string // of the client
	}{
		{"DNS fails", unresolved(net.DNSError{Err: "server misbehaving", IsTemporary: true}), "dns_failed", transient, same, ""},
		{"no such host, once", unresolved(net.DNSError{Err: "no such host", IsNotFound: true}), "dns_no_such_host", transient, same, ""},
		{"connection refused", func(r *rig) *scripted {
			u := r.closed("u1.test:80", answer(200, "ok"))
			u.openAfter(50 * time.Millisecond)
			return u
		}, "connect_refused", transient, same, ""},
		{"connect times out", noAnswer, "connect_timeout", transient, same, ""},
		{"write fails before the first byte", firstDial(func(c net.Conn) (net.Conn, error) { return failingWrite{c}, nil }), "reset_before_send", transient, same, ""},
		{"out of descriptors", firstDial(func(c net.Conn) (net.Conn, error) {
			c.Close()
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}
		}), "local_resource", transient, same, ""},

		{"408", status(408), "status_408", transient, same, ""},
		{"425", status(425), "status_425", transient, same, ""},
		{"429", status(429), "status_429", transient, same, ""},
		{"503", status(503), "status_503", transient, same, ""},
		{"408 that was sent on", status(408, sentOn), "status_408", transient, unknown, ""},
		{"503 that was sent on", status(503, sentOn), "status_503", transient, unknown, ""},
		{"503 of Envoy after sending", says(503, envoy+"connection termination"), "status_503", transient, unknown, ""},
		{"503 of Envoy before sending", says(503, envoy+"connection failure"), "status_503", transient, same, ""},
		{"429 that was sent on", status(429, sentOn), "status_429", transient, same, ""},

		{"500", status(500), "status_500", transient, unknown, ""},
		{"502", status(502), "status_502", transient, unknown, ""},
		{"504", status(504), "status_504", transient, unknown, ""},
		{"520", status(520), "status_520", transient, unknown, ""},
		{"reset after sending", first(reset), "reset_after_send", transient, unknown, ""},
		{"closed after sending", first(hangUp), "eof_after_send", transient, unknown, ""},
		{"closed within the header", first(raw("HTTP/1.1 200 OK\r\nContent-")), "eof_after_send", transient, unknown, ""},
		{"no answer in time", first(silent), "header_timeout", transient, unknown, ""},
		{"answer cut off", first(raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{")), "truncated", transient, unknown, ""},

		{"junk", first(raw("SSH-2.0-x\r\n")), "malformed", unknown, same, ""},
		{"two lengths", first(raw("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")), "malformed", unknown, same, ""},
		{"header over the limit", first(raw("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 300<<10) + "\r\n\r\n")), "malformed", unknown, same, ""},
		{"101 unasked", first(raw("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")), "malformed", unknown, same, ""},

		{"400", status(400), "status_400", permanent, same, ""},
		{"401", status(401), "status_401", permanent, same, ""},
		{"403", status(403), "status_403", permanent, same, ""},
		{"404", status(404), "status_404", permanent, same, ""},
		{"409", status(409), "status_409", permanent, same, ""},
		{"422", status(422), "status_422", permanent, same, ""},
		{"501", status(501), "status_501", permanent, same, ""},
		{"505", status(505), "status_505", permanent, same, ""},
		{"508", status(508), "status_508", permanent, same, ""},
		{"511", status(511), "status_511", permanent, same, ""},
		{"425 for early data of the client", status(425), "status_425", permanent, same, early},
	} {
		if tt.unsafe == same {
			tt.unsafe = tt.safe
		}
		for method, class := range map[string]string{"GET": tt.safe, "POST": tt.unsafe} {
			t.Run(tt.name+"/"+method, func(t *testing.T) {
				bubble(t, func(r *rig) {
					u := tt.upstream(r)
					var headers []string
					if tt.header != "" {
						headers = append(headers, tt.header)
					}
					got := r.do(method, "http://u1.test/x", map[string]string{"POST": "{}"}[method], headers...)
					r.wantVerdict(1, class, tt.reason)
					r.wantOutcome(class, got, u)
				})
			})
		}
	}
}

// wantOutcome checks what becomes of a call whose first attempt had a class.
func (r *rig) wantOutcome(class string, got reply, u *scripted) {
	r.t.Helper()
	switch class {
	case "transient":
		r.wantEnd("recovered", "ok", 2)
		r.wantBody(got, "ok")
		r.wantHeader(got, "X-Retry-Count", "1")
		r.wantHeader(got, "X-Retry-Reason", "")
	case "permanent":
		r.wantEnd("failed", "fail_permanent", 1)
		r.wantBody(got, "first")
		r.wantHeader(got, "X-Retry-Reason", "fail_permanent")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "X-Retry-Advice", "stop")
	default:
		r.wantEnd("failed", "manual_review", 1)
		r.wantHeader(got, "X-Retry-Reason", "manual_review")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.wantHeader(got, "X-Retry-Advice", "check")
		r.wantHeader(got, "Retry-After", "")
	}
	if class != "transient" && u.count() != 1 {
		r.t.Errorf("requests at the upstream = %d, want 1", u.count())
	}
}

func TestNoSuchHostTwice(t *testing.T) {
	bubble(t, func(r *rig) {
		missing := net.DNSError{Err: "no such host", IsNotFound: true}
		unresolved(missing, missing, missing)(r)
		got := r.get("http://u1.test/x")
		r.want(got, 502, nil, 0)
		r.wantEnd("failed", "fail_permanent", 2)
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "X-Retry-Advice", "stop")
		r.wantHeader(got, "Proxy-Status", `retryproxy; error=dns_error; details="fail_permanent"`)
	})
}

func TestConnectTimeoutInTheEnd(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		r.net.Silence(u.l.Addr().String(), true)
		got := r.post("http://u1.test/x", "{}")
		r.want(got, 504, u, 0)
		r.wantHeader(got, "X-Retry-Reason", "attempts_exhausted")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "X-Retry-Advice", "repeat")
		r.wantHeader(got, "Content-Type", "application/problem+json")
		r.between("time to the answer", got.Took, 4700*time.Millisecond, 4700*time.Millisecond)
	}, plain...)
}

func TestTLSHandshakeFails(t *testing.T) {
	ca := newCA(t)
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstreamTLS("u1.test:443", ca.certificate("u1.test"), answer(200, "ok"))
				speak := u.wrap
				broken := func(c net.Conn) net.Conn {
					io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
					c.(*memnet.Conn).CloseWrite()
					return c
				}
				next := firstly(broken, speak)
				u.wrap = func(c net.Conn) net.Conn { return next()(c) }
				got := r.do(method, "https://u1.test/x", map[string]string{"POST": "{}"}[method])
				r.want(got, 200, u, 1)
				r.wantVerdict(1, "transient", "tls_handshake")
				r.wantOutcome("transient", got, u)
			}, trusting(ca)...)
		})
	}
}

func TestCertificateNotValid(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	for _, tt := range []struct {
		name, host string
		issuer     *authority
	}{
		{"unknown issuer", "u1.test", other}, {"another name", "u2.test", ca},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstreamTLS("u1.test:443", tt.issuer.certificate(tt.host), answer(200, "ok"))
				got := r.post("https://u1.test/x", "{}", "X-Idempotency-Key: k")
				r.want(got, 502, u, 0)
				r.wantVerdict(1, "permanent", "tls_verify")
				r.wantEnd("failed", "fail_permanent", 1)
				if n := u.connections(); n != 1 {
					t.Errorf("handshakes = %d, want 1", n)
				}
			}, trusting(ca)...)
		})
	}
}

// A destination that may not be reached is refused for good; the name that hides
// it is judged by its address.
func TestForbiddenDestination(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		got := r.get("http://u1.test/x")
		r.want(got, 403, u, 0)
		r.wantHeader(got, "X-Retry-Reason", "destination_denied")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "X-Retry-Advice", "stop")
		if len(r.last().Attempts) > 1 {
			t.Errorf("attempts = %d, want no repeat", len(r.last().Attempts))
		}
	}, "connect_ports: [", "deny: [127.0.1.0/24], connect_ports: [")
}

func TestSuccessesPass(t *testing.T) {
	for _, code := range []int{200, 201, 202, 206, 301, 302, 307} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", answer(code, "first", "Location: /y"))
				got := r.post("http://u1.test/x", "{}")
				r.want(got, code, u, 1)
				r.wantBody(got, "first")
				r.wantHeader(got, "Location", "/y")
				r.wantHeader(got, "X-Retry-Reason", "")
				r.wantEnd("success", "ok", 1)
			})
		})
	}
}

func TestWhatMakesARepeatSafe(t *testing.T) {
	const key = "X-Idempotency-Key: k"
	for _, tt := range []struct {
		name, rule, method string
		keyed              bool
		class, basis       string
	}{
		{"auto, GET", "safe: auto", "GET", false, "transient", "method"},
		{"auto, PUT", "safe: auto", "PUT", false, "transient", "method"},
		{"auto, DELETE", "safe: auto", "DELETE", false, "transient", "method"},
		{"auto, PATCH", "safe: auto", "PATCH", false, "unknown", ""},
		{"auto, keyed POST", "safe: auto", "POST", true, "transient", "key"},
		{"always", "safe: always", "POST", false, "transient", "rule"},
		{"never, GET", "safe: never", "GET", false, "unknown", ""},
		{"never, keyed POST", "safe: never", "POST", true, "unknown", ""},
		{"key, GET", "safe: key", "GET", false, "unknown", ""},
		{"key, keyed POST", "safe: key", "POST", true, "transient", "key"},
		{"method, keyed POST", "safe: method", "POST", true, "unknown", ""},
		{"method, GET", "safe: method", "GET", false, "transient", "method"},
		{"safe_methods", "safe_methods: [POST]", "POST", false, "transient", "method"},
		{"safe_methods leaves GET out", "safe_methods: [POST]", "GET", false, "unknown", ""},
		{"on_unknown: retry", "on_unknown: retry", "POST", false, "transient", "rule"},
		{"the key does not go upstream", "forward_headers: [retry_count]", "POST", true, "unknown", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", answer(500, "first"), answer(200, "ok"))
				headers := map[bool][]string{true: {key}}[tt.keyed]
				got := r.do(tt.method, "http://u1.test/x", "", headers...)
				r.wantVerdict(1, tt.class, "status_500")
				if b := r.last().Attempts[0].Verdict.Basis; string(b) != tt.basis {
					t.Errorf("basis = %q, want %q", b, tt.basis)
				}
				r.wantOutcome(tt.class, got, u)
			}, with(tt.rule)...)
		})
	}
}

// What the operator says about statuses is what counts.
func TestStatusLists(t *testing.T) {
	for _, tt := range []struct {
		rule         string
		code         int
		method       string
		class, basis string
	}{
		{"retry_statuses: [409, 5xx]", 409, "GET", "transient", "method"},
		{"retry_statuses: [409, 5xx]", 429, "GET", "permanent", ""},
		{"permanent_statuses: [500]", 500, "GET", "permanent", ""},
		{"permanent_statuses: [500]", 501, "GET", "transient", "method"},
		{"not_now_statuses: [429, 502]", 502, "POST", "transient", "refused"},
		{"not_now_statuses: [429]", 503, "POST", "unknown", ""},
	} {
		t.Run(fmt.Sprintf("%s, %d", tt.rule, tt.code), func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.upstream("u1.test:80", answer(tt.code, "first"), answer(200, "ok"))
				r.do(tt.method, "http://u1.test/x", "")
				r.wantVerdict(1, tt.class, fmt.Sprintf("status_%d", tt.code))
				if b := r.last().Attempts[0].Verdict.Basis; string(b) != tt.basis {
					t.Errorf("basis = %q, want %q", b, tt.basis)
				}
			}, with(tt.rule)...)
		})
	}
}
