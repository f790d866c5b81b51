package alert

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// mostGroups bounds the groups of one rule; what comes beyond shares one.
const mostGroups = 500

// event is one thing that happened.
type event struct {
	kind   string
	labels Labels
	callID string
	detail string
	how    Standing
	over   bool // it ended: a breaker closed, the store works again
}

// Measured is what is looked at from time to time.
type Measured struct {
	Parked       int       // calls that wait without a client
	OldestParked time.Time // when the oldest of them was parked; zero: unknown
	// Expiring are the dead letters that will be removed within some time.
	Expiring map[time.Duration]Expiring
	Letters  int   // dead letters that nobody has settled; 0: none, or they are not kept
	Open     []Cut // breakers that are not closed
}

// Cut is a breaker that is not closed.
type Cut struct {
	Labels // scope, host, shop
	Standing
}

// Standing is how things stand at a host that is cut off.
type Standing struct {
	Reach   string    // whose calls fail: several_shops, one_shop, unlabelled; empty: unknown
	Waiting int       // calls that wait for it
	Release time.Time // when all of them have started, if the next probe succeeds; zero: unknown
}

// Expiring are dead letters that will soon be removed.
type Expiring struct {
	Letters int
	First   time.Time // when the first of them goes; zero: none does
}

// rules decides what is to be told. It is told what happens and what time it
// is; it keeps no lock.
type rules struct{ books []*book }

// configure replaces the rules. Those that stay as they were go on with what
// they know; to whom they tell it may change.
func (r *rules) configure(list []Rule, now time.Time) {
	books := make([]*book, len(list))
	for i := range list {
		same := func(b *book) bool {
			was, is := b.rule, list[i]
			was.To, is.To = nil, nil
			return reflect.DeepEqual(was, is)
		}
		if j := slices.IndexFunc(r.books, same); j >= 0 {
			books[i] = r.books[j]
			books[i].rule.To = list[i].To
			continue
		}
		books[i] = &book{rule: list[i], match: newMatcher(&list[i]), groups: map[Labels]*group{}, start: now}
	}
	r.books = books
}

// watches says whether any rule is of that kind.
func (r *rules) watches(kind string) bool {
	return slices.ContainsFunc(r.books, func(b *book) bool { return b.rule.On == kind })
}

// event takes in what happened and returns what is to be told.
func (r *rules) event(e *event, now time.Time) (out []Message) {
	for _, b := range r.books {
		if b.rule.On == e.kind && b.match.match(&e.labels, now) {
			out = append(out, b.event(e, now)...)
		}
	}
	return out
}

// tick takes in what was measured and returns what is to be told.
func (r *rules) tick(m *Measured, now time.Time) (out []Message) {
	for _, b := range r.books {
		out = append(out, b.tick(m, now)...)
	}
	for i := range out {
		if out[i].State == Alive {
			out[i].Count = r.firing()
		}
	}
	return out
}

// firing is the number of groups that are told to be firing.
func (r *rules) firing() (n int) {
	for _, b := range r.books {
		for _, g := range b.groups {
			if g.firing {
				n++
			}
		}
	}
	return n
}

// book is one rule and what it knows.
type book struct {
	rule   Rule
	match  matcher
	groups map[Labels]*group
	start  time.Time // since when it watches
	beat   time.Time // the newest heartbeat
	first  time.Time // retention: the first that will be removed
	number int       // parked, retention: how many; dead_letters: how many are kept in all
}

// hour is the number of complete hours since the start.
func (b *book) hour(now time.Time) int { return max(int(now.Sub(b.start)/time.Hour), 0) }

// group finds or makes the group of an event.
func (b *book) group(key Labels) *group {
	if g := b.groups[key]; g != nil {
		return g
	}
	if len(b.groups) >= mostGroups {
		key = Labels{Others: true}
		if g := b.groups[key]; g != nil {
			return g
		}
	}
	g := &group{labels: key, window: newWindow(b.rule.Within), open: map[Labels]Standing{}}
	b.groups[key] = g
	return g
}

func (b *book) event(e *event, now time.Time) []Message {
	if e.over {
		return b.end(e, now)
	}
	g := b.group(b.rule.group(&e.labels))
	switch b.rule.On {
	case Breakers:
		if len(g.open) < mostMembers {
			g.open[e.labels.member()] = e.how
		}
	case StoreFails:
		g.bad = true
	default:
		if g.window.total(now) == 0 && !g.firing {
			g.first = now
			g.forget()
		}
		g.window.add(now)
		if b.rule.Factor > 0 {
			g.usual.add(b.hour(now))
		}
	}
	g.note(e, now)
	return b.step(g, now)
}

