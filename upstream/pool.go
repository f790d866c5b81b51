package upstream

import (
	"slices"
	"sync"
	"time"
)

// freshEnough is how long a connection may have been idle for an unsafe attempt.
const freshEnough = time.Second

// parked is what is idle in the pool: a connection or a session. They form one
// list, oldest first.
type parked struct {
	target     Target
	since      time.Time
	conn       *conn    // one of
	session    *session // the two
	prev, next *parked  // nil when not idle
}

func (p *parked) close() {
	if p.conn != nil {
		p.conn.close()
		return
	}
	p.session.close()
}

// pool keeps connections between attempts: HTTP/1.1 ones while idle, HTTP/2
// sessions also while they serve, since many attempts share one. Both bounds
// count what is idle.
type pool struct {
	mu      sync.Mutex
	perHost int
	total   int
	timeout time.Duration
	hosts   map[Target]*host // those we have an open connection to
	list    parked           // ring: list.next is the oldest
	idle    int
	closed  bool
	epoch   int         // counts closeIdle: what was opened before is not kept any more
	timer   *time.Timer // runs sweep
	armed   bool
}

// host is what there is for one target.
type host struct {
	conns    []*conn // idle, the oldest first
	open     int     // HTTP/1.1 connections, idle or not
	sessions []*session
}

func (p *pool) init(perHost, total int, timeout time.Duration) {
	p.perHost, p.total, p.timeout = perHost, total, timeout
	p.hosts = map[Target]*host{}
	p.list.prev, p.list.next = &p.list, &p.list
	p.timer = time.AfterFunc(timeout, p.sweep)
	p.timer.Stop()
}

// take returns something kept for t that is fit to send on. An upgrade needs
// HTTP/1.1. What turns out dead is dropped without a word: no attempt used it.
func (p *pool) take(t *Target, unsafe, upgrade bool) line {
	if t.Scheme != "http" && !upgrade {
		if s := p.reserve(t, unsafe); s != nil {
			return line{session: s}
		}
	}
	for {
		cn := p.newest(t, unsafe)
		if cn == nil {
			return line{}
		}
		switch state := cn.look(); {
		case state == alive, state == unknown && !unsafe:
			return line{conn: cn}
		}
		cn.close()
	}
}

// newest takes the connection that became idle last.
func (p *pool) newest(t *Target, unsafe bool) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[*t]
	if h == nil || len(h.conns) == 0 {
		return nil
	}
	cn := h.conns[len(h.conns)-1]
	idle := time.Since(cn.parked.since)
	if unsafe && idle >= freshEnough || idle >= p.timeout {
		return nil
	}
	h.conns[len(h.conns)-1] = nil
	h.conns = h.conns[:len(h.conns)-1]
	p.unlinkLocked(&cn.parked)
	return cn
}

// reserve finds a session with room for one more stream and counts that.
func (p *pool) reserve(t *Target, unsafe bool) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[*t]
	if h == nil || len(h.sessions) == 0 {
		return nil
	}
	h.sessions = slices.DeleteFunc(h.sessions, p.goneLocked)
	for _, s := range slices.Backward(h.sessions) {
		stale := s.streams == 0 && time.Since(s.parked.since) >= freshEnough
		if unsafe && stale || s.retired || s.cc.Reserve() != nil {
			continue
		}
		p.unlinkLocked(&s.parked)
		s.streams++
		return s
	}
	p.tidyLocked(t, h)
	return nil
}

// goneLocked unlinks a session that has ended.
func (p *pool) goneLocked(s *session) bool {
	if s.cc.Err() == nil {
		return false
	}
	p.unlinkLocked(&s.parked)
	return true
}

// register counts a new connection, unregister one that has closed.
func (p *pool) register(cn *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cn.host = p.hostLocked(&cn.parked.target)
	cn.epoch = p.epoch
	cn.host.open++
}

func (p *pool) unregister(cn *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cn.host.open--
	p.tidyLocked(&cn.parked.target, cn.host)
}

// keep takes an idle connection, or closes it when there is no room.
func (p *pool) keep(cn *conn) {
	p.mu.Lock()
	if p.closed || cn.epoch != p.epoch {
		p.mu.Unlock()
		cn.close()
		return
	}
	h := cn.host
	h.conns = append(h.conns, cn)
	p.linkLocked(&cn.parked)
	var over *parked
	switch {
	case len(h.conns) > p.perHost:
		over = &h.conns[0].parked
	case p.idle > p.total:
		over = p.list.next
	}
	p.dropLocked(over)
	p.mu.Unlock()
	if over != nil {
		over.close()
	}
}

