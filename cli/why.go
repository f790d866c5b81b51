package cli

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"retryproxy/idempotency"
)

// Why tells what became of a call, one sentence for each decision: of one call by
// its id, of all that was done under a key, of what said a text.
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
	s, err := c.find(rest[0])
	if err != nil {
		return env.failed(err)
	}
	s.again = r.again()
	s.tell(plain{env.Stdout}, time.Now())
	return OK
}

// mostTold is how many calls of a key or a text are asked for.
const mostTold = 200

// find looks for a call by its id, then by its key, of which only the hash is
// sent, then by a text.
func (c *client) find(name string) (*story, error) {
	var one call
	err := c.get("/api/v1/calls/"+url.PathEscape(name), &one)
	if err == nil {
		return c.around(&one)
	}
	if !errors.Is(err, errNotFound) {
		return nil, err
	}
	s := &story{asked: name}
	hashes := []string{idempotency.KeyHash(name)}
	if isHash(name) {
		hashes = append(hashes, name)
	}
	for _, hash := range hashes {
		if err := c.list(s, "key_hash", hash); err != nil || len(s.calls) > 0 {
			return c.settled(s, err)
		}
	}
	err = c.list(s, "text", name)
	switch {
	case errors.Is(err, errBadRequest): // no word, or no history to look into
		return nil, fmt.Errorf("%w: no call in progress or remembered has this id or key (%w)", errNotFound, err)
	case err != nil:
		return nil, err
	case len(s.calls) == 0:
		return nil, fmt.Errorf("%w: no call in progress or remembered has this id or key, or said this text\n%s", errNotFound, howFound)
	case s.sameKey():
		return c.around(&s.calls[0])
	}
	return s, nil
}

// howFound tells why a text may be in vain.
const howFound = "A text is found by whole words of 4 to 64 letters, digits, - and _, not by a part of one. " +
	"Calls that a kill cut off are not noted, unless they go on later (with a key and -data). " +
	"Where store.key was changed, calls from before are found by their key or id only."

// around gives the story that a call belongs to: that of its key.
func (c *client) around(one *call) (*story, error) {
	s := &story{asked: one.ID}
	if one.KeyHash == "" { // its letter, if it is one
		s.calls = []call{*one}
		return c.settled(s, nil)
	}
	return c.settled(s, c.list(s, "key_hash", one.KeyHash))
}

// list fills a story with the newest calls that are asked for.
func (c *client) list(s *story, name, value string) (err error) {
	query := url.Values{name: {value}, "limit": {strconv.Itoa(mostTold)}}
	s.more, err = c.page("/api/v1/calls?"+query.Encode(), &s.calls)
	return err
}

// settled adds what is known under the key of the newest call now.
func (c *client) settled(s *story, err error) (*story, error) {
	if err != nil || len(s.calls) == 0 {
		return s, err
	}
	var one struct{ Records []record }
	if err := c.get("/api/v1/calls/"+url.PathEscape(s.calls[0].ID), &one); err != nil && !errors.Is(err, errNotFound) {
		return nil, err
	}
	s.records = one.Records
	return s, nil
}

// tell prints what became of a call, as a part of its story.
func (k *call) tell(w io.Writer, s *story) {
	fmt.Fprintf(w, "Call %s: %s %s%s\n", k.ID, k.Method, k.Host, k.Path)
	fmt.Fprintf(w, "  %s\n", strings.Join(k.circumstances(s.severalParts()), ", "))
	if text := origins[k.Origin]; text != "" {
		fmt.Fprintf(w, "  %s\n", text)
	}
	if k.Previous > 0 {
		untold := s.untold(k)
		end := "."
		if len(untold) > 0 {
			end = ":"
		}
		fmt.Fprintf(w, "  Before that, %s had been made%s\n", count(k.Previous, "attempt"), end)
		k.tellAttempts(w, untold)
	}
	k.tellAttempts(w, k.Attempts)
	fmt.Fprintf(w, "  %s\n", k.end())
	if text := k.remedy(); text != "" {
		fmt.Fprintf(w, "  %s\n", text)
	}
}

func (k *call) tellAttempts(w io.Writer, list []tried) {
	for len(list) > 0 {
		n := alike(list)
		fmt.Fprintf(w, "  %s  %s\n", clock(list[0].Started, k.Started), sentence(list[:n]))
		list = list[n:]
	}
}

