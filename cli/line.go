package cli

import (
	"fmt"
	"net/url"
	"time"
)

// ExpediteCall has a call that waits go on at once, as far as the proxy lets it.
func ExpediteCall(args []string, env Env) int { return orderCall("expedite", args, env) }

// CancelCall ends a call that waits without another attempt.
func CancelCall(args []string, env Env) int { return orderCall("cancel", args, env) }

// orderCall gives an order about a call that waits.
func orderCall(order string, args []string, env Env) int {
	f := newFlags("calls "+order, env)
	r := f.remote()
	who := f.signed()
	rest, code, ok := f.parse(args, 1, 1)
	if !ok {
		return code
	}
	if err := who.CheckNamed(); err != nil {
		return env.wrong("calls " + order + ": -by NAME is needed: it is kept with the record")
	}
	c, err := r.client(env)
	var told struct {
		Detail, Executed, Record string
		NextAt                   time.Time `json:"next_at"`
	}
	if err == nil {
		err = c.order("POST", "/api/v1/calls/"+url.PathEscape(rest[0])+"/"+order, who, &told)
	}
	if err != nil {
		return env.failed(err)
	}
	out := plain{env.Stdout}
	fmt.Fprint(out, told.Detail)
	if !told.NextAt.IsZero() {
		fmt.Fprint(out, moment(", date ", &told.NextAt, time.Now()))
	}
	if told.Executed != "" {
		fmt.Fprintf(out, "; executed: %s", told.Executed)
	}
	if told.Record != "" {
		fmt.Fprintf(out, "; its record is %s", told.Record)
	}
	fmt.Fprintf(out, "\nwhat became of it: retryproxy why%s %s\n", r.again(), rest[0])
	return OK
}
