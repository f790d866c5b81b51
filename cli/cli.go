// Package cli answers one question: what does a command that was typed print, and how does it end?
//
// Commands are functions of their arguments and an Env. What needs a proxy in
// this process (serve, demo, explaining a configuration) comes in as a func.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"retryproxy/config"
	"retryproxy/doctor"
	"retryproxy/intercept"
	"retryproxy/message"
	"retryproxy/service"
)

// Exit codes.
const (
	OK      = 0
	Failure = 1
	Usage   = 2 // also a bad configuration
)

// Env is what a command has of the world.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Version        string          // set by -ldflags; empty: the build info's
	Defaults       []byte          // the built-in configuration
	Life           context.Context // ends when the command is to stop
	Scenarios      fs.FS           // of simulate that come with the program: NAME.yaml
	standIn        string          // see config.Options

	// Check says why serve would refuse to run a valid configuration here. May be nil.
	Check func(c *config.Config) error

	Serve func(env Env, args []string) int // until env.Life ends
	Demo  func(args []string) int
	// Explain says what a proxy with this configuration would do; the answer
	// has the JSON of the admin API.
	Explain func(c *config.Config, q Question) (any, error)
	// Doctor gives what only a wired proxy has (Send, Egress, Roots), and the machine; end gives it
	// back. nil: upstreams and egress are not examined.
	Doctor func(c *config.Config) (w doctor.World, end func(), err error)
	// Reseal seals all of the store in a directory by the first key of the
	// configuration, and says how many requests and answers that changed.
	Reseal func(c *config.Config, dir string) (rows int, err error)
	// CA says where our certificate authority is kept: as the configuration
	// file says, else in the data directory. Either may be empty: the built-in
	// configuration, the usual directory.
	CA func(configFile, dataDir string) (intercept.Files, error)
}

// Question is a call that is asked about but not made.
type Question struct {
	Method string
	URL    string // absolute, or a path for a route, or host:port for CONNECT
	Fields message.Fields
	Body   []byte
}

// command is one line of the usage.
type command struct {
	name, flags, args, help string
	run                     func(args []string, env Env) int
}

func commands() []command {
	if service.Here {
		return append(everywhere(), serviceCommands()...)
	}
	return everywhere()
}

