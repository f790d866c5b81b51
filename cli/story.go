package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// story is what was found about something: one call, all calls of a key, or
// several calls that said a text.
type story struct {
	asked   string
	calls   []call // the newest first
	more    bool   // there are older ones
	records []record
	again   string // flags that the next command needs
}

// record is what is known under a key now, as the admin API shows it.
type record struct {
	State, Reason, Receipt, Shop, Executed string
	Advice                                 string // of a dead letter; empty: it is none

	CallID   string `json:"call_id"`
	Attempts int
	Updated  time.Time
	NextAt   *time.Time `json:"next_at"`
	Deadline *time.Time
	Expires  *time.Time
}

// sameKey says that all calls are of one key.
func (s *story) sameKey() bool {
	return len(s.calls) == 1 || s.calls[0].KeyHash != "" &&
		!slices.ContainsFunc(s.calls, func(k call) bool { return k.KeyHash != s.calls[0].KeyHash })
}

// What is told of a story at most, so that it fits on a screen.
const (
	toldFirst = 4
	toldLast  = 8
	alikeFrom = 3 // calls without attempts that are told in one line
)

// tell prints the story in the order of time, and how things stand at the end.
func (s *story) tell(w io.Writer, now time.Time) {
	if !s.sameKey() {
		s.choose(w)
		return
	}
	calls := slices.Clone(s.calls)
	slices.SortStableFunc(calls, func(a, b call) int { return a.begin().Compare(b.begin()) })
	if s.more || len(calls) > 1 {
		s.summarize(w, calls)
	}
	for i, pieces := 0, pieces(calls); i < len(pieces); i++ {
		if left := len(pieces) - toldLast; i == toldFirst && left > i {
			fmt.Fprintf(w, "… %s in between, see retryproxy calls -key-hash %s\n\n", count(left-i, "request"), calls[0].KeyHash)
			i = left
		}
		tellPiece(w, pieces[i])
	}
	for i := range s.records {
		s.tellRecord(w, &s.records[i], &calls[0], now)
	}
	if len(s.records) == 0 && calls[0].KeyHash != "" {
		fmt.Fprintln(w, "Now: nothing is known under this key any more. The same key would be sent as a new one.")
	}
}

// begin is when what this part of the story tells began: for a call that goes on,
// or goes again, that is its next attempt.
func (k *call) begin() time.Time {
	if k.Previous > 0 && len(k.Attempts) > 0 {
		return k.Attempts[0].Started
	}
	return k.Started
}

// summarize tells in one line what the calls have in common.
func (s *story) summarize(w io.Writer, calls []call) {
	first, last := calls[0].begin().Local(), calls[len(calls)-1].begin().Local()
	what := count(len(calls), "request")
	if s.more {
		what = "the newest " + what
	}
	fmt.Fprintf(w, "Key hash %s: %s, %s to %s (%s)\n\n", calls[0].KeyHash, what,
		first.Format(time.DateTime), last.Format(time.DateTime), last.Format("-07:00"))
}

// pieces puts calls together that are told in one line.
func pieces(calls []call) (out [][]call) {
	for len(calls) > 0 {
		n := 1
		for n < len(calls) && calls[n].like(&calls[0]) {
			n++
		}
		if n < alikeFrom {
			n = 1
		}
		out, calls = append(out, calls[:n]), calls[n:]
	}
	return out
}

// like says that two calls that made no attempt ended alike.
func (k *call) like(other *call) bool {
	return k.State == "done" && k.State == other.State && len(k.Attempts)+len(other.Attempts) == 0 &&
		k.Result == other.Result && k.Reason == other.Reason && k.Status == other.Status
}

func tellPiece(w io.Writer, calls []call) {
	k := &calls[0]
	if len(calls) == 1 {
		k.tell(w)
	} else {
		last := calls[len(calls)-1].Started
		fmt.Fprintf(w, "%d requests, %s to %s, the first is call %s\n  Each: %s\n", len(calls), k.Started.Local().Format(time.DateTime), moment("", &last, k.Started), k.ID, k.end())
	}
	fmt.Fprintln(w)
}

