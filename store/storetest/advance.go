package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
)

var advanceTests = []test{
	{"every transition of the table works, all others do not", everyTransition},
	{"a record in another state is a conflict", otherStateConflicts},
	{"a record that was moved since it was read is a conflict", movedConflicts},
	{"only the owner moves a running or waiting record, ID-11", onlyOwner},
	{"a woken record has its new owner", wokenHasOwner},
	{"of many movers one succeeds", oneMoverSucceeds},
	{"an unknown record is not found", unknownNotFound},
	{"attempts are numbered and kept over runs", historyOverRuns},
	{"a long history keeps its ends", longHistory},
	{"executed rises, only settling lowers it", executedRises},
	{"next time and reason", nextAndReason},
	{"runs end once, with their reason", runsEnd},
	{"the record says who has the order, in later runs too", suppliersStay},
}

func everyTransition(b *bench) {
	n := 0
	for _, from := range idempotency.States() {
		for _, to := range idempotency.States() {
			n++
			id := idempotency.ID{Tenant: order.Tenant, Key: named(n)}
			before := b.reach(claim(id, "call-1"), from, classify.ExecutedNo)
			if !from.CanBecome(to) {
				b.refuse(id, from, to, change("call-1", start), idempotency.ErrTransition)
				b.same("record after a refused move", b.get(id, start), before)
				continue
			}
			rec := b.advance(id, from, to, change("call-1", start.Add(time.Second)))
			if rec.Version <= before.Version || !rec.Updated.Equal(start.Add(time.Second)) {
				b.Errorf("%s to %s: version %d after %d, updated %v", from, to, rec.Version, before.Version, rec.Updated)
			}
			if (rec.Answer != nil) != (to == idempotency.StateDone) || rec.Expires.IsZero() != !to.Ended() {
				b.Errorf("%s to %s: answer %v, expires %v", from, to, rec.Answer, rec.Expires)
			}
			b.same("stored record", b.get(id, start), rec)
		}
	}
}

func otherStateConflicts(b *bench) {
	b.reach(claim(order, "call-1"), idempotency.StateWaiting, classify.ExecutedNo)
	before := b.get(order, start)
	b.refuse(order, idempotency.StateRunning, idempotency.StateFailed, change("call-1", start), idempotency.ErrConflict)
	b.refuse(order, idempotency.StateInDoubt, idempotency.StateFailed, change("call-1", start), idempotency.ErrConflict)
	b.same("record after a conflict", b.get(order, start), before)
}

func movedConflicts(b *bench) {
	dead := idempotency.StateDead
	b.reach(claim(order, "call-1"), dead, classify.ExecutedNo)
	found, _, err := b.store.List(b.Context(), idempotency.Query{KeyHash: idempotency.KeyHash(order.Key)})
	read := b.get(order, start)
	if err != nil || b.store.Durable() && (len(found) != 1 || found[0].Version != read.Version) {
		b.Fatalf("List = %+v, %v, want the record with version %d", found, err, read.Version)
	}
	ch := change("", start.Add(time.Second))
	ch.Version = read.Version
	rec := b.advance(order, dead, dead, ch)
	b.refuse(order, dead, idempotency.StateFailed, ch, idempotency.ErrConflict)
	b.same("record after a conflict", b.get(order, start), rec)
}

func onlyOwner(b *bench) {
	for i, from := range []idempotency.State{idempotency.StateRunning, idempotency.StateWaiting} {
		id := idempotency.ID{Tenant: order.Tenant, Key: named(i)}
		b.reach(claim(id, "call-1"), from, classify.ExecutedNo)
		before := b.get(id, start)
		for _, owner := range []string{"call-2", ""} {
			b.refuse(id, from, idempotency.StateFailed, change(owner, start), idempotency.ErrConflict)
		}
		b.same("record after a stranger's move", b.get(id, start), before)
	}
	// A run that was over before does not end the one that came after it.
	id := idempotency.ID{Tenant: order.Tenant, Key: "again"}
	b.reach(claim(id, "call-1"), idempotency.StateFailed, classify.ExecutedNo)
	b.begin(claim(id, "call-2"), start, idempotency.Fresh)
	b.refuse(id, idempotency.StateRunning, idempotency.StateDone, change("call-1", start), idempotency.ErrConflict)
}

