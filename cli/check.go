package cli

import (
	"fmt"
	"os"

	"retryproxy/config"
)

// load reads a configuration file, or the built-in one when file is empty.
func (e Env) load(file string) (*config.Config, error) {
	name, data := "built-in configuration", e.Defaults
	if file != "" {
		var err error
		name = file
		if data, err = os.ReadFile(file); err != nil {
			return nil, &usageError{err}
		}
	}
	c, err := config.Parse(name, data, config.Options{Getenv: e.Getenv, StandIn: e.standIn})
	if err != nil {
		return nil, &usageError{err}
	}
	return c, nil
}

// Check validates a configuration and prints the effective one, or all its faults.
func Check(args []string, env Env) int {
	f := newFlags("check", env)
	file := f.String("config", "", "configuration `file`; without it the built-in one")
	if _, code, ok := f.parse(args, 0, 0); !ok {
		return code
	}
	c, err := env.load(*file)
	if err != nil {
		fmt.Fprintln(env.Stderr, err)
		return Usage
	}
	if env.Check != nil {
		err = env.Check(c)
	}
	if err != nil {
		fmt.Fprintln(env.Stderr, err)
		return Usage
	}
	for _, w := range c.Warnings() {
		fmt.Fprintln(env.Stderr, "warning:", w)
	}
	if _, err := env.Stdout.Write(c.Marshal()); err != nil {
		return env.failed(err)
	}
	return OK
}
