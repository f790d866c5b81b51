package limiter

import "slices"

// cell is the calls of one kind in a lane, group by group: the retries of one task
// type, or those that need no token.
type cell struct {
	task   *bucket          // nil without a label, and of those that need no token
	groups map[turns]*group // by shop and effective priority
	heads  line[*group]     // those whose shop may have a token, by their first call
}

// group is the calls of one shop, effective priority and cell. They need the same
// tokens, so only the first of them can be next.
type group struct {
	cell   *cell
	shop   *shop
	bucket *bucket // of the shop; nil without a label, and of those that need no token
	line   line[*Ticket]
	parked bool // out of heads until the shop's next token
}

func newCell(task *bucket) *cell {
	return &cell{task: task, groups: map[turns]*group{}, heads: newLine((*group).before)}
}

// before is the order of groups: who is aged, then priority, then the shops in turn,
// then the age of the first call.
func (p *group) before(q *group) bool {
	x, y := p.head(), q.head()
	switch {
	case x.aged || y.aged || x.turn != y.turn || p.shop.round == q.shop.round:
		return earlier(x, y)
	}
	return p.shop.round < q.shop.round
}

// group returns the group of a shop, which begins empty.
func (c *cell) group(s *shop, bucket *bucket) *group {
	p := c.groups[s.turns]
	if p == nil {
		p = &group{cell: c, shop: s, bucket: bucket, line: newLine(earlier)}
		c.groups[s.turns] = p
	}
	return p
}

// first is the group of the cell whose turn it is, of those whose shop has a token;
// groups found without are parked.
func (c *cell) first(b *board) *group {
	for {
		p, ok := c.heads.first()
		if !ok {
			return nil
		}
		if b.has(p.bucket) {
			return p
		}
		c.heads.remove(p)
		p.parked, p.bucket.parked[p] = true, true
	}
}

// head is the first call of the group; nil: there is none.
func (p *group) head() *Ticket {
	if p == nil {
		return nil
	}
	t, _ := p.line.first()
	return t
}

// leave takes an empty group out of its cell.
func (p *group) leave() {
	delete(p.cell.groups, p.shop.turns)
	if p.parked {
		delete(p.bucket.parked, p)
	}
	p.shop.groups = slices.DeleteFunc(p.shop.groups, func(q *group) bool { return q == p })
}

// unpark puts the group back among the heads.
func (p *group) unpark() {
	p.parked = false
	delete(p.bucket.parked, p)
	p.stepIn()
}

// insert adds a call.
func (p *group) insert(t *Ticket) {
	p.stepOut()
	p.line.insert(t)
	p.stepIn()
}

// remove takes a call out.
func (p *group) remove(t *Ticket) {
	p.stepOut()
	p.line.remove(t)
	p.stepIn()
}

// stepOut takes the group from among the heads before its first call, or its shop's
// turn, may change.
func (p *group) stepOut() {
	if !p.parked && p.line.size > 0 {
		p.cell.heads.remove(p)
	}
}

// stepIn puts it back in its place.
func (p *group) stepIn() {
	if !p.parked && p.line.size > 0 {
		p.cell.heads.insert(p)
	}
}
