package cli

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"retryproxy/intercept"
)

// authority is an Env.CA that notes what it was asked.
type authority struct {
	files        intercept.Files
	config, data string
	err          error
	admin        string // of the running proxy; empty: none runs
}

func (a *authority) env(e *Env) {
	e.Getenv = func(name string) string {
		return map[string]string{"RETRYPROXY_ADMIN": cmp.Or(a.admin, "127.0.0.1:1")}[name]
	}
	e.CA = func(config, data string) (intercept.Files, error) {
		a.config, a.data = config, data
		return a.files, a.err
	}
}

func newFiles(dir string) intercept.Files {
	return intercept.Files{Cert: filepath.Join(dir, "ca.pem"), Key: filepath.Join(dir, "ca.key"), Make: true}
}

func TestCA(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b")
	a := authority{files: newFiles(dir)}
	config := file(t, "intercept: {hosts: [a.test]}")
	code, first, stderr := typed(t, a.env, "ca", "-config", config, "-data", "d")
	if code != OK || stderr != "" {
		t.Fatalf("ca = %d %q", code, stderr)
	}
	if a.config != config || a.data != "d" {
		t.Errorf("asked for %q %q, want %s and d", a.config, a.data, config)
	}
	open, err := intercept.Open(a.files)
	if err != nil {
		t.Fatal(err)
	}
	cert := "'" + a.files.Cert + "'"
	for _, want := range []string{
		a.files.Cert + " (made just now)\n", open.Fingerprint(), open.SPKI() + " (SHA-256)", open.NotAfter().UTC().Format("2006-01-02"),
		"sudo cp " + cert + " /usr/local/share/ca-certificates/retryproxy.crt && sudo update-ca-certificates", "update-ca-trust",
		"security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain " + cert,
		`certutil -addstore root "` + a.files.Cert + `"`,
		`cat "$(python3 -m certifi)" ` + cert + " > '" + filepath.Join(dir, "bundle.pem") + "'",
		"CURL_CA_BUNDLE='" + dir, "REQUESTS_CA_BUNDLE='" + dir, "SSL_CERT_FILE='" + dir, "AWS_CA_BUNDLE='" + dir, "NODE_EXTRA_CA_CERTS=" + cert,
		"-file " + cert + " -keystore", "'-Djavax.net.ssl.trustStore=" + dir, "-A -t C,, -n retryproxy -i " + cert,
		"--ignore-certificate-errors-spki-list=" + open.SPKI() + "\n",
	} {
		if !strings.Contains(first, want) {
			t.Errorf("the text lacks %q:\n%s", want, first)
		}
	}
	if strings.Contains(first, "Nothing is opened") {
		t.Errorf("ca with intercept.hosts = %s, want nothing about hosts", first)
	}
	_, second, _ := typed(t, a.env, "ca", "-config", config)
	if want := strings.Replace(first, " (made just now)", "", 1); second != want {
		t.Errorf("ca once more = %s, want the same authority", second)
	}
}

func TestCAPEM(t *testing.T) {
	a := authority{files: newFiles(t.TempDir())}
	code, stdout, stderr := typed(t, a.env, "ca", "-pem")
	block, rest := pem.Decode([]byte(stdout))
	if code != OK || stderr != "" || block == nil || len(rest) > 0 || !strings.HasPrefix(stdout, "-----BEGIN CERTIFICATE") {
		t.Fatalf("ca -pem = %d %q %q, want one certificate and nothing else", code, stdout, stderr)
	}
	if c, err := x509.ParseCertificate(block.Bytes); err != nil || !c.IsCA {
		t.Errorf("ca -pem is no authority: %v", err)
	}
}

func TestCAFails(t *testing.T) {
	half := newFiles(t.TempDir())
	if err := os.WriteFile(half.Cert, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		a    authority
		args []string
		code int
		want string
	}{
		{"bad configuration", authority{err: errors.New("line 3: no such key")}, nil, Usage, "line 3: no such key"},
		{"half a pair", authority{files: half}, nil, Failure, "but no key " + half.Key},
		{"a file that is not there", authority{}, []string{"-config", "/none.yaml"}, Usage, "/none.yaml"},
		{"no pair where the configuration says", authority{files: intercept.Files{Cert: "/none/ca.pem", Key: "/none/ca.key"}}, nil, Usage, "names /none/ca.pem and /none/ca.key (intercept.ca_cert, intercept.ca_key), and neither is there"},
		{"argument", authority{}, []string{"x"}, Usage, "ca: want no argument"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := typed(t, test.a.env, append([]string{"ca"}, test.args...)...)
			if code != test.code || stdout != "" || !strings.Contains(stderr, test.want) {
				t.Errorf("ca = %d %q %q, want %d and %q", code, stdout, stderr, test.code, test.want)
			}
		})
	}
}

