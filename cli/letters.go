package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"retryproxy/deadletter"
)

// lettersPath is where the admin API has dead letters.
const lettersPath = "/api/v1/deadletters"

// conditions are the flags that say which letters are meant.
func (f flags) conditions() *deadletter.Filter {
	var out deadletter.Filter
	for _, c := range deadletter.Fields() {
		f.Func(strings.ReplaceAll(c.Name, "_", "-"), c.Help, func(v string) error { return out.Set(c.Name, v, time.Now()) })
	}
	return &out
}

// queryOf are conditions as a query.
func queryOf(f *deadletter.Filter) url.Values {
	q := url.Values{}
	for name, value := range f.Values() {
		q.Set(name, value)
	}
	return q
}

// again are the flags that a proposed command needs to ask the same proxy.
func (r remote) again() string {
	text := ""
	if *r.admin != "" {
		text += " -admin " + quote(*r.admin)
	}
	if *r.config != "" {
		text += " -config " + quote(*r.config)
	}
	return text
}

// LettersList lists dead letters of a running proxy.
func LettersList(args []string, env Env) int {
	f := newFlags("deadletters ls", env)
	r, which := f.remote(), f.conditions()
	limit := f.Uint("limit", 50, "at most `n` letters, up to 1000")
	raw := f.Bool("json", false, "print the JSON of the admin API")
	if _, code, ok := f.parse(args, 0, 0); !ok {
		return code
	}
	query := queryOf(which)
	query.Set("limit", strconv.FormatUint(uint64(*limit), 10))
	c, err := r.client(env)
	if err == nil {
		err = c.printLetters(env.Stdout, lettersPath+"?"+query.Encode(), *raw, r.again(), which)
	}
	if err != nil {
		return env.failed(err)
	}
	return OK
}

func (c *client) printLetters(out io.Writer, path string, raw bool, again string, which *deadletter.Filter) error {
	if raw {
		return c.printRaw(out, "GET", path)
	}
	var list struct {
		Letters []deadletter.View
		Next    string
	}
	if err := c.get(path, &list); err != nil {
		return err
	}
	if len(list.Letters) == 0 {
		return c.tellNone(out, which)
	}
	if err := letterTable(out, list.Letters, nil); err != nil {
		return err
	}
	told := count(len(list.Letters), "letter")
	if list.Next != "" {
		told = "The latest " + told + ", there are more (-limit up to 1000, or deadletters export)"
	}
	fmt.Fprintf(out, "\n%s: %s.\n", told, todoCounts(list.Letters))
	first := list.Letters[0]
	fmt.Fprintf(out, "Look at one:             retryproxy deadletters show%s %s\n", again, first.ID)
	if slices.ContainsFunc(list.Letters, func(v deadletter.View) bool { return v.Todo == deadletter.TodoRequeue }) {
		fmt.Fprintf(out, "All that may run again:  retryproxy deadletters requeue%s -dry-run -all\n", again)
	}
	return nil
}

// tellNone says that no letter is meant; a reason may be misspelt, so it names those
// that there are.
func (c *client) tellNone(out io.Writer, which *deadletter.Filter) error {
	if which.Reason == "" {
		fmt.Fprintln(out, "no such dead letters")
		return nil
	}
	var sum letterSums
	if err := c.get(lettersPath+"/summary", &sum); err != nil {
		return err
	}
	there := "none"
	if len(sum.Reason) > 0 {
		there = strings.Join(slices.Sorted(maps.Keys(sum.Reason)), ", ")
	}
	fmt.Fprintf(plain{out}, "no such dead letters; reasons there are: %s\n", there)
	return nil
}

// letterTable writes one line for each letter. more is a further column, with its
// head first; nil: there is none.
func letterTable(out io.Writer, letters []deadletter.View, more []string) error {
	w := tabwriter.NewWriter(plain{out}, 0, 0, 2, ' ', 0)
	last := func(i int) string {
		if more == nil {
			return ""
		}
		return "\t" + more[i]
	}
	now := time.Now()
	zone := now.Format("-07:00") // one for all, so that the head is true of every line
	_, offset := now.Zone()
	in := time.FixedZone(zone, offset)
	fmt.Fprintf(w, "ID\tSINCE (%s)\tCALL\tSHOP\tTASK TYPE\tTRIES\tWHY\tEXECUTED\tTO DO%s\n", zone, last(0))
	for i := range letters {
		v := &letters[i]
		fmt.Fprintf(w, "%s\t%s\t%s %s%s\t%s\t%s\t%d\t%s\t%s\t%s%s\n", v.ID, v.Since.In(in).Format(time.DateTime), v.Method, v.Host, v.Path,
			orDash(v.Labels.Shop), orDash(v.Labels.TaskType), v.Made, v.Reason, v.Executed, todoIn(v, in), last(i+1))
	}
	return w.Flush()
}

