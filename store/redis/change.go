package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"retryproxy/idempotency"
)

// mostTaken is how often a change is computed anew because the record moved
// meanwhile. Each time somebody else had made one.
const mostTaken = 64

// kept is how long after its end a key of a record goes by itself, though no
// process is there to sweep.
const keptUnswept = 7 * 24 * time.Hour

// put is one write of a record.
type put struct {
	rec     idempotency.Record
	old     *found // as it was read; nil: there was none
	how     how
	answer  action
	request action
	asked   *idempotency.Request // to set
	mark    string
	lapses  uint64
}

// how says who may write a record that a replica runs.
type how string

const (
	own   how = "own"   // that replica
	adopt how = "adopt" // another one, when that is gone
	leave how = "leave" // anybody: it stays that replica's
)

// action is what becomes of what stands beside a record.
type action string

const (
	keep action = "keep"
	drop action = "drop"
	set  action = "set"
)

// What put.lua may say.
const (
	putOK      = "ok"
	putFound   = "found"
	putGone    = "gone"
	putFull    = "full"
	putLate    = "late"
	putForeign = "foreign"
)

// mark names a change of this process, once.
func (s *Store) mark() string { return s.replica + "-" + strconv.FormatUint(s.marks.Add(1), 36) }

// write sends a put. now is what is there when that is another record than p.old.
func (s *Store) write(ctx context.Context, script *goredis.Script, p *put) (said string, now *found, err error) {
	p.lapses = s.lease.lapses.Load()
	out, err := s.list(ctx, script, s.arguments(p)...)
	if err != nil {
		return "", nil, err
	}
	said, _ = out[0].(string)
	if said == putFound {
		now, err = s.parseFound(out[1])
	}
	return said, now, err
}

// arguments are in the order of put.lua.
func (s *Store) arguments(p *put) []any {
	r, b := &p.rec, s.bounds()
	version, owner := "", ""
	if p.old != nil {
		version, owner = strconv.FormatUint(p.old.rec.Version, 10), p.old.rec.Owner
	}
	parked, gone := "", int64(0)
	if r.State == idempotency.StateParked {
		parked = score(r.Parked)
	}
	if !r.Expires.IsZero() {
		gone = r.Expires.Add(keptUnswept).UnixMilli()
	}
	args := []any{
		s.replica, nameOf(r.ID), version, owner, p.mark, string(p.how),
		s.serverTime().Add(lateAfter).UnixMicro(), leaseTime.Microseconds(), b.Entries, b.Bytes,
		r.State.String(), r.Version, r.Owner, score(r.Updated), due(r), swept(r), parked, r.Receipt, gone,
		recordText(r), string(p.answer), 0, "", "", string(p.request), "", r.Host,
	}
	c := s.closer(r.ID)
	if p.answer == set {
		args[21], args[22], args[23] = r.Answer.Size(), c.Seal("answers.fields", fieldsText(r.Answer.Fields)), c.Seal("answers.body", r.Answer.Body)
		args[25] = c.KeyID()
	}
	if p.request == set {
		args = append(args, requestFields(p.asked, c)...)
	}
	return args
}

// unsettled is how long after its time somebody has to make a letter of a record in
// doubt.
const unsettled = 24 * time.Hour

// swept is when the record may go, as the index has it.
func swept(r *idempotency.Record) string {
	if r.State == idempotency.StateInDoubt {
		return score(moved(r.Expires, unsettled))
	}
	return score(r.Expires)
}

// due is when somebody is to look at the record, as the index has it.
func due(r *idempotency.Record) string {
	if r.State == idempotency.StateParked || r.State.Letter() {
		return score(r.NextAt)
	}
	return ""
}

// Begin implements idempotency.Store. A claim whose answer was lost may be made
// again by the same owner: it finds its own run.
func (s *Store) Begin(ctx context.Context, c idempotency.Claim, now time.Time) (idempotency.Begun, error) {
	shift := s.shift()
	now = moved(now, shift)
	c = movedClaim(c, shift)
	if c.TTL == 0 {
		c.TTL = s.bounds().TTL
	}
	begun, err := s.claim(ctx, &c, now)
	if err != nil {
		return idempotency.Begun{}, err
	}
	begun.Record = local(&begun.Record, shift)
	return begun, nil
}

