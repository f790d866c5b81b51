package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// explanation is the JSON of explain, as far as it is printed here.
type explanation struct {
	Method, URL, Mode string
	Refused           *struct {
		Status         int
		Reason, Detail string
	}
	Notes []string
	Hops  []struct {
		URL, Why string
		Egress   []string
	}

	Labels            []struct{ Name, Value, From string }
	Preset, Operation string
	Nature            string `json:"call"`
	Policy            string
	PolicyWhy         string                         `json:"policy_why"`
	PassedOver        []struct{ Policy, Why string } `json:"passed_over"`
	VariantWhy        string                         `json:"variant_why"`

	Keyed       bool
	KeyHonoured bool   `json:"key_honoured"`
	KeyWhy      string `json:"key_why"`
	Lasting     bool
	Safe        string
	SafeWhy     string `json:"safe_why"`
	Switch      string

	DeadlineMS int64 `json:"deadline_ms"`
	Patience   *struct {
		Calls, Left int
		P50MS       int64 `json:"p50_ms"`
		P90MS       int64 `json:"p90_ms"`
	}
	ConnectMS  int64 `json:"connect_timeout_ms"`
	PerTryMS   int64 `json:"per_try_timeout_ms"`
	Retries    int
	RetriesWhy string `json:"retries_why"`
	Buckets    []struct{ Dimension, Key, Rate string }
	Delays     []struct {
		Retry     int
		NominalMS int64 `json:"nominal_ms"`
		MinMS     int64 `json:"min_ms"`
		MaxMS     int64 `json:"max_ms"`
	}
	FastFirst   bool `json:"fast_first_retry"`
	Headers     []headerLine
	RetryHeader *headerLine `json:"retry_header"`
	Outcomes    []wouldLead
}

type headerLine struct{ Name, Value string }

// wouldLead is what one outcome leads to.
type wouldLead struct {
	Outcome, Reason, Class, Basis, Executed, Next, Why string

	WaitMS   int64 `json:"wait_ms"`
	Attempts int
	AfterMS  int64  `json:"after_ms"`
	InTheEnd ending `json:"in_the_end"`
	LetGo    *struct {
		ending
		AfterMS int64 `json:"after_ms"`
	} `json:"let_go"`
}

// ending is an answer to the client.
type ending struct {
	Status                   int
	Reason, Executed, Advice string
	Cut                      bool
}

// Explain says what would become of a call, by a configuration or on a running
// proxy, without making it.
func Explain(args []string, env Env) int {
	f := newFlags("explain", env)
	r := f.remote()
	f.Lookup("config").Usage = "the configuration `file` to explain by; without it the built-in one. What serve gets by flags (-data, -route, -upgrade) is not in it: -admin knows. With -admin only the admin token comes from it"
	f.Lookup("admin").Usage = "ask the running proxy whose admin listener has this `address` instead"
	q := Question{}
	f.StringVar(&q.Method, "X", "", "the `method`; GET without it, POST with -d")
	f.Func("H", "a `header` \"Name: value\"; may be repeated", q.addHeader)
	f.Func("d", "the `body`, or @file", q.setBody)
	a := f.answer()
	raw := f.Bool("json", false, "print JSON")
	rest, code, ok := f.parse(args, 1, 1)
	if !ok {
		return code
	}
	q.URL = rest[0]
	q.complete()
	if *a.file != "" {
		if err := env.explainAnswer(*r.config, &q, a, *raw); err != nil {
			return env.failed(err)
		}
		return OK
	}
	text, err := env.explain(r, q)
	if err != nil {
		return env.failed(err)
	}
	if *raw {
		_, _ = env.Stdout.Write(text)
		return OK
	}
	var e explanation
	if err := json.Unmarshal(text, &e); err != nil {
		return env.failed(err)
	}
	e.print(plain{env.Stdout})
	return OK
}

func (q *Question) addHeader(line string) error {
	name, value, ok := strings.Cut(line, ":")
	if !ok || name == "" {
		return errors.New(`want "Name: value"`)
	}
	q.Fields.Add(name, strings.TrimSpace(value))
	return nil
}

func (q *Question) setBody(text string) (err error) {
	q.Body = []byte(text)
	if file, ok := strings.CutPrefix(text, "@"); ok {
		q.Body, err = os.ReadFile(file)
	}
	return err
}

// complete fills in what curl would.
func (q *Question) complete() {
	if q.Method == "" {
		q.Method = "GET"
		if q.Body != nil {
			q.Method = "POST"
		}
	}
	if q.Method != "CONNECT" && !strings.HasPrefix(q.URL, "/") && !strings.Contains(q.URL, "://") {
		q.URL = "http://" + q.URL
	}
}

// explain asks a running proxy when one is named, else the configuration.
func (e Env) explain(r remote, q Question) ([]byte, error) {
	if *r.admin != "" {
		c, err := r.client(e)
		if err != nil {
			return nil, err
		}
		lines := make([]string, len(q.Fields))
		for i, f := range q.Fields {
			lines[i] = f.Name + ": " + f.Value
		}
		return c.do("POST", "/api/v1/explain", map[string]any{
			"method": q.Method, "url": q.URL, "headers": lines, "body": string(q.Body),
		})
	}
	c, err := e.load(*r.config)
	if err != nil {
		return nil, err
	}
	answer, err := e.Explain(c, q)
	if err != nil {
		return nil, &usageError{err}
	}
	text, err := json.MarshalIndent(answer, "", "  ")
	return append(text, '\n'), err
}

