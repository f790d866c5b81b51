package idempotency

import (
	"errors"
	"strings"
)

// maxKey is the longest key, in characters after unwrapping.
const maxKey = 255

// What is wrong with a key. The texts are for the client; none holds the key.
var (
	ErrKeyEmpty     = errors.New("the idempotency key is empty; it must have 1 to 255 visible ASCII characters")
	ErrKeyTooLong   = errors.New("the idempotency key is too long; it must have 1 to 255 visible ASCII characters")
	ErrKeyCharacter = errors.New("the idempotency key holds a character that is not visible ASCII (0x21 to 0x7E)")
	ErrKeyQuoting   = errors.New(`the idempotency key starts with a quote but is no quoted string (RFC 9651: only \" and \\ are escapes, nothing follows the closing quote)`)
	ErrKeysDiffer   = errors.New("the request carries two different idempotency keys")
)

// ParseKey reads the key from all lines of all its header names. A value may be
// bare or a quoted string of RFC 9651: "k1" and k1 are the same key. present is
// false when there is no line; equal values in several lines are one key.
func ParseKey(values []string) (key string, present bool, err error) {
	for _, v := range values {
		k, err := parseKey(v)
		switch {
		case err != nil:
			return "", true, err
		case present && k != key:
			return "", true, ErrKeysDiffer
		}
		key, present = k, true
	}
	return key, present, nil
}

func parseKey(v string) (string, error) {
	k := strings.Trim(v, " \t")
	if strings.HasPrefix(k, `"`) {
		var ok bool
		if k, ok = unquote(k[1:]); !ok {
			return "", ErrKeyQuoting
		}
	}
	switch {
	case strings.Trim(k, " \t") == "":
		return "", ErrKeyEmpty
	case len(k) > maxKey:
		return "", ErrKeyTooLong
	}
	for i := range len(k) {
		if k[i] <= ' ' || k[i] > '~' {
			return "", ErrKeyCharacter
		}
	}
	return k, nil
}

// unquote reads a quoted string after its opening quote, which must end at its
// closing one.
func unquote(s string) (string, bool) {
	if i := strings.IndexAny(s, `"\`); i < 0 || s[i] == '"' {
		return s[:max(i, 0)], i >= 0 && i == len(s)-1
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), i == len(s)-1
		case '\\':
			i++
			if i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", false
}
