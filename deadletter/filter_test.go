package deadletter

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/classify"
	"retryproxy/idempotency"
)

func containsText(text, part string) bool { return strings.Contains(text, part) }

func TestFilterSet(t *testing.T) {
	zone := time.FixedZone("CST", 8*3600)
	now := noon.In(zone)
	tests := []struct {
		name, value string
		want        Filter
	}{
		{"reason", "breaker_open", Filter{Reason: "breaker_open"}},
		{"host", "API.Example.com:443", Filter{Host: "api.example.com:443"}},
		{"task-type", "order_ship", Filter{TaskType: "order_ship"}},
		{"task_type", "order_ship", Filter{TaskType: "order_ship"}},
		{"shop", "s17", Filter{Shop: "s17"}},
		{"state", "in_doubt", Filter{State: "in_doubt"}},
		{"executed", "maybe", Filter{Executed: "maybe"}},
		{"key", "order-1", Filter{KeyHash: idempotency.KeyHash("order-1")}},
		{"key_hash", "0123456789abcdef", Filter{KeyHash: "0123456789abcdef"}},
		{"text", "4711 4712", Filter{Text: "4711 4712"}},
		{"since", "3d", Filter{Since: now.Add(-72 * time.Hour)}},
		{"since", "90m", Filter{Since: now.Add(-90 * time.Minute)}},
		{"since", "2026-03-04", Filter{Since: time.Date(2026, 3, 4, 0, 0, 0, 0, zone)}},
		{"until", "2026-03-04 05:06", Filter{Until: time.Date(2026, 3, 4, 5, 6, 0, 0, zone)}},
		{"until", "2026-03-04T05:06:07Z", Filter{Until: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)}},
	}
	for _, tt := range tests {
		var f Filter
		if err := f.Set(tt.name, tt.value, now); err != nil {
			t.Errorf("Set(%s, %q) = %v", tt.name, tt.value, err)
		}
		if diff := cmp.Diff(tt.want, f); diff != "" {
			t.Errorf("Set(%s, %q) (-want +got):\n%s", tt.name, tt.value, diff)
		}
		var again Filter
		for name, value := range f.Values() {
			if err := again.Set(name, value, noon.Add(time.Hour)); err != nil {
				t.Errorf("Set(Values()) = %v", err)
			}
		}
		if diff := cmp.Diff(f, again); diff != "" {
			t.Errorf("%s %s: Values set another filter (-want +got):\n%s", tt.name, tt.value, diff)
		}
		if f.Empty() {
			t.Errorf("Set(%s) left it empty", tt.name)
		}
	}
	if f := (Filter{}); !f.Empty() || len(f.Values()) != 0 {
		t.Error("a filter without conditions is not empty")
	}
}

func TestFilterFaults(t *testing.T) {
	for _, tt := range []struct{ name, value string }{
		{"colour", "red"},
		{"shop", ""},
		{"shop", "  "},
		{"text", strings.Repeat("x", 1025)},
		{"state", "done"},
		{"executed", "perhaps"},
		{"since", "yesterday"},
		{"since", "-3d"},
		{"since", "1h30d"},
		{"until", "-1h"},
		{"since", "99999999d"},
		{"until", "2026-13-01"},
	} {
		var f Filter
		faulty(t, tt, tt.name, f.Set(tt.name, tt.value, noon))
		if !f.Empty() {
			t.Errorf("Set(%s, %q) failed and still set something", tt.name, tt.value)
		}
	}
	var f Filter
	if err := f.Set("until", "3d", noon); err != nil {
		t.Fatal(err)
	}
	faulty(t, "since after until", "since", f.Set("since", "2d", noon))
}

func FuzzFilterSet(f *testing.F) {
	f.Add("since", "3d")
	f.Add("until", "2026-03-04 05:06")
	f.Fuzz(func(t *testing.T, name, value string) {
		var x, again Filter
		if x.Set(name, value, noon) != nil {
			return
		}
		for name, value := range x.Values() {
			if err := again.Set(name, value, noon); err != nil || again != x && !again.Since.Equal(x.Since) && !again.Until.Equal(x.Until) {
				t.Errorf("Set(%q, %q): Values give %+v, %v, want %+v", name, value, again, err, x)
			}
		}
	})
}

