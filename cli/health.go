package cli

import "fmt"

// Health asks a running proxy whether it takes calls: the health check of a
// container. The health listener is asked where the configuration has one.
func Health(args []string, env Env) int {
	f := newFlags("health", env)
	r := f.remote()
	if _, code, ok := f.parse(args, 0, 0); !ok {
		return code
	}
	if *r.admin == "" && *r.config != "" {
		c, err := env.load(*r.config)
		if err != nil {
			return env.failed(err)
		}
		if c.Listen.Health != "" {
			*r.admin = c.Listen.Health
		}
	}
	c, err := r.client(env)
	if err != nil {
		return env.failed(err)
	}
	if _, err = c.do("GET", "/readyz", nil); err != nil {
		return env.failed(err)
	}
	fmt.Fprintln(env.Stdout, "ready")
	return OK
}
