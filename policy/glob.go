package policy

import (
	"strings"

	"retryproxy/internal/glob"
)

// Hosts is a compiled list of host patterns, as in upgrade_to_https or
// destinations.deny. A pattern is a name, or a name and a port; * stands for any
// run of characters, case does not count. The zero value matches nothing.
type Hosts struct{ patterns []hostPattern }

// hostPattern is one pattern; one without a port is for every port.
type hostPattern struct {
	text string // lower case
	port bool
}

// NewHosts compiles patterns.
func NewHosts(patterns []string) Hosts {
	var h Hosts
	for _, p := range patterns {
		p = strings.ToLower(p)
		name, port := splitPort(p)
		if port == "" {
			p = bare(name)
		}
		h.patterns = append(h.patterns, hostPattern{p, port != ""})
	}
	return h
}

// Match says whether host, with or without a port, is one of the patterns.
func (h Hosts) Match(host string) bool {
	if len(h.patterns) == 0 {
		return false
	}
	name, _ := splitPort(host)
	name = bare(name)
	for i := range h.patterns {
		text := name
		if h.patterns[i].port {
			text = host
		}
		if glob.Match(h.patterns[i].text, text, true) {
			return true
		}
	}
	return false
}

// splitPort cuts the port off "name:port" or "[address]:port"; the port is
// empty when there is none, as in a bare IPv6 address.
func splitPort(host string) (name, port string) {
	i := strings.LastIndexByte(host, ':')
	if i < 0 {
		return host, ""
	}
	name, port = host[:i], host[i+1:]
	if strings.IndexByte(name, ':') >= 0 && !strings.HasSuffix(name, "]") {
		return host, ""
	}
	return name, port
}

// bare takes the brackets off an address and the final dot off a name.
func bare(name string) string {
	if len(name) > 1 && name[0] == '[' && name[len(name)-1] == ']' {
		return name[1 : len(name)-1]
	}
	return strings.TrimSuffix(name, ".")
}
