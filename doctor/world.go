package doctor

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"time"

	"retryproxy/config"
	"retryproxy/egress"
	"retryproxy/intercept"
	"retryproxy/upstream"
)

// World is what Collect looks at.
type World struct {
	Getenv func(string) string
	Machine

	Config     *config.Config
	File       string   // it came from; empty: not a file of this machine
	Faults     []string // why serve would refuse the file
	Told       bool     // Config is what the running proxy told
	Unset      []string // variables that File names and Getenv lacks, though the running proxy has them
	Hidden     []string // egress rules whose credentials are not known
	Kept       string   // where the running proxy keeps calls though File names no store; empty: nowhere
	Unexamined bool     // the running proxy has another configuration than Config
	Proxy      string   // where to call the proxy, host:port
	Names      []string // further names of the machine it runs on

	Egress egress.Config
	CA     intercept.Files // of our CA; empty: unknown
	Roots  *x509.CertPool  // that upstreams are verified by; nil: the system's
	// Send makes one request to an upstream; nil: upstreams are not asked.
	Send func(ctx context.Context, a *upstream.Attempt) upstream.Result

	Admin   string // address of the admin listener; empty: there is none
	Version string // of this command
	// Ask gets a path of the admin listener; nil: there is none. The error is for
	// a listener that does not answer.
	Ask func(ctx context.Context, path string) (status int, body []byte, err error)
}

// Collect looks at everything that there is to know. It ends within about half
// a minute.
func Collect(ctx context.Context, w World) *Facts {
	f := &Facts{Now: time.Now(), Offline: w.Send == nil, Shell: w.shell(ctx)}
	f.Setup = w.setup()
	f.Exits = w.exits()
	w.running(ctx, f)
	f.Trust = w.trust(f)
	f.Trust.Public = publicRoots()
	f.Shell.Bundles = w.bundles(f)
	f.Probes = w.probes(ctx, f)
	return f
}

// shell looks at the environment.
func (w *World) shell(ctx context.Context) Shell {
	s := Shell{OS: runtime.GOOS, Vars: map[string]string{}, Java: w.Has != nil && w.Has("java")}
	for _, name := range Vars {
		if value := w.Getenv(name); value != "" {
			s.Vars[name] = value
		}
	}
	if w.Output == nil {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if out, err := w.Output(ctx, "node", "--version"); err == nil {
		s.Node = strings.TrimSpace(out)
	}
	return s
}

// setup picks from the configuration what matters.
func (w *World) setup() Setup {
	c := w.Config
	s := Setup{
		File: w.File, Told: w.Told, Faults: w.Faults, Unset: w.Unset, Retries: configured(c), Hosts: c.Listen.Hosts, Ports: c.Destinations.ConnectPorts, Warnings: c.Warnings(), Listen: []string{c.Listen.Proxy}, Proxy: w.Proxy,
		Names: w.Names, Local: localAddresses(), Users: len(c.Clients.Users) > 0, Upstreams: upstreams(c),
		Intercept: c.Intercept.Hosts, Upgrade: c.UpgradeToHTTPS, Allowed: c.Destinations.Allow, Store: c.Store.Kind, Kept: w.Kept, Deny: w.Egress.Deny, BodyDir: c.Body.Dir,
	}
	for _, l := range c.Listeners {
		s.Listen = append(s.Listen, l.Addr)
	}
	for _, p := range c.Clients.Allow {
		s.Clients = append(s.Clients, p.String())
	}
	s.BareShops = w.bareShops(&s)
	return s
}

func localAddresses() []netip.Addr {
	var out []netip.Addr
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}

// running asks the proxy that runs.
func (w *World) running(ctx context.Context, f *Facts) {
	r := &f.Running
	r.Admin, r.OwnVersion, r.Unexamined, r.Hidden = w.Admin, w.Version, w.Unexamined, w.Hidden
	var d net.Dialer
	dctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	conn, err := d.DialContext(dctx, "tcp", w.Proxy)
	cancel()
	if err != nil {
		r.ProxyFault = err.Error()
	} else {
		_ = conn.Close()
	}
	r.SpoolFree = w.free(tempDir(w.Config.Body.Dir))
	if w.Ask == nil {
		return
	}
	w.asked(ctx, f)
}

func tempDir(dir string) string {
	if dir == "" {
		return os.TempDir()
	}
	return dir
}

// asked fills in what the admin listener tells.
func (w *World) asked(ctx context.Context, f *Facts) {
	r := &f.Running
	status, body, err := w.Ask(ctx, "/readyz")
	switch {
	case err != nil:
		r.AdminFault = err.Error()
		return
	case status != 200:
		r.NotReady = strings.TrimSpace(string(body))
	}
	if _, body, err = w.Ask(ctx, "/metrics"); err == nil {
		r.readMetrics(string(body))
	}
	status, body, err = w.Ask(ctx, "/api/v1/config?format=yaml")
	switch {
	case err == nil && (status == 401 || status == 403):
		r.AdminFault, r.Token = "it answers "+statusText(status), true
		return
	case err == nil && status == 200 && w.File != "" && len(w.Faults) == 0:
		r.Drift = drifted(w.Config.Marshal(), body)
	}
	var seen View
	if w.decode(ctx, "/api/v1/observed", &seen) == nil {
		f.Seen = &seen
	}
	var sw Switch
	if w.decode(ctx, "/api/v1/retries", &sw) == nil {
		r.Retries = &sw
	}
	var opened struct {
		Fingerprint string
		Passed      []Passed `json:"passed_through"`
	}
	if w.decode(ctx, "/api/v1/intercept", &opened) == nil {
		r.Passed, r.Fingerprint = opened.Passed, opened.Fingerprint
	}
	_ = w.decode(ctx, "/api/v1/breakers", &r.Cut) // one that does not tell has nothing to say
}

var errNoAnswer = errors.New("doctor: not told")

// decode gets JSON.
func (w *World) decode(ctx context.Context, path string, v any) error {
	status, body, err := w.Ask(ctx, path)
	if err == nil && status != 200 {
		err = errNoAnswer
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}
