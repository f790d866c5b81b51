//go:build !unix

package upstream

import "net"

// socket does not exist here: conn.listen tells what an idle connection has
// said, and unsafe attempts always get a fresh one.
type socket struct{}

func socketOf(net.Conn) *socket { return nil }

func (*socket) silent() bool { return false }

func (*socket) fill(*buffer) error { return net.ErrClosed }