// choose lists calls of several keys, and how to find the one that is meant.
func (s *story) choose(w io.Writer) {
	fmt.Fprintf(w, "%s with %q. Which one? Ask with its ID:\n\n", several(len(s.calls), s.more), s.asked)
	_ = table(w, s.calls[:min(len(s.calls), mostChoices)]) // as any other line of it
	if len(s.calls) > mostChoices || s.more {
		fmt.Fprintf(w, "…\n")
	}
	fmt.Fprintf(w, "\nretryproxy calls -text %q with -shop, -host, -task-type, -result, -since or -until narrows the list.\n", s.asked)
}

// mostChoices is how many calls one may choose from.
const mostChoices = 20

func several(n int, more bool) string {
	if more {
		return fmt.Sprintf("More than %d calls", n)
	}
	return count(n, "call")
}

// tellRecord says how things stand under the key, and what to do.
func (s *story) tellRecord(w io.Writer, r *record, k *call, now time.Time) {
	whose := ""
	if len(s.records) > 1 {
		whose = " for shop " + orDash(r.Shop)
	}
	fmt.Fprintf(w, "Now%s: %s\n", whose, r.stands(now))
	if todo := r.todo(k); todo != "" {
		fmt.Fprintf(w, "To do: %s\n", todo)
	}
	if r.Advice != "" {
		fmt.Fprintf(w, "  retryproxy deadletters show%s %s\n", s.again, r.Receipt)
	}
}

// stands is the state in words.
func (r *record) stands(now time.Time) string {
	reason := ""
	if r.Reason != "" && r.Reason != "ok" {
		reason = ": " + reasonText(r.Reason)
	}
	switch r.State {
	case "running":
		return "an attempt is in flight" + moment(", the time for it ends at ", r.Deadline, now) + "."
	case "waiting":
		return "it waits" + moment(" until ", r.NextAt, now) + " for its next attempt" + reason + "."
	case "parked":
		return "it is parked" + moment(" until ", r.NextAt, now) + reason + "."
	case "done":
		return "it is done, and the same key gets the answer that was kept" + moment(" until ", r.Expires, now) + "."
	case "failed":
		return "it is over without success; executed: " + r.Executed + "."
	case "dead":
		return "it was given up and is a dead letter, " + r.Receipt + "; executed: " + r.Executed + reason + moment("; tried again at ", r.NextAt, now) + "."
	case "in_doubt":
		return "it is in doubt: it may have been executed, and where it went the key is not honoured. Nothing is sent under this key" + moment(" before ", r.Expires, now) + "."
	}
	return r.State + reason + "."
}

// moment is a time behind a word, with its date where that is not today.
func moment(word string, t *time.Time, now time.Time) string {
	if t == nil {
		return ""
	}
	layout := "15:04:05"
	if t.Local().Format(time.DateOnly) != now.Local().Format(time.DateOnly) {
		layout = time.DateTime
	}
	return word + t.Local().Format(layout)
}

// todo is what a person should do; empty: nothing.
func (r *record) todo(k *call) string {
	if r.Advice != "" {
		return r.Advice
	}
	switch r.State {
	case "running", "waiting":
		return "wait; a request with the same key joins it."
	case "parked":
		return "nothing, it goes on by itself; a request with the same key gets its answer then."
	case "done":
		return ""
	case "in_doubt":
		return "look at " + k.Host + ": was it done? If it was not, send it with a new key."
	}
	if r.Executed == "no" {
		return "nothing was done: it may be sent again, with the same key."
	}
	return "look at " + k.Host + " before it is sent again; the same request with the same key is not refused."
}

// isHash says whether a text is what logs show of a key.
func isHash(text string) bool {
	return len(text) == 16 && strings.Trim(text, "0123456789abcdef") == ""
}
