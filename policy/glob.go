package policy

import "strings"

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
		if glob(h.patterns[i].text, text, true) {
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

// glob matches text against a pattern in which * stands for any run of
// characters. With fold the pattern is lower case and the case of text does not
// count. It goes back to the last * only, so its cost is at most
// len(pattern)·len(text).
func glob(pattern, text string, fold bool) bool {
	p, star, mark := 0, -1, 0
	for t := 0; t < len(text); {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && same(pattern[p], text[t], fold):
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// same compares two bytes, with fold a lower-case one and one of any case.
func same(p, t byte, fold bool) bool {
	if fold && t >= 'A' && t <= 'Z' {
		t |= 0x20
	}
	return p == t
}
