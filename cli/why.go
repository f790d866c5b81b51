package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
)

// Why tells what became of a call, one sentence for each decision. A key names
// all calls that were made with it.
func Why(args []string, env Env) int {
	f := newFlags("why", env)
	r := f.remote()
	rest, code, ok := f.parse(args, 1, 1)
	if !ok {
		return code
	}
	c, err := r.client(env)
	if err != nil {
		return env.failed(err)
	}
	calls, err := c.find(rest[0])
	if err != nil {
		return env.failed(err)
	}
	for i := range calls {
		if i > 0 {
			fmt.Fprintln(env.Stdout)
		}
		calls[i].tell(plain{env.Stdout})
	}
	return OK
}

// find looks for a call by its id, then by its key, of which the proxy shows a
// hash only.
func (c *client) find(name string) ([]call, error) {
	var one call
	err := c.get("/api/v1/calls/"+url.PathEscape(name), &one)
	if err == nil {
		return []call{one}, nil
	}
	if !errors.Is(err, errNotFound) {
		return nil, err
	}
	sum := sha256.Sum256([]byte(name))
	var all []call
	if err := c.get("/api/v1/calls?key="+hex.EncodeToString(sum[:8]), &all); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: no call in progress or remembered has this id or key", errNotFound)
	}
	return all, nil
}

// tell prints the whole story of a call.
func (k *call) tell(w io.Writer) {
	fmt.Fprintf(w, "Call %s: %s %s%s\n", k.ID, k.Method, k.Host, k.Path)
	fmt.Fprintf(w, "  %s\n", strings.Join(k.circumstances(), ", "))
	if k.Previous > 0 {
		fmt.Fprintf(w, "  Earlier requests with this key made %s.\n", count(k.Previous, "attempt"))
	}
	for i := range k.Attempts {
		fmt.Fprintf(w, "  %s  %s\n", k.Attempts[i].Started.Local().Format("15:04:05.000"), k.Attempts[i].sentence())
	}
	fmt.Fprintf(w, "  %s\n", k.end())
}

// circumstances say whose call it is and by which rules it lives.
func (k *call) circumstances() []string {
	list := []string{k.Mode + " mode"}
	for _, c := range [...][2]string{
		{"policy", k.Policy},
		{"shop", k.Labels.Shop},
		{"tier", k.Labels.ShopTier},
		{"task type", k.Labels.TaskType},
		{"user", k.User},
		{"client", k.Client},
		{"key hash", k.KeyHash},
	} {
		if c[1] != "" {
			list = append(list, c[0]+" "+c[1])
		}
	}
	return append(list, "started "+k.Started.Local().Format(time.DateTime))
}

// sentence tells one attempt and what it meant.
func (a *tried) sentence() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Attempt %d", a.N)
	if a.DelayMS > 0 {
		fmt.Fprintf(&b, ", after %s%s,", span(a.DelayMS), waitingFor(a.Cause))
	}
	fmt.Fprintf(&b, " went to %s and brought %s in %s", a.Host, a.outcome(), span(a.DurationMS))
	switch a.Class {
	case "success":
		b.WriteString(": that is the answer.")
	case "transient":
		b.WriteString(": a repeat may mend that and is safe, " + basisText(a.Basis) + ".")
	case "permanent":
		b.WriteString(": a repeat cannot mend that.")
	default:
		b.WriteString(": the upstream may have acted, so a repeat is not safe.")
	}
	if a.RetryAfterMS > 0 {
		fmt.Fprintf(&b, " It asked for %s of rest.", span(a.RetryAfterMS))
	}
	return b.String()
}

// outcome is the status, or the failure in its place.
func (a *tried) outcome() string {
	if a.Status != 0 && strings.HasPrefix(a.Reason, "status_") {
		return fmt.Sprintf("status %d", a.Status)
	}
	if a.Reason == "suspect" {
		return fmt.Sprintf("status %d, but its body says failure", a.Status)
	}
	text := a.Reason
	if a.Status != 0 {
		text = fmt.Sprintf("status %d, %s", a.Status, a.Reason)
	}
	if a.Detail != "" {
		text += " (" + a.Detail + ")"
	}
	return text
}

// end tells how the call stands or ended.
func (k *call) end() string {
	if k.State != "done" {
		if k.State == "running" {
			doing := k.doing()
			return strings.ToUpper(doing[:1]) + doing[1:] + "."
		}
		if k.Cause == "" {
			return "It is " + k.State + "."
		}
		return "It waits " + k.what() + waitDetail(k) + "."
	}
	reason := reasonText(k.Reason)
	if k.suspect() {
		reason = "its status says success, but its body says failure (suspect)"
	}
	text := fmt.Sprintf("The client got %d after %s: %s.", k.Status, span(k.DurationMS), reason)
	if k.Status == 0 {
		text = fmt.Sprintf("It ended without an answer after %s: %s.", span(k.DurationMS), reason)
	}
	if k.Reason == "client_gone" {
		text = fmt.Sprintf("The client left after %s.", span(k.DurationMS))
	}
	if k.Result == "replay" {
		text = fmt.Sprintf("The client got the answer of an earlier call with the same key, %d.", k.Status)
	}
	switch {
	case k.Executed == "maybe":
		text += " The upstream may have acted: check before you repeat it."
	case k.Reason == "ok" || k.Reason == "":
	case k.Executed == "no":
		text += " Nothing was executed upstream."
	}
	if k.Detail != "" && len(k.Attempts) == 0 {
		text += " (" + k.Detail + ")"
	}
	return text
}

// waitDetail names the bucket that a wait for tokens is about.
func waitDetail(k *call) string {
	if k.Cause == "tokens" && k.Reason != "" {
		return " (" + k.Reason + ")"
	}
	return ""
}

// span writes milliseconds as people say them.
func span(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d == 0:
		return "under 1ms"
	case d >= time.Minute:
		d = d.Round(time.Second)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
