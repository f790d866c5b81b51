package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"retryproxy/classify"
	"retryproxy/idempotency"
)

// Finding records, those that are due, and those that are buried.
var listTests = []test{
	{"a list is filtered, and ordered by the last change", listFiltered},
	{"a list is read in pieces", listInPieces},
	{"what is due comes in order, with the time of the next", dueInOrder},
	{"what is parked is counted by its dates", parkedByDate},
	{"what many wake at a time is woken once", wokenOnce},
	{"a buried call is a dead record, and its key is its own", buried},
	{"a record gets its receipt when it needs one, and keeps it", receiptStays},
	{"who begins on a letter is told so", letterBegins},
	{"anybody may ask for a receipt, at any time", receiptAnyTime},
	{"a letter keeps its last answer", letterKeepsAnswer},
	{"a doubt that outlived its ttl becomes a letter, or goes on under its key", doubtEnds},
	{"notes are kept, the last ones", notesKept},
	{"a record can be adopted", adopted},
	{"a run's deadline can be moved, and parking is remembered", parkedSince},
	{"what a claim says of itself is kept", claimKept},
	{"a lease is given", leased},
}

// list requires the keys that a query finds.
func (b *bench) list(q idempotency.Query, want ...string) {
	b.Helper()
	recs, next, err := b.store.List(b.Context(), q)
	if err != nil || next != "" {
		b.Errorf("List = next %q, %v", next, err)
	}
	var got []string
	for i := range recs {
		got = append(got, recs[i].Key)
		whole := b.get(recs[i].ID, start)
		whole.Answer = nil
		b.same("listed record", recs[i], whole)
	}
	b.same(fmt.Sprintf("keys that %+v finds", q), got, want)
}

func listFiltered(b *bench) {
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	make := func(key string, n int, to idempotency.State, with func(*idempotency.Claim)) {
		b.Helper()
		c := claim(idempotency.ID{Tenant: order.Tenant, Key: key}, "call-"+key)
		if with != nil {
			with(&c)
		}
		b.begin(c, start, idempotency.Fresh)
		if to != idempotency.StateRunning {
			ch := change(c.Owner, at(n))
			ch.Append, ch.Reason = tries(1, classify.ExecutedMaybe), "because "+key
			b.advance(c.ID, idempotency.StateRunning, to, ch)
		}
	}
	make("run", 0, idempotency.StateRunning, nil)
	make("dead", 1, idempotency.StateDead, func(c *idempotency.Claim) { c.Terms = []uint64{1, 1 << 63} })
	make("doubt", 2, idempotency.StateInDoubt, func(c *idempotency.Claim) { c.Labels.Shop, c.Terms = "s18", []uint64{1} })
	make("done", 3, idempotency.StateDone, func(c *idempotency.Claim) { c.Labels.TaskType = "report" })
	make("other", 4, idempotency.StateFailed, func(c *idempotency.Claim) { c.Host = "u2.test:81" })
	letters := []idempotency.State{idempotency.StateDead, idempotency.StateInDoubt}
	b.list(idempotency.Query{}, "other", "done", "doubt", "dead", "run")
	b.list(idempotency.Query{States: letters}, "doubt", "dead")
	b.list(idempotency.Query{States: letters, Shop: "s17"}, "dead")
	b.list(idempotency.Query{TaskType: "report"}, "done")
	b.list(idempotency.Query{Host: "u2.test:81"}, "other")
	b.list(idempotency.Query{Host: "u2.test"}, "other")
	b.list(idempotency.Query{Host: "u2"})
	b.list(idempotency.Query{Reason: "because doubt"}, "doubt")
	b.list(idempotency.Query{Receipt: "call-dead"}, "dead")
	b.list(idempotency.Query{Receipt: "call-done"})
	b.list(idempotency.Query{KeyHash: idempotency.KeyHash("done")}, "done")
	b.list(idempotency.Query{Words: [][]uint64{{1}}}, "doubt", "dead")
	b.list(idempotency.Query{Words: [][]uint64{{1}, {2, 1 << 63}}}, "dead")
	b.list(idempotency.Query{Words: [][]uint64{{1}, {2}}})
	b.list(idempotency.Query{Executed: []classify.Executed{classify.ExecutedNo}}, "run")
	b.list(idempotency.Query{States: letters[:1]}, "dead")
	b.list(idempotency.Query{States: letters, Oldest: true, Since: at(1), Until: at(3)}, "dead", "doubt")
	b.list(idempotency.Query{States: letters, Executed: []classify.Executed{classify.ExecutedNo, classify.ExecutedMaybe}}, "doubt", "dead")
	b.list(idempotency.Query{States: letters, KeyHash: idempotency.KeyHash("dead")}, "dead")
	b.list(idempotency.Query{States: []idempotency.State{idempotency.StateParked}, Host: "u1.test:443"})
	b.list(idempotency.Query{States: []idempotency.State{idempotency.StateDead, idempotency.StateDone}}, "done", "dead")
	b.list(idempotency.Query{Oldest: true}, "run", "dead", "doubt", "done", "other")
	b.list(idempotency.Query{Since: at(2), Until: at(4)}, "done", "doubt")
	if _, _, err := b.store.List(b.Context(), idempotency.Query{After: "nowhere"}); !errors.Is(err, idempotency.ErrCursor) {
		b.Errorf("List after nowhere = %v, want %v", err, idempotency.ErrCursor)
	}
}

