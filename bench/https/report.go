package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// workload is one kind of load and how it is judged.
type workload struct {
	name   string
	load   load
	opened bool     // the tunnel is opened
	peers  []string // to compare with; the first is what a goal speaks of
	unit   unit
	goal   float64 // for the ratio to the first peer; 0: none
}

var workloads = []workload{
	{"get100", getLoad, true, []string{roleLoop, roleServer}, cpuPerCall, 1.3},
	{"post1k-keyed", postLoad, true, []string{roleLoop, roleServer}, cpuPerCall, 0},
	{"h2-get100", h2Load, true, []string{roleServer}, cpuPerCall, 0},
	{"download", download(1), false, []string{roleLoop}, throughput, 0.9},
	{"download-x4", download(4), false, []string{roleLoop}, throughput, 0.9},
	{"upload", upload(1), false, []string{roleLoop}, throughput, 0.9},
	{"upload-x4", upload(4), false, []string{roleLoop}, throughput, 0.9},
	{"tunnels", tunnelLoad, false, []string{roleLoop}, cpuPerCall, 0},
}

// meets says whether the workload is for a proxy.
func (w workload) meets(peer string) bool { return peer == product || slices.Contains(w.peers, peer) }

// unit is what a workload is judged by.
type unit struct {
	name string
	of   func(sample) float64
	more bool // more is better
}

var (
	cpuPerCall = unit{"µs CPU each", func(s sample) float64 { return float64(s.cpu.Microseconds()) / float64(s.done) }, false}
	cpuPerGiB  = unit{"ms CPU a GiB", func(s sample) float64 { return float64(s.cpu.Milliseconds()) / float64(s.done) * (1 << 30) }, false}
	throughput = unit{"MiB/s", func(s sample) float64 { return float64(s.done) / (1 << 20) / s.elapsed.Seconds() }, true}
)

// line shows one measurement with what explains it.
func (w workload) line(at cell, s sample) string {
	rest := fmt.Sprintf("%.0f a second", float64(s.done)/s.elapsed.Seconds())
	if w.unit.more {
		rest = fmt.Sprintf("%.0f %s", cpuPerGiB.of(s), cpuPerGiB.name)
	}
	return fmt.Sprintf("%-13s %-10s %8.1f %s (%s, core %2.0f %% busy)",
		at.workload, at.peer, w.unit.of(s), w.unit.name, rest, 100*s.cpu.Seconds()/s.elapsed.Seconds())
}

// report prints the table; missed: a goal was not reached.
func (l *lab) report(out io.Writer) (missed bool) {
	fmt.Fprintf(out, "\nmedian (min–max) of %d rounds of %v\n\n", l.rounds, l.window)
	fmt.Fprintln(out, "| | "+strings.Join([]string{"unit", product, roleLoop, roleServer, "ratio to the first", "goal"}, " | ")+" |")
	fmt.Fprintln(out, "|---|---|---:|---:|---:|---:|---:|")
	for _, w := range workloads {
		if !l.only.MatchString(w.name) {
			continue
		}
		missed = l.row(out, w) || missed
		if w.unit.more { // throughput is at the mercy of the load's core, this is not
			w.unit, w.goal = cpuPerGiB, 0
			l.row(out, w)
		}
	}
	return missed
}

// row prints a workload.
func (l *lab) row(out io.Writer, w workload) (missed bool) {
	ratio := l.ratio(w, w.peers[0])
	goal := ""
	if w.goal > 0 {
		missed = w.unit.more && ratio[0] < w.goal || !w.unit.more && ratio[0] > w.goal
		goal = map[bool]string{true: "≥ ", false: "≤ "}[w.unit.more] + fmt.Sprint(w.goal)
	}
	if missed {
		goal += " **missed**"
	}
	fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s |\n", w.name, w.unit.name,
		l.values(w, product).text(1), l.values(w, roleLoop).text(1), l.values(w, roleServer).text(1), ratio.text(2), goal)
	return missed
}

// spread is a median, the least and the largest.
type spread [3]float64

func (s spread) text(digits int) string {
	if s == (spread{}) {
		return "–"
	}
	return fmt.Sprintf("%.*f (%.*f–%.*f)", digits, s[0], digits, s[1], digits, s[2])
}

// values are those of a proxy over all rounds.
func (l *lab) values(w workload, peer string) spread {
	var all []float64
	for _, s := range l.samples[cell{w.name, peer}] {
		all = append(all, w.unit.of(s))
	}
	return spreadOf(all)
}

// ratio compares within each round, which the noise of the machine spares most.
func (l *lab) ratio(w workload, peer string) spread {
	ours, theirs := l.samples[cell{w.name, product}], l.samples[cell{w.name, peer}]
	var all []float64
	for i := range ours {
		all = append(all, w.unit.of(ours[i])/w.unit.of(theirs[i]))
	}
	return spreadOf(all)
}

func spreadOf(all []float64) spread {
	if len(all) == 0 {
		return spread{}
	}
	slices.Sort(all)
	return spread{all[len(all)/2], all[0], all[len(all)-1]}
}
