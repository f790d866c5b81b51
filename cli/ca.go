package cli

import (
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"
	"time"

	"retryproxy/intercept"
)

// trust is how clients and systems come to trust our authority. Where a setting
// replaces what a client trusts, it gets a bundle: only some tunnels are opened,
// behind all others are the certificates of the hosts themselves.
var trust = template.Must(template.New("trust").Funcs(template.FuncMap{"sh": quote}).Parse(
	`certificate  {{.Cert}}{{if .Created}} (made just now){{end}}
fingerprint  {{.Fingerprint}} (SHA-256)
public key   {{.SPKI}} (SHA-256)
expires      {{.Expires}}
{{- if .Private}}

Other users cannot read it there. Copy it for programs that run under another one, and name the copy below:
  sudo install -m 644 {{sh .Cert}} /usr/local/share/retryproxy-ca.pem
{{- end}}
{{- if .Closed}}

Nothing is opened yet: the configuration names no host. Add those that your bots call:
  intercept: {hosts: [api.example.com]}
{{- end}}

Trust it in the system, for all programs that ask the system:
  Debian, Ubuntu   sudo cp {{sh .Cert}} /usr/local/share/ca-certificates/retryproxy.crt && sudo update-ca-certificates
  RHEL, Fedora     sudo cp {{sh .Cert}} /etc/pki/ca-trust/source/anchors/retryproxy.pem && sudo update-ca-trust
  macOS            sudo security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain {{sh .Cert}}
  Windows          certutil -addstore root {{.Windows}}   (as administrator; Chrome, Edge, curl, RPA tools)

Or in one program. Most settings replace what it trusts, so first put the public authorities and ours in one file:
  Debian, Ubuntu   cat /etc/ssl/certs/ca-certificates.crt {{sh .Cert}} > {{sh .Bundle}}
  RHEL, Fedora     cat /etc/pki/tls/certs/ca-bundle.crt {{sh .Cert}} > {{sh .Bundle}}
  with certifi     cat "$(python3 -m certifi)" {{sh .Cert}} > {{sh .Bundle}}
then, in the environment of the program:
  curl             export CURL_CA_BUNDLE={{sh .Bundle}}
  Python requests  export REQUESTS_CA_BUNDLE={{sh .Bundle}}   (it ignores SSL_CERT_FILE)
  Python urllib    export SSL_CERT_FILE={{sh .Bundle}}
  Go               export SSL_CERT_FILE={{sh .Bundle}}   (Linux)
  aws cli, boto3   export AWS_CA_BUNDLE={{sh .Bundle}}
  Node             export NODE_EXTRA_CA_CERTS={{sh .Cert}}   (adds to its own)
  Java             cp "$JAVA_HOME/lib/security/cacerts" {{sh .Store}} && chmod u+w {{sh .Store}}
                   keytool -importcert -noprompt -alias retryproxy -file {{sh .Cert}} -keystore {{sh .Store}} -storepass changeit
                   export JAVA_TOOL_OPTIONS={{sh (printf "-Djavax.net.ssl.trustStore=%s" .Store)}}

Chromium and Chrome on Linux (certutil is in libnss3-tools or nss-tools):
  for the user     mkdir -p "$HOME/.pki/nssdb" && certutil -d sql:"$HOME/.pki/nssdb" -A -t C,, -n retryproxy -i {{sh .Cert}}
  for one start    chromium --user-data-dir="$(mktemp -d)" --ignore-certificate-errors-spki-list={{.SPKI}}
`))

// trustFacts are what the text needs.
type trustFacts struct {
	Cert, Windows, Bundle, Store string // paths
	Fingerprint, SPKI, Expires   string
	Created, Private, Closed     bool
}

// CA prints the certificate that clients have to trust, and how they come to.
// It makes the authority where there is none, unless a proxy runs with another.
func CA(args []string, env Env) int {
	f := newFlags("ca", env)
	r := f.remote()
	f.Lookup("config").Usage = "configuration `file`; without it the built-in one"
	f.Lookup("admin").Usage = "`address` of the admin listener of a running proxy, whose authority is compared"
	data := f.String("data", "", "`directory` of the authority when the configuration names no files; without it retryproxy in the user's configuration directory")
	plain := f.Bool("pem", false, "print the certificate only, as PEM")
	if _, code, ok := f.parse(args, 0, 0); !ok {
		return code
	}
	conf, err := env.load(*r.config)
	if err != nil {
		return env.failed(err)
	}
	files, err := env.CA(*r.config, *data)
	if err != nil {
		return env.failed(&usageError{err})
	}
	a, err := env.openCA(files, env.runningCA(r))
	if err != nil {
		return env.failed(err)
	}
	if *plain {
		_, err = env.Stdout.Write(a.PEM())
	} else {
		err = printTrust(env, files.Cert, a, len(conf.Intercept.Hosts) == 0)
	}
	if err != nil {
		return env.failed(err)
	}
	return OK
}

