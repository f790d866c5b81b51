package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// letterSums are the counts of the admin API, as far as they are printed.
type letterSums struct {
	Letters int
	Oldest  *time.Time
	Reason  map[string]int `json:"by_reason"`
	Host    map[string]int `json:"by_host"`
	Shop    map[string]int `json:"by_shop"`
	Todo    map[string]int `json:"by_todo"`
}

// mostSums is how many hosts or shops are printed.
const mostSums = 20

// LettersSummary counts dead letters of a running proxy.
func LettersSummary(args []string, env Env) int {
	f := newFlags("deadletters summary", env)
	r, which := f.remote(), f.conditions()
	raw := f.Bool("json", false, "print the JSON of the admin API")
	if _, code, ok := f.parse(args, 0, 0); !ok {
		return code
	}
	path := lettersPath + "/summary?" + queryOf(which).Encode()
	c, err := r.client(env)
	var sum letterSums
	switch {
	case err != nil:
	case *raw:
		err = c.printRaw(env.Stdout, "GET", path)
	default:
		if err = c.get(path, &sum); err == nil && sum.Letters == 0 {
			err = c.tellNone(env.Stdout, which)
		} else if err == nil {
			err = sum.print(plain{env.Stdout})
		}
	}
	if err != nil {
		return env.failed(err)
	}
	return OK
}

func (s *letterSums) print(out io.Writer) error {
	fmt.Fprintf(out, "%s: %s", count(s.Letters, "letter"), todoText(s.Todo))
	if s.Oldest != nil {
		fmt.Fprintf(out, "; the oldest of %s", s.Oldest.Local().Format("2006-01-02 15:04:05 -07:00"))
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, by := range []struct {
		name string
		of   map[string]int
	}{{"REASON", s.Reason}, {"HOST", s.Host}, {"SHOP", s.Shop}} {
		fmt.Fprintf(w, "\n%s\tLETTERS\n", by.name)
		names := slices.SortedFunc(maps.Keys(by.of), func(a, b string) int { return cmp.Or(by.of[b]-by.of[a], cmp.Compare(a, b)) })
		for _, name := range names[:min(len(names), mostSums)] {
			fmt.Fprintf(w, "%s\t%d\n", name, by.of[name])
		}
		if more := len(names) - mostSums; more > 0 {
			fmt.Fprintf(w, "… %d more (-json)\t\n", more)
		}
	}
	return w.Flush()
}
