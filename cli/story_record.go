package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"retryproxy/deadletter"
)

// record is what is known under a key now, or of a letter without one, as the admin
// API shows it.
type record struct {
	State, Reason, Receipt, Shop, Executed string
	Advice                                 string // of a dead letter; empty: it is none

	CallID   string `json:"call_id"`
	Attempts int
	Updated  time.Time
	NextAt   *time.Time `json:"next_at"`
	Later    *deadletter.LaterView
	Deadline *time.Time
	Expires  *time.Time

	Keyless bool
	Answer  string // done: kept, not_kept, unknown
	History []tried
	Runs    []deadletter.RunView
	Notes   []deadletter.NoteView
}

// event is what happened to a record beside its calls.
type event struct {
	at   time.Time
	text string
}

// events are what people and rules did, in the order of time.
func (s *story) events() (out []event) {
	for i := range s.records {
		for _, n := range s.records[i].Notes {
			by, did := n.By, deeds[n.Did]
			if by == "" {
				by = "Somebody"
			}
			if did == "" {
				did = "noted " + n.Did
			}
			text := by + " " + did
			if n.Text != "" {
				text += ": " + n.Text
			}
			out = append(out, event{n.At, text})
		}
	}
	slices.SortStableFunc(out, func(a, b event) int { return a.at.Compare(b.at) })
	return out
}

// tellEvents prints those until a time and gives the others.
func tellEvents(w io.Writer, events []event, until time.Time) []event {
	n := 0
	for ; n < len(events) && !events[n].at.After(until); n++ {
		fmt.Fprintf(w, "%s  %s\n", events[n].at.Local().Format(time.DateTime), events[n].text)
	}
	if n > 0 {
		fmt.Fprintln(w)
	}
	return events[n:]
}

// contents says what a story is made of: a call that goes on is still one request.
func (s *story) contents(calls []call) string {
	ids := map[string]map[string]bool{}
	for i := range calls {
		kind := s.kindOf(&calls[i])
		if ids[kind] == nil {
			ids[kind] = map[string]bool{}
		}
		ids[kind][calls[i].ID] = true
	}
	var list []string
	for _, kind := range []string{"request", "requeue", "redrive"} {
		if n := len(ids[kind]); n > 0 {
			list = append(list, count(n, kind))
		}
	}
	if len(list) == 0 {
		return count(len(calls), "part") + " of a request"
	}
	return strings.Join(list, ", ")
}

// kindOf says what a call is the whole or the beginning of; empty: a call that was
// parked goes on under an id of its own.
func (s *story) kindOf(k *call) string {
	switch k.Origin {
	case "requeue", "redrive":
		return k.Origin
	case "parked":
		return ""
	}
	for i := range s.records {
		for _, run := range s.records[i].Runs {
			if run.CallID == k.ID && run.Kind != "client" {
				return run.Kind
			}
		}
	}
	return "request"
}

// untold are the attempts before a call that only the record tells of: those of a
// process that was killed, and of calls that are remembered no more.
func (s *story) untold(k *call) (out []tried) {
	if len(s.records) != 1 {
		return nil // whose is it?
	}
	for _, a := range s.records[0].History {
		end := k.Ended
		if a.N <= k.Previous && (end == nil || !a.Started.After(*end)) && !s.tells(&a) && s.firstAfter(&a, k) {
			out = append(out, a)
		}
	}
	return out
}

// tells says that an attempt is one of a call that is told.
func (s *story) tells(a *tried) bool {
	return slices.ContainsFunc(s.calls, func(k call) bool {
		return slices.ContainsFunc(k.Attempts, func(b tried) bool { return b.N == a.N && b.Started.Sub(a.Started).Abs() < time.Second })
	})
}

// firstAfter says that k is the first call with an attempt before it.
func (s *story) firstAfter(a *tried, k *call) bool {
	return !slices.ContainsFunc(s.calls, func(other call) bool {
		return other.Previous >= a.N && (other.Ended == nil || !a.Started.After(*other.Ended)) && other.begin().Before(k.begin())
	})
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
		return "it is parked" + moment(" until ", r.NextAt, now) + reason + "." + soFar(r.Executed)
	case "done":
		return r.done(now)
	case "failed":
		return "it is over without success; executed: " + r.Executed + reason + "."
	case "dead":
		return "it was given up and is a dead letter, " + r.Receipt + "; executed: " + r.Executed + reason + r.tried(now) + "."
	case "in_doubt":
		if r.Later != nil {
			return "it is in doubt: it may have been executed, and where it went the key is not honoured" + r.tried(now) + "."
		}
		return "it is in doubt: it may have been executed, and where it went the key is not honoured. Nothing is sent under this key" + moment(" before ", r.Expires, now) + "."
	}
	return r.State + reason + "."
}

// tried is when a letter is run again by itself, and by whose wish.
func (r *record) tried(now time.Time) string {
	if r.Later == nil {
		return moment("; tried again at ", r.NextAt, now)
	}
	return moment("; "+cmp.Or(r.Later.By, "somebody")+" had it run again at ", &r.Later.At, now)
}

// done is how a call that is done stands.
func (r *record) done(now time.Time) string {
	until := moment(" until ", r.Expires, now) + "."
	switch {
	case r.Answer == "unknown" && r.Keyless:
		return "a person settled it as executed."
	case r.Answer == "unknown":
		return "it is done: a person settled it as executed, so there is no answer to give. The same key gets 409 result_not_kept" + until
	case r.Keyless:
		return "it is done."
	case r.Answer == "not_kept":
		return "it is done, but its answer was not kept. The same key gets 409 result_not_kept" + until
	}
	return "it is done, and the same key gets the answer that was kept" + until
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
		if r.Keyless {
			return "wait."
		}
		return "wait; a request with the same key joins it."
	case "parked":
		return "nothing, it goes on by itself; a request with the same key gets its answer then."
	case "done":
		if r.Answer == "not_kept" {
			return "read the result at " + k.Host + "."
		}
		return ""
	case "in_doubt":
		return "look at " + k.Host + ": was it done? If it was not, send it with a new key."
	}
	switch {
	case r.Executed == "no" && r.Keyless:
		return "nothing was done: it may be sent again."
	case r.Executed == "no":
		return "nothing was done: it may be sent again, with the same key."
	case r.Keyless:
		return "look at " + k.Host + " before it is sent again."
	}
	return "look at " + k.Host + " before it is sent again; the same request with the same key is not refused."
}
