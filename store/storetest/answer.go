package storetest

import (
	"bytes"
	"sync"

	"retryproxy/classify"
	"retryproxy/idempotency"
)

var answerTests = []test{
	{"replays are byte-identical, ID-14", byteIdentical},
	{"what was given may be used again", inputsMayChange},
	{"what was returned may be changed", outputsMayChange},
	{"what was returned does not change by itself", outputsStay},
	{"replays in parallel do not touch each other, ID-17", parallelReplays},
}

func byteIdentical(b *bench) {
	b.reach(claim(order, "call-1"), idempotency.StateDone, classify.ExecutedYes)
	for range 3 {
		b.same("replay", b.begin(claim(order, "call-2"), start, idempotency.Replay).Answer, created())
	}
	id := idempotency.ID{Tenant: order.Tenant, Key: "empty"}
	b.begin(claim(id, "call-1"), start, idempotency.Fresh)
	ch := change("call-1", start)
	ch.Answer = &idempotency.Answer{Status: 204, Kept: true, Stored: start}
	b.advance(id, idempotency.StateRunning, idempotency.StateDone, ch)
	b.same("replay of an empty answer", b.begin(claim(id, "call-2"), start, idempotency.Replay).Answer, ch.Answer)
}

func inputsMayChange(b *bench) {
	b.begin(claim(order, "call-1"), start, idempotency.Fresh)
	ch := change("call-1", start)
	ch.Append, ch.Answer = tries(1, classify.ExecutedYes), created()
	b.advance(order, idempotency.StateRunning, idempotency.StateDone, ch)
	before := b.get(order, start)
	ch.Append[0].Host = "changed"
	ch.Answer.Status = 500
	ch.Answer.Fields[0].Value = "changed"
	clear(ch.Answer.Body)
	b.same("record", b.get(order, start), before)
	b.same("answer", b.get(order, start).Answer, created())
}

func outputsMayChange(b *bench) {
	b.reach(claim(order, "call-1"), idempotency.StateFailed, classify.ExecutedNo)
	spoil(b.begin(claim(order, "call-2"), start, idempotency.Fresh))
	ch := change("call-2", start)
	ch.Append, ch.Answer = tries(1, classify.ExecutedYes), created()
	spoil(b.advance(order, idempotency.StateRunning, idempotency.StateDone, ch))
	spoil(b.get(order, start))
	spoil(b.begin(claim(order, "call-3"), start, idempotency.Replay))
	rec := b.get(order, start)
	if rec.History[0].Host != "u1.test:443" || rec.Runs[0].CallID != "call-1" {
		b.Errorf("history %q, runs %q changed from outside", rec.History[0].Host, rec.Runs[0].CallID)
	}
	b.same("answer", rec.Answer, created())
}

// spoil writes to all that a caller may write to.
func spoil(rec idempotency.Record) {
	for i := range rec.History {
		rec.History[i].Host = "spoilt"
	}
	for i := range rec.Runs {
		rec.Runs[i].CallID = "spoilt"
	}
	if a := rec.Answer; a != nil {
		a.Status = 0
		a.Fields.Set("Location", "spoilt")
		a.Fields.Del("Link")
		a.Body = nil
	}
}

func outputsStay(b *bench) {
	first := b.reach(claim(order, "call-1"), idempotency.StateWaiting, classify.ExecutedNo)
	copied := first.Clone()
	ch := change("call-1", start)
	ch.Append = tries(3, classify.ExecutedMaybe)
	b.advance(order, idempotency.StateWaiting, idempotency.StateFailed, ch)
	b.begin(claim(order, "call-2"), start, idempotency.Fresh)
	b.same("an earlier copy", first, copied)
}

func parallelReplays(b *bench) {
	b.reach(claim(order, "call-1"), idempotency.StateDone, classify.ExecutedYes)
	want := created()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 25 {
				begun, err := b.store.Begin(b.Context(), claim(order, "call-2"), start)
				if err != nil || begun.Result != idempotency.Replay {
					b.Errorf("Begin = %v, %v", begun.Result, err)
					return
				}
				fields := idempotency.ReplayFields(begun.Record.Answer, start)
				fields.Add("Idempotency-Replayed", "true")
				if n := len(fields.Values("Idempotency-Replayed")); n != 1 || !bytes.Equal(begun.Record.Answer.Body, want.Body) {
					b.Errorf("replay has %d marks and %d bytes", n, len(begun.Record.Answer.Body))
				}
			}
		})
	}
	group.Wait()
}
