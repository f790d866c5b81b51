package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"retryproxy/attempt"
)

// over is a call that ended so many seconds after noon; live is one that did not,
// and began then.
func over(id string, seconds int) *attempt.Summary {
	return &attempt.Summary{ID: id, State: "done", Ended: noon.Add(time.Duration(seconds) * time.Second)}
}

func live(id string, seconds int) *attempt.Summary {
	return &attempt.Summary{ID: id, State: "waiting", Started: noon.Add(time.Duration(seconds) * time.Second)}
}

// list is a Journal with these calls, the newest first; a place is an index.
type list []*attempt.Summary

func (l list) Note(context.Context, []*attempt.Summary) error { return errors.New("not asked here") }

func (l list) Find(_ context.Context, q Query) (found []Entry, more bool, err error) {
	from := 0
	if q.After != "" {
		n, err := strconv.Atoi(q.After)
		if err != nil {
			return nil, false, ErrCursor
		}
		from = n + 1
	}
	for i := from; i < len(l); i++ {
		if !q.Wants(l[i], noon) {
			continue
		}
		if len(found) == q.Most() {
			return found, true, nil
		}
		found = append(found, Entry{l[i], strconv.Itoa(i)})
	}
	return found, false, nil
}

func names(calls []*attempt.Summary) string {
	var out []string
	for _, c := range calls {
		out = append(out, c.ID)
	}
	return strings.Join(out, " ")
}

func TestLook(t *testing.T) {
	known := []*attempt.Summary{over("c", 3), over("e", 5), over("f", 6), live("y", 1), live("z", 2)}
	known[3].Place, known[4].Place = 2, 1
	noted := list{over("e", 5), over("d", 4), over("c", 3), over("b", 2), over("a", 1)}
	tests := []struct {
		name    string
		journal Journal
		q       Query
		want    string
		next    string
	}{
		{"all, each once", noted, Query{}, "z y f e d c b a", ""},
		{"without a journal", nil, Query{}, "z y f e c", ""},
		{"without a journal, limited", nil, Query{Limit: 3}, "z y f", ""},
		{"those in progress fill the page", noted, Query{Limit: 1}, "z", past},
		{"the rest of them is not on the next page", noted, Query{Limit: 3, After: past}, "e d c", "2"},
		{"a page ends among those of the journal", noted, Query{Limit: 5}, "z y f e d", "1"},
		{"and goes on behind them", noted, Query{Limit: 5, After: "1"}, "c b a", ""},
		{"what is known only does not get in between", noted, Query{Limit: 2, After: "0"}, "d c", "2"},
		{"one state", noted, Query{State: "waiting"}, "z y", ""},
		{"one id", noted, Query{CallID: "c"}, "c", ""},
		{"a page of one", noted, Query{Limit: 4, State: "done"}, "f e d c", "2"},
		{"nothing known", noted, Query{Limit: 2, CallID: "x"}, "", ""},
	}
	for _, tt := range tests {
		k := known
		if tt.name == "nothing known" {
			k = nil
		}
		calls, next, err := Look(t.Context(), tt.journal, tt.q, k, noon)
		if got := names(calls); err != nil || got != tt.want || next != tt.next {
			t.Errorf("%s: Look = %q, next %q, %v, want %q, %q", tt.name, got, next, err, tt.want, tt.next)
		}
	}
	if _, _, err := Look(t.Context(), noted, Query{After: "x"}, nil, noon); !errors.Is(err, ErrCursor) {
		t.Errorf("Look after a wrong place = %v, want ErrCursor", err)
	}
}

// Those that wait are shown as they will have their turns.
func TestLookShowsTheLines(t *testing.T) {
	at := func(id, host, lane string, place, next int) *attempt.Summary {
		c := live(id, 0)
		c.Host, c.Lane, c.Place, c.NextAt = host, lane, place, noon.Add(time.Duration(next)*time.Second)
		return c
	}
	known := []*attempt.Summary{
		at("h", "b:80", "fresh", 1, 0), at("d", "a:80", "backlog", 10, 0), at("g", "a:80", "", 0, 9), at("b", "a:80", "fresh", 2, 5), at("c", "a:80", "backlog", 9, 0),
		at("f", "a:80", "", 0, 8), at("a", "a:80", "fresh", 1, 9),
	}
	for limit, want := range map[int]string{0: "a b c d f g h", 3: "a b c"} {
		calls, _, err := Look(t.Context(), nil, Query{State: "waiting", Limit: limit}, known, noon)
		if got := names(calls); err != nil || got != want {
			t.Errorf("limit %d: Look = %q, %v, want %q", limit, got, err, want)
		}
	}
}

// What was not noted yet is old news once the journal has newer calls and more: it
// comes with its page.
func TestLookDoesNotShowOldCallsTooEarly(t *testing.T) {
	known := []*attempt.Summary{over("a", 1), over("x", 7)}
	var noted list
	for n := range 5 {
		noted = append(noted, over(fmt.Sprint(n), 6-n))
	}
	calls, next, err := Look(t.Context(), noted, Query{Limit: 3}, known, noon)
	if got := names(calls); err != nil || got != "x 0 1" || next != "1" {
		t.Errorf("Look = %q, next %q, %v", got, next, err)
	}
}

