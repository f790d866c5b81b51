package upstream

import (
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"retryproxy/classify"
)

// detail is what people get to read of an error of the connection to at.
func detail(at string, err error) string { return describe(at, at, err) }

// describe puts err into words; subject introduces one that has no words here.
func describe(at, subject string, err error) string {
	switch {
	case timedOut(err):
		return "no answer from " + at + " in time"
	case cancelled(err):
		return "given up before " + at + " answered"
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return at + " closed the connection"
	case errors.Is(err, syscall.ECONNREFUSED):
		return at + " refused the connection"
	case errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNABORTED):
		return "connection to " + at + " was reset"
	}
	return subject + ": " + plain(err)
}

// detail says why there is no connection.
func (o opened) detail() string {
	at := o.remote.String()
	switch {
	case o.told:
		return o.err.Error()
	case o.stands && o.phase == classify.PhaseTLS:
		at = o.name + " through " + o.exit.Name()
		return describe(at, "TLS with "+at, o.err)
	case o.stands:
		return detail(o.name+" through "+o.exit.Name(), o.err)
	case o.exit != nil:
		return "egress " + o.exit.Name() + ": " + o.cause(at)
	}
	return o.cause(at)
}

func (o opened) cause(at string) string {
	switch {
	case o.fault == classify.FaultDenied || o.fault == classify.FaultLoop:
		return o.err.Error()
	case !o.remote.IsValid():
		return unresolved(o.name, o.err)
	case o.phase == classify.PhaseTLS:
		return describe(at, "TLS with "+o.name+" ("+at+")", o.err)
	}
	return detail(at, o.err)
}

// unresolved says why name has no address.
func unresolved(name string, err error) string {
	dns, ok := errors.AsType[*net.DNSError](err)
	switch {
	case ok && dns.IsNotFound:
		return "no such host: " + name
	case timedOut(err):
		return "no address of " + name + " in time"
	case cancelled(err):
		return "given up before " + name + " was resolved"
	case ok:
		return "no address of " + name + ": " + dns.Err
	}
	return "no address of " + name + ": " + plain(err)
}

// plain is the cause in an error, without the call and the package it came from.
func plain(err error) string {
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the certificate is for another name"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the certificate is signed by an unknown authority"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if call, ok := errors.AsType[*os.SyscallError](err); ok {
		err = call.Err
	}
	text := err.Error()
	for _, prefix := range []string{"net/http: ", "http: ", "http2: ", "tls: ", "failed to verify certificate: ", "x509: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

// contentDetail says why the content of the request could not be read, which is
// not the upstream's doing.
func contentDetail(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the request is shorter than it says"
	}
	return "the request cannot be read: " + plain(err)
}

// worded is an error of reading an answer, in the words of detail.
type worded struct {
	error
	text string
}

func (w worded) Error() string { return w.text }
func (w worded) Unwrap() error { return w.error }

// detail says what became of a stream without an answer.
func (st *stream) detail(fault classify.Fault, err error) string {
	at := st.s.at()
	switch fault {
	case classify.FaultBody:
		return contentDetail(err)
	case classify.FaultBadTarget:
		return "the request cannot be sent: " + plain(err)
	case classify.FaultRefusedStream:
		return at + " refused the stream"
	case classify.FaultGoaway:
		return at + " ended the session before the request"
	case classify.FaultMalformed:
		return at + ": the answer is not valid HTTP"
	case classify.FaultReset:
		return "connection to " + at + " was reset"
	}
	return detail(at, err)
}
