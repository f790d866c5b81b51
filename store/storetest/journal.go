package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/journal"
)

// OpenJournal returns an empty journal with room for 1000 calls that ended in the
// year 2126. It closes it in t.Cleanup.
type OpenJournal func(t *testing.T) journal.Journal

// RunJournal runs what every journal promises.
func RunJournal(t *testing.T, open OpenJournal) {
	for _, x := range []struct {
		name string
		run  func(d *diary)
	}{
		{"a call is found as it was noted", foundAsNoted},
		{"whatever is said", strangeCalls},
		{"no text is longer than the bound", longTexts},
		{"nothing is kept of what Note was given", notShared},
		{"the newest first", newestFirst},
		{"what a query wants", wanted},
		{"pages", pages},
		{"pages while more calls are noted", pagesMeanwhile},
		{"no such place", noSuchPlace},
		{"limits", limits},
		{"many at once", manyAtOnce},
		{"nobody waits", nobodyWaits},
	} {
		t.Run(x.name, func(t *testing.T) { x.run(&diary{T: t, journal: open(t)}) })
	}
}

// diary is a journal under test with the steps the tests are made of.
type diary struct {
	*testing.T
	journal journal.Journal
}

// salts are those of the tests; the second is that of terms of an earlier key.
var salts = journal.Salts{{1}, {2}}

// ended is the call number n, which ended n minutes after start. Of each field
// some calls have one value and some another.
func ended(n int) *attempt.Summary {
	some := func(every int, is, otherwise string) string {
		if n%every == 0 {
			return is
		}
		return otherwise
	}
	c := &attempt.Summary{
		ID: fmt.Sprintf("call-%d", n), Mode: "forward", Policy: "order_ship", User: some(2, "bot1", ""), Client: "10.0.0.1:5000",
		Labels: attempt.Labels{Shop: some(3, "s17", "s18"), ShopTier: "vip", TaskType: some(4, "order_ship", "report")},
		Method: "POST", Scheme: "https", Host: some(5, "u1.test:443", some(2, "u1.test:8443", "u10.test:443")), Path: "/order",
		Record: attempt.RecordID{Tenant: "bot1;s17", Key: some(6, "k\x00é", "k2")}, KeyHash: some(6, "0123456789abcdef", some(5, "fedcba9876543210", "")), ClientID: fmt.Sprintf("client-%d", n), Trace: "00-ab-cd-01",
		Origin: some(11, attempt.OriginRestart, some(12, attempt.OriginRequeue, "")),
		State:  "done", Result: some(7, "failed", "success"), Reason: some(7, "attempts_exhausted", "ok"), Detail: "é",
		Status: 200, Executed: classify.ExecutedYes, Previous: n, Bytes: int64(n), Overhead: time.Microsecond,
		Started: start.Add(time.Duration(n)*time.Minute - time.Second), Ended: start.Add(time.Duration(n) * time.Minute), Duration: time.Second,
		Waits: []attempt.Wait{{Cause: "backoff", For: time.Second}, {Cause: "tokens", For: 1}},
	}
	c.Attempts = tries(1, classify.ExecutedNo)
	c.Attempts[0].N, c.Attempts[0].Verdict.Reason = 1, some(8, "header_timeout", "status_503")
	c.Terms = salts[n%2:n%2+1].Terms([]byte(some(9, "order-77", "order-78")), some(10, "sku-5", "sku-6"), c.ClientID)
	return c
}

func (d *diary) note(calls ...*attempt.Summary) {
	d.Helper()
	if err := d.journal.Note(d.Context(), calls); err != nil {
		d.Fatalf("Note = %v", err)
	}
}

// find gives what a query finds, and where to go on; empty: that was all.
func (d *diary) find(q journal.Query) (calls []*attempt.Summary, next string) {
	d.Helper()
	found, more, err := d.journal.Find(d.Context(), q)
	if err != nil || more && len(found) == 0 {
		d.Fatalf("Find(%+v) = %d calls, more %v, %v", q, len(found), more, err)
	}
	for _, e := range found {
		calls = append(calls, e.Summary)
	}
	if more {
		next = found[len(found)-1].Place
	}
	return calls, next
}

// same compares calls; what Find gives has no terms.
func (d *diary) same(what string, got, want []*attempt.Summary) {
	d.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(attempt.Summary{}, "Terms")); diff != "" {
		d.Errorf("%s differ (-want +got):\n%s", what, diff)
	}
}

