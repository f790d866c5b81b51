//go:build unix

package upstream

import (
	"io"
	"net"
	"os"
	"syscall"
)

// socket is the descriptor below a TCP connection: it can be looked at without
// waiting, and be waited on without holding a buffer.
type socket struct {
	raw   syscall.RawConn
	read  func(fd uintptr) bool // made once, so that no call allocates
	peek  func(fd uintptr)
	into  *buffer // destination of read
	n     int
	err   error
	probe [1]byte
}

// socketOf returns nil when nc has no descriptor.
func socketOf(nc net.Conn) *socket {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	s := &socket{raw: raw}
	s.read, s.peek = s.tryRead, s.tryPeek
	return s
}

// silent says whether the peer has neither sent anything nor closed.
func (s *socket) silent() bool {
	if err := s.raw.Control(s.peek); err != nil {
		return false
	}
	return s.err == syscall.EAGAIN
}

func (s *socket) tryPeek(fd uintptr) {
	for {
		if s.n, _, s.err = syscall.Recvfrom(int(fd), s.probe[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT); s.err != syscall.EINTR {
			return
		}
	}
}

// fill waits for bytes and only then takes the buffer they go into, so that a
// slow answer costs no memory.
func (s *socket) fill(b *buffer) error {
	s.into = b
	err := s.raw.Read(s.read)
	s.into = nil
	switch {
	case err != nil:
		return err
	case s.err != nil:
		return os.NewSyscallError("read", s.err)
	case s.n == 0:
		return io.EOF
	}
	b.w += s.n
	return nil
}

// tryRead is called by the poller; false: wait until there is something.
func (s *socket) tryRead(fd uintptr) bool {
	s.into.take()
	for {
		if s.n, s.err = syscall.Read(int(fd), s.into.space()); s.err != syscall.EINTR {
			break
		}
	}
	if s.err == syscall.EAGAIN || s.n <= 0 {
		s.n = 0
		s.into.give()
	}
	return s.err != syscall.EAGAIN
}
