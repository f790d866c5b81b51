package sqlite

import (
	"encoding/binary"
	"time"

	"retryproxy/attempt"
	"retryproxy/idempotency"
	"retryproxy/message"
)

// coder writes values behind each other, or reads them back into what is zero: each
// order of values is said once, for both ways. What is written may be read by others
// meanwhile.
type coder struct {
	buf     []byte // written so far, or still to be read
	reading bool
	bad     bool // what is read is not what was written
	format  byte // of what is read, where it is an older one that says less; 0: the one that is written
}

// integer is what number codes.
type integer interface {
	~int | ~int64 | ~uint8 | ~uint64
}

func number[T integer](c *coder, n *T) {
	if !c.reading {
		c.buf = binary.AppendVarint(c.buf, int64(*n))
		return
	}
	v, size := binary.Varint(c.buf)
	if size <= 0 || int64(T(v)) != v {
		c.fail()
		return
	}
	*n, c.buf = T(v), c.buf[size:]
}

// before says that what is read is older than a format.
func (c *coder) before(format byte) bool { return c.format != 0 && c.format < format }

func (c *coder) fail() { c.buf, c.bad = nil, true }

// length is the length of what comes next, of which each part takes a byte or more.
func (c *coder) length(n int) int {
	number(c, &n)
	if c.reading && (n < 0 || n > len(c.buf)) {
		c.fail()
		return 0
	}
	return n
}

func (c *coder) text(s *string) {
	n := c.length(len(*s))
	if !c.reading {
		c.buf = append(c.buf, *s...)
		return
	}
	*s, c.buf = string(c.buf[:n]), c.buf[n:]
}

// blob codes bytes, of which nil and none are not the same. What is read is part of
// the buffer.
func (c *coder) blob(b *[]byte) {
	there := *b != nil
	if c.flag(&there); !there {
		return
	}
	n := c.length(len(*b))
	if !c.reading {
		c.buf = append(c.buf, *b...)
		return
	}
	if !c.bad {
		*b, c.buf = c.buf[:n:n], c.buf[n:]
	}
}

func (c *coder) hash(h *[32]byte) {
	if !c.reading {
		c.buf = append(c.buf, h[:]...)
		return
	}
	if len(c.buf) < len(h) {
		c.fail()
		return
	}
	c.buf = c.buf[copy(h[:], c.buf):]
}

func (c *coder) flag(on *bool) {
	var n uint8
	if *on {
		n = 1
	}
	if number(c, &n); c.reading {
		*on = n == 1
	}
}

func (c *coder) time(t *time.Time) {
	there := !t.IsZero()
	if c.flag(&there); !there {
		return
	}
	sec, nsec := t.Unix(), t.Nanosecond()
	number(c, &sec)
	number(c, &nsec)
	if c.reading {
		*t = time.Unix(sec, int64(nsec)).UTC()
	}
}

// list codes a list; each says how one of it is coded.
func list[T any](c *coder, l *[]T, each func(*T)) {
	n := c.length(len(*l))
	if c.reading && n > 0 {
		*l = make([]T, n)
	}
	for i := range *l {
		each(&(*l)[i])
	}
}

// record codes all of a record but what its answer says, see answer.
func (c *coder) record(r *idempotency.Record) {
	c.text(&r.Tenant)
	c.text(&r.Key)
	number(c, &r.State)
	number(c, &r.Version)
	for _, s := range []*string{
		&r.Owner, &r.Policy, &r.Labels.Shop, &r.Labels.ShopTier, &r.Labels.TaskType, &r.Method, &r.Host, &r.Path, &r.Receipt, &r.Reason,
	} {
		c.text(s)
	}
	c.hash(&r.Fingerprint)
	c.hash(&r.Credentials)
	c.flag(&r.Keyless)
	c.flag(&r.Honoured)
	list(c, &r.Terms, func(t *uint64) { number(c, t) })
	for _, t := range []*time.Time{&r.Created, &r.Updated, &r.Expires, &r.Deadline, &r.NextAt, &r.Parked} {
		c.time(t)
	}
	number(c, &r.TTL)
	number(c, &r.Executed)
	number(c, &r.ClientCount)
	number(c, &r.Attempts)
	list(c, (*[]attempt.Attempt)(&r.History), c.attempt)
	list(c, &r.Runs, c.run)
	list(c, &r.Notes, c.note)
	c.marker(&r.Answer)
}

func (c *coder) attempt(a *attempt.Attempt) {
	v := &a.Verdict
	number(c, &a.N)
	number(c, &a.Count)
	number(c, &a.Status)
	c.time(&a.Started)
	number(c, &a.Duration)
	number(c, &a.Delay)
	for _, s := range []*string{&a.Host, &a.Detail, &a.Cause, &a.Egress, &a.UpstreamID, &v.Reason, (*string)(&v.Basis)} {
		c.text(s)
	}
	c.flag(&a.Reused)
	number(c, &v.Class)
	number(c, &v.Executed)
	c.flag(&v.HostFault)
	c.flag(&v.Alive)
	c.flag(&v.EgressFault)
	number(c, &v.RetryAfter)
	if !c.before('2') {
		number(c, &v.Kind)
		c.text(&a.Supplier)
	}
}

func (c *coder) run(r *idempotency.Run) {
	c.text(&r.CallID)
	c.text(&r.ClientID)
	c.text((*string)(&r.Kind))
	c.time(&r.Started)
	c.time(&r.Ended)
	number(c, &r.First)
	c.text(&r.Reason)
	if !c.before('2') {
		c.text(&r.Supplier.Name)
		c.text(&r.Supplier.OrderNo)
	}
	if !c.before('3') {
		c.text(&r.Trace)
	}
}

func (c *coder) note(n *idempotency.Note) {
	c.time(&n.At)
	c.text(&n.By)
	c.text(&n.Did)
	c.text(&n.Text)
}

// marker codes an answer without its fields and its body.
func (c *coder) marker(a **idempotency.Answer) {
	there := *a != nil
	if c.flag(&there); !there {
		return
	}
	if c.reading {
		*a = new(idempotency.Answer)
	}
	number(c, &(*a).Status)
	c.text(&(*a).Reason)
	c.flag(&(*a).Kept)
	c.time(&(*a).Stored)
}

// answer codes what marker left out.
func (c *coder) answer(a *idempotency.Answer) {
	c.fields(&a.Fields)
	c.blob(&a.Body)
}

func (c *coder) fields(f *message.Fields) {
	list(c, (*[]message.Field)(f), func(line *message.Field) {
		c.text(&line.Name)
		c.text(&line.Value)
	})
}

func (c *coder) request(q *idempotency.Request) {
	c.text(&q.Mode)
	c.place(&q.Place)
	list(c, &q.Others, c.place)
	c.flag(&q.Honoured)
	c.text(&q.Version)
	c.fields(&q.Fields)
	c.fields(&q.Trailers)
	c.blob(&q.Body)
	c.text(&q.Listener)
	c.text(&q.Client)
	c.text(&q.User)
}

func (c *coder) place(p *idempotency.Place) {
	c.text(&p.Scheme)
	c.text(&p.Authority)
	c.text(&p.Target)
	c.flag(&p.Exempt)
}
