package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"retryproxy/config"
	"retryproxy/doctor"
)

// Doctor finds out why calls fail or are not retried, and prints the lines that
// mend it.
func Doctor(args []string, env Env) int {
	f := newFlags("doctor", env)
	r := f.remote()
	f.Lookup("config").Usage = "the configuration `file` that serve reads; without it that of the running proxy, else the built-in one"
	data := f.String("data", "", "the `directory` that serve keeps its data in")
	raw := f.Bool("json", false, "print JSON")
	offline := f.Bool("offline", false, "do not ask upstreams")
	if _, code, ok := f.parse(args, 0, 0); !ok {
		return code
	}
	ctx := context.Background()
	w, end, err := env.world(ctx, r, *data)
	if err != nil {
		return env.failed(err)
	}
	defer end()
	if *offline {
		w.Send = nil
	}
	list := doctor.Examine(doctor.Collect(ctx, w))
	if err := printed(env.Stdout, list, *raw); err != nil {
		return env.failed(err)
	}
	if doctor.Worst(list) == doctor.Problem {
		return Failure
	}
	return OK
}

// printed writes the findings, for people or as JSON.
func printed(w io.Writer, list []doctor.Finding, raw bool) error {
	if !raw {
		return doctor.Print(w, list, runtime.GOOS)
	}
	text, err := doctor.JSON(list)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// world gathers what doctor looks at. An error is of the command line.
func (e Env) world(ctx context.Context, r remote, data string) (doctor.World, func(), error) {
	conf, faults, err := e.examined(*r.config)
	if err != nil {
		return doctor.World{}, nil, err
	}
	asked, err := e.adminOf(r, conf)
	if err != nil {
		return doctor.World{}, nil, err
	}
	other := false
	if (*r.config == "" || len(faults) > 0) && asked != nil {
		conf, other = e.runningConfig(ctx, asked, conf)
	}
	w, end := doctor.World{}, func() {}
	if e.Doctor != nil {
		if w, end, err = e.Doctor(conf); err != nil {
			faults, end = append(faults, err.Error()), func() {}
		}
	}
	if e.Check != nil && len(faults) == 0 {
		faults = faultLines(e.Check(conf))
	}
	w.Getenv, w.Config, w.File, w.Faults, w.Unexamined, w.Version = e.Getenv, conf, *r.config, faults, other, VersionName(e.Version)
	w.Output, w.Has = output, hasProgram
	if e.CA != nil && len(conf.Intercept.Hosts) > 0 {
		if files, err := e.CA(*r.config, data); err == nil {
			w.CA = files
		}
	}
	w.Proxy, w.Names = proxyAddress(conf.Listen.Proxy, asked)
	if asked != nil {
		w.Admin, w.Ask = strings.TrimPrefix(asked.base, "http://"), asked.ask
	}
	return w, end, nil
}

// examined reads the configuration. With faults it is the built-in one.
func (e Env) examined(file string) (c *config.Config, faults []string, err error) {
	if file != "" {
		if _, err = os.Stat(file); err != nil {
			return nil, nil, &usageError{err}
		}
		if c, err = e.load(file); err == nil {
			return c, nil, nil
		}
		faults = faultLines(err)
	}
	c, err = e.load("")
	return c, faults, err
}

// faultLines are the faults of a configuration, one a line.
func faultLines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(err.Error()), "\n")
}

// adminOf finds the admin listener; nil: there is none.
func (e Env) adminOf(r remote, c *config.Config) (*client, error) {
	addr, token := *r.admin, e.Getenv("RETRYPROXY_TOKEN")
	if addr == "" {
		addr = e.Getenv("RETRYPROXY_ADMIN")
	}
	if addr == "" {
		addr = c.Listen.Admin
	}
	if token == "" {
		token = string(c.Admin.Token)
	}
	if addr == "" {
		return nil, nil
	}
	return newClient(addr, token)
}

// runningConfig is the configuration that the running proxy tells. Secrets are
// hidden in it, so it may not be complete; other says that it could not be read.
func (e Env) runningConfig(ctx context.Context, c *client, builtin *config.Config) (conf *config.Config, other bool) {
	status, text, err := c.ask(ctx, "/api/v1/config?format=yaml")
	if err != nil || status != http.StatusOK || string(text) == string(builtin.Marshal()) {
		return builtin, false
	}
	if conf, err = config.Parse("running configuration", text, config.Options{Getenv: e.Getenv}); err != nil {
		return builtin, true
	}
	return conf, false
}

// ask gets a path; the error is for a listener that does not answer.
func (c *client) ask(ctx context.Context, path string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return 0, nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, bareError(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(res.Body, 64<<20))
	return res.StatusCode, body, err
}

// bareError leaves out the URL that was asked for.
func bareError(err error) error {
	if u, ok := err.(*url.Error); ok { //nolint:errorlint // http.Client returns exactly this
		return u.Err
	}
	return err
}

// proxyAddress is where to call the proxy. One that listens on all addresses is
// called on the machine of its admin listener, which then is one of its names.
func proxyAddress(listen string, admin *client) (addr string, names []string) {
	host, port, err := net.SplitHostPort(dialable(listen))
	if err != nil || admin == nil {
		return dialable(listen), nil
	}
	u, err := url.Parse(admin.base)
	if err != nil {
		return dialable(listen), nil
	}
	if bound, _, _ := net.SplitHostPort(listen); bound != host {
		host = u.Hostname()
	}
	if name, err := os.Hostname(); err == nil {
		names = append(names, strings.ToLower(name))
	}
	return net.JoinHostPort(host, port), append(names, strings.ToLower(u.Hostname()))
}

func hasProgram(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}

// output runs a program.
func output(ctx context.Context, name string, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return string(text), nil
}
