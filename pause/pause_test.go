package pause

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

var t0 = time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC)

func token(name string) (t Token) {
	copy(t[:], name)
	return t
}

// board is one whose events are kept.
func board(most int) (*Board, *[]string) {
	var events []string
	return New(most, func(e Event) {
		what := "began"
		if e.Ended {
			what = e.Why
		}
		events = append(events, fmt.Sprintf("%s %s %s", e.Reason, e.Shop, what))
	}), &events
}

func want(t *testing.T, b *Board, k Key, tok string, now time.Time, reason string) {
	t.Helper()
	got := ""
	if p := b.Check(k, token(tok), now); p != nil {
		got = p.Reason
	}
	if got != reason {
		t.Errorf("Check(%+v, %q) = %q, want %q", k, tok, got, reason)
	}
}

func call(shop, operation string) Key { return Key{"pdd", shop, operation} }

func TestDeadToken(t *testing.T) {
	b, events := board(10)
	dead := Pause{Key: call("a", ""), Reason: AuthExpired, Token: token("old")}
	if !b.Stop(dead, t0) || b.Stop(dead, t0) {
		t.Error("Stop does not tell the first time from the second")
	}
	want(t, b, call("a", "list"), "old", t0, AuthExpired)
	want(t, b, call("a", "list"), "", t0, AuthExpired) // nobody knows whether it is another
	want(t, b, call("b", "list"), "old", t0, "")
	want(t, b, Key{"temu", "a", "list"}, "old", t0, "")
	want(t, b, call("a", "list"), "new", t0, "")          // the probe
	want(t, b, call("a", "list"), "new", t0, AuthExpired) // one at a time
	b.Served(call("a", "list"), token("old"), t0)         // what was on its way before
	want(t, b, call("a", "list"), "new", t0, AuthExpired)
	want(t, b, call("a", "list"), "new", t0.Add(ProbeFor), "") // it was not heard of again
	b.Served(call("a", "list"), token("new"), t0.Add(ProbeFor))
	want(t, b, call("a", "list"), "old", t0.Add(ProbeFor), "")
	if got := fmt.Sprint(*events); got != "[auth_expired a began auth_expired a new_token]" {
		t.Errorf("events are %s", got)
	}
}

// What was on its way with the old token does not spoil the trial of the new one, and a
// date does not shorten what has none.
func TestLateFailures(t *testing.T) {
	b, _ := board(10)
	dead := Pause{Key: call("a", ""), Reason: AuthExpired, Token: token("old")}
	b.Stop(dead, t0)
	want(t, b, call("a", "x"), "new", t0, "")
	b.Stop(dead, t0)
	b.Served(call("a", "x"), token("new"), t0)
	want(t, b, call("a", "x"), "old", t0, "")
	b.Stop(Pause{Key: call("a", ""), Reason: RiskControl}, t0)
	b.Stop(Pause{Key: call("a", ""), Reason: RiskControl, Until: t0.Add(time.Minute)}, t0)
	want(t, b, call("a", "x"), "new", t0.Add(time.Hour), RiskControl)
}

// The end of a quota is noticed without a call that asks.
func TestListNoticesTheEnd(t *testing.T) {
	b, events := board(10)
	b.Stop(Pause{Key: call("a", "x"), Reason: QuotaExhausted, Until: t0.Add(time.Minute)}, t0)
	if n := len(b.List(t0.Add(time.Minute))); n != 0 || len(*events) != 2 || b.any.Load() != 0 {
		t.Errorf("%d pauses, events %v, %d counted", n, *events, b.any.Load())
	}
}

// A token that failed is not tried again, whichever failed last.
func TestEveryDeadTokenIsRemembered(t *testing.T) {
	b, _ := board(10)
	for _, tok := range []string{"one", "two"} {
		b.Stop(Pause{Key: call("a", ""), Reason: AuthExpired, Token: token(tok)}, t0)
	}
	want(t, b, call("a", "x"), "one", t0, AuthExpired)
	want(t, b, call("a", "x"), "two", t0, AuthExpired)
	want(t, b, call("a", "x"), "three", t0, "")
}

// Where nobody can tell tokens apart, one call is tried from time to time.
func TestUnknownTokens(t *testing.T) {
	b, _ := board(10)
	b.Stop(Pause{Key: call("a", ""), Reason: AuthExpired}, t0)
	want(t, b, call("a", "x"), "", t0, "")
	want(t, b, call("a", "x"), "", t0, AuthExpired)
	want(t, b, call("a", "x"), "", t0.Add(ProbeFor), "")
	b.Served(call("a", "x"), Token{}, t0.Add(ProbeFor))
	want(t, b, call("a", "x"), "", t0.Add(ProbeFor), "")
	want(t, b, call("a", "x"), "", t0.Add(ProbeFor), "")
}

