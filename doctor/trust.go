package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// soonOver is how long before its end a CA is worth a warning.
const soonOver = 30 * 24 * time.Hour

// examineTrust judges our CA, when tunnels are opened under it.
func examineTrust(f *Facts) []Finding {
	if len(f.Setup.Intercept) == 0 {
		return nil
	}
	if f.otherCA() {
		return []Finding{otherCA(f)} // all else would be about the wrong file
	}
	out := examineCA(f)
	if n := len(f.Running.Passed); n > 0 {
		out = append(out, passed(f))
	}
	return out
}

// passed tells of clients that refuse our CA.
func passed(f *Facts) Finding {
	var names []string
	for _, p := range f.Running.Passed {
		names = append(names, p.Client+" for "+p.Host)
	}
	return Finding{
		"trust.passed_through", groupTrust, Warning, "clients refuse our CA, so their tunnels stay closed: " + some(names, 4),
		"Their calls there are not retried. Give them the CA, or, where they pin certificates, another way in.",
		[]Fix{toRun("retryproxy ca%s   # how each client trusts it", f.fileFlag()), inList("upgrade_to_https: %s   # and call http:// there", f.Setup.Upgrade, nameOnly(f.Running.Passed[0].Host))},
	}
}

// otherCA says whether the running proxy does not use the files that we know.
func (f *Facts) otherCA() bool {
	used, t := f.Running.Fingerprint, &f.Trust
	return used != "" && t.File != "" && (t.Missing || t.Print != "" && plainPrint(used) != plainPrint(t.Print))
}

func otherCA(f *Facts) Finding {
	return Finding{
		"trust.other_ca", groupTrust, Problem, "the running proxy uses another CA than " + f.Trust.File,
		"Clients that trust the one of this file refuse opened tunnels: give them the running one.",
		[]Fix{toRun("curl -fsS --noproxy '*' -o retryproxy-ca.pem http://%s/ca.pem", f.Running.Admin)},
	}
}

// examineCA judges the files of the CA.
func examineCA(f *Facts) []Finding {
	t := &f.Trust
	switch {
	case t.File == "":
		return nil
	case t.Missing:
		return []Finding{{
			"trust.missing", groupTrust, Warning, "intercept.hosts is set, but there is no CA in " + t.File + " yet",
			"It is made when the proxy starts; until clients have it they refuse us.",
			[]Fix{toRun("retryproxy ca%s", f.fileFlag())},
		}}
	case t.Fault != "":
		return []Finding{{
			"trust.unreadable", groupTrust, Problem, "our CA cannot be read: " + t.Fault,
			"No tunnel can be opened without it.",
			[]Fix{toRun("ls -l %s %s", quoted(t.File), quoted(t.Key))},
		}}
	}
	var out []Finding
	if t.KeyMode&0o077 != 0 && f.Shell.OS != "windows" {
		out = append(out, Finding{
			"trust.key_mode", groupTrust, Problem, fmt.Sprintf("others may read the key of our CA (%s, mode %04o)", t.Key, t.KeyMode),
			"Whoever has it can pose as any host towards every client that trusts it.",
			[]Fix{{"bash", "chmod 600 " + quoted(t.Key)}},
		})
	}
	if left := t.Expires.Sub(f.Now); left < soonOver {
		out = append(out, expiring(f, left))
	}
	return append(out, systemTrust(f)...)
}

// plainPrint is a fingerprint without the way it is written.
func plainPrint(s string) string { return strings.ToLower(strings.ReplaceAll(s, ":", "")) }

func expiring(f *Facts, left time.Duration) Finding {
	x := Finding{
		"trust.expires", groupTrust, Warning, "our CA expires on " + f.Trust.Expires.Format(time.DateOnly),
		"From then on clients refuse every opened tunnel. A new one has to be given to all of them.",
		[]Fix{{"bash", fmt.Sprintf("mv %[1]s %[1]s.old; mv %[2]s %[2]s.old   # then restart", quoted(f.Trust.File), quoted(f.Trust.Key))}},
	}
	if left <= 0 {
		x.ID, x.Severity, x.Seen = "trust.expired", Problem, "our CA expired on "+f.Trust.Expires.Format(time.DateOnly)
	}
	return x
}

// systemTrust notes that programs which use the system's roots refuse us.
func systemTrust(f *Facts) []Finding {
	if f.Trust.System {
		return nil
	}
	name := quoted(f.Trust.File)
	return []Finding{{
		"trust.system", groupTrust, Note, "the system does not trust our CA",
		"Programs that use the system's roots (browsers on Windows, curl, Go) refuse opened tunnels, unless a variable names it.",
		[]Fix{
			{"bash", "sudo cp " + name + " /usr/local/share/ca-certificates/retryproxy.crt && sudo update-ca-certificates"},
			{"PowerShell", "certutil -addstore -f root " + powerQuoted(f.Trust.File)},
		},
	}}
}