// openCA opens the authority of the files. What a running proxy (nil: none) uses
// counts: another one is warned about, and none is made beside it.
func (e Env) openCA(files intercept.Files, running *runningCA) (*intercept.Authority, error) {
	missing := isMissing(files.Cert) && isMissing(files.Key)
	switch {
	case missing && running != nil:
		return nil, fmt.Errorf("%s is not there, and the proxy at %s uses an authority that is kept elsewhere:\n%s", files.Cert, running.at, running.text())
	case missing && !files.Make:
		return nil, &usageError{fmt.Errorf("the configuration names %s and %s (intercept.ca_cert, intercept.ca_key), and neither is there; without these keys a pair is made in the data directory", files.Cert, files.Key)}
	}
	a, err := intercept.Open(files)
	if err == nil && running != nil && running.fingerprint != a.Fingerprint() {
		fmt.Fprintf(e.Stderr, "WARNING: the proxy at %s uses another authority than the file. Clients that trust this one fail there:\n  file          %s\n%s\n\n",
			running.at, a.Fingerprint(), running.text())
	}
	return a, err
}

func isMissing(file string) bool {
	_, err := os.Stat(file)
	return errors.Is(err, fs.ErrNotExist)
}

// runningCA is the authority that a running proxy uses.
type runningCA struct {
	at, base    string // of its admin listener
	fingerprint string
}

// askCAFor is how long a running proxy may take to show its certificate: it is
// asked unbidden, and mostly none runs.
const askCAFor = 2 * time.Second

// runningCA asks a running proxy for its certificate; nil: none runs, or it has none.
func (e Env) runningCA(r remote) *runningCA {
	c, err := r.client(e)
	if err != nil {
		return nil
	}
	c.http.Timeout = askCAFor
	text, err := c.do("GET", "/ca.pem", nil)
	if err != nil {
		return nil
	}
	var root []byte // the last of a chain
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		root = block.Bytes
	}
	if root == nil {
		return nil
	}
	sum := sha256.Sum256(root)
	return &runningCA{strings.TrimPrefix(c.base, "http://"), c.base, strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")}
}

// text tells the fingerprint, and how to get the certificate.
func (r *runningCA) text() string {
	return fmt.Sprintf("  running proxy %s\nTo get the one in use:\n  curl -fsS --noproxy '*' -o retryproxy-ca.pem %s", r.fingerprint, quote(r.base+"/ca.pem"))
}

// printTrust fills in the paths. closed says that no tunnel is opened.
func printTrust(env Env, cert string, a *intercept.Authority, closed bool) error {
	cert, err := filepath.Abs(cert)
	if err != nil {
		return fmt.Errorf("find the certificate: %w", err)
	}
	dir := filepath.Dir(cert)
	return trust.Execute(env.Stdout, trustFacts{
		Cert: cert, Windows: `"` + cert + `"`, Bundle: filepath.Join(dir, "bundle.pem"), Store: filepath.Join(dir, "truststore"),
		Fingerprint: a.Fingerprint(), SPKI: a.SPKI(), Expires: a.NotAfter().UTC().Format(time.DateOnly),
		Created: a.Created(), Private: isPrivate(cert), Closed: closed,
	})
}

// isPrivate says that other users cannot read a file: not it, or not through one
// of the folders it is in.
func isPrivate(file string) bool {
	if runtime.GOOS == "windows" {
		return false // modes say nothing there
	}
	for need := fs.FileMode(0o004); ; need = 0o001 {
		info, err := os.Stat(file)
		if err == nil && info.Mode().Perm()&need == 0 {
			return true
		}
		up := filepath.Dir(file)
		if up == file {
			return false
		}
		file = up
	}
}

// quote makes one word of s for a shell.
func quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:=@,", r)
	}
	if s != "" && strings.TrimFunc(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
