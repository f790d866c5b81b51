package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"retryproxy/config"
	"retryproxy/service"
)

// serviceCommands are those of a system whose services are programs of a kind of
// their own: Windows.
func serviceCommands() []command {
	return []command{
		{"service install", "-config file [-data directory] [-name name]", "", "make the proxy a service that starts with the system (as administrator)", InstallService},
		{"service start", "[-name name]", "", "start the service", oneService("service start", "runs", service.Start)},
		{"service stop", "[-name name]", "", "stop the service: it drains", oneService("service stop", "has stopped", service.Halt)},
		{"service uninstall", "[-name name]", "", "stop the service and take it away; configuration and data stay", oneService("service uninstall", "is gone", service.Uninstall)},
		{"service run", "-config file [-data directory] [-name name]", "", "what the system starts; by hand it is serve", RunService},
	}
}

// serviceFlags are those of a service.
type serviceFlags struct {
	flags
	name, config, data *string
}

func newServiceFlags(command string, env Env) serviceFlags {
	f := newFlags(command, env)
	return serviceFlags{
		f, f.String("name", "retryproxy", "`name` of the service"),
		f.String("config", "", "configuration `file`; it needs log.file"),
		f.String("data", "", "`directory` for what must outlive the process, as with serve"),
	}
}

// serviceName is what Windows, an account name and a shell all take.
var serviceName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,79}$`)

// spec reads the arguments, of which files are made absolute, and the configuration.
func (f serviceFlags) spec(args []string) (s service.Spec, code int, ok bool) {
	if _, code, ok = f.parse(args, 0, 0); !ok {
		return s, code, false
	}
	conf, err := f.checked()
	if err != nil {
		fmt.Fprintln(f.env.Stderr, err)
		return s, Usage, false
	}
	s = service.Spec{Name: *f.name, Drain: conf.Drain}
	for _, path := range [...]struct{ flag, value string }{{"-config", *f.config}, {"-data", *f.data}} {
		if path.value == "" {
			continue
		}
		whole, err := filepath.Abs(path.value)
		if err != nil {
			return s, f.env.failed(err), false
		}
		s.Serve = append(s.Serve, path.flag, whole)
	}
	return s, OK, true
}

// checked says why the service could not run, while there is somebody to read it.
func (f serviceFlags) checked() (*config.Config, error) {
	switch {
	case !serviceName.MatchString(*f.name):
		return nil, fmt.Errorf("-name: %q must be a letter followed by letters, digits, - or _, at most 80", *f.name)
	case *f.config == "":
		return nil, errors.New("-config: a service needs a configuration file, which has log.file")
	}
	conf, err := f.env.load(*f.config)
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(conf.Log.File) {
		return nil, conf.Fault("log.file", errors.New("a service has nobody who reads its standard error: name a file, with its whole path"))
	}
	if f.env.Check != nil {
		err = f.env.Check(conf)
	}
	return conf, err
}

// InstallService makes the proxy a service.
func InstallService(args []string, env Env) int {
	s, code, ok := newServiceFlags("service install", env).spec(args)
	if !ok {
		return code
	}
	if err := service.Install(s); err != nil {
		return env.failed(err)
	}
	fmt.Fprintf(env.Stdout, `the service %[1]s is installed and runs as the account "NT SERVICE\%[1]s", which must be able to
  read   the configuration and the secrets that it names
  write  the folders of -data and of log.file: icacls FOLDER /grant "NT SERVICE\%[1]s:(OI)(CI)M"
then: retryproxy service start -name %[1]s
`, s.Name)
	return OK
}

// oneService is a command that does one thing with an installed service.
func oneService(command, done string, do func(name string) error) func([]string, Env) int {
	return func(args []string, env Env) int {
		f := newFlags(command, env)
		name := f.String("name", "retryproxy", "`name` of the service")
		if _, code, ok := f.parse(args, 0, 0); !ok {
			return code
		}
		if err := do(*name); err != nil {
			return env.failed(err)
		}
		fmt.Fprintf(env.Stdout, "the service %s %s\n", *name, done)
		return OK
	}
}

// RunService serves under the service control manager. What the configuration names
// by a path that is not whole is looked for beside it.
func RunService(args []string, env Env) int {
	f := newServiceFlags("service run", env)
	if _, code, ok := f.parse(args, 0, 0); !ok {
		return code
	}
	code, err := service.Run(*f.name, func(life context.Context, stdout, stderr io.Writer) int {
		inside := env
		inside.Life, inside.Stdout, inside.Stderr = life, stdout, stderr
		return serveAsService(args, inside)
	})
	if err != nil {
		return env.failed(err)
	}
	return code
}

// serveAsService serves as the arguments of `service run` say.
func serveAsService(args []string, env Env) int {
	f := newServiceFlags("service run", env)
	s, code, ok := f.spec(args)
	if !ok {
		return code
	}
	if err := os.Chdir(filepath.Dir(*f.config)); err != nil {
		return env.failed(err)
	}
	return env.Serve(env, s.Serve)
}