func (s *Store) claim(ctx context.Context, c *idempotency.Claim, now time.Time) (idempotency.Begun, error) {
	var old *found // nearly all keys are new: trying is cheaper than looking
	mark := s.mark()
	for range mostTaken {
		begun, mine := admit(old, c, now, s.replica)
		if begun.Result != idempotency.Fresh || mine {
			return begun, nil
		}
		p := &put{rec: begun.Record, old: old, how: own, answer: drop, request: drop, mark: mark}
		if c.Request != nil {
			p.request, p.asked = set, c.Request
		}
		said, there, err := s.write(ctx, claimScript, p)
		switch {
		case errors.Is(err, errLost):
			s.disown(disownedRun{id: c.ID, owner: c.Owner})
			return idempotency.Begun{}, err
		case err != nil:
			return idempotency.Begun{}, err
		case said == putOK:
			s.remember(p)
			return begun, nil
		case said == putFull:
			return idempotency.Begun{}, idempotency.ErrFull
		case said == putLate:
			return idempotency.Begun{}, errLate
		}
		old = there // nil: gone
	}
	return idempotency.Begun{}, errBusy
}

// admit is the rule, and knows a run that this process began already: mine.
func admit(old *found, c *idempotency.Claim, now time.Time, replica string) (b idempotency.Begun, mine bool) {
	if old == nil {
		return idempotency.Admit(nil, *c, now), false
	}
	b = idempotency.Admit(&old.rec, *c, now)
	if b.Result == idempotency.Busy && old.rec.State == idempotency.StateRunning && old.rec.Owner == c.Owner && old.replica == replica {
		b.Result, mine = idempotency.Fresh, true
	}
	return b, mine
}

var (
	errLate = fmt.Errorf("%w: redis: it took too long to get there", idempotency.ErrUnavailable)
	errBusy = fmt.Errorf("%w: redis: the record changes all the time", idempotency.ErrUnavailable)
)

// remember keeps a record that this process runs, so that its next change needs
// no reading.
func (s *Store) remember(p *put) {
	if !running(p.rec.State) || p.how == leave {
		s.owned.Remove(p.rec.ID)
		return
	}
	s.owned.Add(p.rec.ID, &found{rec: p.rec, replica: s.replica, mark: p.mark, lapses: p.lapses})
}

// Advance implements idempotency.Store.
func (s *Store) Advance(ctx context.Context, id idempotency.ID, from, to idempotency.State, ch idempotency.Change) (idempotency.Record, error) {
	shift := s.shift()
	b := s.bounds()
	ch.Answer = ch.Answer.Bounded(b.MaxResponse, b.Bytes)
	rec, err := s.advance(ctx, id, from, to, movedChange(ch, shift))
	if err != nil {
		return idempotency.Record{}, err
	}
	return local(rec, shift), nil
}

func (s *Store) advance(ctx context.Context, id idempotency.ID, from, to idempotency.State, ch idempotency.Change) (*idempotency.Record, error) {
	old, _ := s.owned.Get(id)
	mark := s.mark()
	for range mostTaken {
		if old == nil {
			var err error
			if old, err = s.read(ctx, id); err != nil {
				return nil, err
			}
		}
		rec, done, err := s.next(old, from, to, ch)
		if err != nil || done {
			return rec, err
		}
		p := &put{rec: *rec, old: old, how: howOf(old, &ch), answer: answerOf(rec, old), request: requestOf(to), mark: mark}
		said, there, err := s.write(ctx, moveScript, p)
		switch {
		case errors.Is(err, errLost):
			s.owned.Remove(id)
			if p.how != leave { // that may be asked for again
				s.unsure.Add(id, doubt{mark, from, ch.Owner})
			}
			if running(to) && (p.how == adopt || !running(old.rec.State)) { // it was to become ours
				s.disown(disownedRun{id: id, mark: mark})
			}
			return nil, err
		case err != nil:
			s.owned.Remove(id)
			return nil, err
		case said == putOK:
			s.remember(p)
			if p.how != leave {
				s.unsure.Remove(id)
			}
			return rec, nil
		case said == putLate:
			return nil, errLate
		case said == putGone:
			s.owned.Remove(id)
			return nil, idempotency.ErrNotFound
		case said == putForeign:
			s.owned.Remove(id)
			return nil, fmt.Errorf("%w: another replica runs it", idempotency.ErrConflict)
		}
		old = there
	}
	return nil, errBusy
}

// howOf says what a change of a record may do.
func howOf(old *found, ch *idempotency.Change) how {
	switch {
	case ch.OnlyReceipt():
		return leave
	case ch.Adopt && running(old.rec.State):
		return adopt
	}
	return own
}

func running(state idempotency.State) bool {
	return state == idempotency.StateRunning || state == idempotency.StateWaiting
}

// doubt is a change that nobody knows the outcome of.
type doubt struct {
	mark  string
	from  idempotency.State
	owner string
}

