package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"retryproxy/config"
	"retryproxy/simulate"
)

// Simulate runs a scenario on virtual time and prints what came of it.
func Simulate(args []string, env Env) int {
	f := newFlags("simulate", env)
	var files []string
	f.Func("config", "configuration `file` in the place of those of the scenario; twice: both, side by side", func(name string) error {
		files = append(files, name)
		return nil
	})
	seed := f.Int("seed", -1, "of chance (default: the scenario's); the same `number` gives the same result")
	csv := f.String("csv", "", "write each second of each run to a `file`; - is standard output, instead of the report")
	svg := f.String("svg", "", "draw the runs over time in a `file` that browsers show; - as well")
	asJSON := f.Bool("json", false, "print the report as JSON")
	list := f.Bool("list", false, "list the scenarios that come with the program")
	rest, code, ok := f.parse(args, 0, 1)
	if !ok {
		return code
	}
	switch {
	case *list && len(rest) == 0:
		return env.listScenarios()
	case *list || len(rest) == 0:
		return env.wrong("simulate: want a scenario, the name of one that -list shows or a file; or -list alone")
	case *csv == "-" && *svg == "-":
		return env.wrong("simulate: -csv and -svg cannot both go to standard output")
	}
	report, err := env.simulate(rest[0], files, *seed)
	if err != nil {
		return env.failed(err)
	}
	if err := env.writeSimulation(report, *csv, *svg, *asJSON); err != nil {
		return env.failed(err)
	}
	return OK
}

// simulate runs a scenario, with configuration files of one's own where there are any.
func (e Env) simulate(scenario string, files []string, seed int) (*simulate.Report, error) {
	name, data, err := e.scenario(scenario)
	if err != nil {
		return nil, &usageError{err}
	}
	s, err := simulate.Parse(name, data)
	if err != nil {
		return nil, &usageError{err}
	}
	if len(files) > 0 {
		s.Against(files)
	}
	if seed >= 0 {
		s.Seed = seed
	}
	// No secret matters here, so none has to be there.
	opt := config.Options{StandIn: standIn, Getenv: func(name string) string {
		if value := e.Getenv(name); value != "" {
			return value
		}
		return standIn
	}}
	report, err := simulate.Simulate(e.Life, s, opt)
	switch {
	case e.Life.Err() != nil:
		return nil, errors.New("simulate: interrupted")
	case err != nil:
		return nil, &usageError{err}
	}
	return report, nil
}

// scenario finds one that comes with the program by its name, else a file.
func (e Env) scenario(name string) (file string, data []byte, err error) {
	if data, err = fs.ReadFile(e.Scenarios, name+".yaml"); err == nil {
		return name + ".yaml", data, nil
	}
	data, err = os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(name, `./\`) {
		return "", nil, fmt.Errorf("%q is neither a file nor one of the scenarios that come with the program (-list)", name)
	}
	return name, data, err
}

// listScenarios prints the name of each, and what it is about.
func (e Env) listScenarios() int {
	files, err := fs.Glob(e.Scenarios, "*.yaml")
	if err != nil {
		return e.failed(err)
	}
	slices.Sort(files)
	for _, file := range files {
		data, err := fs.ReadFile(e.Scenarios, file)
		if err != nil {
			return e.failed(err)
		}
		s, err := simulate.Parse(file, data)
		if err != nil {
			return e.failed(err)
		}
		fmt.Fprintf(e.Stdout, "%s\n    %s\n", s.Name, strings.TrimSpace(s.About))
	}
	return OK
}

// writeSimulation writes what was asked for; the report goes to standard output
// unless something else does.
func (e Env) writeSimulation(r *simulate.Report, csv, svg string, asJSON bool) error {
	for _, out := range []struct {
		file  string
		write func(io.Writer) error
	}{{csv, r.WriteCSV}, {svg, r.WriteSVG}} {
		if err := e.writeTo(out.file, out.write); err != nil {
			return err
		}
	}
	switch {
	case csv == "-" || svg == "-":
		return nil
	case asJSON:
		enc := json.NewEncoder(e.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	return r.WriteText(e.Stdout)
}

// writeTo writes to a file, to standard output, or nowhere.
func (e Env) writeTo(file string, write func(io.Writer) error) error {
	switch file {
	case "":
		return nil
	case "-":
		return write(e.Stdout)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
