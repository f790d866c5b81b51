package egress

import "strconv"

// identity is what makes an exit another one.
type identity struct {
	rule  string
	proxy Proxy // user and password as they are sent
	// shop and taskType are shown; empty when the user name does not hold them.
	shop, taskType string
	// place is where the proxy stands in its pool, from 1, when others there have
	// the same address.
	place int
}

// Exit is an egress proxy under one user name. There is one value for each, so
// that connections can be kept apart by it.
type Exit struct {
	identity identity
	name, id string
}

func newExit(i identity) *Exit {
	e := &Exit{identity: i, id: i.rule + "/" + i.proxy.addr()}
	e.name = i.rule + " (" + i.proxy.addr()
	if i.place > 0 {
		e.name += ", member " + strconv.Itoa(i.place)
		e.id += "#" + strconv.Itoa(i.place)
	}
	if i.shop != "" {
		e.name += ", shop " + i.shop
	}
	if i.taskType != "" {
		e.name += ", task type " + i.taskType
	}
	e.name += ")"
	return e
}

// Name is for details and logs: the rule, the address and the labels that the
// user name holds, as in "proxy-a (10.0.0.1:1080, shop s17)". It has neither
// user nor password: a user name may be that of an account.
func (e *Exit) Name() string { return e.name }

// String is Name, so that no way of printing an Exit shows a password.
func (e *Exit) String() string { return e.name }

// GoString is Name, too.
func (e *Exit) GoString() string { return e.name }

// ID is the same for all users of a proxy in a rule, as in
// "proxy-a/10.0.0.1:1080", and there are as many as the configuration has.
func (e *Exit) ID() string { return e.id }

// Proxy is where the egress proxy listens. Scheme is http, https or socks5.
func (e *Exit) Proxy() (scheme, host string, port uint16) {
	p := &e.identity.proxy
	scheme = p.Scheme
	if p.socks() {
		scheme = schemeSOCKS5
	}
	return scheme, p.Host, p.Port
}

// Resolves says that the proxy looks names up itself; otherwise Open is to be
// given an address.
func (e *Exit) Resolves() bool { return e.identity.proxy.Scheme != schemeSOCKS5 }
