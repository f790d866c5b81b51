package inbound

// Classes of bytes, one bit each, so that a check is one table look-up a byte.
const (
	inToken    = 1 << iota // tchar: methods and field names (RFC 9110 section 5.6.2)
	inValue                // field values: no controls but the tab
	inTarget               // request-targets: anything but controls, space, DEL and '#'
	inHost                 // names that a resolver can look up
	inUserinfo             // RFC 3986 section 3.2.1, '%' included
)

var classes = classify()

func classify() (t [256]uint8) {
	const alnum = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	mark := func(chars string, bits uint8) {
		for i := range len(chars) {
			t[chars[i]] |= bits
		}
	}
	mark(alnum, inToken|inHost|inUserinfo)
	mark("!#$%&'*+-.^_`|~", inToken)
	mark("-._~", inHost)
	mark("-._~!$&'()*+,;=:%", inUserinfo)
	mark("\t", inValue)
	for b := range 256 {
		if b >= ' ' && b != 0x7f {
			t[b] |= inValue
		}
		if b > ' ' && b != 0x7f && b != '#' {
			t[b] |= inTarget
		}
	}
	return t
}

// all says whether every byte of s is of the class.
func all(s string, class uint8) bool {
	for i := range len(s) {
		if classes[s[i]]&class == 0 {
			return false
		}
	}
	return true
}
