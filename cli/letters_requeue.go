package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"retryproxy/deadletter"
)

// requeueFlags are those of `deadletters requeue`.
type requeueFlags struct {
	remote
	which                           *deadletter.Filter
	who                             *deadletter.Signed
	all, dry, unknown, status, stop *bool
	detach                          *bool
	rate                            *string
	canary                          *int
	at                              *string
	wait                            *time.Duration
}

// LettersRequeue runs one letter again, or many, or says how many are doing.
func LettersRequeue(args []string, env Env) int {
	f := newFlags("deadletters requeue", env)
	q := requeueFlags{
		remote: f.remote(), which: f.conditions(), who: f.signed(),
		unknown: f.Bool("executed-unknown", false, "send it though it may have been executed, or had no key and may have been repeated by its bot (one ID only)"),
		wait:    f.Duration("wait", 30*time.Second, "how long to wait for the end of the one with the ID"),
		all:     f.Bool("all", false, "every letter that may run again, without a condition"),
		dry:     f.Bool("dry-run", false, "only say which would run"),
		rate:    f.String("rate", "1/s", "so many in a `time`, such as 5/s or 30/m"),
		canary:  f.Int("canary", deadletter.UsualCanary, "so many go ahead one by one; when one of them fails, nothing else is sent"),
		at:      f.String("at", "", "run it later: a `time` in RFC 3339, or one from now such as 90m, 2h or 3d; many from then on, at their rate and without canaries"),
		detach:  f.Bool("detach", false, "do not wait for the end of many"),
		status:  f.Bool("status", false, "show how the requeue of many stands"),
		stop:    f.Bool("stop", false, "end the requeue of many; what runs, runs on"),
	}
	rest, code, ok := f.parse(args, 0, 1)
	if !ok {
		return code
	}
	if q.who.By == "" {
		q.who.By = cmp.Or(env.Getenv("USER"), env.Getenv("USERNAME"))
	}
	if err := q.check(rest); err != nil {
		return env.failed(err)
	}
	c, err := q.client(env)
	if err != nil {
		return env.failed(err)
	}
	var well bool
	switch {
	case *q.status, *q.stop:
		well, err = q.showBulk(c, env.Stdout)
	case len(rest) == 1:
		well, err = q.one(c, env.Stdout, rest[0])
	case *q.dry:
		well, err = true, q.preview(c, env.Stdout)
	default:
		well, err = q.many(c, env.Stdout)
	}
	if err != nil {
		return env.failed(err)
	}
	if !well {
		return Failure
	}
	return OK
}

// check says what does not fit together.
func (q *requeueFlags) check(ids []string) error {
	switch {
	case *q.status || *q.stop:
		if len(ids) > 0 || !q.which.Empty() || *q.all {
			return &usageError{errors.New("-status and -stop are about the requeue of many: no id, no conditions")}
		}
		return nil
	case *q.unknown && len(ids) == 0:
		return &usageError{errors.New("-executed-unknown goes with one id: look at each of them")}
	case *q.dry && len(ids) == 1:
		return &usageError{errors.New("-dry-run goes with conditions")}
	}
	if err := oneOrMany(ids, q.which, *q.all); err != nil {
		return err
	}
	_, err := deadletter.ParseRate(*q.rate)
	if err == nil {
		_, err = deadletter.ParseAt(*q.at, time.Now())
	}
	if err != nil {
		return &usageError{err}
	}
	return nil
}

// one runs a letter again and waits a while for its end.
func (q *requeueFlags) one(c *client, out io.Writer, id string) (well bool, err error) {
	var got struct {
		CallID string `json:"call_id"`
		At     time.Time
	}
	order := struct {
		ExecutedUnknown bool   `json:"executed_unknown"`
		At              string `json:"at,omitempty"`
		deadletter.Signed
	}{*q.unknown, *q.at, *q.who}
	if err := c.order("POST", letterPath(id)+"/requeue", order, &got); err != nil {
		var v deadletter.View
		if c.get(letterPath(id), &v) == nil {
			proposeFor(out, &v, q.again())
		}
		return false, err
	}
	if !got.At.IsZero() {
		fmt.Fprintf(out, "it runs at %s, by itself: retryproxy deadletters show%s %s\n", got.At.Local().Format(zoned), q.again(), id)
		return true, nil
	}
	fmt.Fprintf(out, "requeued as call %s\n", got.CallID)
	for end := time.Now().Add(*q.wait); ; time.Sleep(200 * time.Millisecond) {
		var v deadletter.View
		if err := c.get(letterPath(id), &v); err != nil {
			return false, err
		}
		switch v.Todo {
		case deadletter.TodoNone:
			fmt.Fprintf(plain{out}, "%s: the upstream answered %d, the letter is closed\n", v.State, v.Status)
			return v.State == "done", nil
		case deadletter.TodoWait:
			if time.Now().After(end) || v.State == "parked" {
				fmt.Fprintf(out, "it is %s; it goes on without us: retryproxy deadletters show%s %s\n", v.State, q.again(), id)
				return true, nil
			}
		default:
			fmt.Fprintf(plain{out}, "it failed again: %s; executed: %s\n", reasonText(v.Reason), v.Executed)
			proposeFor(out, &v, q.again())
			return false, nil
		}
	}
}

