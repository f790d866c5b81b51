package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"retryproxy/config"
	"retryproxy/egress"
	"retryproxy/intercept"
	"retryproxy/policy"
	"retryproxy/proxy"
)

// ways are the parts of the settings that keep something over a reload: the
// certificates given out, and the exits by which connections are pooled.
type ways struct {
	egress *egress.Table
	files  intercept.Files
	ca     *intercept.Authority // nil: no tunnels are opened
}

// next builds the ways of a changed configuration; what did not change is kept.
func (w ways) next(cfg *config.Config, data string) (out ways, err error) {
	if w.egress != nil {
		out.egress, err = w.egress.Successor(egressConfig(cfg))
	} else {
		out.egress, err = egress.NewTable(egressConfig(cfg))
	}
	if err != nil {
		return ways{}, fmt.Errorf("config: %w", err)
	}
	if len(cfg.Intercept.Hosts) == 0 {
		return out, nil
	}
	if out.files, err = caFiles(cfg, data); err != nil {
		return ways{}, err
	}
	if out.files == w.files && w.ca != nil && unchanged(w.files.Cert, w.ca.PEM()) {
		out.ca = w.ca
		return out, nil
	}
	out.ca, err = intercept.Open(out.files)
	return out, err
}

// unchanged says whether the file still holds what we have; one that is gone
// changes nothing.
func unchanged(file string, have []byte) bool {
	now, err := os.ReadFile(file)
	return err != nil || bytes.Contains(now, bytes.TrimSpace(have))
}

// interception says which tunnels are opened; nil: none.
func (w ways) interception(cfg *config.Config) *proxy.Interception {
	if len(cfg.Intercept.Hosts) == 0 {
		return nil
	}
	return &proxy.Interception{Hosts: policy.NewHosts(cfg.Intercept.Hosts), CA: w.ca}
}

// caFiles says where the CA is kept: where the configuration says, else in the
// data directory.
func caFiles(cfg *config.Config, data string) (intercept.Files, error) {
	if cfg.Intercept.CACert != "" {
		return intercept.Files{Cert: cfg.Intercept.CACert, Key: cfg.Intercept.CAKey}, nil
	}
	dir, err := dataDir(data)
	if err != nil {
		return intercept.Files{}, err
	}
	return intercept.Files{Cert: filepath.Join(dir, "ca.pem"), Key: filepath.Join(dir, "ca.key"), Make: true}, nil
}

// filesOf says where serve would keep the CA with this configuration file (empty:
// the embedded one) and data directory.
func filesOf(file, data string, env environment) (intercept.Files, error) {
	f := serveFlags{file: file}
	name, text, err := f.read()
	if err != nil {
		return intercept.Files{}, err
	}
	cfg, err := parseConfig(name, text, &f, env.getenv)
	if err != nil {
		return intercept.Files{}, err
	}
	return caFiles(cfg, data)
}

// egressLine shows a rule to a person, without passwords.
func egressLine(e *config.Egress) string {
	to := []string{"direct"}
	if !e.Direct() {
		to = nil
		for _, p := range e.Endpoints() {
			to = append(to, p.String())
		}
	}
	return e.Name + "  ->  " + strings.Join(to, ", ")
}

// holdsCA says whether the CA that the configuration names can be used.
func holdsCA(cfg *config.Config) error {
	if len(cfg.Intercept.Hosts) == 0 || cfg.Intercept.CACert == "" {
		return nil
	}
	if _, err := intercept.Open(intercept.Files{Cert: cfg.Intercept.CACert, Key: cfg.Intercept.CAKey}); err != nil {
		return err
	}
	return nil
}

// dataDir is where the proxy keeps what must outlive it: the directory of -data,
// else one of the user's.
func dataDir(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("there is no directory to keep data in (%w): name one with -data", err)
	}
	return filepath.Join(dir, "retryproxy"), nil
}

// egressConfig copies the egress rules.
func egressConfig(cfg *config.Config) egress.Config {
	c := egress.Config{Shops: map[string]string{}, Deny: cfg.EgressDefault == "deny"}
	for i := range cfg.Egress {
		e := &cfg.Egress[i]
		rule := egress.Rule{
			Name: e.Name, OnFailure: e.OnFailure, Direct: e.Direct(),
			Match: egress.Match{Shop: e.Match.Shop, TaskType: e.Match.TaskType, Host: e.Match.Host},
		}
		for _, p := range e.Endpoints() {
			rule.Proxies = append(rule.Proxies, egress.Proxy(p))
		}
		c.Rules = append(c.Rules, rule)
	}
	for name, shop := range cfg.Shops {
		if shop.Egress != "" {
			c.Shops[name] = shop.Egress
		}
	}
	return c
}