// end takes in that something is over.
func (b *book) end(e *event, now time.Time) (out []Message) {
	for _, g := range b.sorted() {
		if b.rule.On == Breakers {
			delete(g.open, e.labels.member())
		} else if e.labels.Reason == "" || e.labels.Reason == g.labels.Reason {
			g.bad = false
		}
		out = append(out, b.step(g, now)...)
	}
	return out
}

// member names a breaker among those of its group.
func (l *Labels) member() Labels { return Labels{Scope: l.Scope, Host: l.Host, Shop: l.Shop} }

// tick looks at every group, and at what is measured.
func (b *book) tick(m *Measured, now time.Time) (out []Message) {
	switch b.rule.On {
	case Heartbeat:
		return b.heartbeat(now)
	case Parked:
		b.number, b.first = m.Parked, m.OldestParked
		tooOld := b.rule.OlderThan > 0 && m.Parked > 0 && !b.first.IsZero() && now.Sub(b.first) >= b.rule.OlderThan
		b.measured(tooOld || b.rule.Count > 0 && m.Parked >= b.rule.Count, now)
	case Retention:
		soon := m.Expiring[b.rule.Before]
		b.number, b.first = soon.Letters, soon.First
		b.measured(b.number > 0, now)
	case DeadLetters:
		b.number = m.Letters
	case Breakers:
		b.reconcile(m.Open, now)
	}
	for _, g := range b.sorted() {
		out = append(out, b.step(g, now)...)
		if g.idle(&b.rule, now) {
			delete(b.groups, g.labels)
		}
	}
	return out
}

// measured notes whether a measure is over its bound.
func (b *book) measured(bad bool, now time.Time) {
	if !bad && len(b.groups) == 0 {
		return
	}
	g := b.group(Labels{})
	if g.bad = bad; bad {
		g.fresh, g.last = 1, now
	}
}

// reconcile makes the open breakers those that are really open: one may have
// been forgotten, or have been open before the rule was.
func (b *book) reconcile(open []Cut, now time.Time) {
	is := map[Labels]bool{}
	for i := range open {
		l := open[i].member()
		if is[l] = true; !b.match.match(&l, now) {
			continue
		}
		g := b.group(b.rule.group(&l))
		_, known := g.open[l]
		if known || len(g.open) < mostMembers {
			g.open[l] = open[i].Standing
		}
		if !known && len(g.open) < mostMembers {
			g.note(&event{labels: open[i].Labels}, now)
		}
	}
	for _, g := range b.groups {
		for l := range g.open {
			if !is[l] {
				delete(g.open, l)
			}
		}
	}
}

func (b *book) heartbeat(now time.Time) []Message {
	if !b.beat.IsZero() && now.Sub(b.beat) < b.rule.Every {
		return nil
	}
	b.beat = now
	return []Message{{Rule: b.rule.Name, On: Heartbeat, State: Alive, Since: b.start, At: now, To: b.rule.To}}
}

// sorted lists the groups in an order that does not change.
func (b *book) sorted() []*group {
	list := make([]*group, 0, len(b.groups))
	for _, g := range b.groups {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b *group) int { return a.labels.compare(&b.labels) })
	return list
}

func (l *Labels) compare(o *Labels) int {
	return cmp.Or(
		strings.Compare(l.Scope, o.Scope), strings.Compare(l.Host, o.Host), strings.Compare(l.Reason, o.Reason),
		strings.Compare(l.TaskType, o.TaskType), strings.Compare(l.Shop, o.Shop),
	)
}

// step moves one group on.
func (b *book) step(g *group, now time.Time) []Message {
	s := g.step(&b.rule, b.active(g, now), now)
	if s == "" {
		return nil
	}
	if s == Firing && b.rule.counts() {
		g.began, g.total = g.first, g.window.total(now)
	}
	m := b.message(g, s, now)
	g.told(s)
	return []Message{m}
}

// active says whether what the rule is about goes on in a group. What counts
// events fires at its threshold and is over when none came for the whole time.
func (b *book) active(g *group, now time.Time) bool {
	switch {
	case b.rule.On == Breakers:
		return len(g.open) > 0
	case !b.rule.counts():
		return g.bad
	case g.firing:
		return now.Sub(g.last) < b.rule.Within
	}
	n, known := b.threshold(g, now)
	return known && g.window.total(now) >= n
}

// threshold is how many events are too many; not known: it has not watched long
// enough to call anything unusual.
func (b *book) threshold(g *group, now time.Time) (n int, known bool) {
	if b.rule.Factor == 0 {
		return b.rule.Count, true
	}
	return max(b.rule.Count, int(math.Ceil(b.rule.Factor*b.usually(g, now)))), b.hour(now) >= leastHours
}

// usually is how many events Within holds as a rule.
func (b *book) usually(g *group, now time.Time) float64 {
	return g.usual.perHour(b.hour(now)) * b.rule.Within.Hours()
}
