package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"
)

// api asks the admin API in the name of a viewer.
type api struct {
	handler http.Handler
	viewer  *http.Request
}

// problem is an answer of the API that is no success.
type problem struct {
	Status int      `json:"status"`
	Reason string   `json:"reason"`
	Detail string   `json:"detail"`
	Errors []string `json:"errors"`
}

// Error is the detail, or else the reason.
func (p *problem) Error() string {
	if p.Detail == "" {
		return p.Reason
	}
	return p.Detail
}

// faultOf is an error as it is shown; nil: there is none.
func faultOf(err error) *problem {
	var p *problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		return p
	}
	return &problem{Status: http.StatusInternalServerError, Reason: "internal", Detail: err.Error()}
}

// isReason says whether an error is a problem of one of these reasons.
func isReason(err error, reasons ...string) bool {
	p := faultOf(err)
	for _, r := range reasons {
		if p != nil && p.Reason == r {
			return true
		}
	}
	return false
}

// get decodes what the API says about a path. Errors: *problem.
func (a *api) get(path string, to any) error {
	_, err := a.call(http.MethodGet, path, nil, to)
	return err
}

// send gives the API an order. Errors: *problem.
func (a *api) send(method, path string, body, to any) (http.Header, error) {
	text := []byte{}
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("encode an order: %w", err)
		}
	}
	return a.call(method, path, text, to)
}

// passed are the fields by which the API knows who asks, and from which site.
var passed = []string{"Cookie", "Authorization", "Origin", "Sec-Fetch-Site"}

// call hands a request to the API in this process.
func (a *api) call(method, path string, body []byte, to any) (http.Header, error) {
	// The way that the router took for the viewer is not that of this request.
	ctx := context.WithValue(a.viewer.Context(), chi.RouteCtxKey, nil)
	r, err := http.NewRequestWithContext(ctx, method, "http://admin"+path, bytes.NewReader(body))
	if err != nil {
		return nil, &problem{Status: http.StatusBadRequest, Reason: "bad_request", Detail: err.Error()}
	}
	r.Host, r.RemoteAddr, r.RequestURI = a.viewer.Host, a.viewer.RemoteAddr, path
	for _, name := range passed {
		if value := a.viewer.Header.Values(name); len(value) > 0 {
			r.Header[name] = value
		}
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	w := &answer{header: http.Header{}, status: http.StatusOK}
	a.handler.ServeHTTP(w, r)
	if w.status >= 400 {
		p := &problem{}
		if json.Unmarshal(w.body.Bytes(), p) != nil || p.Status == 0 {
			p = &problem{Status: w.status, Reason: "internal", Detail: w.body.String()}
		}
		return w.header, p
	}
	if to == nil {
		return w.header, nil
	}
	if err := json.Unmarshal(w.body.Bytes(), to); err != nil {
		return w.header, fmt.Errorf("what %s says: %w", path, err)
	}
	return w.header, nil
}

// answer holds what a handler writes.
type answer struct {
	header http.Header
	status int
	wrote  bool
	body   bytes.Buffer
}

// Header returns the fields, to be changed before the first write.
func (w *answer) Header() http.Header { return w.header }

// WriteHeader notes the status; only the first one counts.
func (w *answer) WriteHeader(status int) {
	if !w.wrote {
		w.status, w.wrote = status, true
	}
}

// Write takes a part of the body.
func (w *answer) Write(p []byte) (int, error) {
	w.wrote = true
	return w.body.Write(p)
}
