package simulate

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteText writes the report for people: one table with the runs side by side, one
// with the groups of bots, and the retries of each run.
func (r *Report) WriteText(to io.Writer) error {
	out := bufio.NewWriter(to)
	fmt.Fprintf(out, "%s, seed %d", r.Scenario, r.Seed)
	if r.About != "" {
		fmt.Fprintf(out, ": %s", strings.TrimSpace(r.About))
	}
	fmt.Fprint(out, "\n\n")
	r.sideBySide(out)
	if len(r.scenario.Bots) > 1 {
		fmt.Fprintln(out)
		r.byGroup(out)
	}
	for i := range r.Runs {
		r.Runs[i].byVariant(out)
		r.Runs[i].details(out)
	}
	return out.Flush()
}

// sideBySide has a column for each run.
func (r *Report) sideBySide(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, cell func(x *Result) string) {
		fmt.Fprint(w, name, "\t")
		for i := range r.Runs {
			fmt.Fprint(w, cell(&r.Runs[i]), "\t")
		}
		fmt.Fprintln(w)
	}
	row("", func(x *Result) string { return x.Name })
	row("calls", func(x *Result) string { return strconv.Itoa(x.Total.Calls) })
	row("final success", func(x *Result) string { return percent(x.Total.Success) })
	row("requests per call", func(x *Result) string { return fmt.Sprintf("%.3f", x.Total.Amplification) })
	row("added p50", func(x *Result) string { return ms(x.Total.AddedP50MS) })
	row("added p95", func(x *Result) string { return ms(x.Total.AddedP95MS) })
	row("added p99", func(x *Result) string { return ms(x.Total.AddedP99MS) })
	if r.scenario.outage() {
		row("success of calls from the outage", func(x *Result) string { return percent(x.OutageSuccess) })
		row("recovered after", func(x *Result) string { return within(x.Recovery) })
		row("… with answers within 1 s", func(x *Result) string { return within(x.RecoveryFast) })
		row("backlog done after", func(x *Result) string { return ms(x.BacklogMS) })
		row("over capacity after it for", func(x *Result) string { return ms(x.OverloadMS) })
	}
	row("retries", func(x *Result) string { return strconv.Itoa(x.Wakeups.Retries) })
	row("most in 100 ms", func(x *Result) string { return strconv.Itoa(x.Wakeups.Peak) })
	row("… times the mean of their jitter", func(x *Result) string { return times(x.Wakeups.Ratio) })
	_ = w.Flush() // out keeps the error
}

// outage says that there is one to recover from.
func (s *Scenario) outage() bool {
	return slices.ContainsFunc(s.Phases, func(p Phase) bool { return p.Outage })
}

// byGroup has a line for each group of each run.
func (r *Report) byGroup(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "bots\trun\t%s\n", groupHead)
	for n := range r.scenario.Bots {
		for i := range r.Runs {
			g := &r.Runs[i].Groups[n]
			fmt.Fprintf(w, "%s\t%s\t%s\n", g.Name, r.Runs[i].Name, g.cells())
		}
	}
	_ = w.Flush()
}

const groupHead = "calls\tfinal success\trequests per call\tadded p50\tp95\tp99\t"

// cells are those under groupHead.
func (g *Group) cells() string {
	return fmt.Sprintf("%d\t%s\t%.3f\t%s\t%s\t%s\t", g.Calls, percent(g.Success), g.Amplification, ms(g.AddedP50MS), ms(g.AddedP95MS), ms(g.AddedP99MS))
}

// byVariant compares the variants of policies, where a run has any.
func (x *Result) byVariant(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s: variant\t%s\n", x.Name, groupHead)
	found := false
	for i := range x.Policies {
		if g := &x.Policies[i]; strings.Contains(g.Name, "/") {
			found = true
			fmt.Fprintf(w, "%s\t%s\n", g.Name, g.cells())
		}
	}
	if found {
		fmt.Fprintln(out)
		_ = w.Flush()
	}
}

// A histogram is shown from so many retries in its fullest bin on; bars it has, and
// how long the longest is.
const (
	leastPeak  = 10
	mostBars   = 24
	longestBar = 50
)

// details are the retries of a run around their peak, and why its calls ended.
func (x *Result) details(out io.Writer) {
	if x.Wakeups.Peak >= leastPeak {
		fmt.Fprintf(out, "\n%s: starts of retries per 100 ms around the peak\n", x.Name)
		for _, b := range x.Wakeups.around() {
			fmt.Fprintf(out, "%9.1fs %6d %s\n", float64(b.AtMS)/1000, b.Retries, strings.Repeat("#", (b.Retries*longestBar+x.Wakeups.Peak-1)/x.Wakeups.Peak))
		}
	}
	if len(x.Stops) > 0 {
		fmt.Fprintf(out, "\n%s: why calls ended:", x.Name)
		for _, reason := range slices.SortedFunc(maps.Keys(x.Stops), func(a, b string) int {
			return cmp.Or(x.Stops[b]-x.Stops[a], strings.Compare(a, b))
		}) {
			fmt.Fprintf(out, " %s %d", reason, x.Stops[reason])
		}
		fmt.Fprintln(out)
	}
}

// around are the bins about the fullest one, the empty ones included.
func (w *Wakeups) around() []Bin {
	step := bin.Milliseconds()
	first := max(w.PeakMS-step*mostBars/4, w.Bins[0].AtMS)
	last := min(first+step*(mostBars-1), w.Bins[len(w.Bins)-1].AtMS)
	all := make([]Bin, 0, mostBars)
	for at := first; at <= last; at += step {
		all = append(all, Bin{AtMS: at})
	}
	for _, b := range w.Bins {
		if b.AtMS >= first && b.AtMS <= last {
			all[(b.AtMS-first)/step] = b
		}
	}
	return all
}

// percent is rounded down: 100 % is all.
func percent(share float64) string { return fmt.Sprintf("%.2f %%", math.Floor(share*1e4)/1e2) }

func ms(n int64) string {
	d := time.Duration(n) * time.Millisecond
	if d >= 10*time.Second {
		d = d.Round(time.Second)
	}
	return d.String()
}

func within(seconds int) string {
	if seconds < 0 {
		return "never"
	}
	return (time.Duration(seconds) * time.Second).String()
}

func times(ratio float64) string {
	if ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", ratio)
}

// WriteCSV writes a line for each second of each run.
func (r *Report) WriteCSV(to io.Writer) error {
	w := csv.NewWriter(to)
	err := w.Write([]string{"run", "second", "offered", "succeeded", "fast", "answered", "upstream", "retries", "waiting", "in_flight", "slots", "capacity"})
	for i := range r.Runs {
		for n, s := range r.Runs[i].Seconds {
			line := []string{r.Runs[i].Name}
			for _, v := range []int{n, s.Offered, s.Good, s.Fast, s.Answered, s.Upstream, s.Retries, s.Waiting, s.InFlight, s.Slots} {
				line = append(line, strconv.Itoa(v))
			}
			if err == nil {
				err = w.Write(append(line, fmt.Sprintf("%.1f", s.Capacity)))
			}
		}
	}
	w.Flush()
	if err == nil {
		err = w.Error()
	}
	return err
}
