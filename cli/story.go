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
	if s.severalParts() {
		s.summarize(w, calls)
	}
	events := s.events()
	for i, pieces := 0, pieces(calls); i < len(pieces); i++ {
		if left := len(pieces) - toldLast; i == toldFirst && left > i {
			fmt.Fprintf(w, "… %d more in between, see retryproxy calls -key-hash %s\n\n", left-i, calls[0].KeyHash)
			i = left
		}
		events = tellEvents(w, events, pieces[i][0].begin())
		s.tellPiece(w, pieces[i])
	}
	tellEvents(w, events, now)
	for i := range s.records {
		s.tellRecord(w, &s.records[i], &calls[0], now)
	}
	if len(s.records) == 0 && calls[0].KeyHash != "" {
		fmt.Fprintln(w, "Now: nothing is known under this key any more. The same key would be sent as a new one.")
	}
}

// severalParts says that there is more than one call to tell of.
func (s *story) severalParts() bool { return s.more || len(s.calls) > 1 }

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
	what := s.contents(calls)
	if s.more {
		what = "the newest " + what
	}
	whose := "Without a key"
	if hash := calls[0].KeyHash; hash != "" {
		whose = "Key hash " + hash
	}
	fmt.Fprintf(w, "%s: %s, %s to %s (%s)\n\n", whose, what,
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
		k.Result == other.Result && k.Origin == other.Origin && k.Reason == other.Reason && k.Status == other.Status
}

func (s *story) tellPiece(w io.Writer, calls []call) {
	k := &calls[0]
	if len(calls) == 1 {
		k.tell(w, s)
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

// isHash says whether a text is what logs show of a key.
func isHash(text string) bool {
	return len(text) == 16 && strings.Trim(text, "0123456789abcdef") == ""
}