// clock is a time of day, with its date where that is not the day of the call.
func clock(t, call time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) != call.Local().Format(time.DateOnly) {
		return t.Format("2006-01-02 15:04:05.000")
	}
	return t.Format("15:04:05.000")
}

// circumstances say whose call it is and by which rules it lives. zoned: the zone of
// times was said before.
func (k *call) circumstances(zoned bool) []string {
	var list []string
	if k.Mode != "" {
		list = append(list, k.Mode+" mode")
	}
	for _, c := range [...][2]string{
		{"policy", k.Policy},
		{"shop", k.Labels.Shop},
		{"tier", k.Labels.ShopTier},
		{"task type", k.Labels.TaskType},
		{"user", k.User},
		{"client", k.Client},
		{"client request id", k.ClientID},
		{"key hash", k.KeyHash},
	} {
		if c[1] != "" {
			list = append(list, c[0]+" "+c[1])
		}
	}
	layout := "2006-01-02 15:04:05 -07:00"
	if zoned {
		layout = time.DateTime
	}
	return append(list, "started "+k.Started.Local().Format(layout))
}

// sentence tells attempts that are alike, mostly one, and what they meant.
func sentence(alike []tried) string {
	var b strings.Builder
	a := &alike[0]
	fmt.Fprintf(&b, "Attempt %d", a.N)
	if last := alike[len(alike)-1].N; last != a.N {
		b.Reset()
		fmt.Fprintf(&b, "Attempts %d to %d", a.N, last)
	}
	b.WriteString(waited(alike))
	took := spans(alike, func(t *tried) int64 { return t.DurationMS })
	if a.Supplier != "" {
		fmt.Fprintf(&b, " at the supplier %s", a.Supplier)
	}
	switch {
	case a.atEgress():
		fmt.Fprintf(&b, " failed at egress %s: %s (%s) in %s; ", a.Egress, a.told(), a.Reason, took)
	case a.Egress != "":
		fmt.Fprintf(&b, " went to %s through egress %s and brought %s in %s: ", a.Host, a.Egress, a.outcome(), took)
	default:
		fmt.Fprintf(&b, " went to %s and brought %s in %s: ", a.Host, a.outcome(), took)
	}
	b.WriteString(a.meaning())
	b.WriteString(upstreamIDs(alike))
	if a.RetryAfterMS > 0 {
		fmt.Fprintf(&b, " It asked for %s of rest.", span(a.RetryAfterMS))
	}
	return b.String()
}

// mostIDs is how many request ids are printed for attempts that are alike.
const mostIDs = 3

// upstreamIDs names what the upstream called the requests.
func upstreamIDs(alike []tried) string {
	var ids []string
	for i := range alike {
		if alike[i].UpstreamID != "" {
			ids = append(ids, alike[i].UpstreamID)
		}
	}
	switch {
	case len(ids) == 0:
		return ""
	case len(ids) > mostIDs:
		ids = append(ids[:mostIDs], "…")
	}
	return " Upstream request id " + strings.Join(ids, ", ") + "."
}

// meaning is what the outcome says about a repeat.
func (a *tried) meaning() string {
	switch a.Class {
	case "success":
		return "that is the answer."
	case "transient":
		return "a repeat may mend that and is safe, " + basisText(a.Basis) + "."
	case "permanent":
		return "a repeat cannot mend that."
	}
	return "the upstream may have acted, so a repeat is not safe."
}

// alike is how many attempts from the first on differ in their times only.
func alike(list []tried) int {
	what := func(t tried) tried {
		t.N, t.Started, t.DurationMS, t.DelayMS, t.Cause, t.UpstreamID = 0, time.Time{}, 0, 0, "", ""
		t.RetryCount, t.Reused = 0, false
		return t
	}
	n := 1
	for n < len(list) && what(list[n]) == what(list[0]) && (n == 1 || list[n].Cause == list[1].Cause) {
		n++
	}
	return n
}

// waited tells the waits before attempts that are alike. The first of a call has none.
func waited(list []tried) string {
	text := ", after "
	if len(list) > 1 && list[0].Cause != list[1].Cause {
		if list[0].DelayMS > 0 {
			text = ", the first after " + span(list[0].DelayMS) + waitingFor(list[0].Cause) + ", the others after "
		} else {
			text = ", the later ones after "
		}
		list = list[1:]
	}
	if list[len(list)-1].DelayMS == 0 {
		return ""
	}
	return text + spans(list, func(t *tried) int64 { return t.DelayMS }) + waitingFor(list[0].Cause) + ","
}

