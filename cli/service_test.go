package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"retryproxy/config"
	"retryproxy/intercept"
	"retryproxy/service"
)

// serviceCommand runs a command of serviceCommands, which are typed on Windows only.
func serviceCommand(t *testing.T, change func(*Env), name string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	all := serviceCommands()
	i := slices.IndexFunc(all, func(c command) bool { return c.name == name })
	var out, problems strings.Builder
	env := Env{Life: t.Context(), Stdout: &out, Stderr: &problems, Getenv: func(string) string { return "" }, Defaults: defaults(t)}
	if change != nil {
		change(&env)
	}
	code = all[i].run(args, env)
	return code, out.String(), problems.String()
}

func TestServiceSpec(t *testing.T) {
	dir, defaults := t.TempDir(), defaults(t)
	t.Chdir(dir)
	for name, text := range map[string]string{"good.yaml": "log: {file: /x/y.log}\ndrain: 7s\n", "nolog.yaml": "log:\n  file: y.log\n", "bad.yaml": "listne: 1\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		args []string
		says string // empty: nothing is wrong
	}{
		{"paths become whole", []string{"-config", "good.yaml", "-data", "data"}, ""},
		{"no configuration", nil, "-config: a service needs"},
		{"a configuration with a fault", []string{"-config", "bad.yaml"}, "bad.yaml:1: listne: unknown key"},
		{"a log file that depends on the folder", []string{"-config", "nolog.yaml"}, "nolog.yaml:2: log.file: a service has nobody"},
		{"a name that is two words", []string{"-config", "good.yaml", "-name", "a b"}, `-name: "a b" must be`},
		{"an argument", []string{"-config", "good.yaml", "now"}, "no argument"},
	} {
		var problems strings.Builder
		s, code, ok := newServiceFlags("service install", Env{Stderr: &problems, Getenv: os.Getenv, Defaults: defaults}).spec(c.args)
		if ok != (c.says == "") || !strings.Contains(problems.String(), c.says) || !ok && code != Usage {
			t.Errorf("%s: %v, %d, %q, want %q", c.name, ok, code, problems.String(), c.says)
		}
		want := []string{"-config", filepath.Join(dir, "good.yaml"), "-data", filepath.Join(dir, "data")}
		if ok && (!slices.Equal(s.Serve, want) || s.Drain.Seconds() != 7) {
			t.Errorf("%s: %+v, want %q and 7 s", c.name, s, want)
		}
	}
}

// TestServiceServes: beside its configuration, by whole paths, and where it is told
// that it may not run it says so.
func TestServiceServes(t *testing.T) {
	t.Chdir(t.TempDir())
	name := file(t, "log: {file: /x/y.log}")
	var got []string
	serve := func(e *Env) {
		e.Serve = func(_ Env, args []string) int {
			at, _ := os.Getwd()
			got = append(args, at)
			return 7
		}
	}
	var problems strings.Builder
	env := Env{Stderr: &problems, Getenv: os.Getenv}
	serve(&env)
	if code := serveAsService([]string{"-config", name}, env); code != 7 {
		t.Errorf("exit code = %d, want that of serve; %s", code, problems.String())
	}
	if want := []string{"-config", name, filepath.Dir(name)}; !slices.Equal(got, want) {
		t.Errorf("serve got %q, want %q", got, want)
	}
	env.Check = func(c *config.Config) error { return c.Fault("log.file", os.ErrPermission) }
	if code := serveAsService([]string{"-config", name}, env); code != Usage || !strings.Contains(problems.String(), "permission denied") {
		t.Errorf("where it may not run: %d, %s", code, problems.String())
	}
}