func wokenHasOwner(b *bench) {
	b.reach(claim(order, "call-1"), idempotency.StateParked, classify.ExecutedNo)
	b.advance(order, idempotency.StateParked, idempotency.StateRunning, change("waker", start))
	b.refuse(order, idempotency.StateRunning, idempotency.StateFailed, change("call-1", start), idempotency.ErrConflict)
	b.advance(order, idempotency.StateRunning, idempotency.StateParked, change("waker", start))
	rec := b.advance(order, idempotency.StateParked, idempotency.StateRunning, change("", start))
	if rec.Owner != "waker" {
		b.Errorf("woken by nobody the owner is %q, want the one before", rec.Owner)
	}
}

func oneMoverSucceeds(b *bench) {
	b.reach(claim(order, "call-1"), idempotency.StateParked, classify.ExecutedNo)
	var won, lost atomic.Int32
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			_, err := b.store.Advance(b.Context(), order, idempotency.StateParked, idempotency.StateRunning, change(named(i), start))
			switch {
			case err == nil:
				won.Add(1)
			case errors.Is(err, idempotency.ErrConflict):
				lost.Add(1)
			default:
				b.Errorf("Advance = %v", err)
			}
		})
	}
	group.Wait()
	if won.Load() != 1 || lost.Load() != 19 {
		b.Errorf("20 movers: %d won, %d lost, want 1 and 19", won.Load(), lost.Load())
	}
}

func unknownNotFound(b *bench) {
	b.refuse(order, idempotency.StateRunning, idempotency.StateFailed, change("call-1", start), idempotency.ErrNotFound)
	if _, err := b.store.Get(b.Context(), order, start); !errors.Is(err, idempotency.ErrNotFound) {
		b.Errorf("Get = %v, want %v", err, idempotency.ErrNotFound)
	}
}

func historyOverRuns(b *bench) {
	var want attempt.History
	for run := range 3 {
		b.begin(claim(order, named(run)), start, idempotency.Fresh)
		ch := change(named(run), start)
		ch.Append = tries(2, classify.ExecutedNo)
		to := idempotency.StateWaiting
		b.advance(order, idempotency.StateRunning, to, ch)
		b.advance(order, to, idempotency.StateFailed, change(named(run), start))
		for _, a := range ch.Append {
			a.N = len(want) + 1
			want = append(want, a)
		}
	}
	rec := b.get(order, start)
	b.same("history", rec.History, want)
	if rec.Attempts != 6 || rec.NextCount() != 6 || len(rec.Runs) != 3 || rec.Runs[2].First != 5 {
		b.Errorf("%d attempts, next count %d, runs %v, want 6, 6 and the third from 5", rec.Attempts, rec.NextCount(), rec.Runs)
	}
}

func longHistory(b *bench) {
	total := 0
	for run := range 40 {
		b.begin(claim(order, named(run)), start, idempotency.Fresh)
		ch := change(named(run), start)
		ch.Append = tries(5, classify.ExecutedNo)
		total += 5
		b.advance(order, idempotency.StateRunning, idempotency.StateFailed, ch)
	}
	rec := b.get(order, start)
	h, r := rec.History, rec.Runs
	if rec.Attempts != total || len(h) != idempotency.HistoryFirst+idempotency.HistoryLast || len(r) != idempotency.RunsFirst+idempotency.RunsLast {
		b.Fatalf("%d attempts, history of %d, %d runs", rec.Attempts, len(h), len(r))
	}
	if h[0].N != 1 || h[idempotency.HistoryFirst-1].N != idempotency.HistoryFirst || h.Last().N != total {
		b.Errorf("history is %d, …, %d, want the first and the last", h[0].N, h.Last().N)
	}
	if r[0].CallID != named(0) || r[len(r)-1].CallID != named(39) || r[len(r)-1].First != total-4 {
		b.Errorf("runs are %v, …, %v, want the first and the last", r[0], r[len(r)-1])
	}
}

