package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"
)

// alertsView is what the admin API shows, as far as it is printed here.
type alertsView struct {
	Rules []struct {
		Name, On       string
		Groups, Firing int
		To             []string
		LearningUntil  time.Time `json:"learning_until"`
	}
	Firing []struct {
		Rule, What string
		Labels     map[string]any
		Since      time.Time
		Call       string `json:"call_id"`
	}
	Targets []struct {
		Name, Format                   string
		Waiting, Sent, Failed, Dropped int
		Last                           *struct {
			At            time.Time
			Status        int
			Answer, Error string
		}
	}
}

// errTest is how a test ends that not every target took.
var errTest = errors.New("not every target took the test message")

// Alerts shows the alerts of a running proxy, or sends a test to their targets.
func Alerts(args []string, env Env) int {
	f := newFlags("alerts", env)
	r := f.remote()
	rule := f.String("rule", "", "test: only the targets of this `rule`")
	raw := f.Bool("json", false, "print the JSON of the admin API")
	rest, code, ok := f.parse(args, 0, 1)
	if !ok {
		return code
	}
	switch {
	case len(rest) == 1 && rest[0] != "test":
		return env.wrong("alerts: want test or nothing, not %q", rest[0])
	case len(rest) == 0 && *rule != "":
		return env.wrong("alerts: -rule goes with test")
	}
	c, err := r.client(env)
	if err != nil {
		return env.failed(err)
	}
	if len(rest) == 1 {
		err = c.testAlerts(env, *rule, *raw)
	} else {
		err = c.showAlerts(env, *raw)
	}
	if err != nil {
		return env.failed(err)
	}
	return OK
}

func (c *client) showAlerts(env Env, raw bool) error {
	const path = "/api/v1/alerts"
	if raw {
		return c.printRaw(env.Stdout, "GET", path)
	}
	var v alertsView
	if err := c.get(path, &v); err != nil {
		return err
	}
	return v.print(plain{env.Stdout})
}

// print writes what is firing, then rules and targets.
func (v *alertsView) print(out io.Writer) error {
	if len(v.Rules)+len(v.Targets) == 0 {
		fmt.Fprintln(out, "no alerts are configured (alerts: in the configuration)")
		return nil
	}
	if len(v.Firing) == 0 {
		fmt.Fprintln(out, "nothing is firing")
	}
	for _, g := range v.Firing {
		fmt.Fprintf(out, "FIRING %s: %s%s, since %s%s\n", g.Rule, g.What, labelText(g.Labels), g.Since.Local().Format(time.DateTime), prefixed(", example ", g.Call))
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nRULE\tON\tGROUPS\tFIRING\tTO")
	for _, r := range v.Rules {
		note := ""
		if !r.LearningUntil.IsZero() {
			note = "  (learns the usual until " + r.LearningUntil.Local().Format("15:04") + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s%s\n", r.Name, r.On, r.Groups, r.Firing, strings.Join(r.To, ","), note)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nTARGET\tFORMAT\tWAITING\tSENT\tFAILED\tDROPPED\tLAST")
	for _, t := range v.Targets {
		last := "-"
		if t.Last != nil {
			last = t.Last.At.Local().Format(time.DateTime) + " " + said(t.Last.Status, t.Last.Answer, t.Last.Error)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%s\n", t.Name, t.Format, t.Waiting, t.Sent, t.Failed, t.Dropped, last)
	}
	return w.Flush()
}

// labelText names a group.
func labelText(labels map[string]any) string {
	var parts []string
	for _, key := range [...]string{"host", "reason", "task_type", "shop"} {
		if value, ok := labels[key].(string); ok {
			parts = append(parts, key+" "+value)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// said is what a target answered.
func said(status int, answer, failure string) string {
	if failure != "" {
		return "failed: " + failure
	}
	return strings.TrimSpace(fmt.Sprintf("ok: %d %s", status, answer))
}

// testAlerts prints what each target says to a test message.
func (c *client) testAlerts(env Env, rule string, raw bool) error {
	text, err := c.do("POST", "/api/v1/alerts/test?rule="+url.QueryEscape(rule), nil)
	if err != nil {
		return err
	}
	var list []struct {
		Target, Format, Answer, Error string
		OK                            bool
		Status                        int
		DurationMS                    int `json:"duration_ms"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	out := plain{env.Stdout}
	if raw {
		_, err = env.Stdout.Write(text)
	} else if len(list) == 0 {
		fmt.Fprintln(out, "no targets are configured (alerts: entries with a webhook)")
	}
	for _, t := range list {
		if !raw {
			fmt.Fprintf(out, "%s (%s): %s, %d ms\n", t.Target, t.Format, said(t.Status, t.Answer, t.Error), t.DurationMS)
		}
		if !t.OK {
			err = errTest
		}
	}
	return err
}