// TestServicesAreOfWindows: elsewhere there is none of it.
func TestServicesAreOfWindows(t *testing.T) {
	_, usage, _ := typed(t, nil, "help")
	if strings.Contains(usage, "service install") != service.Here {
		t.Errorf("usage = %s, want services in it: %v", usage, service.Here)
	}
	if service.Here {
		return
	}
	name := file(t, "log: {file: /x/y.log}")
	for _, c := range serviceCommands() {
		args := []string{}
		if strings.Contains(c.flags, "-config") {
			args = []string{"-config", name}
		}
		if code, _, stderr := serviceCommand(t, nil, c.name, args...); code != Failure || !strings.Contains(stderr, "unsupported") {
			t.Errorf("%s = %d, %q, want that it is not for this system", c.name, code, stderr)
		}
	}
}

// scriptCommand is a command of the program in the install script.
var scriptCommand = regexp.MustCompile(`\$program ((?:[a-z-]+ )?[a-z-]+) (-[^|}\r\n]*)`)

// TestInstallScriptCommands: each is one of ours, with flags that it has.
func TestInstallScriptCommands(t *testing.T) {
	if service.Here {
		t.Skip("it would take the service of this machine away")
	}
	script, err := os.ReadFile("../deploy/windows/install.ps1")
	if err != nil {
		t.Fatal(err)
	}
	all := append(everywhere(), serviceCommands()...)
	found := scriptCommand.FindAllStringSubmatch(string(script), -1)
	if len(found) < 6 {
		t.Errorf("the script has %d commands with flags, want at least 6", len(found))
	}
	for _, m := range found {
		c := find(all, m[1])
		if c == nil {
			t.Errorf("%q is not a command", m[1])
			continue
		}
		var problems strings.Builder
		args := strings.Fields(strings.NewReplacer("$config", "/no/config", "$data", "/no/data", "$Name", "x").Replace(m[2]))
		c.run(args, Env{Life: t.Context(), Stdout: &problems, Stderr: &problems, Getenv: func(string) string { return "" }, Defaults: defaults(t)})
		if strings.Contains(problems.String(), "flag") {
			t.Errorf("%s %q: %s", m[1], args, problems.String())
		}
	}
}

// documentedCommand is a command in the code of a page.
var documentedCommand = regexp.MustCompile("(?m)(?:^ {4}|`|&& )(?:\\S*=\\S+ |sudo )*(?:\\./)?/?retryproxy(?:-new)? ([^`#|>&\n]+)")

// quotedText is one argument in a shell.
var quotedText = regexp.MustCompile(`"[^"]*"`)

// TestDocumentedCommands: those of the pages for operators are ours, with flags that they have.
func TestDocumentedCommands(t *testing.T) {
	found := 0
	for _, page := range []string{"operations.md", "operations.zh-CN.md", "sizing.md", "security.md", "upgrade.md", "alert-runbook.md", "../deploy/README.md", "../deploy/prometheus/rules.yaml"} {
		text, err := os.ReadFile("../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range documentedCommand.FindAllStringSubmatch(string(text), -1) {
			args := strings.Fields(quotedText.ReplaceAllString(m[1], "text"))
			if args[0] == "…" || strings.HasPrefix(args[0], "*.") {
				continue
			}
			found++
			c, rest := match(args)
			if c == nil {
				t.Errorf("%s: %q is no command", page, m[1])
				continue
			}
			if c.name == "serve" || c.name == "store new-key" || c.name == "simulate" {
				continue // they would do it
			}
			nobody := func(e *Env) {
				e.Getenv = func(string) string { return "127.0.0.1:1" }
				e.CA = func(string, string) (intercept.Files, error) { return intercept.Files{}, os.ErrNotExist }
			}
			_, _, said := typed(t, nobody, append(strings.Fields(c.name), rest...)...)
			if strings.Contains(said, "flag provided") || strings.Contains(said, "needs an argument") || strings.Contains(said, ": want ") {
				t.Errorf("%s: %q: %s", page, m[1], said)
			}
		}
	}
	if found < 60 {
		t.Errorf("%d commands are documented, want at least 60", found)
	}
}
