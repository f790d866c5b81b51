package classify

import (
	"bytes"
	"strings"
)

// inspectMost bounds how much of a body Suspect looks at.
const inspectMost = 64 << 10

// Suspect says whether the beginning of a 2xx body is a JSON object that by the
// common signs says failure: a top-level error_response, success: false, or an
// errcode, error_code or errorCode that is not zero, unless success: true stands
// beside it: TEMU answers success with errorCode 1000000. Only the top level
// counts. What is cut off, broken or no JSON is not suspect.
func Suspect(contentType string, head []byte) bool {
	head = head[:min(len(head), inspectMost)]
	s := scanner{rest: head, err: landmark{word: `"err`}, success: landmark{word: `"success"`}}
	return mayBeJSON(contentType) && s.findsSign()
}

// mayBeJSON takes text types as well: many platforms send JSON as text/html.
func mayBeJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.Trim(media, " \t"))
	return media == "" || media == "application/json" ||
		strings.HasSuffix(media, "+json") || strings.HasPrefix(media, "text/")
}

// scanner reads JSON tokens (RFC 8259) off the front of rest. Every method
// gives nil or false where the text ends too early or is no JSON.
type scanner struct {
	rest []byte
	// Every sign is a key that starts in one of these ways; without one of them
	// in the rest the walk ends, as it does at once for nearly all answers.
	err, success landmark
}

// findsSign walks the members of the top-level object.
func (s *scanner) findsSign() bool {
	s.rest = bytes.TrimPrefix(s.rest, []byte("\xef\xbb\xbf"))
	if !s.take('{') {
		return false
	}
	code, success := false, false
	for s.err.ahead(s.rest) || s.success.ahead(s.rest) {
		key, value := s.member()
		switch signOf(key, value) {
		case saysFailure:
			return true
		case saysCode:
			code = true
		case saysSuccess:
			success = true
		}
		if value == nil || !s.take(',') {
			break
		}
	}
	return code && !success
}

// member takes one member of an object; a nil value: there is none, or it may
// have been cut off.
func (s *scanner) member() (key, value []byte) {
	key = s.str()
	if key == nil || !s.take(':') {
		return nil, nil
	}
	if value = s.value(); value == nil || s.peek() == 0 {
		return nil, nil
	}
	return key, value
}

// landmark is the next place in the text where a word stands. It is searched for
// only when the walk has passed it, so that all searches together read the text once.
type landmark struct {
	word string
	left int  // bytes that follow its beginning
	gone bool // not found any more
}

// ahead says whether the word stands in rest, which is always shorter than the
// last time.
func (l *landmark) ahead(rest []byte) bool {
	if !l.gone && (l.left == 0 || l.left > len(rest)) {
		at := bytes.Index(rest, []byte(l.word))
		l.left, l.gone = len(rest)-at, at < 0
	}
	return !l.gone
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for i, c := range s.rest {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			s.rest = s.rest[i:]
			return c
		}
	}
	s.rest = nil
	return 0
}

// take skips white space and then c, if it is next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// cut takes the next n bytes off.
func (s *scanner) cut(n int) []byte {
	token := s.rest[:n]
	s.rest = s.rest[n:]
	return token
}

// value takes one value of any kind, with its quotes or brackets.
func (s *scanner) value() []byte {
	switch s.peek() {
	case '"':
		return s.str()
	case '{', '[':
		return s.nested()
	}
	for i, c := range s.rest {
		if strings.IndexByte(",}] \t\r\n", c) >= 0 {
			if i == 0 {
				return nil
			}
			return s.cut(i)
		}
	}
	return nil // cut off: 0 may have become 0.5
}

// str takes a string, quotes included; escapes are left as they are.
func (s *scanner) str() []byte {
	if s.peek() != '"' {
		return nil
	}
	end := stringEnd(s.rest, 0)
	if end >= len(s.rest) {
		return nil
	}
	return s.cut(end + 1)
}

// nested takes an object or an array whole, by counting brackets outside strings.
func (s *scanner) nested() []byte {
	depth := 0
	for i := 0; i < len(s.rest); i++ {
		switch s.rest[i] {
		case '"':
			i = stringEnd(s.rest, i)
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return s.cut(i + 1)
			}
		}
	}
	return nil
}

// stringEnd is where the string that starts at i ends, len(text) when it does not.
func stringEnd(text []byte, i int) int {
	for i++; i < len(text) && text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i
}

// sign is what one top-level member says of the outcome.
type sign uint8

const (
	saysNothing sign = iota
	saysFailure
	saysCode // a failure, where nothing says success
	saysSuccess
)

// signOf judges one top-level member.
func signOf(key, value []byte) sign {
	switch string(key) {
	case `"error_response"`:
		if !isEmpty(value) {
			return saysFailure
		}
	case `"success"`:
		switch string(value) {
		case "false", `"false"`:
			return saysFailure
		case "true", `"true"`:
			return saysSuccess
		}
	case `"errcode"`, `"error_code"`, `"errorCode"`:
		if isFailureCode(value) {
			return saysCode
		}
	}
	return saysNothing
}

// isEmpty says whether a value tells nothing: null, false, 0, "", {} or [].
func isEmpty(value []byte) bool {
	switch string(value) {
	case "null", "false", "0", `""`:
		return true
	}
	nested := value[0] == '{' || value[0] == '['
	return nested && len(bytes.TrimSpace(value[1:len(value)-1])) == 0
}

// isFailureCode says whether an error code is another than zero. Some platforms
// write zero as "00000", as "ok" or as "success".
func isFailureCode(value []byte) bool {
	if value[0] != '"' {
		return isNumber(value) && bytes.ContainsAny(mantissa(value), "123456789")
	}
	text := bytes.TrimSpace(value[1 : len(value)-1])
	good := bytes.EqualFold(text, []byte("ok")) || bytes.EqualFold(text, []byte("success"))
	return !good && len(bytes.Trim(text, "0")) > 0
}

// isNumber is good enough to tell numbers from literals and nested values.
func isNumber(value []byte) bool {
	return value[0] == '-' || value[0] >= '0' && value[0] <= '9'
}

// mantissa is a number without its exponent: 0e5 is zero.
func mantissa(number []byte) []byte {
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		return number[:i]
	}
	return number
}
