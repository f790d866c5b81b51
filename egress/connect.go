package egress

import (
	"encoding/base64"
	"io"
	"strings"

	"retryproxy/classify"
)

// askHTTP sends a CONNECT (RFC 9110 section 9.3.6), reads the final answer and
// returns what came behind it.
func askHTTP(conn io.ReadWriter, p *Proxy, d destination) (early []byte, err error) {
	if _, err := io.WriteString(conn, connectRequest(p, d)); err != nil {
		return nil, err
	}
	a, early, err := readAnswer(conn)
	if err != nil {
		return nil, err
	}
	if err := a.refusal(p); err != nil {
		return nil, err
	}
	return early, nil
}

// connectRequest has no fields but those that it needs.
func connectRequest(p *Proxy, d destination) string {
	authority := d.authority()
	head := "CONNECT " + authority + " HTTP/1.1\r\nHost: " + authority + "\r\n"
	if p.User != "" {
		head += "Proxy-Authorization: Basic " + basic(p) + "\r\n"
	}
	return head + "\r\n"
}

// basic are the credentials of RFC 7617.
func basic(p *Proxy) string {
	return base64.StdEncoding.EncodeToString([]byte(p.User + ":" + p.Password))
}

// refusal is what the answer means when the way is not open: nil, it is. The
// framing fields of a 2xx say nothing (RFC 9110 section 9.3.6), so no field is
// looked at.
func (a answer) refusal(p *Proxy) error {
	fault := classify.FaultEgressFailed
	switch {
	case a.status >= 200 && a.status <= 299:
		return nil
	case a.status == 401 || a.status == 407:
		fault = classify.FaultEgressAuth
	case a.status == 403 || a.status == 451:
		fault = classify.FaultEgressDenied
	case a.status == 504:
		fault = classify.FaultEgressTimeout
	}
	if reason := a.shownReason(p); reason != "" {
		return refuse(fault, "the egress proxy answered %d %s", a.status, reason)
	}
	return refuse(fault, "the egress proxy answered %d", a.status)
}

const longestReason = 64

// shownReason is the reason phrase, short and printable; empty when it repeats
// our credentials.
func (a answer) shownReason(p *Proxy) string {
	for _, secret := range []string{p.User, p.Password, basic(p)} {
		if secret != "" && strings.Contains(a.reason, secret) {
			return ""
		}
	}
	printable := func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}
	return strings.TrimSpace(strings.Map(printable, a.reason[:min(len(a.reason), longestReason)]))
}
