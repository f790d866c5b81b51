package cli

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
)

// Info is what the start banner tells.
type Info struct {
	Version   string   // as VersionName gives it
	Config    string   // file; empty: the built-in configuration
	Proxy     string   // address that is listened on
	Admin     string   // empty: none
	Health    string   // empty: none
	Extra     []string // further listeners, such as "127.0.0.1:8117 (shop s17)"
	Routes    []Route
	Upgrade   []string // upgrade_to_https
	Opened    []string // intercept.hosts
	CA        string   // file of the certificate that clients must trust; empty: nothing is opened
	Egress    []string // rules, such as "proxy-a  socks5h://10.0.0.1:1080"
	Users     bool     // credentials are needed
	Memory    bool     // keys are kept in memory only
	Store     string   // where the durable store is
	Log       string   // file; empty: standard error
	Overruled bool     // by -data, though Config says store.kind: memory
	Warnings  []string
}

// Route is one way of the reverse mode; Host or Prefix may be empty.
type Route struct{ Host, Prefix, To string }

// from says what to call.
func (r Route) from(at string) string {
	if r.Host == "" {
		return at + r.Prefix
	}
	return at + r.Prefix + " with Host: " + r.Host
}

// Banner says where the proxy listens and what to paste to use it.
func Banner(w io.Writer, i Info) {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	from := i.Config
	if from == "" {
		from = "the built-in configuration (retryproxy check prints it)"
	}
	line("retryproxy %s on %s", i.Version, from)
	at := "http://" + dialable(i.Proxy)
	for _, l := range [...][2]string{{"proxy", i.Proxy}, {"admin", i.Admin}, {"health", i.Health}} {
		if l[1] != "" {
			line("  %-7s %s", l[0], withScheme(l[1])+ofAll(l[1]))
		}
	}
	for _, l := range i.Extra {
		line("  proxy   http://%s", l)
	}
	b.WriteString(paste(at, i.Users, i.CA != ""))
	for _, r := range i.Routes {
		line("  route   %s  ->  %s", r.from(at), r.To)
	}
	if len(i.Upgrade) > 0 {
		line("  For full retries of https platforms call http://, TLS is spoken upstream: %s", strings.Join(i.Upgrade, ", "))
	}
	for _, e := range i.Egress {
		line("  egress  %s", e)
	}
	if i.CA == "" {
		line("  Through HTTPS_PROXY only the connection is retried; use http:// as above, a route, or intercept.")
	} else {
		line("  Tunnels are opened to %s: clients must trust %s (retryproxy ca says how).", strings.Join(i.Opened, ", "), i.CA)
		line("  Through HTTPS_PROXY to all other hosts only the connection is retried.")
	}
	if i.Memory {
		line("  Idempotency keys are kept in memory: a restart forgets them (-data DIR keeps them).")
	} else if i.Store != "" {
		line("  Keyed calls are kept in %s: they go on after a restart.", i.Store)
	}
	if i.Overruled {
		line("  (-data asks for that; %s says store.kind: memory.)", i.Config)
	}
	if i.Log != "" {
		line("  The log is in %s.", i.Log)
	}
	for _, text := range i.Warnings {
		line("  warning: %s", text)
	}
	_, _ = io.WriteString(w, b.String())
}

func withScheme(addr string) string { return "http://" + dialable(addr) }

// ofAll tells of a listener that is not on one address only.
func ofAll(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	if ip, err := netip.ParseAddr(host); host != "" && (err != nil || !ip.IsUnspecified()) {
		return ""
	}
	return " (listens on all addresses: " + addr + ")"
}

// paste are the lines that make clients use the proxy. curl reads http_proxy in
// lower case only.
func paste(at string, users, https bool) string {
	if users {
		at = strings.Replace(at, "http://", "http://USER:PASSWORD@", 1)
	}
	bash, shell := "", ""
	if https {
		bash, shell = " HTTPS_PROXY="+at, fmt.Sprintf("; $env:HTTPS_PROXY = %q", at)
	}
	return fmt.Sprintf(`
  bash        export http_proxy=%[1]s HTTP_PROXY=%[1]s%[2]s
  PowerShell  $env:HTTP_PROXY = "%[1]s"%[3]s
  curl        curl -x %[1]s http://example.com/

`, at, bash, shell)
}
