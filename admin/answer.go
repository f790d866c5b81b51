package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// maxRequest bounds the body of an order.
const maxRequest = 1 << 20

// problem is an error document (RFC 9457).
type problem struct {
	Type   string   `json:"type"`
	Title  string   `json:"title"`
	Status int      `json:"status"`
	Reason string   `json:"reason"`
	Detail string   `json:"detail,omitempty"`
	Errors []string `json:"errors,omitempty"` // one for each fault of a configuration
}

// fail answers with an error document.
func fail(w http.ResponseWriter, status int, reason, detail string, faults ...string) {
	write(w, status, "application/problem+json", problem{
		"urn:retryproxy:" + reason, http.StatusText(status), status, reason, detail, faults,
	})
}

// show answers with a value as JSON.
func show(w http.ResponseWriter, v any) { write(w, http.StatusOK, "application/json", v) }

// write sends v. A client that left is no fault of ours, hence no error.
func write(w http.ResponseWriter, status int, kind string, v any) {
	body, err := encode(v, "  ")
	if err != nil {
		panic("bug: a read model that is no JSON: " + err.Error())
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// encode writes <secret> as it is: these answers are read by people, and no
// browser takes them for HTML.
func encode(v any, indent string) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return out.Bytes(), err
}

// text answers with a plain text.
func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, s)
	}
}

// read decodes the body of an order strictly; false: it was answered.
func read(w http.ResponseWriter, r *http.Request, v any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.More() {
		err = errors.New("more than one JSON value")
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", "the body: "+err.Error())
		return false
	}
	if s, ok := v.(interface{ As(name string) }); ok { // it is signed
		s.As(who(r).name)
	}
	return true
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	fail(w, http.StatusNotFound, "not_found", "/api lists what there is")
}

func wrongMethod(w http.ResponseWriter, _ *http.Request) {
	fail(w, http.StatusMethodNotAllowed, "wrong_method", "/api lists the methods")
}