// bundleVars name files of certificates, and who reads them.
var bundleVars = []struct {
	name    string
	readers []string
}{
	{"SSL_CERT_FILE", []string{"curl", "Go", "Python's urllib"}},
	{"CURL_CA_BUNDLE", []string{"curl"}},
	{"REQUESTS_CA_BUNDLE", []string{"Python requests"}},
	{"NODE_EXTRA_CA_CERTS", []string{"Node"}},
}

// examineBundles judges the files that the environment names.
func examineBundles(f *Facts) []Finding {
	var out []Finding
	ours := len(f.Setup.Intercept) > 0 && f.Trust.File != "" && !f.otherCA()
	var lacking, readers []string
	for _, v := range bundleVars {
		b, set := f.Shell.Bundles[v.name]
		switch {
		case !set:
		case b.Fault != "":
			out = append(out, Finding{
				"trust.bundle_unreadable", groupTrust, Problem, v.name + " names a file that cannot be read: " + b.Fault,
				"Https calls of " + strings.Join(v.readers, ", ") + " fail.", withoutVariable(v.name),
			})
		case ours && !b.Ours:
			lacking = append(lacking, v.name)
			readers = append(readers, slices.DeleteFunc(slices.Clone(v.readers), func(r string) bool { return slices.Contains(readers, r) })...)
		}
	}
	if len(lacking) > 0 {
		out = append(out, Finding{
			"trust.bundle_lacks", groupTrust, Problem, f.named(lacking) + " " + plural(len(lacking), "lacks", "lack") + " our CA",
			"Opened tunnels are refused by " + strings.Join(readers, ", ") + ".", f.bundled(lacking),
		})
	}
	if !ours {
		return out
	}
	return append(out, bundleTraps(f)...)
}

// named lists variables with the files that they name.
func (f *Facts) named(names []string) string {
	var parts []string
	for _, name := range names {
		parts = append(parts, name+"="+f.Shell.Bundles[name].File)
	}
	return strings.Join(parts, ", ")
}

// bundle is the file beside our CA that the command ca proposes for the public
// authorities and ours together.
func (f *Facts) bundle() string { return filepath.Join(filepath.Dir(f.Trust.File), "bundle.pem") }

// bundled are the lines that make the bundle and have variables name it. What the
// variables named goes into it, so nothing is lost; the files themselves stay as
// they are, since updates of the system write them anew.
func (f *Facts) bundled(names []string) []Fix {
	var from, pairs []string
	public := false
	for _, name := range names {
		b := f.Shell.Bundles[name]
		if b.File != f.bundle() && b.File != f.Trust.File && b.File != "" && !slices.Contains(from, b.File) {
			from = append(from, b.File)
			public = public || b.Count >= fewRoots
		}
		pairs = append(pairs, name, f.bundle())
	}
	list := ""
	for _, file := range from {
		list += quoted(file) + " "
	}
	switch {
	case public:
	case f.Trust.Public != "":
		list = quoted(f.Trust.Public) + " " + list
	default:
		list = `"$(python3 -m certifi)" ` + list
	}
	set := inShell(pairs...)
	set[0].Line = "cat " + list + quoted(f.Trust.File) + " > " + quoted(f.bundle()) + " && " + set[0].Line
	files := ""
	for _, file := range append(from, f.Trust.File) {
		files += powerQuoted(file) + ", "
	}
	set[1].Line = "Get-Content " + strings.TrimSuffix(files, ", ") + " | Set-Content " + powerQuoted(f.bundle()) + "; " + set[1].Line
	return set
}

// fewRoots is fewer certificates than any public set of roots has.
const fewRoots = 20

// bundleTraps are variables that replace roots, or are missing.
func bundleTraps(f *Facts) []Finding {
	var out []Finding
	bundles := f.Shell.Bundles
	if b, set := bundles["REQUESTS_CA_BUNDLE"]; set && b.Fault == "" && b.Ours && b.Count < fewRoots {
		out = append(out, Finding{
			"trust.requests_replaces", groupTrust, Warning, fmt.Sprintf("REQUESTS_CA_BUNDLE=%s holds %d %s", b.File, b.Count, plural(b.Count, "certificate", "certificates")),
			"For Python requests it replaces the usual roots, so https hosts whose tunnels are not opened fail.",
			f.bundled([]string{"REQUESTS_CA_BUNDLE"}),
		})
	}
	_, curl := bundles["CURL_CA_BUNDLE"]
	_, requests := bundles["REQUESTS_CA_BUNDLE"]
	if file, set := bundles["SSL_CERT_FILE"]; set && file.Ours && !requests && !curl {
		out = append(out, Finding{
			"trust.requests_unset", groupTrust, Note, "SSL_CERT_FILE is set, REQUESTS_CA_BUNDLE is not",
			"Python requests ignores SSL_CERT_FILE.", inShell("REQUESTS_CA_BUNDLE", file.File),
		})
	}
	if _, node := bundles["NODE_EXTRA_CA_CERTS"]; f.Shell.Node != "" && !node {
		out = append(out, Finding{
			"trust.node_unset", groupTrust, Warning, "NODE_EXTRA_CA_CERTS is not set",
			"Node does not use the system's roots and refuses opened tunnels.", inShell("NODE_EXTRA_CA_CERTS", f.Trust.File),
		})
	}
	return out
}
