package deadletter

import (
	"slices"
	"strings"
	"time"

	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/journal"
)

// Filter says which letters are meant; an empty field means all. Set fills it.
type Filter struct {
	Reason, Host, TaskType, Shop string
	State                        string // dead, in_doubt
	Executed                     string // no, maybe, yes
	KeyHash                      string
	Text                         string
	Since, Until                 time.Time // by the last change; until is not included
}

// Field is one condition of a Filter. In queries it has its name, as a flag - for _.
type Field struct{ Name, Arg, Help string }

// Fields are all conditions.
func Fields() []Field {
	return []Field{
		{"reason", "reason", "only those given up for this `reason`, such as attempts_exhausted"},
		{"host", "host", "only to this `host`, with or without a port"},
		{"task_type", "type", "only of this `type`"},
		{"shop", "shop", "only of this `shop`"},
		{"state", "state", "only in this `state`: dead, in_doubt"},
		{"executed", "answer", "only where the upstream may have acted: `no`, maybe or yes"},
		{"key", "key", "only the one with this idempotency `key`"},
		{"key_hash", "hash", "only the one whose key has this `hash`, as lists show it"},
		{"text", "text", "only with this `text` in request or path, such as an order number"},
		{"since", "time", "only those from this `time` on: 2026-03-04, \"2026-03-04 05:06\", RFC 3339, or an age such as 3d, 12h, 30m"},
		{"until", "time", "only those before this `time`, as -since"},
	}
}

// longestCondition is far more than any value has, in bytes.
const longestCondition = 1024

// Set sets one condition by its name; - in it is as good as _. now tells ages and,
// with its location, what a time without a zone means. Errors: ErrInput.
func (f *Filter) Set(name, value string, now time.Time) error {
	name = strings.ReplaceAll(name, "-", "_")
	switch {
	case !slices.ContainsFunc(Fields(), func(x Field) bool { return x.Name == name }):
		return wrong(name, "there is no such condition")
	case strings.TrimSpace(value) == "":
		return wrong(name, "is empty; leave it out to mean all")
	case len(value) > longestCondition:
		return wrong(name, "is longer than %d bytes", longestCondition)
	}
	switch name {
	case "since", "until":
		return f.setTime(name, value, now)
	case "state":
		return choose(name, value, &f.State, "dead", "in_doubt")
	case "executed":
		return choose(name, value, &f.Executed, "no", "maybe", "yes")
	case "host":
		f.Host = strings.ToLower(value)
	case "key":
		f.KeyHash = idempotency.KeyHash(value)
	default:
		*map[string]*string{"reason": &f.Reason, "task_type": &f.TaskType, "shop": &f.Shop, "key_hash": &f.KeyHash, "text": &f.Text}[name] = value
	}
	return nil
}

func choose(name, value string, to *string, words ...string) error {
	if !slices.Contains(words, value) {
		return wrong(name, "want %s, not %q", strings.Join(words, " or "), value)
	}
	*to = value
	return nil
}

func (f *Filter) setTime(name, value string, now time.Time) error {
	at, err := journal.ParseWhen(value, now)
	if err != nil {
		return wrong(name, "%v, not %q", err, value)
	}
	if name == "since" {
		f.Since = at
	} else {
		f.Until = at
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return wrong(name, "since is not before until, so nothing is meant")
	}
	return nil
}

// Values are the conditions that are set, by name, in words that Set takes
// anywhere: times with their zone.
func (f *Filter) Values() map[string]string {
	out := map[string]string{
		"reason": f.Reason, "host": f.Host, "task_type": f.TaskType, "shop": f.Shop, "state": f.State,
		"executed": f.Executed, "key_hash": f.KeyHash, "text": f.Text,
	}
	for name, at := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !at.IsZero() {
			out[name] = at.Format(time.RFC3339Nano)
		}
	}
	for name, value := range out {
		if value == "" {
			delete(out, name)
		}
	}
	return out
}

// Empty says that every letter is meant.
func (f *Filter) Empty() bool { return *f == Filter{} }

// Query is the filter in the words of a store. words are those of Text, hashed.
func (f *Filter) Query(words [][]uint64) idempotency.Query {
	q := idempotency.Query{
		States: States(), KeyHash: f.KeyHash, Host: f.Host, Shop: f.Shop, TaskType: f.TaskType, Reason: f.Reason,
		Words: words, Since: f.Since, Until: f.Until,
	}
	if f.State != "" {
		q.States = slices.DeleteFunc(q.States, func(s idempotency.State) bool { return s.String() != f.State })
	}
	for _, e := range []classify.Executed{classify.ExecutedNo, classify.ExecutedMaybe, classify.ExecutedYes} {
		if e.String() == f.Executed {
			q.Executed = []classify.Executed{e}
		}
	}
	return q
}
