package cli

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"

	"retryproxy/config"
	"retryproxy/doctor"
	"retryproxy/intercept"
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
	x, err := e.examined(*r.config)
	if err != nil {
		return doctor.World{}, nil, err
	}
	asked, err := e.adminOf(r, x.conf)
	if err != nil {
		return doctor.World{}, nil, err
	}
	x.conf.KeepIn(data)
	kept := ""
	switch {
	case asked == nil:
	case *r.config == "" || len(x.faults) > 0:
		e.lookAtRunning(ctx, asked, x)
	case x.conf.Store.Kind == "memory":
		kept = e.keptBy(ctx, asked)
		x.conf.KeepIn(kept)
	}
	if x.running && len(x.unset) > 0 {
		x.faults = x.trueFaults()
	} else {
		x.unset = nil // serve would refuse the file, and the faults say why
	}
	w, end := doctor.World{}, func() {}
	if e.Doctor != nil {
		if w, end, err = e.Doctor(x.conf); err != nil {
			x.faults, end = append(x.faults, err.Error()), func() {}
		}
	}
	if e.Check != nil && len(x.faults) == 0 && !x.running {
		x.faults = faultLines(e.Check(x.conf))
	}
	w.Getenv, w.Config, w.File, w.Faults, w.Version = e.Getenv, x.conf, *r.config, x.faults, VersionName(e.Version)
	w.Unexamined, w.Told, w.Hidden, w.Unset = x.unexamined, x.running, hidden(x.conf), x.unset
	w.Kept = kept
	w.CA = e.authority(x.conf, *r.config, data)
	w.Proxy, w.Names = proxyAddress(x.conf.Listen.Proxy, asked)
	if asked != nil {
		w.Admin, w.Ask = strings.TrimPrefix(asked.base, "http://"), asked.ask
	}
	return w, end, nil
}

// authority says where our CA is kept.
func (e Env) authority(c *config.Config, file, data string) intercept.Files {
	switch {
	case len(c.Intercept.Hosts) == 0:
		return intercept.Files{}
	case c.Intercept.CACert != "":
		return intercept.Files{Cert: c.Intercept.CACert, Key: c.Intercept.CAKey}
	case e.CA == nil:
		return intercept.Files{}
	}
	files, err := e.CA(file, data)
	if err != nil { // as of a file with faults: its CA is where it always is
		files, _ = e.CA("", data)
	}
	return files
}

// examinee is the configuration that doctor examines.
type examinee struct {
	conf       *config.Config
	faults     []string // why serve would refuse the file; conf is another one then
	unset      []string // variables that the file names and this shell lacks
	filled     []string // the faults that are left with stand-ins for them
	running    bool     // conf is what the running proxy told
	unexamined bool     // it told one that could not be read
}

// examined reads the configuration. With faults it is the built-in one.
func (e Env) examined(file string) (*examinee, error) {
	x := &examinee{}
	var err error
	if file != "" {
		if _, err = os.Stat(file); err != nil {
			return nil, &usageError{err}
		}
		if x.conf, err = e.load(file); err == nil {
			return x, nil
		}
		x.faults = faultLines(err)
		if x.conf, x.unset, x.filled = e.filled(file); x.conf != nil {
			return x, nil
		}
	}
	x.conf, err = e.load("")
	return x, err
}

// filled reads a file with stand-ins for the variables that the environment
// lacks: these, and the faults that are left.
func (e Env) filled(file string) (c *config.Config, unset, faults []string) {
	asked := e
	asked.standIn = standIn
	asked.Getenv = func(name string) string {
		if value := e.Getenv(name); value != "" {
			return value
		}
		if !slices.Contains(unset, name) {
			unset = append(unset, name)
		}
		return standIn
	}
	c, err := asked.load(file)
	return c, unset, faultLines(err)
}

// trueFaults are those that do not come from variables which the environment
// lacks: they are told with stand-ins as well as without.
func (x *examinee) trueFaults() []string {
	return slices.DeleteFunc(slices.Clone(x.faults), func(fault string) bool { return !slices.Contains(x.filled, fault) })
}

// hidden are the egress rules with a stand-in for user or password.
func hidden(c *config.Config) []string {
	var out []string
	for i := range c.Egress {
		if slices.ContainsFunc(c.Egress[i].Endpoints(), func(p config.Endpoint) bool { return strings.Contains(p.User+p.Password, standIn) }) {
			out = append(out, c.Egress[i].Name)
		}
	}
	return out
}

// standIn takes the place of a value that is not known. It is a bcrypt hash, so
// that it may stand for one.
const standIn = "$2a$04$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy"

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
	if known := tokenOf(c); token == "" && known != standIn {
		token = known
	}
	if addr == "" {
		return nil, nil
	}
	return newClient(addr, token)
}

// lookAtRunning takes the configuration that the running proxy tells. Secrets are
// hidden in it; where they are needed to read it, something else stands for them.
func (e Env) lookAtRunning(ctx context.Context, c *client, x *examinee) {
	text, conf, err := e.told(ctx, c)
	switch {
	case text == nil:
	case string(text) == string(x.conf.Marshal()):
		x.running = true
	case err != nil:
		x.unexamined = true
	default:
		x.conf, x.running = conf, true
	}
}

// told is the configuration that the running proxy tells, as it tells it and read;
// nil: it tells none.
func (e Env) told(ctx context.Context, c *client) (text []byte, conf *config.Config, err error) {
	status, text, err := c.ask(ctx, "/api/v1/config?format=yaml")
	if err != nil || status != http.StatusOK {
		return nil, nil, err
	}
	filled := bytes.ReplaceAll(text, []byte(hiddenSecret), []byte(standIn))
	conf, err = config.Parse("running configuration", filled, config.Options{Getenv: e.Getenv, StandIn: standIn})
	return text, conf, err
}

// keptBy is the directory where the running proxy keeps calls; empty: in none. Where
// its file does not say so, it was started with -data.
func (e Env) keptBy(ctx context.Context, c *client) string {
	_, conf, err := e.told(ctx, c)
	if err != nil || conf == nil || conf.Store.Kind != "sqlite" {
		return ""
	}
	return conf.Store.Path
}

// hiddenSecret is what the configuration shows in the place of a secret.
const hiddenSecret = "<secret>"

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
