package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"retryproxy/presets"
)

// presetFlags are those of all preset commands.
type presetFlags struct{ config, dir *string }

func (f flags) presets() presetFlags {
	return presetFlags{
		f.String("config", "", "configuration `file` whose presets.dir counts as well"),
		f.String("dir", "", "a `folder` of presets of your own instead"),
	}
}

// load reads the built-in presets and those of the operator.
func (p presetFlags) load(env Env) (*presets.Set, error) {
	dir := *p.dir
	if dir == "" && *p.config != "" {
		cfg, err := env.load(*p.config)
		if err != nil {
			return nil, err
		}
		dir = cfg.Presets.Dir
	}
	set, err := presets.Load(dir)
	if err != nil {
		return nil, &usageError{err}
	}
	return set, nil
}

// Presets lists the presets.
func Presets(args []string, env Env) int {
	f := newFlags("preset ls", env)
	p := f.presets()
	if _, code, ok := f.parse(args, 0, 0); !ok {
		return code
	}
	set, err := p.load(env)
	if err != nil {
		return env.failed(err)
	}
	w := tabwriter.NewWriter(plain{env.Stdout}, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tVERSION\tCONFIDENCE\tFROM\tHOSTS\tTITLE")
	for _, p := range set.List() {
		from, hosts := "yours", strings.Join(p.Hosts, " ")
		if p.Builtin {
			from = "built in"
		}
		if !p.Enabled {
			hosts = "(where it is named) " + hosts
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, p.Version, p.Confidence, from, hosts, p.Title)
	}
	if err := w.Flush(); err != nil {
		return env.failed(err)
	}
	return OK
}

// ShowPreset shows what a preset knows, and from where.
func ShowPreset(args []string, env Env) int {
	f := newFlags("preset show", env)
	p := f.presets()
	rest, code, ok := f.parse(args, 1, 1)
	if !ok {
		return code
	}
	set, err := p.load(env)
	if err == nil && set.Named(rest[0]) == nil {
		err = &usageError{fmt.Errorf("there is no preset %q; retryproxy preset ls lists them", rest[0])}
	}
	if err == nil {
		err = tellPreset(plain{env.Stdout}, set.Named(rest[0]))
	}
	if err != nil {
		return env.failed(err)
	}
	return OK
}

func tellPreset(out io.Writer, p *presets.Preset) error {
	fmt.Fprintf(out, "%s: %s\nversion %s, confidence %s\n", p.Name, p.Title, p.Version, orNone(p.Confidence))
	list := func(name string, items []string) {
		if len(items) > 0 {
			fmt.Fprintf(out, "%s:\n  %s\n", name, strings.Join(items, "\n  "))
		}
	}
	list("hosts", p.Hosts)
	if !p.Enabled {
		fmt.Fprintln(out, "used only where a route or a policy names it")
	}
	list("sources", p.Sources)
	list("notes", p.Notes)
	list("reads", p.Reads.Operations)
	list("writes, whatever they are called", p.Reads.Except)
	list("never retried once sent", p.Scarce)
	if p.Sign != nil {
		fmt.Fprintf(out, "signature: %s %s, holds for %s, needs the credential %s\n", p.Sign.Family, p.Sign.Digest, p.Sign.Window, p.Sign.Secret)
	}
	if p.Query != nil {
		fmt.Fprintf(out, "orders in doubt are asked about after %s, every %s, %d times\n", p.Query.Plan.FirstAfter, p.Query.Plan.Every, p.Query.Plan.Max)
	}
	fmt.Fprintln(out, "rules:")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  RULE\tIS\tWHEN\tNOTE")
	for i := range p.Rules {
		r := &p.Rules[i]
		note := r.Why
		if !r.Enabled {
			note = "OFF: " + note
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", r.Name, r.Is, r.When(), note)
	}
	return w.Flush()
}

func orNone(text string) string {
	if text == "" {
		return "not given"
	}
	return text
}

// TestPresets judges the fixtures of presets, all of them or those that are named.
func TestPresets(args []string, env Env) int {
	f := newFlags("preset test", env)
	p := f.presets()
	names, code, ok := f.parse(args, 0, 100)
	if !ok {
		return code
	}
	set, err := p.load(env)
	if err != nil {
		return env.failed(err)
	}
	list := set.List()
	if len(names) > 0 {
		list = nil
		for _, name := range names {
			chosen := set.Named(name)
			if chosen == nil {
				return env.failed(&usageError{fmt.Errorf("there is no preset %q; retryproxy preset ls lists them", name)})
			}
			list = append(list, chosen)
		}
	}
	faults, fixtures := 0, 0
	out := plain{env.Stdout}
	for _, p := range list {
		fixtures += len(p.Fixtures)
		for _, err := range p.Test() {
			faults++
			fmt.Fprintf(out, "%s: %v\n", p.Name, err)
		}
	}
	fmt.Fprintf(out, "%d presets, %d fixtures, %d failed\n", len(list), fixtures, faults)
	if faults > 0 {
		return Failure
	}
	return OK
}

// readAnswer reads a body, or a whole answer as curl -i prints it; - is standard input.
func (e Env) readAnswer(file string) (a presets.Response, err error) {
	var data []byte
	if file == "-" {
		data, err = io.ReadAll(io.LimitReader(e.Stdin, mostJudged))
	} else {
		data, err = os.ReadFile(file)
	}
	a = presets.Response{Head: data, Whole: true}
	if err != nil || !strings.HasPrefix(string(data), "HTTP/") {
		return a, err
	}
	head, body, ok := strings.Cut(string(data), "\r\n\r\n")
	if !ok {
		head, body, ok = strings.Cut(string(data), "\n\n")
	}
	lines := strings.Split(strings.ReplaceAll(head, "\r\n", "\n"), "\n")
	if _, err := fmt.Sscanf(lines[0], "HTTP/%s %d", new(string), &a.Status); err != nil || !ok {
		return a, errors.New("the answer begins like HTTP and is none: want a status line, header lines, an empty line and the body")
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		a.Fields.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	a.Head = []byte(body)
	return a, nil
}

// mostJudged bounds what is read of an answer to be judged.
const mostJudged = 16 << 20
