// Package doctor answers one question: why do calls fail, or fail without being retried?
//
// Collect looks at the shell, the configuration, the running proxy and the
// upstreams; Examine turns what was seen into findings, each with the line that
// mends it, and is a pure function. The Observer sits in the running proxy and
// counts what finished calls tell about the clients.
package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Severity says how bad a finding is. Larger is worse.
type Severity uint8

// Severities: a problem makes calls fail or keeps them from being retried, a
// warning may, a note is good to know.
const (
	OK Severity = iota
	Note
	Warning
	Problem
)

// String is the word for people and JSON.
func (s Severity) String() string { return [...]string{"ok", "note", "warning", "problem"}[s] }

// MarshalText writes the word.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Groups of findings, in the order in which they are shown.
const (
	groupConfig    = "config"
	groupShell     = "environment"
	groupProxy     = "proxy"
	groupUpstreams = "upstreams"
	groupEgress    = "egress"
	groupTrust     = "trust"
	groupTraffic   = "traffic"
)

var groups = []string{groupConfig, groupProxy, groupShell, groupUpstreams, groupEgress, groupTrust, groupTraffic}

// Finding is one thing that was seen and what it means.
type Finding struct {
	ID       string   `json:"id"` // stable, such as env.curl_upper_case
	Group    string   `json:"group"`
	Severity Severity `json:"severity"`
	Seen     string   `json:"seen"`
	Why      string   `json:"why,omitempty"` // why it matters
	Fix      []Fix    `json:"fix,omitempty"` // lines to paste, the best first
}

// Fix is a line to paste.
type Fix struct {
	Into string `json:"into"` // bash, PowerShell, config, run, python, javascript
	Line string `json:"line"`
}

// Examine gives all findings, the worst first. A group without warning or
// problem has one that says what is well.
func Examine(f *Facts) []Finding {
	var out []Finding
	for _, check := range []func(*Facts) []Finding{
		examineConfig, examineProxy, examineSwitch, examineShell, examineNoProxy, examineNode, examineJava,
		examineUpstreams, examineClock, examineEgress, examineTrust, examineBundles, examineTraffic, examineFailures, examineClients,
	} {
		out = append(out, check(f)...)
	}
	out = append(out, allWell(f, out)...)
	slices.SortStableFunc(out, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), slices.Index(groups, a.Group)-slices.Index(groups, b.Group))
	})
	return out
}

// Worst is the worst severity among findings.
func Worst(list []Finding) Severity {
	worst := OK
	for i := range list {
		worst = max(worst, list[i].Severity)
	}
	return worst
}

// inShell are the lines that set variables in a shell.
func inShell(pairs ...string) []Fix {
	bash, power := "export", ""
	for i := 0; i < len(pairs); i += 2 {
		bash += fmt.Sprintf(" %s=%s", pairs[i], quoted(pairs[i+1]))
		if power != "" {
			power += "; "
		}
		power += fmt.Sprintf(`$env:%s = %s`, pairs[i], powerQuoted(pairs[i+1]))
	}
	return []Fix{{"bash", bash}, {"PowerShell", power}}
}

// alike are the lines that set variables to the value of another one, which may
// hold a password and so is not repeated.
func alike(from string, names ...string) []Fix {
	bash, power := "export", ""
	for i, name := range names {
		bash += fmt.Sprintf(` %s="$%s"`, name, from)
		power += [...]string{"", "; "}[min(i, 1)] + fmt.Sprintf("$env:%s = $env:%s", name, from)
	}
	return []Fix{{"bash", bash}, {"PowerShell", power}}
}

// withoutVariable are the lines that take variables away.
func withoutVariable(names ...string) []Fix {
	bash, power := "unset", "Remove-Item"
	for i, name := range names {
		bash += " " + name
		power += [...]string{" ", ","}[min(i, 1)] + "Env:" + name
	}
	return []Fix{{"bash", bash}, {"PowerShell", power}}
}

// inConfig is a line for the configuration file.
func inConfig(format string, args ...any) Fix { return Fix{"config", fmt.Sprintf(format, args...)} }

// inList is a key of the configuration whose list gets more items. A list in
// the file takes the place of the built-in one, so all of it is written.
func inList(format string, list []string, items ...string) Fix {
	all := make([]string, 0, len(list)+len(items))
	for _, s := range slices.Concat(list, items) {
		if s = strconv.Quote(s); !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return inConfig(format, "["+strings.Join(all, ", ")+"]")
}

// toRun is a command.
func toRun(format string, args ...any) Fix { return Fix{"run", fmt.Sprintf(format, args...)} }