// todoIn is what there is to do about a letter; of one that runs by itself later, when.
func todoIn(v *deadletter.View, in *time.Location) string {
	if v.Later == nil {
		return v.Todo
	}
	return "runs " + v.Later.At.In(in).Format(time.DateTime)
}

// todoCounts says how many letters want what.
func todoCounts(letters []deadletter.View) string {
	counts := map[string]int{}
	for i := range letters {
		counts[letters[i].Todo]++
	}
	return todoText(counts)
}

func todoText(counts map[string]int) string {
	var parts []string
	for _, todo := range slices.Sorted(maps.Keys(counts)) {
		if todo == deadletter.TodoLater {
			parts = append(parts, fmt.Sprintf("%d to run later", counts[todo]))
			continue
		}
		parts = append(parts, fmt.Sprintf("%d to %s", counts[todo], todo))
	}
	return strings.Join(parts, ", ")
}

// LettersShow tells the story of one letter, and what to do.
func LettersShow(args []string, env Env) int {
	f := newFlags("deadletters show", env)
	r := f.remote()
	reveal := f.Bool("reveal", false, "also print the key, request and answer, but for the values of secrets; the proxy notes it in its log")
	raw := f.Bool("json", false, "print the JSON of the admin API")
	rest, code, ok := f.parse(args, 1, 1)
	if !ok {
		return code
	}
	if err := checkID(rest); err != nil {
		return env.failed(err)
	}
	path := letterPath(rest[0])
	if *reveal {
		path += "?reveal=1"
	}
	c, err := r.client(env)
	if err != nil {
		return env.failed(err)
	}
	var v deadletter.View
	if *raw {
		err = c.printRaw(env.Stdout, "GET", path)
	} else if err = c.get(path, &v); err == nil {
		tellLetter(plain{env.Stdout}, &v, time.Now())
		proposeFor(env.Stdout, &v, r.again())
	}
	if err != nil {
		return env.failed(err)
	}
	return OK
}

// checkID wants an id as the API gives them, which is none of the words that mean
// something else there. No id at all is right.
func checkID(ids []string) error {
	if len(ids) == 1 && (ids[0] == "" || strings.Trim(ids[0], "0123456789abcdef") != "") {
		return &usageError{fmt.Errorf("%q is no id of a letter; retryproxy deadletters ls shows them", ids[0])}
	}
	return nil
}

func letterPath(id string) string { return lettersPath + "/" + url.PathEscape(id) }

// LettersResolve settles a letter and its key.
func LettersResolve(args []string, env Env) int {
	f := newFlags("deadletters resolve", env)
	r := f.remote()
	executed := f.Bool("executed", false, "the upstream has done it: repeats are not sent any more")
	not := f.Bool("not-executed", false, "the upstream has not done it: the key is free again")
	who := f.signed()
	rest, code, ok := f.parse(args, 1, 1)
	if !ok {
		return code
	}
	if *executed == *not {
		return env.wrong("deadletters resolve: want either -executed or -not-executed")
	}
	if err := cmp.Or(checkID(rest), unsigned(who)); err != nil {
		return env.failed(err)
	}
	c, err := r.client(env)
	var v deadletter.View
	if err == nil {
		order := struct {
			Executed bool `json:"executed"`
			deadletter.Signed
		}{*executed, *who}
		err = c.order("POST", letterPath(rest[0])+"/resolve", order, &v)
	}
	if err != nil {
		return env.failed(err)
	}
	fmt.Fprintf(env.Stdout, "resolved as %s: %s\n", map[bool]string{true: "executed", false: "not executed"}[*executed], settled(&v, *executed))
	return OK
}

// signed are the flags that say who decides, and why.
func (f flags) signed() *deadletter.Signed {
	var s deadletter.Signed
	f.StringVar(&s.By, "by", "", "your `name`, kept with the record")
	f.StringVar(&s.Note, "note", "", "why, as a `text` of one line, kept with the record")
	return &s
}

