//go:build unix

package clients

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// resend is which POSTs a client sends again by itself when a reused connection
// dies under them.
type resend int

const (
	none  resend = iota
	keyed        // with an idempotency key
	every        // so that one without a key is executed twice
)

// client is one client of the suite.
type client struct {
	name    string
	ways    []way
	resends resend // over HTTP/1.1
	inside  resend // in an opened tunnel, where some speak HTTP/2
	tunnels bool   // sends CONNECT for http, too
	unnamed []way  // ways on which it sends no user name: it gets a listener of its own
	missing func() string
	play    func(*testing.T, *job, *tools) []result
}

var (
	connects  = []way{plain, upgrade, intercept}           // https means CONNECT
	absolutes = []way{plain, upgrade, absolute}            // https is sent as an absolute URL
	both      = []way{plain, upgrade, intercept, absolute} // the caller chooses
)

// clients are all of the suite; docs/clients.md has a row for each.
var clients = []client{
	{name: "curl", ways: connects, resends: every, missing: command("curl", "curl"), play: playCurl},
	{name: "Python urllib", ways: connects, missing: systemPython(""), play: playPython("urllib")},
	{name: "Python http.client", ways: both, missing: systemPython(""), play: playPython("http.client")},
	{name: "Python requests", ways: connects, missing: systemPython("requests"), play: playPython("requests")},
	{name: "Node fetch", ways: connects, tunnels: true, missing: node, play: playNode("fetch")},
	{name: "undici 7", ways: connects, tunnels: true, missing: node, play: playNode("undici 7")},
	{name: "undici 8", ways: connects, missing: node, play: playNode("undici 8")},
	{name: "axios", ways: connects, missing: node, play: playNode("axios")},
	{name: "axios 1.7.9", ways: absolutes, missing: node, play: playNode("axios 1.7.9")},
	{name: "https-proxy-agent", ways: connects, tunnels: true, missing: node, play: playNode("https-proxy-agent")},
	{name: "Go net/http", ways: connects, resends: keyed, missing: func() string { return "" }, play: playGo},
	{name: "Java HttpClient", ways: connects, missing: java, play: playJava("HttpClient")},
	{name: "Java HttpURLConnection", ways: connects, resends: every, inside: every, unnamed: []way{intercept}, missing: java, play: playJava("HttpURLConnection")},
	{name: "Chromium fetch", ways: connects, resends: every, inside: every, unnamed: connects, missing: chromium, play: playChromium},
}

const (
	pythonBinary = "/usr/bin/python3" // Debian's: another one on the path lacks its packages
	apt          = "apt-get install --no-install-recommends "
)

// command says how to install name when it is not on the path.
func command(name, pkg string) func() string {
	return func() string {
		if _, err := exec.LookPath(name); err != nil {
			return apt + pkg
		}
		return ""
	}
}

func systemPython(module string) func() string {
	return func() string {
		if exec.Command(pythonBinary, "-c", "import "+cmp.Or(module, "ssl")).Run() != nil {
			return apt + "python3 python3-requests"
		}
		return ""
	}
}

// nodeBinary is Node 24 from the lock file, whatever the machine has.
func nodeBinary() string {
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	return filepath.Join("testdata", "node", "node_modules", "node-"+runtime.GOOS+"-"+arch, "bin", "node")
}

func node() string {
	if _, err := os.Stat(nodeBinary()); err != nil {
		return "npm ci --prefix clients/testdata/node"
	}
	return ""
}

func java() string {
	if missing := command("javac", "openjdk-17-jdk-headless")(); missing != "" {
		return missing
	}
	return command("keytool", "openjdk-17-jdk-headless")()
}

func chromium() string {
	if missing := command("chromium", "chromium")(); missing != "" {
		return missing
	}
	return command("certutil", "libnss3-tools")()
}

// tools are what clients need prepared, once for all their jobs.
type tools struct {
	ca         string // file
	goClient   func() (string, error)
	javaDir    func() (string, error) // classes and trust store
	chromeHome func() (string, error) // with the CA in its NSS database
}

func newTools(t *testing.T, ca string) *tools {
	dir := t.TempDir()
	return &tools{
		ca: ca,
		goClient: sync.OnceValues(func() (string, error) {
			path := filepath.Join(dir, "goclient")
			return path, run(exec.Command("go", "build", "-o", path, "./testdata/goclient"))
		}),
		javaDir: sync.OnceValues(func() (string, error) {
			err := run(exec.Command("javac", "-d", dir, "testdata/Main.java"))
			if err != nil {
				return "", err
			}
			return dir, run(exec.Command("keytool", "-importcert", "-noprompt", "-alias", "retryproxy", "-file", ca,
				"-keystore", filepath.Join(dir, "trust.p12"), "-storetype", "PKCS12", "-storepass", "changeit"))
		}),
		chromeHome: sync.OnceValues(func() (string, error) {
			db := filepath.Join(dir, ".pki", "nssdb")
			if err := os.MkdirAll(db, 0o700); err != nil {
				return "", err
			}
			if err := run(exec.Command("certutil", "-d", "sql:"+db, "-N", "--empty-password")); err != nil {
				return "", err
			}
			return dir, run(exec.Command("certutil", "-d", "sql:"+db, "-A", "-t", "C,,", "-n", "retryproxy", "-i", ca))
		}),
	}
}

// run runs a command to its end; its error has the output.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return &commandError{cmd.String(), string(out), err}
	}
	return nil
}

type commandError struct {
	command, output string
	err             error
}

func (e *commandError) Error() string { return e.command + ": " + e.err.Error() + ": " + e.output }
func (e *commandError) Unwrap() error { return e.err }

// must is a prepared tool.
func must(t *testing.T, tool func() (string, error)) string {
	t.Helper()
	path, err := tool()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// environment is what a client runs with: none of ours that speaks of proxies or
// trust, and the given variables.
func environment(add ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(strings.ToUpper(v), "=")
		if !strings.HasSuffix(name, "_PROXY") && !strings.HasSuffix(name, "_BUNDLE") && !strings.HasPrefix(name, "SSL_CERT_") &&
			name != "NODE_EXTRA_CA_CERTS" && name != "NODE_OPTIONS" && name != "REQUEST_METHOD" {
			env = append(env, v)
		}
	}
	return append(env, add...)
}

// play runs a client that reads steps and writes results.
func play(t *testing.T, steps string, env []string, name string, args ...string) []result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr strings.Builder
	cmd.Env, cmd.Stdin, cmd.Stderr = environment(env...), strings.NewReader(steps), &stderr
	out, err := cmd.Output()
	if err != nil { // curl ends with what became of its last step
		t.Logf("%s: %v: %s", name, err, stderr.String())
	}
	return results(string(out))
}

// results reads the lines of a client.
func results(text string) (list []result) {
	for line := range strings.Lines(text) {
		if f := strings.Split(strings.TrimRight(line, "\r\n"), "\t"); len(f) == 5 {
			list = append(list, result{f[0], f[1], f[2], f[3], f[4]})
		}
	}
	return list
}
