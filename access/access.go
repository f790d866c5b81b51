// Package access answers one question: may this client, may this destination?
//
// Clients are judged by address, credentials and the names they call us by,
// destinations by the address that is dialled.
package access

import (
	"errors"
	"fmt"
)

// What can be wrong; each is wrapped with the address or name and the setting.
var (
	ErrAuth        = errors.New("proxy credentials are missing or wrong") // 407, reverse 401
	ErrClient      = errors.New("client denied")                          // 403
	ErrDestination = errors.New("destination denied")                     // 403
	ErrLoop        = errors.New("destination is this proxy itself")       // 508
	ErrBadTarget   = errors.New("bad request")                            // 400
	ErrListen      = errors.New("refusing to start")
)

// ErrBadLabel is for a label that is too long or not visible. It is an
// ErrBadTarget too: both are answered with 400.
var ErrBadLabel = fmt.Errorf("%w: bad label", ErrBadTarget)