// spans is the range of a time of attempts.
func spans(list []tried, of func(*tried) int64) string {
	low, high := of(&list[0]), of(&list[0])
	for i := range list {
		low, high = min(low, of(&list[i])), max(high, of(&list[i]))
	}
	if span(low) == span(high) {
		return span(low)
	}
	return span(low) + " to " + span(high)
}

// atEgress says that the attempt never got behind its egress proxy.
func (a *tried) atEgress() bool { return a.Egress != "" && strings.HasPrefix(a.Reason, "egress_") }

// told is what went wrong at the egress proxy, without its name once more.
func (a *tried) told() string {
	return strings.TrimPrefix(orDash(a.Detail), "egress "+a.Egress+": ")
}

// remedy is what a person can do about a call that its egress proxy stopped;
// empty: nothing to say.
func (k *call) remedy() string {
	if len(k.Attempts) == 0 {
		return ""
	}
	a := &k.Attempts[len(k.Attempts)-1]
	if !a.atEgress() {
		return ""
	}
	rule, address, _ := strings.Cut(a.Egress, " (")
	address, _, _ = strings.Cut(strings.TrimSuffix(address, ")"), ",")
	switch a.Reason {
	case "egress_auth":
		return fmt.Sprintf("Remedy: check user and password of the egress rule %s: its proxy does not take them.", rule)
	case "egress_denied":
		return fmt.Sprintf("Remedy: the proxy of the egress rule %s does not let calls to %s through: have that allowed there, or give the call another rule.", rule, a.Host)
	case "egress_unreachable", "egress_timeout":
		return fmt.Sprintf("Remedy: check that a proxy runs at %s and can be reached from here, or correct the egress rule %s; retryproxy doctor tries it.", address, rule)
	}
	return ""
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
	switch {
	case k.State == "running":
		doing := k.doing()
		return strings.ToUpper(doing[:1]) + doing[1:] + "."
	case k.State == "parked":
		return fmt.Sprintf("It is parked%s: %s.%s", moment(" until ", &k.NextAt, k.Started), reasonText(k.Reason), soFar(k.Executed))
	case k.State != "done" && k.Cause == "":
		return "It is " + k.State + "."
	case k.State != "done":
		return "It waits " + k.what() + "."
	case k.Reason == "parked":
		return k.wasParked()
	}
	text := k.outcome()
	switch {
	case k.Executed == "maybe" && k.KeyHash != "":
		text += " The upstream may have acted: check before you send it with another key."
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

// outcome says how a call ended, and who was told so.
func (k *call) outcome() string {
	reason := reasonText(k.Reason)
	if k.suspect() {
		reason = "its status says success, but its body says failure (suspect)"
	}
	took := span(k.DurationMS)
	switch n := len(k.Attempts); {
	case k.Origin != "" && n > 0 && k.Attempts[n-1].Status == k.Status && k.Status != 0:
		return fmt.Sprintf("It ended with %d after %s, and no client waited for that: %s.", k.Status, took, reason)
	case k.Origin != "":
		return fmt.Sprintf("It ended after %s, and no client waited for that: %s.", took, reason)
	case k.Result == "replay":
		return fmt.Sprintf("The client got the answer of an earlier call with the same key, %d.", k.Status)
	case k.Reason == "client_gone":
		return fmt.Sprintf("The client left after %s.", took)
	case k.Status == 0:
		return fmt.Sprintf("It ended without an answer after %s: %s.", took, reason)
	}
	return fmt.Sprintf("The client got %d after %s: %s.", k.Status, took, reason)
}

// wasParked tells that the call was not over when its client was let go.
func (k *call) wasParked() string {
	text := fmt.Sprintf("The client got %d after %s: %s. It was not over then: the same key gets its answer.", k.Status, span(k.DurationMS), reasonText(k.Reason))
	if k.Origin != "" {
		text = fmt.Sprintf("It was parked again after %s.", span(k.DurationMS))
	}
	switch {
	case len(k.Attempts) == 0:
		return text // it joined the call, or its attempts are told elsewhere
	case slices.ContainsFunc(k.Attempts, func(a tried) bool { return a.Executed != "no" }):
		return text + soFar("maybe")
	case k.Previous > 0:
		return text + " These attempts executed nothing upstream."
	}
	return text + soFar("no")
}

// soFar says what was executed of a call that is not over.
func soFar(executed string) string {
	if executed == "no" {
		return " So far nothing was executed upstream."
	}
	return " The upstream may have acted already."
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