// some notes the calls 0 to n-1, some at a time, and returns them.
func (d *diary) some(n int) []*attempt.Summary {
	d.Helper()
	var all []*attempt.Summary
	for i := range n {
		all = append(all, ended(i))
	}
	for piece := range slices.Chunk(all, 7) {
		d.note(piece...)
	}
	return all
}

func foundAsNoted(d *diary) {
	d.note(ended(1))
	got, next := d.find(journal.Query{})
	d.same("calls", got, []*attempt.Summary{ended(1)})
	if next != "" {
		d.Errorf("there is more after %q", next)
	}
	d.note()
}

func strangeCalls(d *diary) {
	for n, text := range []string{"", "\x00", "\xff\xfe", "'; DROP TABLE calls; --", `"],[{`, strings.Repeat("長", 1_000), "%_*?"} {
		c := ended(n)
		c.ID, c.Path, c.ClientID, c.Trace, c.Detail, c.Labels.Shop, c.Host, c.User = text+"x", "/"+text, text, text, text, text, text+":80", text
		c.Attempts[0].UpstreamID, c.Attempts[0].Host = strings.ToValidUTF8(text, "?"), "u"
		c.Attempts, c.Waits, c.Executed = append(c.Attempts, c.Attempts[0]), nil, classify.ExecutedNo
		d.note(c)
		for _, q := range []journal.Query{{CallID: c.ID}, {Host: c.Host, CallID: c.ID}, {Shop: c.Labels.Shop, CallID: c.ID}} {
			got, _ := d.find(q)
			d.same(fmt.Sprintf("calls of %q", text), got, []*attempt.Summary{c})
		}
	}
	d.note(&attempt.Summary{ID: "empty", State: "done", Started: start, Ended: start})
	got, _ := d.find(journal.Query{CallID: "empty"})
	d.same("an empty call", got, []*attempt.Summary{{ID: "empty", State: "done", Started: start, Ended: start}})
}

func notShared(d *diary) {
	c := ended(1)
	d.note(c)
	c.Path, c.Attempts[0].Host, c.Waits[0].Cause, c.Terms[0] = "/other", "other", "other", 0
	got, _ := d.find(journal.Query{Words: salts.Words("client-1")})
	d.same("calls", got, []*attempt.Summary{ended(1)})
}

func longTexts(d *diary) {
	long, cut := strings.Repeat("é", journal.MostText), strings.Repeat("é", journal.MostText/2)
	c, want := ended(1), ended(1)
	c.Path, c.Detail, c.ClientID, c.Trace = "/"+long, long, long, long
	want.Path, want.Detail, want.ClientID, want.Trace = "/"+cut[:len(cut)-2], cut, cut, cut
	d.note(c)
	got, _ := d.find(journal.Query{})
	d.same("calls", got, []*attempt.Summary{want})
}

func newestFirst(d *diary) {
	a, b, c, e := ended(1), ended(1), ended(3), ended(2)
	a.ID, b.ID = "first", "second"
	d.note(a)
	d.note(b, c)
	d.note(e)
	got, _ := d.find(journal.Query{})
	d.same("calls", got, []*attempt.Summary{c, e, b, a})
	got, _ = d.find(journal.Query{Words: salts.Words("order-78")})
	d.same("calls with a text", got, []*attempt.Summary{c, e, b, a})
}

// wanted compares with what Wants says of each call.
func wanted(d *diary) {
	all := d.some(120)
	for _, q := range []journal.Query{
		{},
		{CallID: "call-17"},
		{CallID: "call-1"},
		{CallID: "none"},
		{KeyHash: "0123456789abcdef"},
		{KeyHash: "0123456789abcdef", Shop: "s18"},
		{KeyHash: "ffff"},
		{Shop: "s17"},
		{TaskType: "report"},
		{Shop: "s17", TaskType: "order_ship"},
		{Host: "u1.test"},
		{Host: "u1.test:443"},
		{Host: "u1"},
		{Host: "u1.test:44"},
		{Host: "u1.test:"},
		{State: "done"},
		{State: "waiting"},
		{State: "running"},
		{Result: "failed"},
		{Reason: "attempts_exhausted"},
		{Reason: "header_timeout"},
		{Reason: "status_5"},
		{Since: start.Add(60 * time.Minute)},
		{Until: start.Add(60 * time.Minute)},
		{Since: start.Add(10 * time.Minute), Until: start.Add(11 * time.Minute)},
		{Words: salts.Words("order-77")},
		{Words: salts.Words("order-77 sku-5")},
		{Words: salts.Words("client-33")},
		{Words: salts.Words("nothing-1")},
		{Words: salts.Words("order-77"), Shop: "s17", Host: "u1.test"},
		{Words: salts.Words("order-78"), Since: start.Add(50 * time.Minute), Until: start.Add(70 * time.Minute)},
		{Words: salts.Words("order-77"), CallID: "call-9"},
		{Words: salts.Words("order-77"), KeyHash: "0123456789abcdef"},
		{Words: salts.Words("order-77"), Result: "failed", Reason: "status_503", TaskType: "report"},
	} {
		q.Limit = 1000
		want := slices.DeleteFunc(slices.Clone(all), func(c *attempt.Summary) bool { return !q.Wants(c, start) })
		slices.Reverse(want)
		got, _ := d.find(q)
		d.same(fmt.Sprintf("calls of %+v", q), got, want)
	}
}

