package limiter

// cell is the retries of one task type at one gate, group by group.
type cell struct {
	task   *bucket           // nil without a label
	groups map[string]*group // by shop
	heads  line[*group]      // those whose shop may have a token, by their first call
}

// group is the retries of one shop, task type and gate. They need the same
// tokens, so only the first of them can be next.
type group struct {
	cell   *cell
	shop   *bucket // nil without a label
	line   line[*Ticket]
	parked bool // out of heads until the shop's next token
}

func newCell(task *bucket) *cell {
	return &cell{task: task, groups: map[string]*group{}, heads: newLine(func(x, y *group) bool {
		return earlier(x.head(), y.head())
	})}
}

// group returns the group of a shop, which begins empty.
func (c *cell) group(name string, shop *bucket) *group {
	p := c.groups[name]
	if p == nil {
		p = &group{cell: c, shop: shop, line: newLine(earlier)}
		c.groups[name] = p
	}
	return p
}

// first is the earliest retry of the cell whose shop has a token; groups found
// without are parked.
func (c *cell) first(b *board) *Ticket {
	for {
		p, ok := c.heads.first()
		if !ok {
			return nil
		}
		if b.has(p.shop) {
			return p.head()
		}
		c.heads.remove(p)
		p.parked, p.shop.parked[p] = true, true
	}
}

func (p *group) head() *Ticket {
	t, _ := p.line.first()
	return t
}

// unpark puts the group back among the heads.
func (p *group) unpark() {
	p.parked = false
	delete(p.shop.parked, p)
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

// stepOut takes the group from among the heads before its first call may change.
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
