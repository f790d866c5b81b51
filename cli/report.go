package cli

import (
	"fmt"
	"io"
	"math"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"
)

// reportView is what the admin API shows.
type reportView struct {
	At         time.Time
	Confidence float64
	Policies   []reportPolicy
}

type reportPolicy struct {
	Policy    string
	ChangedAt time.Time `json:"changed_at"`
	Arms      []reportArm
}

type reportArm struct {
	Name, Variant       string
	Weight, Calls, Left int
	Saved               int
	Since               time.Time
	reportFigures[estimate]
	Against *reportFigures[difference] `json:"against_first"`
}

// reportFigures are those that arms are compared by.
type reportFigures[T any] struct {
	Success       T
	Attempts      T `json:"attempts_per_call"`
	Amplification T
	Added         T `json:"added_latency_ms"`
	AddedP95      T `json:"added_latency_p95_ms"`
}

// estimate is a figure with its interval; nil: not known.
type estimate struct{ Value, Low, High *float64 }

type difference struct {
	estimate
	Verdict string
}

// Report shows how the policies of a running proxy and their variants do.
func Report(args []string, env Env) int {
	f := newFlags("report", env)
	r := f.remote()
	policy := f.String("policy", "", "only the policy of this `name`")
	reset := f.Bool("reset", false, "count anew from now on")
	raw := f.Bool("json", false, "print the JSON of the admin API")
	if _, code, ok := f.parse(args, 0, 0); !ok {
		return code
	}
	c, err := r.client(env)
	if err == nil {
		err = c.report(env, *policy, *reset, *raw)
	}
	if err != nil {
		return env.failed(err)
	}
	return OK
}

func (c *client) report(env Env, policy string, reset, raw bool) error {
	method, path := "GET", "/api/v1/report"
	if reset {
		method, path = "POST", path+"/reset"
	}
	path += "?policy=" + url.QueryEscape(policy)
	if raw {
		return c.printRaw(env.Stdout, method, path)
	}
	var v reportView
	if err := c.order(method, path, nil, &v); err != nil {
		return err
	}
	if reset {
		fmt.Fprintln(env.Stdout, "counting anew")
		return nil
	}
	return v.print(plain{env.Stdout})
}

// print writes the policies with variants one by one, the others in one table.
func (v *reportView) print(out io.Writer) error {
	var idle []string
	var single []reportArm
	for i := range v.Policies {
		switch p := &v.Policies[i]; {
		case len(p.Arms) > 1:
			if err := p.print(out, v.At); err != nil {
				return err
			}
		case p.Arms[0].Calls+p.Arms[0].Left == 0:
			idle = append(idle, p.Policy)
		default:
			single = append(single, p.Arms[0])
		}
	}
	if len(single) > 0 {
		if err := printSingle(out, single, v.At); err != nil {
			return err
		}
	}
	if len(idle) > 0 {
		fmt.Fprintf(out, "no calls yet: %s\n", strings.Join(idle, ", "))
	}
	if len(idle) < len(v.Policies) {
		fmt.Fprintf(out, "in brackets: where the true figure lies, with %.0f %% confidence; ?: too few calls to say\n", 100*v.Confidence)
	}
	return nil
}

// printSingle writes the policies without variants, a line each.
func printSingle(out io.Writer, arms []reportArm, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POLICY\tFOR\tCALLS\tSUCCESS\tSAVED\tATTEMPTS/CALL\tADDED LATENCY")
	for i := range arms {
		a := &arms[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\t%s\n", a.Name, a.age(now), a.Calls, a.Success.text(percent), a.Saved, a.Attempts.text(ratio), a.Added.text(millis))
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// print writes each variant of a policy beside the first one.
func (p *reportPolicy) print(out io.Writer, now time.Time) error {
	for i := range p.Arms[1:] {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		printPair(w, p.Policy, &p.Arms[0], &p.Arms[i+1], now)
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if !p.ChangedAt.IsZero() {
		fmt.Fprintf(out, "variants or weights changed at %s, and figures are of before and after; to begin anew: retryproxy report -reset -policy %s\n\n",
			p.ChangedAt.Local().Format(time.DateTime), p.Policy)
	}
	return nil
}

// printPair writes two variants, and how b does against a.
func printPair(w io.Writer, policy string, a, b *reportArm, now time.Time) {
	fmt.Fprintf(w, "policy %s\t%s, weight %d\t%s, weight %d\t%s against %s\n", policy, a.Variant, a.Weight, b.Variant, b.Weight, b.Variant, a.Variant)
	fmt.Fprintf(w, "counted for\t%s\t%s\t\n", a.age(now), b.age(now))
	fmt.Fprintf(w, "calls\t%d\t%d\t\n", a.Calls, b.Calls)
	fmt.Fprintf(w, "saved by a retry\t%d\t%d\t\n", a.Saved, b.Saved)
	row := func(name string, a, b estimate, d difference, show, diff format) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, a.text(show), b.text(show), d.text(diff))
	}
	row("success", a.Success, b.Success, b.Against.Success, percent, points)
	row("attempts/call", a.Attempts, b.Attempts, b.Against.Attempts, ratio, ratio)
	row("amplification", a.Amplification, b.Amplification, b.Against.Amplification, ratio, ratio)
	row("added latency", a.Added, b.Added, b.Against.Added, millis, millis)
	row("added p95", a.AddedP95, b.AddedP95, b.Against.AddedP95, millis, millis)
	fmt.Fprintf(w, "clients left\t%d\t%d\tnot among the calls\n\n", a.Left, b.Left)
}

// age is how long the arm has been counted.
func (a *reportArm) age(now time.Time) string { return span(now.Sub(a.Since).Milliseconds()) }

// format is how a kind of figure is shown: a number, and what goes behind it.
type format struct {
	number func(float64) string
	unit   string
}

var (
	percent = format{func(x float64) string { return fmt.Sprintf("%.2f", 100*x) }, " %"}
	points  = format{percent.number, " points"}
	ratio   = format{func(x float64) string { return fmt.Sprintf("%.3f", x) }, ""}
	millis  = format{func(x float64) string { return (time.Duration(math.Round(x)) * time.Millisecond).String() }, ""}
)

// text is the figure with its interval.
func (e estimate) text(f format) string { return e.written(f.number, f.unit) }

func (e estimate) written(number func(float64) string, unit string) string {
	switch {
	case e.Value == nil:
		return "-"
	case e.Low == nil || e.High == nil:
		return number(*e.Value) + unit + " (?)"
	}
	return fmt.Sprintf("%s%s (%s to %s)", number(*e.Value), unit, number(*e.Low), number(*e.High))
}

// text is the verdict and the difference, with its sign.
func (d difference) text(f format) string {
	if d.Value == nil {
		return d.Verdict
	}
	return d.Verdict + ": " + d.written(f.signed, f.unit)
}

// signed writes a number with its sign; one that is shown as nothing has +.
func (f format) signed(x float64) string {
	if x < 0 && f.number(-x) != f.number(0) {
		return "-" + f.number(-x)
	}
	return "+" + f.number(math.Abs(x))
}
