package alert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Message is one thing to be told.
type Message struct {
	Rule  string
	On    string // kind of the rule
	State State
	Group Labels
	Where Labels   // of the newest event
	Shops []string // some of those concerned
	More  bool     // there are further ones
	What  string   // in a sentence
	Since time.Time
	At    time.Time
	Count int    // so many now: in the window, parked, to be removed; alive: alerts that are firing
	Total int    // so many since it began
	Call  string // id of an example
	// Detail is what the store or the breaker said; empty: nothing.
	Detail string
	Do     []string // what to do: sentences and commands
	To     []string // names of targets
}

// message says what a step has come to.
func (b *book) message(g *group, s State, now time.Time) Message {
	m := Message{
		Rule: b.rule.Name, On: b.rule.On, State: s, Group: g.labels, Where: g.where, Shops: g.shops, More: g.more,
		Since: g.began, At: now, Total: g.total, Call: g.callID, Detail: g.detail, To: b.rule.To,
	}
	switch b.rule.On {
	case DeadLetters, Reasons:
		m.Count = g.window.total(now)
		m.What = b.counted(g, s, m.Count, now)
	case Breakers:
		m.Count = len(g.open)
		m.What = cutOff(g, s, now)
	case StoreFails:
		m.What = storeText(&g.labels, s, now.Sub(g.began))
	case Parked:
		m.Count, m.Total = b.number, 0
		m.What = b.parkedText(s, now)
	case Retention:
		m.Count, m.Total = b.number, 0
		m.What = b.retentionText(s)
		if m.Detail = ""; !b.first.IsZero() {
			m.Detail = "the first goes in " + short(b.first.Sub(now))
		}
	}
	if s == Recovered {
		m.Detail, m.Shops, m.More = "", nil, false
		if m.On == DeadLetters && b.number > 0 {
			m.Do = []string{command("deadletters ls")}
		}
		return m
	}
	m.Do = advise(&m)
	return m
}

// counted tells of events that are counted.
func (b *book) counted(g *group, s State, n int, now time.Time) string {
	one, many := "dead letter", "dead letters"
	if b.rule.On == Reasons {
		one, many = "stopped call", "stopped calls"
	}
	switch s {
	case Still:
		return fmt.Sprintf("%s more, %d since it began", plural(g.fresh, one, many), g.total)
	case Recovered:
		text := fmt.Sprintf("no new %s for %s, after %d", many, short(b.rule.Within), g.total)
		if b.rule.On == DeadLetters && b.number > 0 {
			text += fmt.Sprintf("; %s to be settled", plural(b.number, "letter still waits", "letters still wait"))
		}
		return text
	}
	text := fmt.Sprintf("%s in %s", plural(n, one, many), short(b.rule.Within))
	if b.rule.Factor > 0 {
		text += fmt.Sprintf(", usually %.2g", b.usually(g, now))
	}
	return text
}

// cutOff tells of breakers.
func cutOff(g *group, s State, now time.Time) string {
	who := cmp.Or(map[string]string{"host": "the host", "shop": "the shop at this host", "egress": "the egress proxy"}[g.labels.Scope], "a host, shop or egress proxy")
	reach, waits := g.standing(now)
	switch n := len(g.open); {
	case s == Recovered:
		return fmt.Sprintf("%s is reached again, after %s", who, short(g.ended.Sub(g.began)))
	case s == Still:
		return fmt.Sprintf("%s is still cut off, for %s now%s", who, short(now.Sub(g.began)), waits)
	case n > 1:
		return fmt.Sprintf("%s and %d more are cut off%s", who, n-1, waits)
	case g.labels.Scope == "shop":
		return who + " is cut off: it alone fails, the host answers others"
	}
	return who + " is cut off: " + reach + waits
}

// reaches say whose calls fail.
var reaches = map[string]string{
	"several_shops": "an outage, calls of several shops fail",
	"one_shop":      "calls of one shop fail, others make none",
	"unlabelled":    "calls without a shop fail",
}

// standing says whose calls fail, how many wait, and for how long if all goes well.
func (g *group) standing(now time.Time) (reach, waits string) {
	var all Standing
	for _, s := range g.open {
		all.Reach, all.Waiting = s.Reach, all.Waiting+s.Waiting
		if s.Release.After(all.Release) {
			all.Release = s.Release
		}
	}
	reach = cmp.Or(reaches[all.Reach], "only failures come back")
	if all.Waiting == 0 {
		return reach, ""
	}
	waits = "; " + plural(all.Waiting, "call waits", "calls wait")
	if left := all.Release.Sub(now); left > 0 {
		waits += fmt.Sprintf(", to be let go within %s if it answers now", short(left))
	}
	return reach, waits
}

// storeText tells of the store.
func storeText(l *Labels, s State, lasted time.Duration) string {
	what := "the store of records is unavailable"
	if l.Reason == "store_full" {
		what = "the store of records is full"
	}
	switch s {
	case Recovered:
		return "the store of records works again, after " + short(lasted)
	case Still:
		what = strings.Replace(what, " is ", " is still ", 1) + ", for " + short(lasted) + " now"
	}
	return what + ": calls with a key get 503 and are not sent, those without go on"
}

// parkedText tells of calls that wait.
func (b *book) parkedText(s State, now time.Time) string {
	if s == Recovered {
		return fmt.Sprintf("parked calls are within bounds again: %d", b.number)
	}
	text := plural(b.number, "call is parked", "calls are parked")
	if !b.first.IsZero() {
		text += ", the oldest for " + short(now.Sub(b.first))
	}
	return text
}