// unsigned is what is wrong with the flags that say who decides, and why.
func unsigned(who *deadletter.Signed) error {
	switch err := who.Check(); {
	case strings.TrimSpace(who.By) == "":
		return &usageError{errors.New("-by NAME is needed: it is kept with the record")}
	case strings.TrimSpace(who.Note) == "":
		return &usageError{errors.New("-note TEXT is needed: why, kept with the record")}
	case err != nil:
		return &usageError{err}
	}
	return nil
}

// LettersDrop gives letters up for good.
func LettersDrop(args []string, env Env) int {
	f := newFlags("deadletters drop", env)
	r, which, who := f.remote(), f.conditions(), f.signed()
	all := f.Bool("all", false, "every letter, without a condition")
	dry := f.Bool("dry-run", false, "only say how many that would be")
	rest, code, ok := f.parse(args, 0, 1)
	if !ok {
		return code
	}
	if err := oneOrMany(rest, which, *all); err != nil {
		return env.failed(err)
	}
	c, err := r.client(env)
	switch {
	case err != nil:
	case *dry:
		return c.countDrops(env, rest, which)
	case unsigned(who) != nil:
		err = unsigned(who)
	case len(rest) == 1:
		_, err = c.do("POST", letterPath(rest[0])+"/drop", who)
		if err == nil {
			fmt.Fprintln(env.Stdout, "dropped: its request is deleted, its history stays, its key is free")
		}
	default:
		err = c.dropMany(env.Stdout, which, *all, who)
	}
	if err != nil {
		return env.failed(err)
	}
	return OK
}

// oneOrMany wants an id, or conditions that say which.
func oneOrMany(ids []string, which *deadletter.Filter, all bool) error {
	switch {
	case len(ids) == 1 && (!which.Empty() || all):
		return &usageError{errors.New("want an id or conditions, not both")}
	case len(ids) == 0 && which.Empty() && !all:
		return &usageError{errors.New("which letters? name an id, or conditions such as -host or -since 3h, or -all")}
	}
	return checkID(ids)
}

// countDrops says what a drop would do.
func (c *client) countDrops(env Env, ids []string, which *deadletter.Filter) int {
	if len(ids) == 1 {
		return env.wrong("deadletters drop: -dry-run goes with conditions; retryproxy deadletters show %s shows the one", ids[0])
	}
	var sum struct {
		Letters int
		State   map[string]int `json:"by_state"`
	}
	if err := c.get(lettersPath+"/summary?"+queryOf(which).Encode(), &sum); err != nil {
		return env.failed(err)
	}
	fmt.Fprintf(env.Stdout, "%d would be dropped, %d are in doubt and would stay\n", sum.State["dead"], sum.State["in_doubt"])
	return OK
}

// dropMany drops piece by piece.
func (c *client) dropMany(out io.Writer, which *deadletter.Filter, all bool, who *deadletter.Signed) error {
	dropped, refused := 0, 0
	for {
		var got struct {
			Dropped, Refused int
			More             bool
		}
		order := struct {
			Filter map[string]string `json:"filter"`
			All    bool              `json:"all"`
			deadletter.Signed
		}{which.Values(), all, *who}
		err := c.order("POST", lettersPath+"/drop", order, &got)
		dropped, refused = dropped+got.Dropped, max(refused, got.Refused)
		if err != nil || !got.More {
			fmt.Fprintf(out, "%s dropped, %d refused (in doubt, or on their way)\n", count(dropped, "letter"), refused)
			return err
		}
	}
}

// LettersExport writes letters to standard output.
func LettersExport(args []string, env Env) int {
	f := newFlags("deadletters export", env)
	r, which := f.remote(), f.conditions()
	format := f.String("format", deadletter.JSONL, "`jsonl` (one letter a line, bodies up to 64 KiB) or csv (for people, without attempts and answers)")
	reveal := f.Bool("reveal", false, "with keys, requests and answers, but for the values of secrets (csv: key, address and body of the request); the proxy notes it in its log")
	if _, code, ok := f.parse(args, 0, 0); !ok {
		return code
	}
	if *format != deadletter.JSONL && *format != deadletter.CSV {
		return env.wrong("deadletters export: -format: want %s or %s, not %q", deadletter.JSONL, deadletter.CSV, *format)
	}
	query := queryOf(which)
	query.Set("format", *format)
	if *reveal {
		query.Set("reveal", "1")
	}
	c, err := r.client(env)
	if err == nil {
		err = c.stream(lettersPath+"/export?"+query.Encode(), env.Stdout)
	}
	if err != nil {
		return env.failed(err)
	}
	return OK
}