// print writes the explanation for people.
func (e *explanation) print(out io.Writer) {
	fmt.Fprintf(out, "%s %s\n", e.Method, e.URL)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "  %-11s%s\n", name, fmt.Sprintf(format, args...))
	}
	if e.Mode != "" {
		line("way in", "%s", e.Mode)
	}
	for i, h := range e.Hops {
		line([...]string{"goes to", "else to"}[min(i, 1)], "%s%s", h.URL, bracket(h.Why))
		if len(h.Egress) > 0 {
			line("  through", "egress %s", strings.Join(h.Egress, ", else "))
		}
	}
	for _, l := range e.Labels {
		line(l.Name, "%s (%s)", l.Value, l.From)
	}
	if r := e.Refused; r != nil {
		line("refused", "%d %s: %s", r.Status, r.Reason, r.Detail)
	}
	if e.Policy != "" {
		e.printRules(line)
	}
	for _, n := range e.Notes {
		line("note", "%s", n)
	}
	e.printTable(out)
}

// printRules writes policy, key, time, retries and the header.
func (e *explanation) printRules(line func(name, format string, args ...any)) {
	if e.Preset != "" {
		line("preset", "%s: %s, %s", e.Preset, orElse(e.Operation, "no operation found"), e.Nature)
	}
	line("policy", "%s, %s", e.Policy, e.PolicyWhy)
	if e.VariantWhy != "" {
		line("variant", "%s", e.VariantWhy)
	}
	for i, p := range e.PassedOver {
		line([...]string{"not", ""}[min(i, 1)], "%s: %s", p.Policy, p.Why)
	}
	line("key", "%s: %s", e.keyText(), e.KeyWhy)
	line("safe", "%s: %s", [...]string{"no", "yes"}[min(len(e.Safe), 1)], e.SafeWhy)
	line("time", "%s in all, %s to connect, %s for each answer", span(e.DeadlineMS), span(e.ConnectMS), span(e.PerTryMS))
	if p := e.Patience; p != nil {
		line("patience", "%d of %d clients of this kind hung up, half of them after %s or less, nine in ten after %s or less; the deadline is %s", p.Left, p.Calls, span(p.P50MS), span(p.P90MS), span(e.DeadlineMS))
	}
	line("retries", "%d%s%s", e.Retries, bracket(e.RetriesWhy), switched(e.Switch))
	if len(e.Delays) > 0 {
		line("delays", "%s", e.delayText())
	}
	for _, b := range e.Buckets {
		line("token of", "%s", strings.Join(strings.Fields(b.Dimension+" "+b.Key), " ")+bracket(b.Rate))
	}
	for i, h := range e.Headers {
		line([...]string{"sends", ""}[min(i, 1)], "%s: %s", h.Name, h.Value)
	}
	if h := e.RetryHeader; h != nil {
		line("", "%s: %s with the first retry", h.Name, h.Value)
	}
}

func (e *explanation) keyText() string {
	switch {
	case !e.Keyed:
		return "no"
	case e.KeyHonoured:
		return "yes"
	}
	return "yes, but it makes no repeat upstream safe"
}

// delayText lists the planned waits with their range.
func (e *explanation) delayText() string {
	parts := make([]string, len(e.Delays))
	for i, d := range e.Delays {
		parts[i] = span(d.NominalMS)
		if d.MinMS != d.MaxMS {
			parts[i] += fmt.Sprintf(" (%s to %s)", span(d.MinMS), span(d.MaxMS))
		} else {
			parts[i] = span(d.MinMS)
		}
	}
	text := strings.Join(parts, ", ")
	if e.FastFirst {
		text += "; the first after 5 to 25 ms while the host answers others (not after 408, 425 or 429)"
	}
	return text
}

// printTable writes what each outcome leads to.
func (e *explanation) printTable(out io.Writer) {
	if len(e.Outcomes) == 0 {
		return
	}
	fmt.Fprintln(out, "\n  What each outcome of the first attempt leads to, and what the client gets if it stays so:")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  OUTCOME\tCLASS\tEXECUTED\tNEXT\tIN THE END")
	for i := range e.Outcomes {
		o := &e.Outcomes[i]
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", o.Outcome, o.Class, o.Executed, o.next(), o.end())
	}
	_ = w.Flush()
}

// next is the decision after the first attempt.
func (o *wouldLead) next() string {
	switch o.Next {
	case "retry":
		return "retry in " + span(o.WaitMS) + bracket(o.Basis)
	case "deliver":
		return "done"
	case "park":
		return "park for " + span(o.WaitMS) + bracket(o.Why)
	}
	return o.Why
}

// end is what the client gets.
func (o *wouldLead) end() string {
	text := o.InTheEnd.String()
	if o.LetGo != nil {
		after := "at once"
		if o.LetGo.AfterMS > 0 {
			after = "after " + span(o.LetGo.AfterMS)
		}
		text = fmt.Sprintf("%s, %s; the call: %s", o.LetGo.ending, after, text)
	}
	if o.Attempts > 1 {
		text += fmt.Sprintf("; %d attempts, %s", o.Attempts, span(o.AfterMS))
	}
	return text
}

// String is the answer in a line.
func (e ending) String() string {
	switch {
	case e.Cut:
		return fmt.Sprintf("%d, then cut off", e.Status)
	case e.Reason != "":
		return fmt.Sprintf("%d %s, %s", e.Status, e.Reason, e.Advice)
	}
	return fmt.Sprint(e.Status)
}

func bracket(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// switched says what the switch does to retries.
func switched(at string) string {
	switch at {
	case "off":
		return ", but retries are switched off"
	case "observe":
		return ", but retries are only observed"
	}
	return ""
}