// retentionText tells of dead letters that go.
func (b *book) retentionText(s State) string {
	if s == Recovered {
		return "no dead letter is about to be removed any more"
	}
	return fmt.Sprintf("%s will be removed within %s", plural(b.number, "dead letter", "dead letters"), short(b.rule.Before))
}

// actions are what to do about a reason before anything else.
var actions = map[string]string{
	"auth_expired":      "log the shop in again: its token is no longer valid",
	"signature_expired": "check this machine's clock and the key that requests are signed with",
	"quota_exhausted":   "the platform's quota is used up: wait for its reset, or send less",
	"risk_control":      "the platform suspects the shop: stop its bots, log in by hand and pass its check",
	"manual_review":     "these may have been executed: look at the platform before anything is repeated",
	"store_full":        "raise idempotency.entries, or free room on the disk",
	"store_unavailable": "look at the disk and at the store's file",
}

// advise says what to do, with commands that can be typed.
func advise(m *Message) (out []string) {
	reason := cmp.Or(m.Group.Reason, m.Where.Reason)
	if action := actions[reason]; action != "" && m.On != Breakers {
		out = append(out, action)
	}
	switch m.On {
	case DeadLetters:
		out = append(out, command("deadletters ls", "reason", reason, "host", m.Group.Host, "task-type", m.Group.TaskType, "shop", m.Group.Shop))
	case Reasons:
		out = append(out, command("calls", "host", m.Group.Host, "task-type", m.Group.TaskType, "shop", cmp.Or(m.Group.Shop, m.Where.Shop)))
	case Breakers:
		out = append(out, breakerAdvice(m.Group.Scope), command("doctor"))
	case StoreFails:
		out = append(out, command("doctor"))
	case Parked:
		out = append(out, command("calls", "state", "parked"), command("doctor"))
	case Retention:
		out = append(out, "settle or export them before they are gone", command("deadletters ls"))
	}
	if m.Call != "" {
		out = append(out, command("why "+m.Call))
	}
	return out
}

// breakerAdvice says who has to act.
func breakerAdvice(scope string) string {
	switch scope {
	case "shop":
		return "a person is needed: the host answers others, so look at this shop's login, permissions and address"
	case "egress":
		return "look at the egress proxy: its address, user and password, and whether it is paid for"
	}
	return "calls wait and go on by themselves when the host answers; look whether it, or the network, is down"
}

// command is a line to type; flags without a value are left out.
func command(name string, flags ...string) string {
	line := "retryproxy " + name
	for i := 0; i < len(flags); i += 2 {
		if flags[i+1] != "" {
			line += " -" + flags[i] + " " + quote(flags[i+1])
		}
	}
	return line
}

// quote makes one word of a value for a shell.
func quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-:/@", r)
	}
	if !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) && s[0] != '-' {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", "") + "'"
}

// plural counts things.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// short writes 5m0s as 5m, rounded to what people care for.
func short(d time.Duration) string {
	unit := time.Second
	if d < time.Second {
		unit = time.Millisecond
	}
	text := max(d, 0).Round(unit).String()
	for _, zero := range [...]string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// lines are the message as people read it: a headline, then a fact a line.
// Without a value there is no line.
func (m *Message) lines(from Sender) []line {
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.In(from.Zone).Format("2006-01-02 15:04:05 -07:00 MST")
	}
	out := []line{{"", m.headline()}, {"instance", from.name()}}
	add := func(key, value string) {
		if value != "" {
			out = append(out, line{key, value})
		}
	}
	if m.Group.Others {
		add("group", fmt.Sprintf("all beyond the first %d", mostGroups))
	}
	host := "host"
	if m.Group.Scope == "egress" {
		host = "egress"
	}
	add(host, m.Group.Host)
	add("reason", m.Group.Reason)
	add("task type", m.Group.TaskType)
	add("shop", m.shop())
	add("since", at(m.Since))
	if m.Total > m.Count {
		add("how many", fmt.Sprintf("%d since then", m.Total))
	}
	add("detail", m.Detail)
	add("example", m.example())
	for _, do := range m.Do {
		add("do", do)
	}
	add("time", at(m.At))
	return out
}

// line is one fact of a message.
type line struct{ key, value string }

// headline is the first line, without its state.
func (m *Message) headline() string { return m.Rule + ": " + m.sentence() }

// sentence says what it is.
func (m *Message) sentence() string {
	what := m.What
	switch m.State {
	case Alive:
		what = "the proxy runs; nothing is firing"
		if m.Count > 0 {
			what = "the proxy runs; " + plural(m.Count, "alert is firing", "alerts are firing")
		}
	case Test:
		what = "this is a test; nothing is wrong"
	}
	return what
}

// shop names those concerned.
func (m *Message) shop() string {
	if m.Group.Shop != "" {
		return m.Group.Shop
	}
	text := strings.Join(slices.Sorted(slices.Values(m.Shops)), ", ")
	if m.More {
		text += " and others"
	}
	return text
}

// example names the newest call, and what the group leaves open about it.
func (m *Message) example() string {
	if m.Call == "" {
		return ""
	}
	text := "call " + m.Call
	for _, l := range [...]struct{ key, group, where string }{
		{"host", m.Group.Host, m.Where.Host},
		{"reason", m.Group.Reason, m.Where.Reason},
		{"task type", m.Group.TaskType, m.Where.TaskType},
		{"shop", m.Group.Shop, m.Where.Shop},
	} {
		if l.where != "" && l.where != l.group {
			text += ", " + l.key + " " + l.where
		}
	}
	return text
}
