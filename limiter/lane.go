package limiter

import "time"

// The lanes of a gate. A call is backlog once an attempt failed, or once it has waited
// LateAfter at a gate that is below its full capacity.
const (
	laneFresh = iota
	laneBacklog
	lanes
)

// laneNames are the lanes as operators see them.
var laneNames = [lanes]string{"fresh", "backlog"}

// LateAfter is for how long a call waits at a gate that is below its full capacity until
// it is backlog.
const LateAfter = time.Second

// lane is the calls of one kind in line at a gate. Within it the effective priority
// decides, then shops take turns, and a shop's calls go by age; who has waited for half
// of max_wait goes before all others, by age alone.
type lane struct {
	plain  *cell            // calls that need no token
	cells  map[string]*cell // retries, by task type
	shops  map[turns]*shop  // that have somebody in line
	rounds map[int]*round   // by effective priority; none while nobody is in line
	size   int
}

// round is how far the turns of one effective priority are.
type round struct {
	n   uint64          // of the shop that was served last
	had map[string]bool // shops that have left after their turn in it: they are next in the one after
}

// turns are taken by the shops among the calls of one effective priority.
type turns struct {
	shop string
	turn int
}

// shop is where a shop stands in the rounds of turns.
type shop struct {
	turns
	round  uint64   // in which it is served next
	groups []*group // that have somebody in line
	size   int      // calls in line
	aged   int      // of these
}

func newLane() lane {
	return lane{plain: newCell(nil), cells: map[string]*cell{}, shops: map[turns]*shop{}, rounds: map[int]*round{}}
}

// insert puts a call into its place.
func (l *lane) insert(t *Ticket) {
	c, bucket := l.plain, (*bucket)(nil)
	if t.claim.Retry {
		bucket = t.sources[dimShop]
		if c = l.cells[t.claim.TaskType]; c == nil {
			c = newCell(t.sources[dimTaskType])
			l.cells[t.claim.TaskType] = c
		}
	}
	s := l.shops[t.turns()]
	if s == nil {
		s = &shop{turns: t.turns(), round: l.returns(t.turns())}
		l.shops[s.turns] = s
	}
	t.group = c.group(s, bucket)
	if t.group.line.size == 0 {
		s.groups = append(s.groups, t.group)
	}
	t.group.insert(t)
	l.size++
	s.count(t, 1)
}

// remove takes a call out. What is empty is forgotten.
func (l *lane) remove(t *Ticket) {
	p := t.group
	p.remove(t)
	l.size--
	p.shop.count(t, -1)
	if p.line.size > 0 {
		return
	}
	p.leave()
	if len(p.shop.groups) == 0 {
		delete(l.shops, t.turns())
		l.leaves(p.shop)
	}
	if l.size == 0 {
		clear(l.rounds)
	}
	if p.cell != l.plain && len(p.cell.groups) == 0 {
		delete(l.cells, t.claim.TaskType)
	}
}

// returns is the round in which a shop that gets in line is served.
func (l *lane) returns(as turns) uint64 {
	r := l.rounds[as.turn]
	if r == nil {
		r = &round{}
		l.rounds[as.turn] = r
	}
	if r.had[as.shop] {
		delete(r.had, as.shop)
		return r.n + 1
	}
	return r.n
}

// leaves remembers a shop that has nobody in line any more, if it had its turn.
func (l *lane) leaves(s *shop) {
	r := l.rounds[s.turn]
	if r == nil || s.round <= r.n || len(r.had) >= maxLabels {
		return
	}
	if r.had == nil {
		r.had = map[string]bool{}
	}
	r.had[s.shop] = true
}

// served has the others of a lane take their turns before the shop has another.
func (l *lane) served(s *shop) {
	r := l.rounds[s.turn]
	if r == nil {
		return
	}
	if s.round > r.n {
		r.n = s.round
		clear(r.had)
	}
	for _, p := range s.groups {
		p.stepOut()
	}
	s.round = r.n + 1
	for _, p := range s.groups {
		p.stepIn()
	}
	if len(s.groups) == 0 {
		l.leaves(s)
	}
}

// first is the call whose turn it is, of those for which every token is there.
func (l *lane) first(b *board) *Ticket {
	if l.size == 0 {
		return nil
	}
	best := l.plain.first(b)
	if len(l.cells) == 0 || !b.has(b.global) {
		return best.head()
	}
	for _, c := range l.cells {
		if !b.has(c.task) {
			continue
		}
		if p := c.first(b); p != nil && (best == nil || p.before(best)) {
			best = p
		}
	}
	return best.head()
}

// startable calls yield with every group that has a call for which every token is there.
func (l *lane) startable(b *board, yield func(*group)) {
	for p := range l.plain.heads.all() {
		yield(p)
	}
	if len(l.cells) == 0 || !b.has(b.global) {
		return
	}
	for _, c := range l.cells {
		if !b.has(c.task) {
			continue
		}
		for p := range c.heads.all() {
			if b.has(p.bucket) {
				yield(p)
			}
		}
	}
}

// ahead is how many calls of the lane are served before one of them, as things stand
// and if no tokens were missing.
func (l *lane) ahead(t *Ticket) (n int) {
	if t.aged || len(l.shops) == 1 {
		for p := range l.groups() {
			n += p.line.rank(t)
		}
		return n
	}
	own := l.shops[t.turns()]
	n = own.before(t)
	round := own.round + uint64(n-own.aged)
	for _, s := range l.shops {
		switch {
		case s == own:
		case s.turn < t.turn:
			n += s.size
		case s.turn > t.turn:
			n += s.aged
		default:
			n += s.aged + s.turnsBefore(round, t)
		}
	}
	return n
}

// turnsBefore is how many turns a shop has before the one in which t is served: in the
// same round the older call goes first.
func (s *shop) turnsBefore(round uint64, t *Ticket) int {
	if s.round > round {
		return 0
	}
	n, young := int(round-s.round), s.size-s.aged
	if n < young && s.before(t)-s.aged > n {
		n++
	}
	return min(n, young)
}

// before is how many calls of a shop are aged or, of the same turn, older than t.
func (s *shop) before(t *Ticket) (n int) {
	for _, p := range s.groups {
		n += p.line.rank(t)
	}
	return n
}

// count books a call that comes or leaves.
func (s *shop) count(t *Ticket, n int) {
	s.size += n
	if t.aged {
		s.aged += n
	}
}

// groups are all groups that have somebody in line.
func (l *lane) groups() func(yield func(*group) bool) {
	return func(yield func(*group) bool) {
		for _, s := range l.shops {
			for _, p := range s.groups {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// turns names the turns in which a ticket is served.
func (t *Ticket) turns() turns { return turns{t.claim.Shop, t.turn} }