// walk goes from page to page.
func (d *diary) walk(q journal.Query, between func()) []*attempt.Summary {
	d.Helper()
	var all []*attempt.Summary
	for n := 0; ; n++ {
		got, next := d.find(q)
		all = append(all, got...)
		if next == "" {
			return all
		}
		if len(got) != q.Limit || n > 100 {
			d.Fatalf("page %d has %d calls, though %q follows", n, len(got), next)
		}
		between()
		q.After = next
	}
}

func pages(d *diary) {
	all := d.some(40)
	same := ended(20) // many that ended at once
	for range 10 {
		d.note(same)
	}
	slices.Reverse(all)
	for _, q := range []journal.Query{{Limit: 7}, {Limit: 10}, {Limit: 7, Words: salts.Words("order-78")}, {Limit: 2, KeyHash: "0123456789abcdef"}, {Limit: 3, Shop: "s18"}, {Limit: 3, CallID: "call-20"}} {
		whole := q
		whole.Limit = 1000
		want, _ := d.find(whole)
		if len(want) < 9 && q.KeyHash == "" || len(want) == 0 {
			d.Errorf("%+v finds %d calls only", q, len(want))
		}
		d.same(fmt.Sprintf("all pages of %+v", q), d.walk(q, func() {}), want)
	}
}

func pagesMeanwhile(d *diary) {
	want := d.some(30)
	slices.Reverse(want)
	n := 30
	got := d.walk(journal.Query{Limit: 4}, func() {
		d.note(ended(n))
		n++
	})
	d.same("all pages", got, want)
}

func noSuchPlace(d *diary) {
	d.some(2)
	for _, after := range []string{"x", ".", "1", "1.", "1.x", "1.2.3", "99999999999999999999.1"} {
		if _, _, err := d.journal.Find(d.Context(), journal.Query{After: after}); !errors.Is(err, journal.ErrCursor) {
			d.Errorf("Find after %q = %v, want ErrCursor", after, err)
		}
	}
}

func limits(d *diary) {
	d.some(journal.DefaultLimit + 5)
	for limit, want := range map[int]int{0: journal.DefaultLimit, 1: 1, journal.DefaultLimit + 5: journal.DefaultLimit + 5} {
		if got, next := d.find(journal.Query{Limit: limit}); len(got) != want || (next != "") != (want < journal.DefaultLimit+5) {
			d.Errorf("limit %d gives %d calls, and goes on at %q, want %d", limit, len(got), next, want)
		}
	}
}

func manyAtOnce(d *diary) {
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for n := range 10 {
				d.note(ended(100*g+2*n), ended(100*g+2*n+1))
				d.find(journal.Query{Limit: 5})
			}
		})
	}
	group.Wait()
	got, _ := d.find(journal.Query{Limit: 1000})
	ids := map[string]bool{}
	for _, c := range got {
		ids[c.ID] = true
	}
	if len(got) != 160 || len(ids) != 160 {
		d.Errorf("%d calls with %d ids, want 160", len(got), len(ids))
	}
}

func nobodyWaits(d *diary) {
	ctx, cancel := context.WithCancel(d.Context())
	cancel()
	if err := d.journal.Note(ctx, []*attempt.Summary{ended(1)}); !errors.Is(err, journal.ErrUnavailable) {
		d.Errorf("Note = %v, want ErrUnavailable", err)
	}
	if _, _, err := d.journal.Find(ctx, journal.Query{}); !errors.Is(err, journal.ErrUnavailable) {
		d.Errorf("Find = %v, want ErrUnavailable", err)
	}
	got, _ := d.find(journal.Query{})
	d.same("calls", got, nil)
}