// next is the rule. Who was never told that a change of his was made goes on from
// the state before it; done: what he asks for now is that very change.
func (s *Store) next(old *found, from, to idempotency.State, ch idempotency.Change) (rec *idempotency.Record, done bool, err error) {
	if old.rec.Gone(to, ch.Now) {
		return nil, false, idempotency.ErrNotFound
	}
	if d, ok := s.unsure.Peek(old.rec.ID); ok && d.mark == old.mark && d.from == from && d.owner == ch.Owner {
		if old.rec.State == to && to.Ended() {
			return &old.rec, true, nil
		}
		from = old.rec.State
	}
	if running(from) && old.rec.State == from && old.replica != s.replica && howOf(old, &ch) == own {
		return nil, false, fmt.Errorf("%w: another replica runs it", idempotency.ErrConflict)
	}
	next, err := idempotency.Apply(old.rec, from, to, ch)
	return &next, false, err
}

// answerOf says what becomes of the stored answer.
func answerOf(rec *idempotency.Record, old *found) action {
	switch a := rec.Answer; {
	case a == nil:
		return drop
	case a == old.rec.Answer:
		return keep
	case a.Kept:
		return set
	}
	return drop
}

// requestOf says what becomes of the request of a record that is now in a state.
func requestOf(to idempotency.State) action {
	if to == idempotency.StateDone || to == idempotency.StateFailed {
		return drop
	}
	return keep
}

// Bury implements idempotency.Store.
func (s *Store) Bury(ctx context.Context, c idempotency.Claim, ch idempotency.Change) (idempotency.Record, error) {
	shift := s.shift()
	c = movedClaim(c, shift)
	if c.TTL == 0 {
		c.TTL = s.bounds().TTL
	}
	b := s.bounds()
	ch.Answer = ch.Answer.Bounded(b.MaxResponse, b.Bytes)
	rec, err := s.bury(ctx, &c, movedChange(ch, shift))
	if err != nil {
		return idempotency.Record{}, err
	}
	return local(rec, shift), nil
}

func (s *Store) bury(ctx context.Context, c *idempotency.Claim, ch idempotency.Change) (*idempotency.Record, error) {
	rec, err := idempotency.Bury(*c, ch)
	if err != nil {
		return nil, err
	}
	p := &put{rec: rec, how: own, answer: drop, request: drop, mark: s.mark()}
	if rec.Answer != nil && rec.Answer.Kept {
		p.answer = set
	}
	if c.Request != nil {
		p.request, p.asked = set, c.Request
	}
	for range mostTaken {
		said, there, err := s.write(ctx, claimScript, p)
		switch {
		case err != nil:
			return nil, err
		case said == putOK:
			return &p.rec, nil
		case said == putFull:
			return nil, idempotency.ErrFull
		case said == putLate:
			return nil, errLate
		case there != nil && !there.rec.Expired(ch.Now):
			return nil, idempotency.ErrConflict
		}
		if p.old = there; there != nil {
			p.rec.Version = there.rec.Version + rec.Version
		}
	}
	return nil, errBusy
}

// disowned are runs that may have begun, or been taken over, though their caller was
// told that they did not: nobody would ever end them.
type disowned struct {
	mu   sync.Mutex
	runs []disownedRun
}

type disownedRun struct {
	id    idempotency.ID
	owner string    // begun by this call
	mark  string    // or taken over by this change
	after time.Time // no script that was sent for it does anything any more
}

// mostDisowned bounds them; those beyond end with the process.
const mostDisowned = 10_000

func (s *Store) disown(run disownedRun) {
	run.after = time.Now().Add(lateAfter + tolerated)
	d := &s.disowned
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.runs) < mostDisowned {
		d.runs = append(d.runs, run)
	}
}

// endDisowned ends such runs as soon as Redis can be asked.
func (s *Store) endDisowned(ctx context.Context) {
	d := &s.disowned
	d.mu.Lock()
	runs := d.runs
	d.runs = nil
	d.mu.Unlock()
	for _, run := range runs {
		if time.Now().Before(run.after) || errors.Is(s.end(ctx, run), idempotency.ErrUnavailable) {
			d.mu.Lock()
			d.runs = append(d.runs, run)
			d.mu.Unlock()
		}
	}
}

// end ends a run that began, and for which nothing was sent; one that was taken over
// is left to others as it is.
func (s *Store) end(ctx context.Context, run disownedRun) error {
	if run.mark != "" {
		_, err := s.call(ctx, letGoScript, nameOf(run.id), run.mark)
		return err
	}
	_, err := s.advance(ctx, run.id, idempotency.StateRunning, idempotency.StateFailed, idempotency.Change{
		Now: s.serverTime(), Owner: run.owner, Reason: "store_unavailable", EndRun: true,
	})
	return err
}
