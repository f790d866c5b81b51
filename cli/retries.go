package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
)

// switchView is the switch as the admin API shows it.
type switchView struct {
	Default string
	Scopes  []struct {
		Match map[string][]string
		Value string
		Until time.Time
	}
}

// Retries shows the switch of a running proxy, or turns it.
func Retries(args []string, env Env) int {
	f := newFlags("retries", env)
	r := f.remote()
	match := map[string]string{}
	for name, help := range map[string]string{
		"host": "only for calls to this `host`", "shop": "only for this `shop`", "task_type": "only for this `type` of task",
	} {
		f.Func(strings.ReplaceAll(name, "_", "-"), help, func(v string) error { match[name] = v; return nil })
	}
	duration := f.Duration("for", 0, "back to what it was after this time, such as `30m`")
	rest, code, ok := f.parse(args, 0, 1)
	if !ok {
		return code
	}
	c, err := r.client(env)
	if err != nil {
		return env.failed(err)
	}
	text, err := c.turn(rest, match, *duration)
	if err != nil {
		return env.failed(err)
	}
	var s switchView
	if err := json.Unmarshal(text, &s); err != nil {
		return env.failed(err)
	}
	s.print(env.Stdout)
	return OK
}

// turn turns the switch, or asks for it when there is no value.
func (c *client) turn(value []string, match map[string]string, d time.Duration) ([]byte, error) {
	switch {
	case len(value) == 0 && (len(match) > 0 || d != 0):
		return nil, &usageError{fmt.Errorf("retries: want on, off or observe")}
	case len(value) == 0:
		return c.do("GET", "/api/v1/retries", nil)
	case value[0] != "on" && value[0] != "off" && value[0] != "observe":
		return nil, &usageError{fmt.Errorf("retries: want on, off or observe, not %q", value[0])}
	}
	path := "/api/v1/retries"
	if d != 0 {
		path += "?for=" + url.QueryEscape(d.String())
	}
	return c.do("PUT", path, map[string]any{"value": value[0], "match": match})
}

// print writes the switch, the rules that come first first. What follows a rule
// for every call holds when that ends, if it does.
func (s *switchView) print(w io.Writer) {
	others, then := " for every call", ""
	for _, c := range s.Scopes {
		var parts []string
		for _, key := range [...]string{"host", "shop", "shop_tier", "task_type", "path", "method", "hour_range"} {
			if v := c.Match[key]; len(v) > 0 {
				parts = append(parts, key+" "+strings.Join(v, "|"))
			}
		}
		line := then + c.Value + " for " + cmp.Or(strings.Join(parts, ", "), "every call")
		if !c.Until.IsZero() {
			line += " until " + c.Until.Local().Format(time.DateTime)
		}
		fmt.Fprintln(w, line)
		switch {
		case parts != nil:
			others = " for all others"
		case c.Until.IsZero():
			return
		default:
			others, then = " for every call", "then "
		}
	}
	fmt.Fprintln(w, then+s.Default+others)
}
