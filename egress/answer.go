package egress

import (
	"bytes"
	"io"
	"strings"

	"retryproxy/classify"
)

// answer is the first line of a proxy's answer.
type answer struct {
	status int
	reason string // as it came
}

// interim answers are followed by another one. A 101 is not: nobody asked.
func (a answer) interim() bool { return a.status < 200 && a.status != 101 }

const (
	firstRead     = 1 << 10
	longestAnswer = 16 << 10 // all interim answers and the final header together
)

// readAnswer reads up to the end of the first header that is not interim, and
// returns the bytes behind it.
func readAnswer(r io.Reader) (a answer, early []byte, err error) {
	buf := make([]byte, 0, firstRead)
	for start := 0; ; {
		a, n, err := parseAnswer(buf[start:])
		switch start += n; {
		case err != nil:
			return answer{}, nil, err
		case n > 0 && !a.interim():
			return a, bytes.Clone(buf[start:]), nil
		case n > 0:
			continue
		case len(buf) == longestAnswer:
			return answer{}, nil, refuse(classify.FaultEgressFailed, "the header of the egress proxy's answer is over %d bytes", longestAnswer)
		case len(buf) == cap(buf):
			buf = append(make([]byte, 0, min(2*cap(buf), longestAnswer)), buf...)
		}
		n, err = r.Read(buf[len(buf):cap(buf)])
		if buf = buf[:len(buf)+n]; err != nil && n == 0 {
			return answer{}, nil, err
		}
	}
}

// parseAnswer reads one header from the start of b; n is its length, 0 while it
// is incomplete. Whatever cannot become a header fails at once.
func parseAnswer(b []byte) (a answer, n int, err error) {
	line, n, ok := cutLine(b)
	if !ok {
		return answer{}, 0, checkStart(b)
	}
	if a, ok = parseStatusLine(line); !ok {
		return answer{}, 0, errJunk()
	}
	for {
		line, size, ok := cutLine(b[n:])
		n += size
		switch {
		case !ok:
			return answer{}, 0, nil
		case len(line) == 0:
			return a, n, nil
		case !validField(line):
			return answer{}, 0, errJunk()
		}
	}
}

func errJunk() error {
	return refuse(classify.FaultEgressFailed, "the egress proxy did not answer in HTTP/1")
}

// cutLine is the first line of b without its end, which may be a bare LF (RFC
// 9112 section 2.2), and its whole length.
func cutLine(b []byte) (line []byte, size int, ok bool) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return nil, 0, false
	}
	return bytes.TrimSuffix(b[:i], []byte("\r")), i + 1, true
}

const versionStart = "HTTP/1."

// checkStart finds out early that b is no HTTP, so that nobody waits for the end
// of a line that never comes.
func checkStart(b []byte) error {
	if n := min(len(b), len(versionStart)); string(b[:n]) != versionStart[:n] {
		return errJunk()
	}
	return nil
}

// parseStatusLine reads "HTTP/1.1 200 Reason" (RFC 9112 section 4); the reason
// and the space before it may be missing.
func parseStatusLine(line []byte) (answer, bool) {
	rest, ok := strings.CutPrefix(string(line), versionStart)
	if !ok || len(rest) < len("1 200") || !digit(rest[0]) || rest[1] != ' ' || !validText(rest) {
		return answer{}, false
	}
	code, reason := rest[2:5], rest[5:]
	if code[0] < '1' || code[0] > '5' || !digit(code[1]) || !digit(code[2]) || reason != "" && reason[0] != ' ' {
		return answer{}, false
	}
	status := int(code[0]-'0')*100 + int(code[1]-'0')*10 + int(code[2]-'0')
	return answer{status, strings.TrimSpace(reason)}, true
}

// validField says whether line is "name: value"; a folded line is not.
func validField(line []byte) bool {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || len(name) == 0 {
		return false
	}
	for _, c := range name {
		if c <= ' ' || c > '~' || strings.IndexByte("\"(),/;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return validText(string(value))
}

// validText has no control characters but tabs.
func validText(text string) bool {
	for i := 0; i < len(text); i++ {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func digit(c byte) bool { return c >= '0' && c <= '9' }
