package memory

// chain orders entries by last use. Its links lie in the entries, so that a
// move costs no allocation and no look-up. An entry is in at most one chain of
// a kind.
type chain struct {
	kind           kind
	oldest, newest *entry
	length         int
}

// kind says which links of an entry a chain uses.
type kind uint8

const (
	byAnswer kind = iota // Store.kept
	byDoubt              // Store.doubt
	byTenant             // tenant.ended
	kinds
)

type link struct {
	in           *chain // nil: in none
	older, newer *entry
}

// push puts e at the new end, from wherever it was among chains of this kind.
func (c *chain) push(e *entry) {
	e.links[c.kind].drop(c.kind)
	e.links[c.kind] = link{in: c, older: c.newest}
	if c.newest != nil {
		c.newest.links[c.kind].newer = e
	} else {
		c.oldest = e
	}
	c.newest = e
	c.length++
}

// drop takes the entry of this link out of its chain.
func (l *link) drop(k kind) {
	c := l.in
	if c == nil {
		return
	}
	if l.older != nil {
		l.older.links[k].newer = l.newer
	} else {
		c.oldest = l.newer
	}
	if l.newer != nil {
		l.newer.links[k].older = l.older
	} else {
		c.newest = l.older
	}
	c.length--
	*l = link{}
}