func TestFilterQuery(t *testing.T) {
	rec := func(change func(*idempotency.Record)) *idempotency.Record {
		r := letter(classify.ExecutedMaybe, false)
		r.Key, r.Host, r.Labels.Shop, r.Labels.TaskType, r.Updated, r.Terms = "k1", "a.test:443", "s1", "ship", noon, []uint64{7}
		if change != nil {
			change(r)
		}
		return r
	}
	whole := Filter{
		Reason: "attempts_exhausted", Host: "a.test", TaskType: "ship", Shop: "s1", State: "dead", Executed: "maybe",
		KeyHash: idempotency.KeyHash("k1"), Since: noon, Until: noon.Add(1),
	}
	tests := []struct {
		name string
		f    Filter
		rec  *idempotency.Record
		want bool
	}{
		{"all conditions", whole, rec(nil), true},
		{"no condition", Filter{}, rec(nil), true},
		{"in doubt", Filter{State: "in_doubt"}, rec(nil), false},
		{"another executed", Filter{Executed: "no"}, rec(nil), false},
		{"done", Filter{}, rec(func(r *idempotency.Record) { r.State = idempotency.StateDone }), false},
		{"running", Filter{}, rec(func(r *idempotency.Record) { r.State = idempotency.StateRunning }), false},
		{"in doubt too", Filter{}, rec(func(r *idempotency.Record) { r.State = idempotency.StateInDoubt }), true},
	}
	for _, tt := range tests {
		q := tt.f.Query([][]uint64{{6, 7}})
		if got := q.Wants(tt.rec); got != tt.want {
			t.Errorf("%s: Wants = %v, want %v", tt.name, got, tt.want)
		}
	}
	q := whole.Query([][]uint64{{6}})
	if q.Wants(rec(nil)) {
		t.Error("a text that was not said is found")
	}
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1/s": time.Second, "5/s": 200 * time.Millisecond, "30/m": 2 * time.Second, "10/h": 6 * time.Minute, "100/s": 10 * time.Millisecond,
	} {
		if got, err := ParseRate(text); got != want || err != nil {
			t.Errorf("ParseRate(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "0/s", "-1/s", "5/d", "101/s", "1.5/s", "5/s/s", "99999999/s"} {
		_, err := ParseRate(text)
		faulty(t, text, "rate", err)
	}
}

func TestWatch(t *testing.T) {
	tests := []struct {
		name   string
		canary int
		ends   string // + done, - not
		stop   int    // at which end; 0: not
	}{
		{"all well", 1, "++++++++++++", 0},
		{"the canary fails", 1, "-", 1},
		{"the second canary fails", 3, "+-", 2},
		{"one after the canary fails", 1, "+-++-+-+", 0},
		{"half of the last ten fail", 1, "+-+-+-+-+-+-+-+-", 0},
		{"six of the last ten fail", 1, "++++++++++-+-+-+---", 19},
		{"six fail before ten ended", 1, "+------", 7},
		{"without a canary", 0, "------", 6},
		{"long ago", 1, "+-----++++++++++-----", 0},
	}
	for _, tt := range tests {
		w, stopped := NewWatch(tt.canary), 0
		for i, end := range tt.ends {
			if why := w.Ended(end == '+'); why != "" && stopped == 0 {
				stopped = i + 1
			}
		}
		if stopped != tt.stop {
			t.Errorf("%s: %q stops at %d, want %d", tt.name, tt.ends, stopped, tt.stop)
		}
	}
	w := NewWatch(2)
	w.Ended(true)
	if got := w.Ended(false); got != "canary 2 of 2 did not end done" {
		t.Errorf("Ended = %q", got)
	}
}

func TestBulkOrder(t *testing.T) {
	for field, o := range map[string]BulkOrder{
		"filter": {}, "canary": {All: true, Canary: -1}, "by": {All: true, Signed: Signed{By: "\n"}},
		"": {Filter: Filter{Shop: "s1"}, Canary: 5},
	} {
		faulty(t, o, field, o.Check())
	}
}

func TestPreview(t *testing.T) {
	p := NewPreview()
	for i := range 25 {
		var err error
		switch i % 5 {
		case 0:
			err = refused("it was done")
		case 1:
			err = ErrBusy
		}
		p.Add(View{}, time.Time{}, err)
	}
	want := []Refusal{{"it was done", 5}, {ErrBusy.Error(), 5}}
	if p.Letters != 25 || p.Would != 15 || p.Refused != 10 || len(p.First) != 20 || !slices.Equal(p.Refusals, want) ||
		p.First[0].Refused != "it was done" || p.First[1].Refused != ErrBusy.Error() || p.First[2].Refused != "" {
		t.Errorf("Preview = %+v", p)
	}
}

func TestKeep(t *testing.T) {
	k := Keep{For: 30 * 24 * time.Hour, Max: 10}
	for dead, want := range map[int]struct {
		excess int
		fills  bool
	}{0: {0, false}, 8: {0, false}, 9: {0, true}, 10: {0, true}, 13: {3, true}} {
		if e, f := k.Excess(dead), k.Fills(dead); e != want.excess || f != want.fills {
			t.Errorf("%d dead: Excess = %d, Fills = %v, want %v", dead, e, f, want)
		}
	}
	if got := k.Notice(); got != 24*time.Hour {
		t.Errorf("Notice = %v, want a day", got)
	}
	if got := (Keep{For: 2 * time.Hour}).Notice(); got != time.Hour {
		t.Errorf("Notice of 2h = %v, want 1h", got)
	}
	said := Said{}
	if !said.Due(ByAge, noon) {
		t.Error("what was never said is not due")
	}
	said[ByAge] = noon
	for after, want := range map[time.Duration]bool{0: false, 24*time.Hour - 1: false, 24 * time.Hour: true} {
		if got := said.Due(ByAge, noon.Add(after)); got != want {
			t.Errorf("after %v: Due = %v, want %v", after, got, want)
		}
	}
	if !said.Due(ByMax, noon) {
		t.Error("one cause silences another")
	}
}