func TestRiskIsForAPerson(t *testing.T) {
	b, events := board(10)
	b.Stop(Pause{Key: call("a", ""), Reason: RiskControl}, t0)
	b.Stop(Pause{Key: call("a", ""), Reason: AuthExpired, Token: token("old")}, t0)
	want(t, b, call("a", "x"), "new", t0.Add(1000*time.Hour), RiskControl)
	b.Served(call("a", "x"), token("new"), t0)
	if got := b.List(t0); len(got) != 2 || got[0].Calls+got[1].Calls != 1 {
		t.Errorf("List = %+v", got)
	}
	if n := len(b.Resume("a", "temu", "ann", "", t0)); n != 0 {
		t.Errorf("%d pauses of another platform were ended", n)
	}
	ended := b.Resume("a", "", "ann", "asked them", t0)
	if len(ended) != 2 || ended[0].By != "ann" || ended[0].Note != "asked them" {
		t.Errorf("Resume = %+v", ended)
	}
	want(t, b, call("a", "x"), "old", t0, "")
	if len(*events) != 4 {
		t.Errorf("events are %v", *events)
	}
}

func TestQuota(t *testing.T) {
	b, events := board(10)
	b.Stop(Pause{Key: call("a", "list"), Reason: QuotaExhausted, Until: t0.Add(time.Hour)}, t0)
	b.Stop(Pause{Key: call("a", "list"), Reason: QuotaExhausted, Until: t0.Add(time.Minute)}, t0) // it is not earlier for that
	b.Stop(Pause{Key: Key{"pdd", "", "ship"}, Reason: QuotaExhausted, Until: t0.Add(time.Hour)}, t0)
	want(t, b, call("a", "list"), "x", t0, QuotaExhausted)
	want(t, b, call("a", "get"), "x", t0, "")
	want(t, b, call("b", "list"), "x", t0, "")
	want(t, b, call("b", "ship"), "x", t0, QuotaExhausted) // everybody's
	want(t, b, call("a", "list"), "x", t0.Add(time.Hour), "")
	if got := fmt.Sprint(*events); got != "[quota_exhausted a began quota_exhausted  began quota_exhausted a reset]" {
		t.Errorf("events are %s", got)
	}
}

// Calls that name no shop do not stop each other: only those with the same token are meant.
func TestCallsWithoutAShop(t *testing.T) {
	b, _ := board(10)
	b.Stop(Pause{Key: call("", ""), Unlabelled: true, Reason: RiskControl, Token: token("one")}, t0)
	b.Stop(Pause{Key: call("", ""), Unlabelled: true, Reason: RiskControl, Token: token("two")}, t0)
	want(t, b, call("", "x"), "one", t0, RiskControl)
	want(t, b, call("", "x"), "two", t0, RiskControl)
	want(t, b, call("", "x"), "three", t0, "")
	want(t, b, call("", "x"), "", t0, "")
	want(t, b, call("a", "x"), "three", t0, "")
}

// A dead token of calls without a shop is forgotten: no other token can end its pause. A stop
// by risk control is not. Of whose token nobody knows, nobody else is stopped.
func TestCallsWithoutAShopAreForgotten(t *testing.T) {
	b, events := board(10)
	b.Stop(Pause{Key: call("", ""), Unlabelled: true, Reason: AuthExpired, Token: token("one")}, t0)
	b.Stop(Pause{Key: call("", ""), Unlabelled: true, Reason: RiskControl, Token: token("two")}, t0)
	if b.Stop(Pause{Key: call("", ""), Unlabelled: true, Reason: RiskControl}, t0) {
		t.Error("a call of nobody known stops others")
	}
	want(t, b, call("", "x"), "one", t0.Add(ForgetAfter-1), AuthExpired)
	want(t, b, call("", "x"), "one", t0.Add(ForgetAfter), "")
	want(t, b, call("", "x"), "two", t0.Add(ForgetAfter), RiskControl)
	want(t, b, call("a", "x"), "two", t0, "")
	if n := len(b.List(t0.Add(ForgetAfter))); n != 1 || len(b.pauses) != 1 {
		t.Errorf("%d pauses at %d places, events %v, want one", n, len(b.pauses), *events)
	}
}

// A full board keeps the graver, and the oldest of equal rank goes; a newcomer of lower
// rank is told of and goes at once.
func TestNewcomersOfAFullBoard(t *testing.T) {
	b, events := board(2)
	b.Stop(Pause{Key: call("a", ""), Reason: RiskControl}, t0)
	b.Stop(Pause{Key: call("b", ""), Reason: RiskControl}, t0)
	b.Stop(Pause{Key: call("c", "x"), Reason: QuotaExhausted, Until: t0.Add(time.Hour)}, t0)
	want(t, b, call("c", "x"), "", t0, "")
	b.Stop(Pause{Key: call("d", ""), Reason: RiskControl}, t0)
	want(t, b, call("a", "x"), "", t0, "")
	want(t, b, call("b", "x"), "", t0, RiskControl)
	want(t, b, call("d", "x"), "", t0, RiskControl)
	if got := fmt.Sprint((*events)[2:]); got != "[quota_exhausted c began quota_exhausted c dropped risk_control d began risk_control a dropped]" {
		t.Errorf("events are %s", got)
	}
}

