package inbound

import (
	"net/netip"
	"strconv"
	"strings"
)

// target is a parsed request-target (RFC 9112 section 3.2).
type target struct {
	form      Form
	scheme    string // of absolute-form
	authority string // of absolute-form and CONNECT, without userinfo
	path      string // path and query byte for byte, or "*"
}

// parseTarget reads the request-target of a method. Nothing of a refused
// target shows in the Bad: it may hold credentials.
func parseTarget(method, raw string) (target, *Bad) {
	switch {
	case raw == "" || !all(raw, inTarget):
		return target{}, bad(400, "the request-target is empty or holds a control character, a space or a fragment")
	case method == "CONNECT":
		if !validAuthority(raw, true) {
			return target{}, bad(400, "the target of CONNECT is not host:port")
		}
		return target{form: Authority, authority: raw}, nil
	case raw == "*":
		if method != "OPTIONS" {
			return target{}, bad(400, "the request-target * is for OPTIONS only")
		}
		return target{form: Asterisk, path: raw}, nil
	case raw[0] == '/':
		return target{form: Origin, path: raw}, nil
	}
	return parseAbsolute(method, raw)
}

func parseAbsolute(method, raw string) (target, *Bad) {
	scheme, rest, ok := strings.Cut(raw, "://")
	switch {
	case ok && strings.EqualFold(scheme, "http"):
		scheme = "http"
	case ok && strings.EqualFold(scheme, "https"):
		scheme = "https"
	default:
		return target{}, bad(400, "the request-target is neither a path nor an http or https URI")
	}
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	authority, ok = dropUserinfo(authority)
	if !ok || !validAuthority(authority, false) {
		return target{}, bad(400, "the authority in the request-target is malformed")
	}
	return target{Absolute, scheme, authority, fullPath(method, path)}, nil
}

// fullPath gives an empty path its place; OPTIONS without path and query means
// the server as a whole (RFC 9112 section 3.2.4).
func fullPath(method, path string) string {
	switch {
	case path == "" && method == "OPTIONS":
		return "*"
	case path == "":
		return "/"
	case path[0] == '?':
		return "/" + path
	}
	return path
}

// dropUserinfo cuts credentials off (RFC 9110 section 4.2.4); false: they are
// malformed, and guessing where the host begins would be dangerous.
func dropUserinfo(authority string) (string, bool) {
	i := strings.LastIndexByte(authority, '@')
	if i < 0 {
		return authority, true
	}
	return authority[i+1:], all(authority[:i], inUserinfo)
}

// validAuthority checks host or host:port; IPv6 stands in brackets, the port is 1..65535.
func validAuthority(s string, needPort bool) bool {
	host, port, hasPort := s, "", false
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		host, port, hasPort = s[:i], s[i+1:], true
	}
	if needPort && !hasPort || hasPort && !validPort(port) {
		return false
	}
	if host != "" && host[0] == '[' {
		return validLiteral(host)
	}
	return host != "" && all(host, inHost)
}

func validLiteral(host string) bool {
	if !strings.HasSuffix(host, "]") {
		return false
	}
	ip, err := netip.ParseAddr(host[1 : len(host)-1])
	return err == nil && ip.Is6() && ip.Zone() == ""
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && len(s) <= 5
}