// bulkOrder is the order on the wire.
type bulkOrder struct {
	Filter map[string]string `json:"filter"`
	All    bool              `json:"all"`
	DryRun bool              `json:"dry_run"`
	Rate   string            `json:"rate"`
	Canary int               `json:"canary"`
	At     string            `json:"at,omitempty"`
	deadletter.Signed
}

func (q *requeueFlags) order() bulkOrder {
	return bulkOrder{q.which.Values(), *q.all, *q.dry, *q.rate, *q.canary, *q.at, *q.who}
}

// preview says what a bulk would do.
func (q *requeueFlags) preview(c *client, out io.Writer) error {
	var p deadletter.Preview
	if err := c.order("POST", lettersPath+"/requeue", q.order(), &p); err != nil {
		return err
	}
	more := ""
	if p.More {
		more = " at least"
	}
	fmt.Fprintf(out, "%s%s: %d would run again, %d would be refused\n", count(p.Letters, "letter"), more, p.Would, p.Refused)
	if !p.At.IsZero() {
		fmt.Fprintf(out, "The first would run at %s, the others after it at %s.\n", p.At.Local().Format(zoned), *q.rate)
	}
	for _, r := range p.Refusals {
		fmt.Fprintf(plain{out}, "  %d refused: %s\n", r.Letters, r.Why)
	}
	if len(p.First) == 0 {
		return nil
	}
	if len(p.First) < p.Letters {
		fmt.Fprintf(out, "The first %d:\n", len(p.First))
	}
	views, runs, refused := make([]deadletter.View, len(p.First)), []string{"RUNS"}, ""
	for i := range p.First {
		views[i] = p.First[i].View
		runs = append(runs, runsAt(&p.First[i]))
		if refused == "" && p.First[i].Refused != "" {
			refused = p.First[i].ID
		}
	}
	if err := letterTable(out, views, runs); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if p.Would > 0 {
		fmt.Fprintf(out, "Run the %d:                retryproxy deadletters requeue%s%s\n", p.Would, q.again(), q.flags())
	}
	if refused != "" {
		fmt.Fprintf(out, "Look at one that is not:  retryproxy deadletters show%s %s\n", q.again(), refused)
	}
	return nil
}

// zoned is a time as people say it, with its zone.
const zoned = "2006-01-02 15:04:05 -07:00"

// runsAt says whether a letter would run, and when.
func runsAt(p *deadletter.Previewed) string {
	switch {
	case p.Refused != "":
		return "no"
	case !p.At.IsZero():
		return p.At.Local().Format(time.DateTime)
	}
	return "yes"
}

// flags are those that mean the same letters, at the same pace.
func (q *requeueFlags) flags() string {
	var b strings.Builder
	values := q.which.Values()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&b, " -%s %s", strings.ReplaceAll(name, "_", "-"), quote(values[name]))
	}
	if *q.all {
		b.WriteString(" -all")
	}
	fmt.Fprintf(&b, " -rate %s -canary %d", quote(*q.rate), *q.canary)
	if *q.at != "" {
		fmt.Fprintf(&b, " -at %s", quote(*q.at))
	}
	return b.String()
}

// many starts a bulk and follows it.
func (q *requeueFlags) many(c *client, out io.Writer) (well bool, err error) {
	var b deadletter.Bulk
	if err := c.order("POST", lettersPath+"/requeue", q.order(), &b); err != nil {
		return false, err
	}
	fmt.Fprintf(out, "started; retryproxy deadletters requeue%s -stop ends it\n", q.again())
	for told := ""; ; time.Sleep(200 * time.Millisecond) {
		if line := bulkLine(&b); line != told {
			told = line
			fmt.Fprintln(plain{out}, line)
		}
		if *q.detach || b.State != deadletter.BulkRunning {
			return b.State == deadletter.BulkRunning || b.State == deadletter.BulkEnded && b.Failed == 0, nil
		}
		if err := c.get(lettersPath+"/bulk", &b); err != nil {
			return false, err
		}
	}
}

// showBulk shows how a bulk stands, or ends it.
func (q *requeueFlags) showBulk(c *client, out io.Writer) (well bool, err error) {
	var b deadletter.Bulk
	if *q.stop {
		err = c.order("DELETE", lettersPath+"/bulk?by="+url.QueryEscape(q.who.By), nil, &b)
	} else {
		err = c.get(lettersPath+"/bulk", &b)
	}
	if err != nil {
		return false, err
	}
	if b.State == deadletter.BulkNone {
		fmt.Fprintln(out, "no requeue of many since the proxy started")
		return true, nil
	}
	fmt.Fprintln(plain{out}, bulkLine(&b))
	return true, nil
}

// bulkLine is how a bulk stands in one line.
func bulkLine(b *deadletter.Bulk) string {
	line := fmt.Sprintf("%s: %d requeued, %d done, %d failed, %d refused", b.State, b.Requeued, b.Done, b.Failed, b.Refused)
	if b.Later > 0 {
		line += fmt.Sprintf(", %d to run from %s on", b.Later, b.At.Local().Format(zoned))
	}
	if b.Why != "" {
		line += "; " + b.Why
	}
	return line
}