// everywhere are the commands that there are on all systems.
func everywhere() []command {
	return []command{
		{"serve", "[-config file] [-data directory] [-listen address] [-route /prefix=url] [-upgrade host]", "", "run the proxy", serve},
		{"demo", "[-serve]", "", "a proxy, a misbehaving upstream and a walk-through", demo},
		{"check", "[-config file]", "", "check a configuration and print it with all defaults", Check},
		{"explain", "[-config file | -admin address] [-json] [-X method] [-H header] [-d body] [-response file [-status n] [-preset name]]", "URL", "what would become of a call, without making it", Explain},
		{"health", "[-admin address]", "", "ask a running proxy whether it takes calls", Health},
		{"calls", "[-key key] [-text text] [-shop shop] [-host host] [-since time] … [-json | -csv]", "", "calls of a running proxy, those in progress and past ones", Calls},
		{"calls expedite", "-by NAME [-note WHY]", "ID", "have a call that waits go on now, as far as breakers, slots and tokens let it", ExpediteCall},
		{"calls cancel", "-by NAME [-note WHY]", "ID", "end a call that waits, without another attempt", CancelCall},
		{"why", "[-admin address]", "CALL|KEY|TEXT", "what became of an order: by call id, idempotency key, or a text such as its number", Why},
		{"retries", "[-for 30m] [-host host] [-shop shop] [-task-type type]", "[on|off|observe]", "show or turn the switch of a running proxy", Retries},
		{"shops", "[-json]", "[resume SHOP -by NAME -note WHY]", "what platforms stopped: dead tokens, risk control, quotas; or let a shop go on", Shops},
		{"breakers", "[-json]", "[reset HOST|SHOP@HOST|egress:NAME]", "who is cut off, since when, how many wait and until when; or close a breaker by hand", Breakers},
		{"alerts", "[-rule rule] [-json]", "[test]", "what is firing, or a test message to those who are told", Alerts},
		{"ca", "[-config file] [-data directory] [-admin address] [-pem]", "", "the certificate that clients have to trust where tunnels are opened", CA},
		{"store new-key", "[-id name]", "", "make a key for store.key, under which calls on disk are sealed", NewStoreKey},
		{"store reseal", "-config file [-data directory]", "", "seal all of a store by the first key, while no proxy uses it", Reseal},
		{"hash-password", "", "", "hash a password for clients.users, read from the terminal or a pipe", HashPassword},
		{"version", "", "", "print the version", Version},
		{"doctor", "[-config file] [-data dir] [-admin address] [-json] [-offline]", "", "find out why calls fail or are not retried, with the lines that mend it", Doctor},
		{"simulate", "[-config file]… [-seed n] [-csv file] [-svg file] [-json] | -list", "SCENARIO", "try configurations on a simulated platform and its outages, on virtual time", Simulate},
		{"deadletters ls", "[conditions] [-limit n] [-json]", "", "calls that were given up, the latest first", LettersList},
		{"deadletters summary", "[conditions] [-json]", "", "how many there are, by reason, host and shop", LettersSummary},
		{"deadletters show", "[-reveal] [-json]", "ID", "one of them: what happened, and what to do", LettersShow},
		{"deadletters requeue", "[-executed-unknown] [-at 2h] | [conditions] [-dry-run] [-rate 5/s] [-canary n] [-at 2h] | -status | -stop", "[ID]", "run one of them again, or all that the conditions mean", LettersRequeue},
		{"deadletters resolve", "-executed|-not-executed -by name -note text", "ID", "settle one and its key, after a look at the upstream", LettersResolve},
		{"deadletters drop", "[conditions] [-dry-run] -by name -note text", "[ID]", "give one up for good, or all that the conditions mean", LettersDrop},
		{"deadletters export", "[conditions] [-format jsonl|csv] [-reveal]", "", "write them to standard output, the oldest first", LettersExport},
		{"preset ls", "[-config file | -dir folder]", "", "what is known of which platforms", Presets},
		{"preset show", "[-config file | -dir folder]", "NAME", "one of them: sources, what is uncertain, rules", ShowPreset},
		{"preset test", "[-config file | -dir folder]", "[NAME]…", "judge the answers that presets hold as examples", TestPresets},
		{"report", "[-policy name] [-reset] [-json]", "", "what retries saved, and which variant of a policy does better", Report},
	}
}

// Run runs the command that args name; without any it serves.
func Run(args []string, env Env) int {
	if len(args) == 0 {
		return serve(nil, env)
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		if len(args) > 1 && args[0] == "help" {
			return Run(append(slices.Clone(args[1:]), "-h"), env)
		}
		PrintUsage(env.Stdout)
		return OK
	case "-version", "--version":
		return Version(args[1:], env)
	}
	c, rest := match(args)
	switch {
	case c == nil && half(args[0]):
		return oneOf(args, env)
	case c == nil:
		PrintUsage(env.Stderr)
		return env.wrong("%q is not a command", args[0])
	}
	return c.run(rest, env)
}

// match finds the command that args begin with, and what follows its name, which
// may be two words.
func match(args []string) (c *command, rest []string) {
	for n := min(len(args), 2); n > 0; n-- {
		if c := find(commands(), words(args[:n]...)); c != nil {
			return c, args[n:]
		}
	}
	return nil, nil
}

// half says that there are commands of two words that begin with this one.
func half(word string) bool {
	return slices.ContainsFunc(commands(), func(c command) bool { return strings.HasPrefix(c.name, word+" ") })
}

