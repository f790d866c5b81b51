package template

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"retryproxy/document"
)

// MaxRandom is how many characters {random:n} may take.
const MaxRandom = 32

// Facts are all that a placeholder can stand for.
type Facts struct {
	Key         string
	CallID      string
	Shop        string
	TaskType    string
	Operation   string
	BusinessKey string
	OrderNo     string            // the number that the supplier knows the order by
	Cred        map[string]string // of this preset and shop, by name
	Now         time.Time
	Random      string            // at least MaxRandom letters and digits, new for each request
	Call        *document.Request // the client's
}

// holder is a placeholder: where its value comes from, and what is done to it.
type holder struct {
	source string // as written, for messages
	read   func(*Facts) (value string, found bool)
	json   bool // the value may be a JSON object or list
	steps  []step
}

// step is one thing done to a value: looked up in a table, or replaced where it is missing.
type step struct {
	table    string
	fallback string // table is empty: the value where there is none
}

// parseHolder reads the placeholder that s begins with, n bytes of it.
func parseHolder(s string) (h *holder, n int, err error) {
	fields, n := splitHolder(s)
	if n == 0 {
		return nil, 0, fmt.Errorf("%s: the placeholder has no end; write {{ for a brace", shown(s))
	}
	h = &holder{source: s[:n]}
	if err := h.from(fields[0]); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", shown(h.source), err)
	}
	for _, f := range fields[1:] {
		one, err := parseStep(f)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", shown(h.source), err)
		}
		h.steps = append(h.steps, one)
	}
	return h, n, nil
}

// splitHolder cuts a placeholder at the bars outside of quotes, brackets and braces.
// n is its length; 0: it has no end.
func splitHolder(s string) (fields []string, n int) {
	depth, from, quoted := 0, 1, false
	for i := 1; i < len(s); i++ {
		c := s[i]
		switch {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[' || c == '(':
			depth++
		case depth > 0 && (c == '}' || c == ']' || c == ')'):
			depth--
		case depth == 0 && c == '}':
			return append(fields, strings.TrimSpace(s[from:i])), i + 1
		case depth == 0 && c == '|':
			fields, from = append(fields, strings.TrimSpace(s[from:i])), i+1
		}
	}
	return nil, 0
}

// shown is a piece of a template in a message.
func shown(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}

// parseStep reads `map products` or `default "x"`.
func parseStep(s string) (step, error) {
	name, arg, _ := strings.Cut(s, " ")
	arg = strings.TrimSpace(arg)
	switch name {
	case "map":
		if !isToken(arg) {
			return step{}, errors.New("map needs the name of a table")
		}
		return step{table: arg}, nil
	case "default":
		value, err := strconv.Unquote(arg)
		if err != nil {
			return step{}, errors.New("default needs a text in double quotes")
		}
		return step{fallback: value}, nil
	}
	return step{}, errors.New("a step is map TABLE or default \"TEXT\"")
}

// facts are the placeholders without an argument.
var facts = map[string]func(*Facts) string{
	"key":          func(f *Facts) string { return f.Key },
	"call_id":      func(f *Facts) string { return f.CallID },
	"shop":         func(f *Facts) string { return f.Shop },
	"task_type":    func(f *Facts) string { return f.TaskType },
	"operation":    func(f *Facts) string { return f.Operation },
	"business_key": func(f *Facts) string { return f.BusinessKey },
	"order_no":     func(f *Facts) string { return f.OrderNo },
}

// from says where the value comes from. What is empty is missing: an order without
// an account is worse than none.
func (h *holder) from(s string) error {
	if read, ok := facts[s]; ok {
		h.read = func(f *Facts) (string, bool) { v := read(f); return v, v != "" }
		return nil
	}
	if name, ok := strings.CutPrefix(s, "cred."); ok && name != "" {
		h.read = func(f *Facts) (string, bool) { return f.Cred[name], f.Cred[name] != "" }
		return nil
	}
	kind, arg, _ := strings.Cut(s, ":")
	switch kind {
	case "now":
		write, err := clock(arg)
		h.read = func(f *Facts) (string, bool) { return write(f.Now), true }
		return err
	case "random":
		n, err := strconv.Atoi(arg)
		if err != nil || n < 1 || n > MaxRandom {
			return fmt.Errorf("random takes 1 to %d characters", MaxRandom)
		}
		h.read = func(f *Facts) (string, bool) { return f.Random[:min(n, len(f.Random))], len(f.Random) >= n }
		return nil
	}
	h.json = kind == "json"
	return h.place(s)
}

// place reads form:a, json:$.a.b, query:a, header:A, path and path:RE2 of the client's
// request.
func (h *holder) place(s string) error {
	at, err := document.ParsePlace(s)
	if err != nil {
		return errors.New("is neither a known placeholder nor a place (form:, json:, query:, header:, path)")
	}
	h.read = func(f *Facts) (string, bool) {
		v, ok := at.Read(f.Call)
		return v, ok && v != ""
	}
	return nil
}

// builder fills texts until one cannot be filled.
type builder struct {
	facts  *Facts
	tables map[string]map[string]string
	fault  *Fault
}

func (b *builder) fail(path, rule string, args ...any) {
	if b.fault == nil {
		b.fault = fault(path, rule, args...)
	}
}

// fill is a text with its values.
func (b *builder) fill(path string, t *text) string {
	var out strings.Builder
	for i := range t.parts {
		p := &t.parts[i]
		if p.holder == nil {
			out.WriteString(p.literal)
			continue
		}
		out.WriteString(b.value(path, p))
	}
	if out.Len() > maxBuilt {
		b.fail(path, "becomes longer than %d bytes", maxBuilt)
	}
	return out.String()
}

// fillAs is fill with values that are escaped in another form than the text says.
func (b *builder) fillAs(path string, t *text, as form) string {
	other := text{parts: append([]part(nil), t.parts...)}
	for i := range other.parts {
		other.parts[i].form = as
	}
	return b.fill(path, &other)
}

// value is what one placeholder stands for, escaped.
func (b *builder) value(path string, p *part) string {
	h := p.holder
	value, found := h.read(b.facts)
	for _, s := range h.steps {
		switch {
		case s.table == "" && !found:
			value, found = s.fallback, true
		case s.table != "" && found:
			mapped, ok := b.tables[s.table][value]
			if !ok {
				b.fail(path, "%s: the table %s has no entry for it", shown(h.source), s.table)
				return ""
			}
			value = mapped
		}
	}
	if !found {
		b.fail(path, "%s: the call has none", shown(h.source))
		return ""
	}
	escaped, rule := p.form.escape(value, h)
	if rule != "" {
		b.fail(path, "%s: %s", shown(h.source), rule)
	}
	return escaped
}