func executedRises(b *bench) {
	b.begin(claim(order, "call-1"), start, idempotency.Fresh)
	step := func(from, to idempotency.State, executed classify.Executed, settle bool, want classify.Executed) {
		b.Helper()
		ch := change("call-1", start)
		ch.Executed, ch.Settle = executed, settle
		if rec := b.advance(order, from, to, ch); rec.Executed != want {
			b.Errorf("%s to %s: executed %s, want %s", from, to, rec.Executed, want)
		}
	}
	step(idempotency.StateRunning, idempotency.StateRunning, classify.ExecutedMaybe, false, classify.ExecutedMaybe)
	step(idempotency.StateRunning, idempotency.StateWaiting, classify.ExecutedNo, false, classify.ExecutedMaybe)
	step(idempotency.StateWaiting, idempotency.StateInDoubt, classify.ExecutedYes, false, classify.ExecutedYes)
	step(idempotency.StateInDoubt, idempotency.StateFailed, classify.ExecutedNo, true, classify.ExecutedNo)

	b.begin(claim(order, "call-1"), start, idempotency.Fresh)
	ch := change("call-1", start)
	ch.Append = append(tries(1, classify.ExecutedMaybe), tries(1, classify.ExecutedNo)...)
	if rec := b.advance(order, idempotency.StateRunning, idempotency.StateWaiting, ch); rec.Executed != classify.ExecutedMaybe {
		b.Errorf("executed after attempts maybe, no = %s, want maybe", rec.Executed)
	}
}

func nextAndReason(b *bench) {
	b.begin(claim(order, "call-1"), start, idempotency.Fresh)
	ch := change("call-1", start)
	ch.NextAt = start.Add(time.Minute)
	rec := b.advance(order, idempotency.StateRunning, idempotency.StateWaiting, ch)
	if !rec.NextAt.Equal(ch.NextAt) || rec.Reason != "because" {
		b.Errorf("next %v, reason %q", rec.NextAt, rec.Reason)
	}
	rec = b.advance(order, idempotency.StateWaiting, idempotency.StateRunning, idempotency.Change{Owner: "call-1", Now: start})
	if !rec.NextAt.IsZero() || rec.Reason != "because" {
		b.Errorf("next %v, reason %q, want none and the old one", rec.NextAt, rec.Reason)
	}
}

func runsEnd(b *bench) {
	end := start.Add(time.Minute)
	b.begin(claim(order, "call-1"), start, idempotency.Fresh)
	ch := change("call-1", end)
	ch.EndRun = true
	rec := b.advance(order, idempotency.StateRunning, idempotency.StateParked, ch)
	want := []idempotency.Run{{CallID: "call-1", Started: start, Ended: end, First: 1, Reason: "because"}}
	b.same("runs after parking", rec.Runs, want)
	ch = change("", end.Add(time.Hour))
	ch.Reason = "dropped"
	rec = b.advance(order, idempotency.StateParked, idempotency.StateFailed, ch)
	b.same("runs after the end", rec.Runs, want)
}

func suppliersStay(b *bench) {
	has := idempotency.Supplier{Name: "supplier-b", OrderNo: "A\x00é-r2"}
	b.begin(claim(order, "call-1"), start, idempotency.Fresh)
	ch := change("call-1", start)
	ch.Supplier, ch.Append = has, tries(1, classify.ExecutedNo)
	ch.Append[0].Supplier = "supplier-a"
	rec := b.advance(order, idempotency.StateRunning, idempotency.StateWaiting, ch)
	b.same("attempts", rec.History[0].Supplier, "supplier-a")
	b.advance(order, idempotency.StateWaiting, idempotency.StateRunning, change("call-1", start))
	b.advance(order, idempotency.StateRunning, idempotency.StateDead, change("call-1", start))
	b.same("who has it", supplierOf(b.get(order, start)), has)
	again := claim(order, "call-2")
	again.Kind = idempotency.Redriven
	b.same("who has it in a redrive", supplierOf(b.begin(again, start, idempotency.Fresh)), has)
	b.advance(order, idempotency.StateRunning, idempotency.StateFailed, change("call-2", start))
	// Nothing was executed: the client orders anew.
	b.same("who has it when the client orders anew", supplierOf(b.begin(claim(order, "call-3"), start, idempotency.Fresh)), idempotency.Supplier{})
	ch = change("call-3", start)
	ch.Supplier, ch.Executed = has, classify.ExecutedMaybe
	b.advance(order, idempotency.StateRunning, idempotency.StateFailed, ch)
	b.same("who has it when it may have been executed", supplierOf(b.begin(claim(order, "call-4"), start, idempotency.Fresh)), has)
}

func supplierOf(rec idempotency.Record) idempotency.Supplier { return rec.Supplier() }
