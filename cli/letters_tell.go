package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"retryproxy/attempt"
	"retryproxy/deadletter"
)

// tellLetter prints what is known of a letter.
func tellLetter(w io.Writer, v *deadletter.View, now time.Time) {
	fmt.Fprintf(w, "%s %s: %s %s%s\n", letterName(v), v.ID, v.Method, v.Host, v.Path)
	fmt.Fprintf(w, "  %s %s, %s: %s.\n", letterSince(v), v.Since.Local().Format(time.DateTime), ago(now.Sub(v.Since)), reasonText(v.Reason))
	fmt.Fprintf(w, "  %s\n", executedText(v.Executed))
	fmt.Fprintf(w, "  %s\n", strings.Join(letterCircumstances(v), ", "))
	tellRuns(w, v)
	if a := v.Answer; a != nil {
		fmt.Fprintf(w, "  The last answer was %s with %d bytes.\n", strings.TrimSpace(fmt.Sprintf("%d %s", a.Status, a.Reason)), a.Bytes)
	}
	for _, n := range v.Notes {
		fmt.Fprintf(w, "  %s  %s: %s. %s\n", n.At.Local().Format(time.DateTime), cmp.Or(n.By, "somebody"), n.Did, n.Text)
	}
	switch l := v.Later; {
	case l != nil && l.ExecutedUnknown:
		fmt.Fprintf(w, "  %s had it run again at %s, executed or not.\n", cmp.Or(l.By, "Somebody"), l.At.Local().Format(time.DateTime))
	case l != nil:
		fmt.Fprintf(w, "  %s had it run again at %s.\n", cmp.Or(l.By, "Somebody"), l.At.Local().Format(time.DateTime))
	case v.NextAt != nil && v.State == "dead":
		fmt.Fprintf(w, "  It is tried again by itself at %s.\n", v.NextAt.Local().Format(time.DateTime))
	}
	if v.Expires != nil && v.State == "dead" {
		fmt.Fprintf(w, "  It is removed at %s.\n", v.Expires.Local().Format(time.DateTime))
	}
	if v.Request != nil && v.Request.URL != "" {
		tellMessage(w, "Request", v.Method+" "+v.Request.URL, v.Request.Headers, v.Request.Body)
	}
	if v.Answer != nil && v.Answer.Headers != nil {
		tellMessage(w, "Last answer", fmt.Sprintf("%d %s", v.Answer.Status, v.Answer.Reason), v.Answer.Headers, v.Answer.Body)
	}
}

// letterName says what the record is by now.
func letterName(v *deadletter.View) string {
	switch v.State {
	case "dead":
		return "Dead letter"
	case "in_doubt":
		return "Call in doubt"
	case "done", "failed":
		return "Closed letter (" + v.State + ")"
	}
	return "Call on its way (" + v.State + ")"
}

func letterSince(v *deadletter.View) string {
	switch v.State {
	case "dead", "in_doubt":
		return "Given up"
	case "done", "failed":
		return "Closed"
	}
	return "Begun"
}

func executedText(executed string) string {
	switch executed {
	case "no":
		return "Executed: no. Nothing was done upstream."
	case "yes":
		return "Executed: yes. The upstream has done it."
	}
	return "Executed: maybe. The upstream may have done it."
}

// ago is an age as people say it.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", d/time.Hour)
	}
	return fmt.Sprintf("%d days ago", d/(24*time.Hour))
}

// letterCircumstances say whose call it was and by which rules it lived.
func letterCircumstances(v *deadletter.View) []string {
	list := []string{"Policy " + v.Policy}
	for _, c := range [...][2]string{
		{"shop", v.Labels.Shop},
		{"tier", v.Labels.ShopTier},
		{"task type", v.Labels.TaskType},
		{"key hash", v.KeyHash},
		{"key", v.Key},
	} {
		if c[1] != "" {
			list = append(list, c[0]+" "+c[1])
		}
	}
	switch {
	case v.Keyless:
		return append(list, "no key")
	case v.Honoured:
		return append(list, "its key goes to the upstream")
	}
	return append(list, "the upstream does not go by the key")
}