// share adds a new session, which already has its first stream. It replaces the
// idle ones of its host, which were too old for somebody: one serves all.
func (p *pool) share(s *session) {
	p.mu.Lock()
	if p.closed {
		s.retired = true
		p.mu.Unlock()
		return
	}
	var old []*session
	for _, o := range p.hostLocked(&s.parked.target).sessions {
		if o.streams == 0 {
			old = append(old, o)
		}
	}
	for _, o := range old {
		p.dropLocked(&o.parked)
	}
	h := p.hostLocked(&s.parked.target) // anew: it may have gone with its last session
	h.sessions = append(h.sessions, s)
	p.mu.Unlock()
	for _, o := range old {
		o.close()
	}
}

// leave ends a stream of s. A session without streams is idle; it is closed if
// it is no longer wanted, or when there are too many.
func (p *pool) leave(s *session, retire bool) {
	p.mu.Lock()
	s.streams--
	s.retired = s.retired || retire || p.closed
	var over *parked
	if s.streams == 0 {
		p.linkLocked(&s.parked)
		switch {
		case s.retired:
			over = &s.parked
		case p.idle > p.total:
			over = p.list.next
		}
		p.dropLocked(over)
	}
	p.mu.Unlock()
	if over != nil {
		over.close()
	}
}

// sweep closes what has been idle for too long and sets the timer for the next.
func (p *pool) sweep() {
	now := time.Now()
	var old []*parked
	p.mu.Lock()
	for p.idle > 0 && now.Sub(p.list.next.since) >= p.timeout {
		old = append(old, p.list.next)
		p.dropLocked(p.list.next)
	}
	if p.armed = p.idle > 0; p.armed {
		p.timer.Reset(p.list.next.since.Add(p.timeout).Sub(now))
	}
	p.mu.Unlock()
	for _, o := range old {
		o.close()
	}
}

// closeIdle closes all that is idle, and what is in use once it is idle; with
// forEver nothing is kept from now on.
func (p *pool) closeIdle(forEver bool) {
	var all []*parked
	p.mu.Lock()
	p.closed = p.closed || forEver
	p.epoch++
	for _, h := range p.hosts {
		for _, s := range h.sessions {
			s.retired = true
		}
	}
	for p.idle > 0 {
		all = append(all, p.list.next)
		p.dropLocked(p.list.next)
	}
	p.timer.Stop()
	p.armed = false
	p.mu.Unlock()
	for _, o := range all {
		o.close()
	}
}

// size is the number of idle ones.
func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idle
}

func (p *pool) hostLocked(t *Target) *host {
	h := p.hosts[*t]
	if h == nil {
		h = &host{}
		p.hosts[*t] = h
	}
	return h
}

// tidyLocked forgets a host that has nothing left.
func (p *pool) tidyLocked(t *Target, h *host) {
	if h.open == 0 && len(h.sessions) == 0 {
		delete(p.hosts, *t)
	}
}

// dropLocked takes an idle one out of the pool; nil is none.
func (p *pool) dropLocked(i *parked) {
	if i == nil {
		return
	}
	p.unlinkLocked(i)
	h := p.hosts[i.target]
	if h == nil {
		return
	}
	h.conns = slices.DeleteFunc(h.conns, func(cn *conn) bool { return cn == i.conn })
	h.sessions = slices.DeleteFunc(h.sessions, func(s *session) bool { return s == i.session })
	p.tidyLocked(&i.target, h)
}

// linkLocked makes i the newest idle one.
func (p *pool) linkLocked(i *parked) {
	i.since = time.Now()
	i.prev, i.next = p.list.prev, &p.list
	i.prev.next, i.next.prev = i, i
	p.idle++
	if !p.armed {
		p.timer.Reset(p.timeout)
		p.armed = true
	}
}

// unlinkLocked does nothing for what is not idle.
func (p *pool) unlinkLocked(i *parked) {
	if i.next == nil {
		return
	}
	i.prev.next, i.next.prev = i.next, i.prev
	i.prev, i.next = nil, nil
	p.idle--
}