// oneOf lists the commands that begin with the first word.
func oneOf(args []string, env Env) int {
	out, code := env.Stderr, Usage
	if slices.ContainsFunc(args, func(a string) bool { return a == "-h" || a == "-help" || a == "--help" }) {
		out, code = env.Stdout, OK
	}
	fmt.Fprintln(out, "one of:")
	for _, c := range commands() {
		if strings.HasPrefix(c.name, args[0]+" ") {
			fmt.Fprintf(out, "  %s\n      %s\n", words(c.name, c.flags, c.args), c.help)
		}
	}
	if code != OK {
		return env.wrong("%s: which of these?", args[0])
	}
	return code
}

// IsCommand says whether a flag in the place of the command is one: help or version.
func IsCommand(flag string) bool {
	switch flag {
	case "-h", "-help", "--help", "-version", "--version":
		return true
	}
	return false
}

// find gives the command of that name; nil: there is none.
func find(all []command, name string) *command {
	if i := slices.IndexFunc(all, func(c command) bool { return c.name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

func serve(args []string, env Env) int { return env.Serve(env, args) }
func demo(args []string, env Env) int  { return env.Demo(args) }

// PrintUsage lists all commands.
func PrintUsage(w io.Writer) {
	fmt.Fprint(w, "retryproxy stands before upstreams and repeats calls that failed for a passing reason.\n\nusage: retryproxy COMMAND [flags] [ARGS]\n\n")
	for _, c := range commands() {
		help := c.help
		if c.run == nil {
			help += " (not in this version)"
		}
		fmt.Fprintf(w, "  %s\n      %s\n", words(c.name, c.flags, c.args), help)
	}
	fmt.Fprint(w, `
retryproxy help COMMAND lists the flags of one.
Commands about a running proxy ask its admin listener: -admin host:port, else
RETRYPROXY_ADMIN, else the one of the configuration (-config f, else the
built-in one). A token comes from RETRYPROXY_TOKEN or the configuration.
Exit codes: 0 well, 1 failure, 2 wrong usage or configuration.
`)
}

// CommandUsage prints the usage of a command, named as its flags are: one line,
// what it does, its flags.
func CommandUsage(set *flag.FlagSet) {
	c := find(append(everywhere(), serviceCommands()...), set.Name())
	flags := ""
	set.VisitAll(func(*flag.Flag) { flags = "[flags]" })
	fmt.Fprintf(set.Output(), "usage: retryproxy %s\n%s\n", words(c.name, flags, c.args), c.help)
	set.PrintDefaults()
}

// words joins what is there.
func words(list ...string) string {
	return strings.Join(slices.DeleteFunc(list, func(s string) bool { return s == "" }), " ")
}

// wrong reports wrong usage.
func (e Env) wrong(format string, args ...any) int {
	fmt.Fprintf(e.Stderr, "retryproxy: "+format+"\n", args...)
	return Usage
}

// failed reports a failure; wrong usage or configuration is told apart by its type.
func (e Env) failed(err error) int {
	fmt.Fprintf(e.Stderr, "retryproxy: %v\n", err)
	if _, bad := errors.AsType[*usageError](err); bad {
		return Usage
	}
	return Failure
}

// usageError is an error that ends with Usage.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// flags are those of one command.
type flags struct {
	*flag.FlagSet
	env Env
}

func newFlags(name string, env Env) flags {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(env.Stderr)
	f.Usage = func() { CommandUsage(f) }
	return flags{f, env}
}

// parse reads flags and arguments in any order. When ok is false the command
// ends with code: a wrong flag, a wrong number of arguments, or -h.
func (f flags) parse(args []string, least, most int) (rest []string, code int, ok bool) {
	for {
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, OK, false
		} else if err != nil {
			return nil, Usage, false
		}
		if f.NArg() == 0 {
			break
		}
		rest, args = append(rest, f.Arg(0)), f.Args()[1:]
	}
	if len(rest) < least || len(rest) > most {
		f.Usage()
		return nil, f.env.wrong("%s: want %s", f.Name(), wanted(least, most)), false
	}
	return rest, OK, true
}

// wanted says how many arguments a command takes.
func wanted(least, most int) string {
	switch {
	case most == 0:
		return "no argument"
	case least == 0:
		return "at most one argument"
	}
	return "one argument"
}
