package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"syscall"

	"retryproxy/classify"
)

// Errors of Response.Body.Read, besides those of the network and of ctx.
var (
	ErrTruncated = errors.New("the answer ended before it was complete")
	ErrIdle      = errors.New("the answer stood still for too long")
	ErrMalformed = errors.New("the answer is not valid HTTP")
	ErrClosed    = errors.New("the body was closed")
)

var (
	// ErrLoop is what Guard wraps when the address is one that we listen on.
	ErrLoop = errors.New("loop")
	// ErrTarget is what Check wraps when nothing can be at a target.
	ErrTarget = errors.New("bad target")
)

// BodyFault is the fault behind an error of Response.Body.Read; FaultNone for
// nil and io.EOF.
func BodyFault(err error) classify.Fault {
	switch {
	case err == nil || err == io.EOF:
		return classify.FaultNone
	case errors.Is(err, ErrTruncated):
		return classify.FaultEOF
	case errors.Is(err, ErrIdle):
		return classify.FaultTimeout
	case errors.Is(err, ErrMalformed):
		return classify.FaultMalformed
	case cancelled(err) || errors.Is(err, ErrClosed):
		return classify.FaultCancelled
	}
	return classify.FaultReset
}

// readFault is the fault behind an error while an answer's header is read.
func readFault(err error) classify.Fault {
	switch {
	case timedOut(err):
		return classify.FaultTimeout
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return classify.FaultEOF
	}
	return BodyFault(err)
}

// writeFault is the fault behind a failed write.
func writeFault(err error) classify.Fault {
	switch {
	case timedOut(err):
		return classify.FaultTimeout
	case cancelled(err):
		return classify.FaultCancelled
	}
	return classify.FaultReset
}

// dialFault is the fault behind a failed connect.
func dialFault(err error) classify.Fault {
	switch {
	case outOfResources(err):
		return classify.FaultLocal
	case timedOut(err):
		return classify.FaultTimeout
	}
	return classify.FaultRefused
}

// deniedFault is the fault behind an error of Guard.
func deniedFault(err error) classify.Fault {
	if errors.Is(err, ErrLoop) {
		return classify.FaultLoop
	}
	return classify.FaultDenied
}

// lookupFault is the fault behind a failed name resolution.
func lookupFault(err error) classify.Fault {
	if outOfResources(err) {
		return classify.FaultLocal
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return classify.FaultNoSuchHost
	}
	return classify.FaultDNS
}

// tlsFault is the fault behind a failed handshake.
func tlsFault(err error) classify.Fault {
	if timedOut(err) {
		return classify.FaultTimeout
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return classify.FaultVerify
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return classify.FaultVerify
	}
	return classify.FaultTLS
}

// timedOut says whether a deadline of ours, or the kernel's, ran out.
func timedOut(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}

func cancelled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// outOfResources says whether this machine, not the host, is at its limit:
// descriptors, ports or memory.
func outOfResources(err error) bool {
	return slices.ContainsFunc([]error{
		syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM,
	}, func(kind error) bool { return errors.Is(err, kind) })
}