// tellRuns prints what was tried, run by run.
func tellRuns(w io.Writer, v *deadletter.View) {
	rest := v.Attempts
	for i, r := range v.Runs {
		by := map[string]string{"client": "The client asked", "requeue": "It was requeued", "redrive": "It was tried again by itself"}[r.Kind]
		from := ""
		if r.ClientID != "" {
			from = " as its " + r.ClientID
		}
		fmt.Fprintf(w, "  %s  %s%s (call %s).\n", r.Started.Local().Format(time.DateTime), by, from, r.CallID)
		n := len(rest)
		if i+1 < len(v.Runs) {
			n = 0
			for n < len(rest) && rest[n].N < v.Runs[i+1].First {
				n++
			}
		}
		tellAttempts(w, rest[:n])
		rest = rest[n:]
		if r.Ended != nil {
			fmt.Fprintf(w, "  %s  That ended: %s.\n", r.Ended.Local().Format(time.DateTime), reasonText(r.Reason))
		}
	}
	tellAttempts(w, rest)
}

func tellAttempts(w io.Writer, made []attempt.FullView) {
	list := make([]tried, len(made))
	for i := range made {
		list[i] = tried(made[i])
	}
	for len(list) > 0 {
		n := alike(list)
		fmt.Fprintf(w, "  %s    %s\n", list[0].Started.Local().Format(time.DateTime), sentence(list[:n]))
		list = list[n:]
	}
}

// tellMessage prints a request or an answer that was revealed.
func tellMessage(w io.Writer, what, line string, headers []deadletter.Header, body *deadletter.Contents) {
	fmt.Fprintf(w, "\n%s:\n  %s\n", what, line)
	for _, h := range headers {
		fmt.Fprintf(w, "  %s: %s\n", h.Name, h.Value)
	}
	if body == nil {
		return
	}
	text := body.Text
	if body.Base64 != "" {
		text = "(binary, as base64) " + body.Base64
	}
	fmt.Fprintf(w, "\n  %s\n", strings.ReplaceAll(strings.TrimRight(text, "\r\n"), "\n", "\n  "))
	if body.Cut {
		fmt.Fprintln(w, "  (cut here, there is more)")
	}
}

// settled is what it means to resolve a letter.
func settled(v *deadletter.View, executed bool) string {
	switch {
	case v.Keyless && executed:
		return "closes it"
	case v.Keyless:
		return "closes it, the bot has to send it again"
	case executed:
		return "closes it, a repeat with its key is not sent any more (409 result_not_kept)"
	}
	return "closes it, its key is free: the bot may send it again"
}

// proposeFor prints what to do, and the command for it.
func proposeFor(out io.Writer, v *deadletter.View, again string) {
	fmt.Fprintf(plain{out}, "\nWhat to do: %s\n", v.Advice)
	command := func(name, flags, help string) {
		fmt.Fprintf(out, "  retryproxy deadletters %s%s %s%s\n      %s\n", name, again, v.ID, flags, help)
	}
	reveal := func() {
		if v.Request != nil && v.Request.URL == "" {
			command("show", " -reveal", "shows which order it is: address and body as they were sent")
		}
	}
	const signature = ` -by NAME -note "WHAT YOU SAW"`
	switch v.Todo {
	case deadletter.TodoRequeue:
		command("requeue", "", "runs it again")
		if v.Executed != "no" {
			command("resolve", " -executed"+signature, "it was done there: "+settled(v, true))
		}
	case deadletter.TodoLater:
		unknown := ""
		if v.Later != nil && v.Later.ExecutedUnknown {
			unknown = " -executed-unknown"
		}
		command("requeue", unknown, "runs it at once")
		command("requeue", unknown+" -at 2h", "runs it in two hours instead")
	case deadletter.TodoAsk:
		reveal()
		command("resolve", " -executed"+signature, "its bot has repeated it, and it was done: "+settled(v, true))
		command("resolve", " -not-executed"+signature, "it was not done: "+settled(v, false))
		command("requeue", " -executed-unknown", "it was not done, and its bot does not send it again: sends it from here")
	case deadletter.TodoCheck:
		reveal()
		command("resolve", " -executed"+signature, "it was done there: "+settled(v, true))
		command("resolve", " -not-executed"+signature, "it was not: "+settled(v, false))
		command("requeue", " -executed-unknown", "it was not, and nobody else sends it again: sends it from here")
	case deadletter.TodoResolve:
		command("resolve", " -executed"+signature, settled(v, true))
	}
	if v.Todo != deadletter.TodoWait && v.Todo != deadletter.TodoNone && v.State == "dead" {
		command("drop", signature, "nobody wants it any more")
	}
}
