//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"retryproxy/config"
	"retryproxy/idempotency"
)

// manner is how a client orders. The zero manner waits for its answer and repeats.
type manner struct {
	path    string // of the order, behind /orders: another policy
	prefer  string
	shopID  string // has a bucket of retry tokens of its own
	follows bool   // once its order was acknowledged it asks for the receipt, and repeats nothing
	leaves  bool   // once its order was acknowledged it has no more questions
}

// manners are those of the buyers of TestE2EKillAtAnyInstant.
var manners = []manner{
	{},
	{path: "/503"},
	{path: "/hasty"},
	{shopID: "s1"},
	{prefer: "respond-async"},
	{prefer: "respond-async", follows: true},
	{prefer: "wait=0", follows: true, path: "/hasty"},
	{prefer: "wait=0", follows: true, path: "/503"},
	{prefer: "wait=1", follows: true, shopID: "s1"},
	{prefer: "respond-async, wait=0", leaves: true},
	{prefer: "respond-async", leaves: true, path: "/hasty"},
	{prefer: "respond-async", leaves: true, shopID: "s1"},
}

// ask sends an order, or asks what became of it; over: its client has no more to ask.
func (l *buyers) ask(ctx context.Context, o *order) (over bool) {
	if o.receipt != "" && o.follows {
		return l.look(ctx, o)
	}
	o.asked++
	o.final, o.err = l.send(ctx, o)
	if o.err != nil {
		return false
	}
	if at := o.final.header.Get("Location"); at != "" && o.final.header.Get("X-Retry-Reason") == "parked" {
		o.receipt = at
	}
	return isFinal(o.final) || o.leaves && o.receipt != ""
}

// look asks for the receipt; over: the order has come to its end.
func (l *buyers) look(ctx context.Context, o *order) (over bool) {
	req, err := http.NewRequestWithContext(ctx, "GET", o.shop.url+o.receipt, nil)
	if err != nil {
		l.v.t.Error(err)
		return true
	}
	a, err := l.do(o, req)
	if err != nil {
		return false
	}
	var rec receipt
	switch {
	case a.status == http.StatusNotFound:
		l.v.t.Errorf("%s: the receipt is gone", o)
		return true
	case a.status != http.StatusOK:
		return false // it is stopping
	}
	if err := json.Unmarshal([]byte(a.body), &rec); err != nil {
		l.v.t.Errorf("%s: the receipt %q: %v", o, a.body, err)
		return true
	}
	switch rec.State {
	case "running", "waiting", "parked":
		return false
	case "done":
		o.final = answered{rec.Answer.Status, http.Header{}, rec.Answer.Body}
	case "in_doubt":
		o.final = answered{http.StatusConflict, http.Header{"X-Retry-Reason": {"in_doubt"}}, ""}
	}
	o.state, o.err = rec.State, nil
	return true
}

// lookAfter asks for the receipts of those whose clients left.
func (l *buyers) lookAfter() {
	var done sync.WaitGroup
	for _, o := range l.orders {
		if !o.leaves || o.receipt == "" || isFinal(o.final) {
			continue
		}
		done.Go(func() {
			for !l.look(l.ctx, o) && l.ctx.Err() == nil {
				<-time.After(50 * time.Millisecond)
			}
		})
	}
	done.Wait()
}

// records opens the store of a victim that has ended.
func (v *victim) records() recordStore {
	v.t.Helper()
	cfg, err := config.Parse("c.yaml", fmt.Appendf(nil, crashConfig+"store: {kind: sqlite, path: '%[2]s'}\n", "x", v.data), config.Options{})
	if err != nil {
		v.t.Fatal(err)
	}
	s, err := openStore(v.t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = s.Close() })
	return s
}

// compare looks up what was kept of every order, and compares it with what its shop
// did: all of them ended, and none otherwise than it is said.
func (l *buyers) compare(s idempotency.Store) {
	t := l.v.t
	t.Helper()
	for _, o := range l.orders {
		id := idempotency.ID{Tenant: idempotency.NoTenant, Key: o.key}
		if o.shopID != "" {
			id.Tenant = ";shop=" + o.shopID
		}
		rec, err := s.Get(t.Context(), id, time.Now())
		if errors.Is(err, idempotency.ErrNotFound) {
			t.Errorf("%s: there is no record", o)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if fault := mismatch(&rec, o.shop.sale(o.text), o.shop.honours, o.refused()); fault != "" {
			t.Errorf("%s: the record is %s (%s), executed %s, after %d attempts: %s", o, rec.State, rec.Reason, rec.Executed, rec.Attempts, fault)
		}
	}
}

// mismatch says how a record and what its shop did contradict each other. A refusal
// that the client was told of is no loss.
func mismatch(rec *idempotency.Record, shop sale, honours, told bool) string {
	switch {
	case shop.effects > 1:
		return "made twice"
	case shop.requests > rec.Attempts:
		return "an attempt is missing"
	case rec.State == idempotency.StateDone && shop.effects == 1:
	case rec.State == idempotency.StateInDoubt && !honours && rec.Executed.String() != "no":
	case rec.State == idempotency.StateDead && (shop.effects == 0 || rec.Executed.String() != "no"):
	case rec.State == idempotency.StateFailed && rec.Reason == "fail_permanent" && shop.effects == 0 && told:
	default:
		return "that is not what happened"
	}
	return ""
}
