package cli

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"retryproxy/intercept"
)

// authority is an Env.CA that notes what it was asked.
type authority struct {
	files        intercept.Files
	config, data string
	err          error
}

func (a *authority) env(e *Env) {
	e.CA = func(config, data string) (intercept.Files, error) {
		a.config, a.data = config, data
		return a.files, a.err
	}
}

func newFiles(dir string) intercept.Files {
	return intercept.Files{Cert: filepath.Join(dir, "ca.pem"), Key: filepath.Join(dir, "ca.key")}
}

func TestCA(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b")
	a := authority{files: newFiles(dir)}
	code, first, stderr := typed(t, a.env, "ca", "-config", "c.yaml", "-data", "d")
	if code != OK || stderr != "" {
		t.Fatalf("ca = %d %q", code, stderr)
	}
	if a.config != "c.yaml" || a.data != "d" {
		t.Errorf("asked for %q %q, want c.yaml and d", a.config, a.data)
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
	_, second, _ := typed(t, a.env, "ca")
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
