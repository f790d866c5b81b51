package cli

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"retryproxy/attempt"
)

// call is a call as the admin API shows it, as far as it is printed here.
type call struct {
	ID, Mode, Policy, State, Result, Reason, Detail string

	NextAt   time.Time `json:"next_at"`
	Cause    string
	Place    int
	Status   int
	Executed string

	Labels             attempt.Labels
	User, Client       string
	Method, Host, Path string
	KeyHash            string `json:"key_hash"`

	Started    time.Time
	DurationMS int64 `json:"duration_ms"`
	Previous   int   `json:"previous_attempts"`
	Attempts   []tried
}

// tried is one attempt of a call.
type tried struct {
	N                     int
	Started               time.Time
	DurationMS            int64 `json:"duration_ms"`
	Class, Reason, Detail string
	Status                int
	DelayMS               int64 `json:"delay_ms"`
	Cause, Host, Basis    string
	Egress                string
	Executed              string
	RetryAfterMS          int64 `json:"retry_after_ms"`
}

// Calls lists the waiting and recent calls of a running proxy.
func Calls(args []string, env Env) int {
	f := newFlags("calls", env)
	r := f.remote()
	query := url.Values{}
	for name, help := range map[string]string{
		"shop": "only of this `shop`", "host": "only to this `host`, with or without a port", "task_type": "only of this `type`",
	} {
		f.Func(strings.ReplaceAll(name, "_", "-"), help, func(v string) error { query.Set(name, v); return nil })
	}
	f.Func("state", "only in this `state`: running, waiting, done", func(v string) error {
		if v != "running" && v != "waiting" && v != "done" {
			return errors.New("want running, waiting or done")
		}
		query.Set("state", v)
		return nil
	})
	limit := f.Uint("limit", 50, "at most `n` calls")
	raw := f.Bool("json", false, "print the JSON of the admin API")
	if _, code, ok := f.parse(args, 0, 0); !ok {
		return code
	}
	query.Set("limit", strconv.FormatUint(uint64(*limit), 10))
	c, err := r.client(env)
	if err != nil {
		return env.failed(err)
	}
	if err := c.printCalls(env, "/api/v1/calls?"+query.Encode(), *raw); err != nil {
		return env.failed(err)
	}
	return OK
}

// printCalls prints a list of calls as a table, or as it came.
func (c *client) printCalls(env Env, path string, raw bool) error {
	if raw {
		text, err := c.do("GET", path, nil)
		if err == nil {
			_, err = env.Stdout.Write(text)
		}
		return err
	}
	var calls []call
	if err := c.get(path, &calls); err != nil {
		return err
	}
	if len(calls) == 0 {
		fmt.Fprintln(env.Stdout, "no such calls")
		return nil
	}
	return table(env.Stdout, calls)
}

// table writes one line for each call. The egress is shown where any call had one.
func table(out io.Writer, calls []call) error {
	head, through := "", func(*call) string { return "" }
	if slices.ContainsFunc(calls, func(k call) bool { return k.egress() != "" }) {
		head, through = "EGRESS\t", func(k *call) string { return orDash(k.egress()) + "\t" }
	}
	w := tabwriter.NewWriter(plain{out}, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "ID\tSTARTED\tSTATE\tCALL\tPOLICY\tSHOP\t%sTRIES\tWHAT\n", head)
	for i := range calls {
		k := &calls[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s %s%s\t%s\t%s\t%s%d\t%s\n", k.ID, k.Started.Local().Format("15:04:05"), k.State,
			k.Method, k.Host, k.Path, orDash(k.Policy), orDash(k.Labels.Shop), through(k), len(k.Attempts), k.what())
	}
	return w.Flush()
}

// egress names the egress proxy of the last attempt; empty: none.
func (k *call) egress() string {
	if n := len(k.Attempts); n > 0 {
		return k.Attempts[n-1].Egress
	}
	return ""
}

// what says in a few words how the call stands.
func (k *call) what() string {
	switch {
	case k.State == "done" && k.suspect():
		return fmt.Sprintf("%d %s, but its body says failure", k.Status, k.Result)
	case k.State == "done":
		return strings.TrimSpace(fmt.Sprintf("%d %s %s", k.Status, k.Result, unless(k.Reason, "ok")))
	case k.State == "running":
		return k.doing()
	case k.Cause == "":
		return ""
	}
	text := "for " + k.Cause
	if k.Place > 0 {
		text += fmt.Sprintf(", place %d", k.Place)
	}
	if !k.NextAt.IsZero() {
		text += ", until " + k.NextAt.Local().Format("15:04:05")
	}
	return text
}

// doing says what a running call does. A verdict that ends the call comes before
// its answer has gone to the client.
func (k *call) doing() string {
	n := len(k.Attempts)
	switch {
	case k.Policy == "":
		return "the request is being read"
	case n > 0 && k.Attempts[n-1].Class != "transient":
		return "the answer is on its way"
	}
	return fmt.Sprintf("attempt %d is in flight", n+1)
}

// suspect says whether the answer was a success by its status only.
func (k *call) suspect() bool {
	n := len(k.Attempts)
	return n > 0 && k.Attempts[n-1].Reason == "suspect"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// unless gives s, or nothing where it says nothing.
func unless(s, nothing string) string {
	if s == nothing {
		return ""
	}
	return s
}
