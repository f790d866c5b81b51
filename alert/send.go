package alert

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"retryproxy/backoff"
)

const (
	onceFor     = 10 * time.Second // one request, from the name to the end of the answer
	answerBytes = 4 << 10          // of an answer that are looked at
	busyFor     = time.Minute      // wait after too fast, where no time is named
)

// Target is where messages go.
type Target struct {
	Name   string
	URL    string
	Format string // json, wecom, dingtalk, feishu, slack
	Secret string // signs; empty: nothing is signed
}

// newClient never asks the environment for a proxy: it may be this very process.
// Redirects are answers, and connections are not kept, so no request is sent twice.
func newClient(dial func(ctx context.Context, network, addr string) (net.Conn, error), roots *x509.CertPool) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// outcome is what one request came to.
type outcome struct {
	status int // 0: no answer
	answer string
	err    error // nil: taken
	again  bool  // another try may succeed
	wait   time.Duration
}

// post sends one request and judges its answer. No error repeats the URL or the
// secret: whoever has them can write to the group.
func (t *Target) post(ctx context.Context, client *http.Client, e envelope) outcome {
	ctx, cancel := context.WithTimeout(ctx, onceFor)
	defer cancel()
	req, err := t.request(ctx, e)
	if err != nil {
		return outcome{err: t.hide(err)}
	}
	res, err := client.Do(req)
	if err != nil {
		return outcome{err: t.hide(err), again: true}
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, answerBytes))
	o := outcome{status: res.StatusCode, answer: t.redact(clean(string(body)))}
	if err != nil {
		o.err, o.again = t.hide(fmt.Errorf("the answer broke off: %w", err)), true
		return o
	}
	t.judge(&o, res.Header, body)
	return o
}

func (t *Target) request(ctx context.Context, e envelope) (*http.Request, error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, errors.New("the URL cannot be read")
	}
	q := u.Query()
	for key, values := range e.query {
		q[key] = values
	}
	if len(e.query) > 0 {
		u.RawQuery = q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(e.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("User-Agent", "retryproxy-alert")
	for name, value := range e.header {
		req.Header.Set(name, value)
	}
	return req, nil
}

// judge says whether the message was taken: the services say no inside a 200, too.
func (t *Target) judge(o *outcome, header http.Header, body []byte) {
	switch {
	case o.status >= 300 && o.status <= 399:
		o.err = fmt.Errorf("answered %d; redirects are not followed", o.status)
		return
	case o.status < 200 || o.status > 299:
		o.err = fmt.Errorf("answered %d: %s", o.status, o.answer)
		o.again = o.status >= 500 || o.status == 429 || o.status == 408 || o.status == 425
		o.wait, _ = backoff.RetryAfter(header.Get("Retry-After"), header.Get("Date"), time.Now())
		return
	}
	judge := formats[t.Format].judge
	if judge == nil {
		return
	}
	if o.err = judge(body); o.err == nil {
		return
	}
	if no, ok := errors.AsType[*answerError](o.err); ok {
		o.again = no.busy
	}
	if o.again {
		o.wait = busyFor
	}
	o.err = errors.New(t.redact(o.err.Error()))
}

// hide takes the URL out of an error of net/http.
func (t *Target) hide(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no answer in time")
	}
	return errors.New(t.redact(err.Error()))
}

// redact takes tokens out of a text, should a server repeat them.
func (t *Target) redact(text string) string {
	hidden := []string{t.Secret}
	if u, err := url.Parse(t.URL); err == nil {
		for _, values := range u.Query() {
			hidden = append(hidden, values...)
		}
		hidden = append(hidden, strings.Split(u.Path, "/")...)
		password, _ := u.User.Password()
		hidden = append(hidden, password)
	}
	for _, h := range hidden {
		if len(h) >= 8 { // shorter ones are words
			text = strings.ReplaceAll(text, h, "<secret>")
		}
	}
	return text
}
