package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Print writes findings for people on an operating system (runtime.GOOS): groups
// with something to mend first, then one line for each that is well, then the
// sum. Of the lines for a shell only those for its own are shown.
func Print(w io.Writer, list []Finding, goos string) error {
	var b strings.Builder
	well := map[string]string{}
	for i := range list {
		if list[i].Severity == OK {
			well[list[i].Group] = "ok: " + list[i].Seen
		}
	}
	other := map[bool]string{true: "bash", false: "PowerShell"}[goos == "windows"]
	for _, group := range inOrder(list) {
		fmt.Fprintln(&b, strings.TrimSpace(fmt.Sprintf("%-13s%s", group, clean(well[group]))))
		delete(well, group)
		for i := range list {
			if list[i].Group == group && list[i].Severity > OK {
				list[i].print(&b, other)
			}
		}
	}
	for _, group := range groups {
		if text := well[group]; text != "" {
			fmt.Fprintf(&b, "%-13s%s\n", group, clean(text))
		}
	}
	fmt.Fprintln(&b, sum(list))
	_, err := io.WriteString(w, b.String())
	return err
}

// inOrder are the groups with something to mend, the one with the worst first.
func inOrder(list []Finding) []string {
	var out []string
	seen := map[string]bool{}
	for i := range list {
		if g := list[i].Group; list[i].Severity > OK && !seen[g] {
			seen[g] = true
			out = append(out, g)
		}
	}
	return out
}

// print writes one finding but for the lines for another shell. A note is short.
func (x *Finding) print(b *strings.Builder, other string) {
	fmt.Fprintf(b, "  %-8s %s", x.Severity, clean(x.Seen))
	switch {
	case x.Why == "":
	case x.Severity == Note:
		fmt.Fprintf(b, ". %s", clean(x.Why))
	default:
		fmt.Fprintf(b, "\n           %s", clean(x.Why))
	}
	b.WriteByte('\n')
	for _, f := range x.Fix {
		if f.Into != other {
			fmt.Fprintf(b, "           → %-10s  %s\n", f.Into, clean(f.Line))
		}
	}
}

// clean takes out what would steer the terminal: some of it came from elsewhere.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}

// sum counts what there is to mend.
func sum(list []Finding) string {
	count := map[Severity]int{}
	for i := range list {
		count[list[i].Severity]++
	}
	var parts []string
	for _, s := range [...]Severity{Problem, Warning, Note} {
		if n := count[s]; n == 1 {
			parts = append(parts, "1 "+s.String())
		} else if n > 1 {
			parts = append(parts, fmt.Sprintf("%d %ss", n, s))
		}
	}
	if len(parts) == 0 {
		return "All is well."
	}
	return strings.Join(parts, ", ") + "."
}

// JSON is the report for machines.
func JSON(list []Finding) ([]byte, error) {
	count := map[Severity]int{}
	for i := range list {
		count[list[i].Severity]++
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(struct {
		Problems int       `json:"problems"`
		Warnings int       `json:"warnings"`
		Notes    int       `json:"notes"`
		Findings []Finding `json:"findings"`
	}{count[Problem], count[Warning], count[Note], list})
	return []byte(b.String()), err
}