// A full board gives up what is soon learnt again, and says so.
func TestBoardIsBounded(t *testing.T) {
	b, events := board(2)
	b.Stop(Pause{Key: call("a", ""), Reason: RiskControl}, t0)
	b.Stop(Pause{Key: call("b", "x"), Reason: QuotaExhausted, Until: t0.Add(time.Hour)}, t0.Add(1))
	b.Stop(Pause{Key: call("c", ""), Reason: AuthExpired, Token: token("old")}, t0.Add(2))
	want(t, b, call("a", "x"), "", t0, RiskControl)
	want(t, b, call("b", "x"), "", t0, "")
	want(t, b, call("c", "x"), "", t0, AuthExpired)
	if last := (*events)[3]; last != "quota_exhausted b dropped" {
		t.Errorf("the last event is %q", last)
	}
}

func TestInParallel(t *testing.T) {
	b := New(20, nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for n := range 500 {
				now := t0.Add(time.Duration(n) * time.Second)
				k := call(fmt.Sprint(r.IntN(5)), fmt.Sprint(r.IntN(3)))
				switch r.IntN(5) {
				case 0:
					b.Stop(Pause{Key: k, Reason: QuotaExhausted, Until: now.Add(time.Second)}, now)
				case 1:
					b.Stop(Pause{Key: Key{k.Platform, k.Shop, ""}, Reason: AuthExpired, Token: token("a")}, now)
				case 2:
					b.Served(k, token("b"), now)
				case 3:
					b.Resume(k.Shop, "", "", "", now)
				}
				b.Check(k, token("b"), now)
				b.List(now)
			}
		})
	}
	wg.Wait()
	for shop := range 5 {
		b.Resume(fmt.Sprint(shop), "", "", "", t0)
	}
	if n := b.any.Load(); n != 0 || len(b.pauses) != 0 || b.ages[0].Len()+b.ages[1].Len()+b.ages[2].Len() != 0 {
		t.Errorf("%d pauses are counted of %d that there are, want none", n, len(b.pauses))
	}
}

func BenchmarkCheckWithoutPauses(b *testing.B) {
	board, k, tok := New(1000, nil), call("a", "list"), token("x")
	b.ReportAllocs()
	for b.Loop() {
		board.Check(k, tok, t0)
		board.Served(k, tok, t0)
	}
}

func BenchmarkCheckWith200Shops(b *testing.B) {
	board, tok := New(1000, nil), token("x")
	for i := range 200 {
		board.Stop(Pause{Key: call(fmt.Sprint(i), ""), Reason: RiskControl}, t0)
	}
	k := call("a", "list")
	b.ReportAllocs()
	for b.Loop() {
		board.Check(k, tok, t0)
		board.Served(k, tok, t0)
	}
}

// Newcomers of a full board, none of which has a shop.
func BenchmarkStopWhenFull(b *testing.B) {
	board, n := New(10_000, nil), 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		p := Pause{Key: call("", ""), Unlabelled: true, Reason: RiskControl, Token: token(fmt.Sprint(n))}
		board.Stop(p, t0)
		board.Check(p.Key, p.Token, t0)
	}
}

// Looking counts nobody, and lets nobody through.
func TestStopsOnlyLooks(t *testing.T) {
	b, _ := board(10)
	stops := func(k Key, tok string, now time.Time, reason string) {
		t.Helper()
		got := ""
		if p := b.Stops(k, token(tok), now); p != nil {
			got = p.Reason
		}
		if got != reason {
			t.Errorf("Stops(%+v, %q) = %q, want %q", k, tok, got, reason)
		}
	}
	stops(call("a", "list"), "old", t0, "")
	b.Stop(Pause{Key: call("a", ""), Reason: AuthExpired, Token: token("old")}, t0)
	b.Stop(Pause{Key: call("b", "list"), Reason: QuotaExhausted, Until: t0.Add(time.Hour)}, t0)
	b.Stop(Pause{Key: call("b", ""), Reason: RiskControl}, t0)
	stops(call("a", "list"), "old", t0, AuthExpired)
	stops(call("a", "list"), "new", t0, "")
	stops(call("b", "list"), "old", t0, RiskControl) // the gravest
	b.Resume("b", "", "li", "", t0)
	b.Stop(Pause{Key: call("b", "list"), Reason: QuotaExhausted, Until: t0.Add(time.Hour)}, t0)
	stops(call("b", "list"), "old", t0, QuotaExhausted)
	stops(call("b", "other"), "old", t0, "")
	stops(call("b", "list"), "old", t0.Add(time.Hour), "")
	for _, p := range b.List(t0) {
		if p.Calls != 0 {
			t.Errorf("%+v counts calls that were only looked for", p)
		}
	}
	want(t, b, call("a", "list"), "new", t0, "") // the probe is still there to be taken
}
