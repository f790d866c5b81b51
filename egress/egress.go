// Package egress answers one question: by which address does this call leave?
//
// A rule pins a shop, a task type or a host to one egress proxy, or to one of a
// pool by a stable hash. An Exit is such a proxy under one user name, and knows
// how to ask it for a connection.
package egress

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

// Errors of this package; they are wrapped with the setting they are about.
var (
	// ErrDenied: the call may not leave. Either egress_default is deny and no rule
	// is meant for it, or its rule's user name or password needs a label that it
	// does not have.
	ErrDenied = errors.New("egress: denied")
	// ErrConfig: the rules make no sense.
	ErrConfig = errors.New("egress: bad rule")
)

// Values of Rule.OnFailure.
const (
	Stay = "stay"
	Next = "next"
)

// Config is what a Table is made of.
type Config struct {
	Rules []Rule            // the first that matches holds
	Shops map[string]string // shop to the name of its rule; beats what the rules match
	Deny  bool              // egress_default: a call that no rule is meant for may not leave
}

// Rule sends calls to an egress proxy, to one of a pool, or explicitly to none.
type Rule struct {
	Name    string
	Match   Match   // the zero Match is for no call: the rule holds for Shops only
	Proxies []Proxy // one, or a pool in which each shop has its own
	// OnFailure says whether a shop whose proxy of the pool fails stays with it
	// (Stay, also when empty) or moves on to another one (Next).
	OnFailure string
	Direct    bool // no egress proxy; Proxies is empty then
}

// Match says which calls a rule is for: patterns with *, one of each list that
// is given must match. A host pattern may have a port.
type Match struct{ Shop, TaskType, Host []string }

func (m Match) zero() bool { return len(m.Shop) == 0 && len(m.TaskType) == 0 && len(m.Host) == 0 }

// Proxy is where an egress proxy listens and how we name ourselves there.
type Proxy struct {
	Scheme string // http, https, socks5 (names are looked up here) or socks5h (there)
	Host   string // lower-case name or address, no brackets
	Port   uint16
	// User and Password may hold {shop} and {task_type}.
	User, Password string
}

// String is the URL without user and password.
func (p Proxy) String() string { return p.Scheme + "://" + p.addr() }

// addr is host:port, an IPv6 address in brackets.
func (p Proxy) addr() string { return net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port))) }

func (p Proxy) socks() bool { return p.Scheme == schemeSOCKS5 || p.Scheme == schemeSOCKS5H }

// Schemes of an egress proxy.
const (
	schemeHTTP    = "http"
	schemeHTTPS   = "https"
	schemeSOCKS5  = "socks5"
	schemeSOCKS5H = "socks5h"
)

// Way is how a call leaves.
type Way struct {
	Rule string // the rule that says so; empty: none, by egress_default
	// Exits are the egress proxies in the order in which this shop may use them:
	// all of a pool with Next, else only one. None: the call leaves directly. The
	// slice is shared and must not be changed.
	Exits []*Exit
}

func badRule(name, format string, args ...any) error {
	return fmt.Errorf("%w: egress rule %q: %s", ErrConfig, name, fmt.Sprintf(format, args...))
}
