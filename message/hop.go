package message

import "strings"

// IsHopByHop says whether a field is for the next hop alone, whether or not
// Connection lists it (RFC 9110 section 7.6.1). Trailer is not: it announces
// fields that pass.
func IsHopByHop(name string) bool {
	switch len(name) {
	case len("TE"):
		return equalFold(name, "TE")
	case len("Upgrade"):
		return equalFold(name, "Upgrade")
	case len("Connection"):
		return equalFold(name, "Connection") || equalFold(name, "Keep-Alive")
	case len("Proxy-Connection"):
		return equalFold(name, "Proxy-Connection")
	case len("Transfer-Encoding"):
		return equalFold(name, "Transfer-Encoding")
	case len("Proxy-Authenticate"):
		return equalFold(name, "Proxy-Authenticate")
	case len("Proxy-Authorization"):
		return equalFold(name, "Proxy-Authorization")
	case len("Proxy-Authentication-Info"):
		return equalFold(name, "Proxy-Authentication-Info")
	}
	return false
}

// HopByHop removes, in place, the hop-by-hop fields and those that Connection
// lists. Fields named in keep stay, whoever lists them.
func HopByHop(f Fields, keep ...string) Fields {
	var room [4]string
	listed := connectionOptions(f, room[:0])
	out := f[:0]
	for i := range f {
		name := f[i].Name
		if named(keep, name) || !IsHopByHop(name) && !named(listed, name) {
			out = append(out, f[i])
		}
	}
	clear(f[len(out):]) // what was removed may hold credentials
	return out
}

// connectionOptions appends what Connection lists to names.
func connectionOptions(f Fields, names []string) []string {
	for i := range f {
		if !equalFold(f[i].Name, "Connection") {
			continue
		}
		for part := range strings.SplitSeq(f[i].Value, ",") {
			names = append(names, strings.Trim(part, " \t"))
		}
	}
	return names
}

func named(names []string, name string) bool {
	for _, n := range names {
		if equalFold(n, name) {
			return true
		}
	}
	return false
}