// The same call, parked and then gone on, ended twice.
func TestLookShowsBothEndsOfACall(t *testing.T) {
	noted := list{over("a", 2), over("a", 1)}
	calls, _, _ := Look(t.Context(), noted, Query{}, []*attempt.Summary{over("a", 1), live("a", 0)}, noon)
	if got := names(calls); got != "a a a" {
		t.Errorf("Look = %q, want the call in progress and both ends", got)
	}
}

// A parked call is not over: neither the journal nor the process shows that its client
// was told so, on any page; one that runs again is not parked.
func TestLookShowsParkedCallsOnce(t *testing.T) {
	told := func(id string, seconds int) *attempt.Summary {
		c := over(id, seconds)
		c.Reason, c.Record = "parked", attempt.RecordID{Key: id}
		return c
	}
	woken := func(id, key string, seconds int) *attempt.Summary {
		c := told(key, seconds)
		c.ID, c.Origin = id, attempt.OriginParked
		return c
	}
	parked := func(id string, seconds int) *attempt.Summary {
		c := live(id, seconds)
		c.State, c.Record = "parked", attempt.RecordID{Key: id}
		return c
	}
	again := live("r2", 0)
	again.Record, again.Origin = attempt.RecordID{Key: "r"}, attempt.OriginParked
	known := []*attempt.Summary{told("p", 4), again, live("y", 1), parked("p", 2), parked("q", 3), parked("r", 0)}
	// p2 is the same call, woken and parked again; p0 is one of an earlier run.
	noted := list{woken("p2", "p", 6), over("d", 5), told("p", 4), over("p", 3), told("x", 2), woken("p0", "p", 2), told("r", 1)}
	for _, tt := range []struct {
		q    Query
		want string
		next string
	}{
		{Query{}, "y r2 q p d p x p0 r", ""},
		{Query{Limit: 3}, "y r2 q", "0"},
		{Query{Limit: 3, After: past}, "d", "2"},
		{Query{State: "waiting"}, "r2 y", ""},
		{Query{State: "done"}, "d p x p0 r", ""},
	} {
		calls, next, err := Look(t.Context(), noted, tt.q, known, noon)
		if got := names(calls); err != nil || got != tt.want || next != tt.next {
			t.Errorf("Look(%+v) = %q, next %q, %v, want %q, %q", tt.q, got, next, err, tt.want, tt.next)
		}
	}
}

func TestEveryPageOfLook(t *testing.T) {
	var known []*attempt.Summary
	var noted list
	for n := range 50 {
		noted = slices.Insert(noted, 0, over(strconv.Itoa(n), n))
		if n >= 30 {
			known = append(known, over(strconv.Itoa(n), n))
		}
	}
	for _, limit := range []int{1, 3, 7, 50} {
		var got []string
		for q := (Query{Limit: limit}); ; {
			calls, next, err := Look(t.Context(), noted, q, known, noon)
			if err != nil || len(calls) > limit {
				t.Fatalf("Look = %d calls, %v", len(calls), err)
			}
			for _, c := range calls {
				got = append(got, c.ID)
			}
			if q.After = next; next == "" {
				break
			}
		}
		if len(got) != 50 || got[0] != "49" || got[49] != "0" {
			t.Errorf("limit %d: %d calls, want all 50: %s", limit, len(got), got)
		}
	}
}

func TestParseWhen(t *testing.T) {
	zone := time.FixedZone("CST", 8*3600)
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, zone)
	tests := []struct {
		text string
		want time.Time
	}{
		{"2026-03-01T10:00:00Z", time.Date(2026, 3, 1, 18, 0, 0, 0, zone)},
		{"2026-03-01T10:00:00.5+08:00", time.Date(2026, 3, 1, 10, 0, 0, 5e8, zone)},
		{"2026-03-01", time.Date(2026, 3, 1, 0, 0, 0, 0, zone)},
		{"2026-03-01 10:30", time.Date(2026, 3, 1, 10, 30, 0, 0, zone)},
		{"2026-03-01T10:30", time.Date(2026, 3, 1, 10, 30, 0, 0, zone)},
		{"2026-03-01 10:30:05", time.Date(2026, 3, 1, 10, 30, 5, 0, zone)},
		{"3d", time.Date(2026, 3, 1, 12, 0, 0, 0, zone)},
		{"90m", time.Date(2026, 3, 4, 10, 30, 0, 0, zone)},
		{"1h30m", time.Date(2026, 3, 4, 10, 30, 0, 0, zone)},
		{"0s", now},
	}
	for _, tt := range tests {
		if got, err := ParseWhen(tt.text, now); err != nil || !got.Equal(tt.want) {
			t.Errorf("ParseWhen(%q) = %v, %v, want %v", tt.text, got, err, tt.want)
		}
	}
	for _, text := range []string{"", "yesterday", "-3d", "-1h", "3", "2026-13-01", "1.5d", "99999999d"} {
		if got, err := ParseWhen(text, now); err == nil {
			t.Errorf("ParseWhen(%q) = %v, want an error", text, got)
		}
	}
}
