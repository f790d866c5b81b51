package signer

import (
	"fmt"
	"strings"
)

const secretPart = "{secret}"

// part is one piece of a fixed_concat.
type part struct {
	kind     string // literal, path, method, body, body.md5, timestamp, nonce, access_token, secret, cred, place
	arg      string // the literal text, a credential's name, a place
	optional bool   // a place that need not be there
}

// parsePart reads literal text, or a piece in braces: one of the words above,
// cred.NAME or a place. With a ? at its end it is empty where the request has none.
func parsePart(text string) (part, error) {
	inner, ok := strings.CutPrefix(text, "{")
	if !ok {
		return part{kind: "literal", arg: text}, nil
	}
	inner, ok = strings.CutSuffix(inner, "}")
	if !ok {
		return part{}, fmt.Errorf("want a closing brace in %q", text)
	}
	inner, optional := strings.CutSuffix(inner, "?")
	switch inner {
	case "path", "method", "body", "body.md5", "timestamp", "nonce", "access_token", "secret":
		return part{kind: inner, optional: optional}, nil
	}
	if name, ok := strings.CutPrefix(inner, "cred."); ok && name != "" {
		return part{kind: "cred", arg: name}, nil
	}
	if _, _, err := parsePlace(inner); err != nil {
		return part{}, fmt.Errorf("want path, method, body, body.md5, timestamp, nonce, access_token, secret, cred.NAME or a place in the braces of %q", text)
	}
	return part{kind: "place", arg: inner, optional: optional}, nil
}

// parsePlace splits the text of a place.
func parsePlace(text string) (kind, name string, err error) {
	kind, name, _ = strings.Cut(text, ":")
	switch kind {
	case "form", "query", "header":
		if name != "" {
			return kind, name, nil
		}
	case "json":
		path, ok := strings.CutPrefix(name, "$.")
		if ok && path != "" && !strings.ContainsAny(path, `[]*"`) && !strings.Contains("."+path+".", "..") {
			return kind, path, nil
		}
	}
	return "", "", fmt.Errorf("want form:name, query:name, header:name or json:$.member.member, not %q", text)
}
