package inbound

import (
	"net/http"
	"strconv"
	"strings"

	"retryproxy/message"
)

// fillCall reads a request that net/http found well framed. What a client of
// HTTP/1.1 may not say is refused here as well.
func fillCall(c *Call, r *http.Request) *Bad {
	q := &c.Request
	q.Method, q.Version, q.Authority = intern(r.Method), "2.0", r.Host
	if c.Tunnel != nil {
		q.Scheme = c.Tunnel.Scheme
	}
	if !all(q.Method, inToken) {
		return bad(400, "the method is malformed")
	}
	if q.Method == "CONNECT" {
		c.Form = Authority
		return bad(400, "CONNECT over HTTP/2 is not served")
	}
	t, fault := parseTarget(q.Method, r.RequestURI)
	switch {
	case fault != nil:
		return fault
	case t.form == Absolute:
		return bad(400, "the path is an absolute URI")
	}
	c.Form, q.Target = t.form, t.path
	f := framing{length: -1}
	if fault := f.fillFields(c, r); fault != nil {
		return fault
	}
	return f.settleH2(c, r)
}

// fillFields takes the fields; those that frame the message go into f instead.
func (f *framing) fillFields(c *Call, r *http.Request) *Bad {
	all := fieldsOf(r.Header)
	if len(all) > maxFields {
		return &Bad{431, "header_too_large", "more than " + strconv.Itoa(maxFields) + " header fields"}
	}
	kept := all[:0]
	for _, field := range all {
		own, fault := f.take(field)
		if fault != nil {
			return fault
		}
		if !own {
			kept = append(kept, field)
		}
	}
	if len(r.Trailer) > 0 { // net/http took the announcement away
		names := fieldNames(r.Trailer)
		kept = append(kept, message.Field{Name: "Trailer", Value: strings.Join(names, ", ")})
	}
	c.Request.Fields = kept
	return nil
}

// settleH2 decides host and length once all fields are known.
func (f *framing) settleH2(c *Call, r *http.Request) *Bad {
	switch {
	case f.hosts > 1 || f.hosts == 1 && !strings.EqualFold(f.host, r.Host):
		return bad(400, "Host differs from :authority")
	case !validAuthority(r.Host, false):
		return bad(400, "the authority is missing or malformed")
	case f.codings > 0:
		return bad(400, "Transfer-Encoding in HTTP/2")
	case r.ContentLength == 0 && f.length > 0: // the stream ended with its header
		return bad(400, "Content-Length without content")
	}
	c.Length = r.ContentLength
	return nil
}