func TestQuote(t *testing.T) {
	for _, s := range []string{"", "/a/b-c_d.pem", "a b", "it's", "$HOME", "a;b", "a\nb", "é"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+quote(s)).Output()
		if err != nil {
			t.Skipf("no shell here: %v", err)
		}
		if string(out) != s {
			t.Errorf("a shell reads quote(%q) as %q", s, out)
		}
	}
	if got := quote("/a/b-c_d.pem"); got != "/a/b-c_d.pem" {
		t.Errorf("quote = %s, want it plain", got)
	}
}

// runsWith is the admin listener of a proxy that uses this authority.
func runsWith(t *testing.T, text []byte) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ca.pem" || text == nil {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(text)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestCABesideARunningProxy(t *testing.T) {
	other, err := intercept.Open(newFiles(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	files := newFiles(t.TempDir())
	addr := runsWith(t, other.PEM())
	curl := "\n  curl -fsS --noproxy '*' -o retryproxy-ca.pem http://" + addr + "/ca.pem\n"
	a := authority{files: files, admin: addr}
	code, stdout, stderr := typed(t, a.env, "ca")
	for _, want := range []string{files.Cert + " is not there, and the proxy at " + addr + " uses an authority", other.Fingerprint(), curl} {
		if code != Failure || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("ca without a file = %d %s %s, want 1 and %q", code, stdout, stderr, want)
		}
	}
	if _, err := os.Stat(files.Cert); err == nil {
		t.Error("ca made an authority beside that of the running proxy")
	}
	mine, err := intercept.Open(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"ca"}, {"ca", "-pem"}, {"ca", "-admin", addr}} {
		code, stdout, stderr = typed(t, a.env, args...)
		for _, want := range []string{"WARNING: the proxy at " + addr + " uses another authority", mine.Fingerprint(), other.Fingerprint(), curl} {
			if code != OK || stdout == "" || !strings.Contains(stderr, want) {
				t.Errorf("%q with another authority running = %d %s, want 0 and %q", args, code, stderr, want)
			}
		}
	}
	for name, addr := range map[string]string{
		"the same": runsWith(t, mine.PEM()), "none": runsWith(t, nil), "nonsense": runsWith(t, []byte("hello")), "no proxy": "127.0.0.1:1", "bad address": "http://",
	} {
		a.admin = addr
		if code, _, stderr := typed(t, a.env, "ca"); code != OK || stderr != "" {
			t.Errorf("ca with %s running = %d %s, want no warning", name, code, stderr)
		}
	}
}

func TestCATellsThatNothingIsOpened(t *testing.T) {
	a := authority{files: newFiles(t.TempDir())}
	_, stdout, _ := typed(t, a.env, "ca")
	if want := "\nNothing is opened yet: the configuration names no host. Add those that your bots call:\n  intercept: {hosts: [api.example.com]}\n\nTrust it"; !strings.Contains(stdout, want) {
		t.Errorf("ca without intercept.hosts = %s, want %s", stdout, want)
	}
}

func TestCAThatOthersCannotRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes say nothing here")
	}
	dir := t.TempDir()
	a := authority{files: newFiles(filepath.Join(dir, "retryproxy"))}
	hint := "\n  sudo install -m 644 " + a.files.Cert + " /usr/local/share/retryproxy-ca.pem\n"
	if _, stdout, _ := typed(t, a.env, "ca"); !strings.Contains(stdout, hint) {
		t.Errorf("ca in a folder of mode 0700 = %s, want %s", stdout, hint)
	}
	for _, at := range []string{filepath.Dir(a.files.Cert), dir, filepath.Dir(dir)} {
		if err := os.Chmod(at, 0o755); err != nil { //nolint:gosec // that is the point
			t.Fatal(err)
		}
	}
	if _, stdout, _ := typed(t, a.env, "ca"); strings.Contains(stdout, "Other users") {
		t.Errorf("ca in folders of mode 0755 = %s, want no hint to copy it", stdout)
	}
	if err := os.Chmod(a.files.Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stdout, _ := typed(t, a.env, "ca"); !strings.Contains(stdout, hint) {
		t.Errorf("ca of a file of mode 0600 = %s, want %s", stdout, hint)
	}
}
