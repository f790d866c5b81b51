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
	"retryproxy/idempotency"
	"retryproxy/journal"
)

// call is a call as the admin API shows it, as far as it is printed here.
type call struct {
	ID, Origin, Mode, Policy, State, Result, Reason, Detail string

	NextAt    time.Time `json:"next_at"`
	Cause     string
	Dimension string
	Lane      string
	Place     int
	Status    int
	Executed  string

	Labels             attempt.Labels
	User, Client       string
	Method, Host, Path string
	KeyHash            string `json:"key_hash"`
	ClientID           string `json:"client_request_id"`

	Started    time.Time
	Ended      *time.Time
	DurationMS int64 `json:"duration_ms"`
	Previous   int   `json:"previous_attempts"`
	Attempts   []tried
}

// tried is one attempt of a call.
type tried attempt.FullView

// Calls lists calls of a running proxy: those in progress, and those of its history.
func Calls(args []string, env Env) int {
	f := newFlags("calls", env)
	r := f.remote()
	query := f.queryOfCalls()
	raw := f.Bool("json", false, "print the JSON of the admin API")
	comma := f.Bool("csv", false, "print CSV, all of it unless -limit is given")
	if _, code, ok := f.parse(args, 0, 0); !ok {
		return code
	}
	if *comma {
		query.Set("format", "csv")
	} else if !query.Has("limit") {
		query.Set("limit", "50")
	}
	c, err := r.client(env)
	if err != nil {
		return env.failed(err)
	}
	if path := "/api/v1/calls?" + query.Encode(); *comma || *raw {
		err = c.stream(path, env.Stdout)
	} else {
		err = c.printCalls(env, path)
	}
	if err != nil {
		return env.failed(err)
	}
	return OK
}

// queryOfCalls are the flags that say which calls are meant, as the API wants them.
func (f flags) queryOfCalls() url.Values {
	query := url.Values{}
	for name, help := range map[string]string{
		"shop": "only of this `shop`", "host": "only to this `host`, with or without a port", "task_type": "only of this `type`",
		"text":   "only those that said this `text` in path, query, body or request ids: whole words, such as an order number",
		"result": "only with this `result`: success, recovered, replay, failed, rejected, cancelled",
		"reason": "only with this `reason` at the end or of an attempt, such as attempts_exhausted or status_503",
	} {
		f.Func(strings.ReplaceAll(name, "_", "-"), help, func(v string) error { query.Set(name, v); return nil })
	}
	f.Func("key", "only with this idempotency `key`; its hash is sent, the key is not", func(v string) error {
		query.Set("key_hash", idempotency.KeyHash(v))
		return nil
	})
	f.Func("key-hash", "only with the key of this `hash`, as logs show it", func(v string) error { query.Set("key_hash", v); return nil })
	f.Func("state", "only in this `state`: running, waiting, parked, done", func(v string) error {
		if !slices.Contains([]string{"running", "waiting", "parked", "done"}, v) {
			return errors.New("want running, waiting, parked or done")
		}
		query.Set("state", v)
		return nil
	})
	for name, help := range map[string]string{"since": "that ended at this `time` or later: 2026-03-04, 2026-03-04T15:04, or how long ago: 3d, 90m", "until": "that ended before this `time`"} {
		f.Func(name, help, func(v string) error {
			at, err := journal.ParseWhen(v, time.Now())
			query.Set(name, at.Format(time.RFC3339Nano))
			return err
		})
	}
	f.Func("limit", "at most `n` calls (default 50)", func(v string) error {
		n, err := strconv.ParseUint(v, 10, 31)
		if err != nil || n == 0 {
			return errors.New("want a number above 0")
		}
		query.Set("limit", v)
		return nil
	})
	return query
}

// printCalls prints a list of calls as a table.
func (c *client) printCalls(env Env, path string) error {
	var calls []call
	more, err := c.page(path, &calls)
	if err != nil {
		return err
	}
	if len(calls) == 0 {
		fmt.Fprintln(env.Stdout, "no such calls")
		return nil
	}
	if err := table(env.Stdout, calls); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(env.Stdout, "and older ones: -since, -until and the other flags narrow the list, -limit makes it longer\n")
	}
	return nil
}

// table writes one line for each call. The egress is shown where any call had one,
// the date where they are not all of today.
func table(out io.Writer, calls []call) error {
	head, through := "", func(*call) string { return "" }
	if slices.ContainsFunc(calls, func(k call) bool { return k.egress() != "" }) {
		head, through = "EGRESS\t", func(k *call) string { return orDash(k.egress()) + "\t" }
	}
	layout, today := time.TimeOnly, time.Now().Format(time.DateOnly)
	if slices.ContainsFunc(calls, func(k call) bool { return k.Started.Local().Format(time.DateOnly) != today }) {
		layout = time.DateTime
	}
	w := tabwriter.NewWriter(plain{out}, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "ID\tSTARTED (%s)\tSTATE\tCALL\tPOLICY\tSHOP\t%sTRIES\tWHAT\n", zone(calls), head)
	for i := range calls {
		k := &calls[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s %s%s\t%s\t%s\t%s%d\t%s\n", k.ID, k.Started.Local().Format(layout), k.State,
			k.Method, k.Host, k.Path, orDash(k.Policy), orDash(k.Labels.Shop), through(k), len(k.Attempts), k.what())
	}
	return w.Flush()
}

// zone is that of the times of a list, which is not empty.
func zone(calls []call) string { return calls[0].Started.Local().Format("-07:00") }

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
	case k.State == "parked":
		return fmt.Sprintf("until %s (%s)", moment("", &k.NextAt, time.Now()), orDash(k.Reason))
	case k.Cause == "":
		return ""
	}
	text := "for " + k.Cause + bracket(k.Dimension)
	if k.Lane != "" {
		text += ", " + k.Lane
	}
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
