package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"retryproxy/config"
)

// askFor is how long a running proxy may take to answer.
const askFor = 10 * time.Second

// What is wrapped where the proxy says 404 and 400.
var (
	errNotFound   = errors.New("not found")
	errBadRequest = errors.New("bad request")
)

// client asks the admin listener of a running proxy.
type client struct {
	base, token string
	http        http.Client
}

// remote are the flags of all commands about a running proxy.
type remote struct{ admin, config *string }

func (f flags) remote() remote {
	return remote{
		f.String("admin", "", "`address` of the admin listener; a port alone is one of this machine"),
		f.String("config", "", "configuration `file` that names the admin listener and its token"),
	}
}

// client finds the admin listener: by flag, environment, configuration.
func (r remote) client(env Env) (*client, error) {
	addr, token := *r.admin, env.Getenv("RETRYPROXY_TOKEN")
	if addr == "" {
		addr = env.Getenv("RETRYPROXY_ADMIN")
	}
	if addr == "" || *r.config != "" {
		c, err := env.load(*r.config)
		if err != nil {
			return nil, err
		}
		if addr == "" {
			addr = c.Listen.Admin
		}
		if token == "" {
			token = tokenOf(c)
		}
	}
	return newClient(addr, token)
}

// tokenOf is the token of the configuration that may do most; empty: there is none.
func tokenOf(c *config.Config) string {
	accounts := c.Admin.Accounts()
	for _, role := range []string{"admin", "operator", "viewer"} {
		for _, a := range accounts {
			if a.Role == role {
				return string(a.Token)
			}
		}
	}
	return ""
}

// newClient talks to host:port or http://host:port. The environment's proxy is
// not used: it may well be the one that is asked about.
func newClient(addr, token string) (*client, error) {
	if addr == "" {
		return nil, &usageError{errors.New("the configuration has no admin listener (listen.admin)")}
	}
	base := addr
	if !strings.Contains(base, "://") {
		base = "http://" + dialable(base)
	}
	base = strings.TrimSuffix(base, "/")
	if u, err := url.Parse(base); err != nil || u.Host == "" {
		return nil, &usageError{fmt.Errorf("%q is no address of an admin listener", addr)}
	}
	return &client{base, token, http.Client{Timeout: askFor, Transport: &http.Transport{DisableKeepAlives: true}}}, nil
}

// dialable turns an address to listen on into one to call: all addresses are
// 127.0.0.1, which [::] includes. A port alone is one of this machine.
func dialable(addr string) string {
	if _, err := strconv.ParseUint(addr, 10, 16); err == nil {
		addr = ":" + addr
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// do sends a request and gives the body of a 2xx; an error says what the proxy said.
func (c *client) do(method, path string, order any) ([]byte, error) {
	res, err := c.send(context.Background(), method, path, order)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	return io.ReadAll(io.LimitReader(res.Body, mostAnswer))
}

// mostAnswer bounds an answer that is kept in memory.
const mostAnswer = 64 << 20

// send sends a request and gives a 2xx, whose body is to be closed; an error says
// what the proxy said.
func (c *client) send(ctx context.Context, method, path string, order any) (*http.Response, error) {
	var body io.Reader
	if order != nil {
		text, err := json.Marshal(order)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.unanswered(err)
	}
	if res.StatusCode <= 299 {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, mostAnswer))
	if err == nil {
		err = refusedBy(c.base, res.StatusCode, text)
	}
	return nil, err
}

// page decodes a list, and says whether there is more.
func (c *client) page(path string, v any) (more bool, err error) {
	res, err := c.send(context.Background(), http.MethodGet, path, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = res.Body.Close() }()
	return res.Header.Get("Link") != "", json.NewDecoder(io.LimitReader(res.Body, mostAnswer)).Decode(v)
}

// refusedOnWindows is what Windows calls syscall.ECONNREFUSED.
const refusedOnWindows = syscall.Errno(10061)

// unanswered is the error where nobody answered. Mostly no proxy runs, and what
// the socket says is no help.
func (c *client) unanswered(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, refusedOnWindows) {
		return fmt.Errorf("no proxy answers at %s: is it running? another address goes with -admin", strings.TrimPrefix(c.base, "http://"))
	}
	return fmt.Errorf("no answer from the admin listener: %w", err)
}

// get decodes the answer to a GET into v.
func (c *client) get(path string, v any) error { return c.order(http.MethodGet, path, nil, v) }

// refusedBy is the error of an answer that is no 2xx.
func refusedBy(who string, status int, body []byte) error {
	var p struct {
		Detail string
		Errors []string
	}
	if json.Unmarshal(body, &p) != nil || p.Detail == "" {
		p.Detail, _, _ = strings.Cut(strings.TrimSpace(string(body)), "\n")
	}
	text := fmt.Sprintf("%s says %d: %s", who, status, strings.Join(append([]string{p.Detail}, p.Errors...), "\n"))
	switch status {
	case http.StatusNotFound:
		return fmt.Errorf("%w: %s", errNotFound, text)
	case http.StatusBadRequest:
		return fmt.Errorf("%w: %s", errBadRequest, text)
	}
	return errors.New(text)
}

// order sends an order and decodes the answer into v.
func (c *client) order(method, path string, order, v any) error {
	text, err := c.do(method, path, order)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// printRaw prints an answer as it came.
func (c *client) printRaw(out io.Writer, method, path string) error {
	text, err := c.do(method, path, nil)
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

// stream copies a long answer. It may take as long as something comes, and whoever
// reads it may take his time.
func (c *client) stream(path string, to io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	silence := time.AfterFunc(askFor, cancel)
	defer silence.Stop()
	long := *c
	long.http.Timeout = 0
	res, err := long.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	buf := make([]byte, 64<<10)
	for {
		silence.Reset(askFor)
		n, err := res.Body.Read(buf)
		silence.Stop()
		if _, err := to.Write(buf[:n]); err != nil {
			return err
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("the answer broke off, what came is not all: %w", err)
		}
	}
}
