package cli

import (
	"fmt"
	"path/filepath"
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
	Created                      bool
}

// CA prints the certificate that clients have to trust, and how they come to.
// It makes the authority where there is none.
func CA(args []string, env Env) int {
	f := newFlags("ca", env)
	file := f.String("config", "", "configuration `file`; without it the built-in one")
	data := f.String("data", "", "`directory` of the authority when the configuration names no files; without it retryproxy in the user's configuration directory")
	pem := f.Bool("pem", false, "print the certificate only, as PEM")
	if _, code, ok := f.parse(args, 0, 0); !ok {
		return code
	}
	files, err := env.CA(*file, *data)
	if err != nil {
		return env.failed(&usageError{err})
	}
	a, err := intercept.Open(files)
	if err != nil {
		return env.failed(err)
	}
	if *pem {
		_, err = env.Stdout.Write(a.PEM())
	} else {
		err = printTrust(env, files.Cert, a)
	}
	if err != nil {
		return env.failed(err)
	}
	return OK
}

// printTrust fills in the paths.
func printTrust(env Env, cert string, a *intercept.Authority) error {
	cert, err := filepath.Abs(cert)
	if err != nil {
		return fmt.Errorf("find the certificate: %w", err)
	}
	dir := filepath.Dir(cert)
	return trust.Execute(env.Stdout, trustFacts{
		Cert: cert, Windows: `"` + cert + `"`, Bundle: filepath.Join(dir, "bundle.pem"), Store: filepath.Join(dir, "truststore"),
		Fingerprint: a.Fingerprint(), SPKI: a.SPKI(), Expires: a.NotAfter().UTC().Format(time.DateOnly), Created: a.Created(),
	})
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