func listInPieces(b *bench) {
	var want []string
	for i := range 23 {
		id := idempotency.ID{Tenant: fmt.Sprint("t", i%5), Key: named(i)}
		b.begin(claim(id, "call-1"), start.Add(time.Duration(i/4)*time.Second), idempotency.Fresh)
		want = append(want, id.Key)
	}
	for _, oldest := range []bool{false, true} {
		b.piecewise(idempotency.Query{Limit: 5, Oldest: oldest}, want)
	}
}

// piecewise reads a list in pieces of q.Limit and requires these keys in all.
func (b *bench) piecewise(q idempotency.Query, want []string) {
	b.Helper()
	var got []string
	for {
		recs, next, err := b.store.List(b.Context(), q)
		if err != nil {
			b.Fatalf("List = %v", err)
		}
		for i := range recs {
			got = append(got, recs[i].Key)
		}
		if q.After = next; next == "" {
			break
		}
		if len(recs) != q.Limit {
			b.Errorf("a piece has %d records, want %d", len(recs), q.Limit)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	b.same("keys in all pieces", got, want)
}

func parkedByDate(b *bench) {
	edges := []time.Time{start.Add(time.Second), start.Add(2 * time.Second), start.Add(time.Minute)}
	counted := func(what string, want ...int) {
		b.Helper()
		got, err := b.store.Parked(b.Context(), edges)
		if err != nil {
			b.Errorf("Parked = %v", err)
		}
		b.same(what, got, want)
	}
	counted("parked in an empty store", 0, 0, 0, 0)
	for i, x := range []struct {
		to idempotency.State
		in time.Duration
	}{
		{idempotency.StateParked, -time.Hour},
		{idempotency.StateParked, time.Second},
		{idempotency.StateParked, 2 * time.Second},
		{idempotency.StateParked, 59 * time.Second},
		{idempotency.StateParked, time.Hour},
		{idempotency.StateDead, time.Second},
		{idempotency.StateWaiting, time.Second},
		{idempotency.StateInDoubt, time.Second},
	} {
		id := idempotency.ID{Tenant: order.Tenant, Key: fmt.Sprint("parked-", i)}
		b.begin(claim(id, named(i)), start, idempotency.Fresh)
		ch := change(named(i), start)
		ch.NextAt = start.Add(x.in)
		b.advance(id, idempotency.StateRunning, x.to, ch)
	}
	counted("parked by date", 1, 1, 2, 1)
	moved := change("", start)
	moved.NextAt = start
	b.advance(idempotency.ID{Tenant: order.Tenant, Key: "parked-4"}, idempotency.StateParked, idempotency.StateParked, moved)
	b.advance(idempotency.ID{Tenant: order.Tenant, Key: "parked-1"}, idempotency.StateParked, idempotency.StateFailed, change("", start))
	counted("after one was expedited and one cancelled", 2, 0, 2, 0)
}

func dueInOrder(b *bench) {
	if due, next, err := b.store.Due(b.Context(), start, 10); len(due) != 0 || !next.IsZero() || err != nil {
		b.Errorf("Due in an empty store = %v, %v, %v", due, next, err)
	}
	for i, x := range []struct {
		key  string
		to   idempotency.State
		next time.Duration
	}{
		{"second", idempotency.StateParked, 2 * time.Second},
		{"first", idempotency.StateDead, time.Second},
		{"third", idempotency.StateInDoubt, 3 * time.Second},
		{"never", idempotency.StateDead, 0},
		{"late", idempotency.StateParked, time.Hour},
		{"waiting", idempotency.StateWaiting, time.Second},
		{"later", idempotency.StateParked, 2 * time.Hour},
	} {
		id := idempotency.ID{Tenant: order.Tenant, Key: x.key}
		c := claim(id, named(i))
		c.TTL = 10 * ttl
		b.begin(c, start, idempotency.Fresh)
		ch := change(named(i), start)
		if x.next > 0 {
			ch.NextAt = start.Add(x.next)
		}
		b.advance(id, idempotency.StateRunning, x.to, ch)
	}
	for _, x := range []struct {
		after time.Duration
		limit int
		want  []string
		next  time.Duration
	}{
		{0, 10, nil, time.Second},
		{time.Second, 10, []string{"first"}, 2 * time.Second},
		{time.Minute, 10, []string{"first", "second", "third"}, time.Hour},
		{time.Minute, 2, []string{"first", "second"}, time.Hour},
		{3 * time.Hour, 10, []string{"first", "second", "third", "late", "later"}, 0},
	} {
		due, next, err := b.store.Due(b.Context(), start.Add(x.after), x.limit)
		var got []string
		for i := range due {
			got = append(got, due[i].Key)
		}
		b.same(fmt.Sprint("due after ", x.after), got, x.want)
		if want := start.Add(x.next); err != nil || next.IsZero() != (x.next == 0) || x.next != 0 && !next.Equal(want) {
			b.Errorf("after %v: next %v, %v, want %v later", x.after, next, err, x.next)
		}
	}
	b.advance(idempotency.ID{Tenant: order.Tenant, Key: "second"}, idempotency.StateParked, idempotency.StateRunning, change("new", start))
	if due, _, err := b.store.Due(b.Context(), start.Add(time.Minute), 10); len(due) != 2 || err != nil {
		b.Errorf("Due after one was woken = %d, %v, want 2", len(due), err)
	}
}

func wokenOnce(b *bench) {
	b.reach(claim(order, "call-1"), idempotency.StateParked, classify.ExecutedNo)
	var group sync.WaitGroup
	var mu sync.Mutex
	var won []string
	for i := range 16 {
		group.Go(func() {
			rec, err := b.store.Advance(b.Context(), order, idempotency.StateParked, idempotency.StateRunning, change(named(i), start))
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				won = append(won, rec.Owner)
			} else if !errors.Is(err, idempotency.ErrConflict) {
				b.Errorf("Advance = %v", err)
			}
		})
	}
	group.Wait()
	if rec := b.get(order, start); len(won) != 1 || rec.Owner != won[0] {
		b.Errorf("%d woke it (%v), and %s owns it, want one", len(won), won, rec.Owner)
	}
}

func buried(b *bench) {
	c := requested(difficult(), claim(order, "call-1"))
	c.Keyless = true
	ch := change("", start)
	ch.Append, ch.Answer, ch.TTL, ch.Executed = tries(2, classify.ExecutedMaybe), created(), 2*ttl, classify.ExecutedMaybe
	rec, err := b.store.Bury(b.Context(), c, ch)
	if err != nil {
		b.Fatalf("Bury = %v", err)
	}
	if rec.State != idempotency.StateDead || !rec.Keyless || rec.Receipt != "call-1" || rec.Attempts != 2 || !rec.Expires.Equal(start.Add(2*ttl)) || len(rec.Runs) != 1 || rec.Runs[0].Ended.IsZero() {
		b.Errorf("the buried record is %+v", rec)
	}
	b.same("record", b.get(order, start), rec)
	b.same("its answer", rec.Answer, created())
	b.load(order, difficult())
	if _, err := b.store.Bury(b.Context(), c, ch); !errors.Is(err, idempotency.ErrConflict) {
		b.Errorf("Bury again = %v, want %v", err, idempotency.ErrConflict)
	}
	b.list(idempotency.Query{States: []idempotency.State{idempotency.StateDead}}, order.Key)
	again := b.begin(c, start, idempotency.Fresh)
	if again.Receipt != "call-1" || again.Attempts != 2 || again.Answer != nil {
		b.Errorf("a new run of it: %+v", again)
	}
}

func receiptStays(b *bench) {
	rec := b.begin(claim(order, "call-1"), start, idempotency.Fresh)
	if rec.Receipt != "" {
		b.Errorf("a new record has receipt %q", rec.Receipt)
	}
	rec = b.advance(order, idempotency.StateRunning, idempotency.StateRunning, idempotency.Change{Now: start, Receipt: true})
	if rec.Owner != "call-1" {
		b.Errorf("asking for a receipt made %q the owner", rec.Owner)
	}
	b.list(idempotency.Query{Receipt: "call-1"}, order.Key)
	b.advance(order, idempotency.StateRunning, idempotency.StateFailed, change("call-1", start))
	again := b.begin(claim(order, "call-2"), start, idempotency.Fresh)
	parked := b.advance(order, idempotency.StateRunning, idempotency.StateParked, change("call-2", start))
	if rec.Receipt != "call-1" || again.Receipt != "call-1" || parked.Receipt != "call-1" {
		b.Errorf("receipts %q, %q, %q, want call-1", rec.Receipt, again.Receipt, parked.Receipt)
	}
	b.advance(order, idempotency.StateParked, idempotency.StateFailed, change("", start))
	if other := b.begin(other(2, claim(order, "call-3")), start, idempotency.Fresh); other.Receipt != "" {
		b.Errorf("another request has the receipt %q of the first", other.Receipt)
	}
}

// letterBegins: who runs a dead letter again is told that it is one.
func letterBegins(b *bench) {
	for i, state := range []idempotency.State{idempotency.StateDead, idempotency.StateFailed} {
		c := claim(idempotency.ID{Tenant: order.Tenant, Key: named(i)}, "call-1")
		b.reach(c, state, classify.ExecutedNo)
		c.Owner = "call-2"
		for _, fingerprint := range []byte{1, 9} { // the same request, another one
			begun, err := b.store.Begin(b.Context(), other(fingerprint, c), start)
			if want := state == idempotency.StateDead && fingerprint == 1; err != nil || begun.Result != idempotency.Fresh || begun.Letter != want {
				b.Errorf("Begin on %s = %v, letter %v, %v, want a letter %v", state, begun.Result, begun.Letter, err, want)
			}
			b.advance(c.ID, idempotency.StateRunning, state, change("call-2", start))
		}
	}
}

// receiptAnyTime: who asks for a receipt changes nothing else.
func receiptAnyTime(b *bench) {
	for i, state := range idempotency.States() {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		before := b.reach(requested(difficult(), claim(id, "call-1")), state, classify.ExecutedMaybe)
		rec := b.advance(id, state, state, idempotency.Change{Now: start.Add(time.Minute), Receipt: true})
		before.Version, before.Receipt = rec.Version, "call-1"
		b.same("record with its receipt", rec, before)
		b.same("record with its receipt", b.get(id, start), before)
	}
}

func letterKeepsAnswer(b *bench) {
	for i, state := range []idempotency.State{idempotency.StateDead, idempotency.StateInDoubt} {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		b.begin(claim(id, "call-1"), start, idempotency.Fresh)
		ch := change("call-1", start)
		ch.Answer = created()
		b.advance(id, idempotency.StateRunning, state, ch)
		b.same("the answer of a letter", b.get(id, start).Answer, created())
		noted := b.advance(id, state, state, change("", start))
		b.same("the answer after a note", noted.Answer, created())
		b.same("the answer after a note", b.get(id, start).Answer, created())
		b.advance(id, state, idempotency.StateFailed, change("", start))
		if a := b.get(id, start).Answer; a != nil {
			b.Errorf("a failed record has an answer: %+v", a)
		}
	}
	if n := b.store.Stats().Bytes; n != 0 {
		b.Errorf("%d bytes of answers are left, want none", n)
	}
}

func doubtEnds(b *bench) {
	late := start.Add(2 * ttl)
	b.reach(requested(difficult(), claim(order, "call-1")), idempotency.StateInDoubt, classify.ExecutedMaybe)
	b.refuse(order, idempotency.StateInDoubt, idempotency.StateFailed, change("", late), idempotency.ErrNotFound)
	ch := change("", late)
	ch.TTL = 30 * ttl
	rec := b.advance(order, idempotency.StateInDoubt, idempotency.StateDead, ch)
	if !rec.Expires.Equal(late.Add(30*ttl)) || rec.Executed != classify.ExecutedMaybe {
		b.Errorf("the letter expires %v, executed %s", rec.Expires, rec.Executed)
	}
	b.load(order, difficult())

	id := idempotency.ID{Tenant: order.Tenant, Key: "again"}
	if !b.store.Durable() {
		return // no person looks for letters there
	}
	b.reach(claim(id, "call-1"), idempotency.StateInDoubt, classify.ExecutedMaybe)
	if rec := b.begin(claim(id, "call-2"), late, idempotency.Fresh); len(rec.History) != 1 || rec.Executed != classify.ExecutedMaybe {
		b.Errorf("the new run forgot what happened: %+v", rec)
	}
	id.Key = "another"
	b.reach(claim(id, "call-1"), idempotency.StateInDoubt, classify.ExecutedMaybe)
	if rec := b.begin(other(2, claim(id, "call-2")), late, idempotency.Fresh); len(rec.History) != 0 || rec.Executed != classify.ExecutedNo {
		b.Errorf("another request has a past: %+v", rec)
	}
}

func notesKept(b *bench) {
	b.reach(claim(order, "call-1"), idempotency.StateDead, classify.ExecutedNo)
	for i := range idempotency.NotesKept + 3 {
		ch := change("", start)
		ch.Note = &idempotency.Note{At: start.Add(time.Duration(i)), By: "ann", Did: "noted", Text: fmt.Sprint("é ", i)}
		b.advance(order, idempotency.StateDead, idempotency.StateDead, ch)
	}
	notes := b.get(order, start).Notes
	last := idempotency.Note{At: start.Add(idempotency.NotesKept + 2), By: "ann", Did: "noted", Text: fmt.Sprint("é ", idempotency.NotesKept+2)}
	if len(notes) != idempotency.NotesKept {
		b.Fatalf("%d notes, want %d", len(notes), idempotency.NotesKept)
	}
	b.same("the last note", notes[len(notes)-1], last)
}

func adopted(b *bench) {
	for i, state := range []idempotency.State{idempotency.StateRunning, idempotency.StateWaiting} {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		b.reach(claim(id, "call-1"), state, classify.ExecutedNo)
		b.refuse(id, state, state, change("call-2", start), idempotency.ErrConflict)
	}
}

func parkedSince(b *bench) {
	b.begin(claim(order, "call-1"), start, idempotency.Fresh)
	at := start.Add(time.Minute)
	rec := b.advance(order, idempotency.StateRunning, idempotency.StateParked, change("call-1", at))
	if !rec.Parked.Equal(at) {
		b.Errorf("parked since %v, want %v", rec.Parked, at)
	}
	ch := change("call-2", at.Add(time.Minute))
	ch.Deadline = at.Add(time.Hour)
	rec = b.advance(order, idempotency.StateParked, idempotency.StateRunning, ch)
	if !rec.Deadline.Equal(at.Add(time.Hour)) || rec.Owner != "call-2" {
		b.Errorf("woken: deadline %v of %s, want the new one of call-2", rec.Deadline, rec.Owner)
	}
	rec = b.advance(order, idempotency.StateRunning, idempotency.StateParked, change("call-2", at.Add(time.Hour)))
	if !rec.Parked.Equal(at) {
		b.Errorf("parked again: since %v, want the first time, %v", rec.Parked, at)
	}
	b.same("record", b.get(order, start), rec)
	rec = b.advance(order, idempotency.StateParked, idempotency.StateFailed, change("", at.Add(time.Hour)))
	if !rec.Parked.IsZero() {
		b.Errorf("ended: parked since %v", rec.Parked)
	}
}

func claimKept(b *bench) {
	c := claim(order, "call-1")
	c.Kind, c.Keyless, c.Honoured, c.ClientID, c.Trace, c.Terms = idempotency.Requeued, true, true, "req-1", "00-1-2-01", []uint64{1, 1 << 63}
	rec := b.begin(c, start, idempotency.Fresh)
	if !rec.Keyless || !rec.Honoured || rec.Runs[0].Kind != idempotency.Requeued || rec.Runs[0].ClientID != "req-1" || rec.Runs[0].Trace != "00-1-2-01" || !slices.Equal(rec.Terms, c.Terms) {
		b.Errorf("the record is %+v", rec)
	}
	b.same("record", b.get(order, start), rec)
}

func leased(b *bench) {
	for i, state := range []idempotency.State{idempotency.StateRunning, idempotency.StateWaiting} {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		b.reach(claim(id, "call-1"), state, classify.ExecutedNo)
		for range 2 {
			if err := b.store.Lease(b.Context(), id, "call-1", time.Minute); err != nil {
				b.Errorf("Lease of a %s call = %v", state, err)
			}
		}
	}
}
