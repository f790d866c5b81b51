package breaker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

// config is the fixture of the public cases: 5 in a row, open 2 s, one probe.
var config = Config{
	ConsecutiveFailures: 5, FailureRatio: 0.5, MinCalls: 20, Window: 10 * time.Second,
	Open: 2 * time.Second, OpenMax: 8 * time.Second, Probes: 1,
}

// call runs one attempt that ends at once.
func call(t *testing.T, h *Host, r Result, now time.Time) *Event {
	t.Helper()
	if ok, next := h.Allow(now); !ok {
		t.Fatalf("Allow(%v) = false, %v, want true", now.Sub(t0), next.Sub(t0))
	}
	p, _ := h.Start(time.Second, now)
	return h.Report(p, r, "", now)
}

// opened returns a host whose breaker opened at t0.
func opened(t *testing.T, c Config) *Host {
	t.Helper()
	h := NewHost("u1.test:80", c)
	for range c.ConsecutiveFailures - 1 {
		if e := call(t, &h, Failed, t0); e != nil {
			t.Fatalf("Report(failed) = %v, want no change yet", *e)
		}
	}
	if e := call(t, &h, Failed, t0); e == nil || e.To != Open {
		t.Fatalf("Report(failed) = %v, want open", e)
	}
	return &h
}

func results(rs ...any) (list []Result) {
	for i := 0; i < len(rs); i += 2 {
		for range rs[i].(int) {
			list = append(list, rs[i+1].(Result))
		}
	}
	return list
}

func TestHostOpens(t *testing.T) {
	ratioOff := config
	ratioOff.FailureRatio = 0
	rowOff := config
	rowOff.ConsecutiveFailures = 0
	tests := []struct {
		name   string
		config Config
		all    []Result
		want   string // reason; empty: stays closed
	}{
		{"four in a row", config, results(4, Failed), ""},
		{"five in a row", config, results(5, Failed), ReasonRow},
		{"an answer resets the row", config, results(4, Failed, 1, Alive, 4, Failed), ""},
		{"TestCase_CB_03: clients that hang up say nothing", config, results(4, Failed, 30, Excluded), ""},
		{"TestCase_CB_04, CB_06: any complete answer is a sign of life", config, results(50, Alive, 4, Failed), ""},
		{"an excluded result does not end the row", config, results(4, Failed, 1, Excluded, 1, Failed), ReasonRow},
		{"from min_calls on the row does not decide", config, results(15, Alive, 9, Failed), ""},
		{"from min_calls on the ratio decides", config, results(15, Alive, 15, Failed), ReasonRatio},
		{"so many in a row as min_calls are an outage whatever went before", config, results(200, Alive, 20, Failed), ReasonRow},
		{"one fewer is not", config, results(200, Alive, 19, Failed), ""},
		{"row off: only the ratio decides on many", rowOff, results(200, Alive, 100, Failed), ""},
		{"the 20th result is already judged by the ratio", config, results(12, Alive, 4, Failed, 1, Alive, 3, Failed), ""},
		{"ratio off: the row always decides", ratioOff, results(50, Alive, 5, Failed), ReasonRow},
		{"row off: nothing decides below min_calls", rowOff, results(19, Failed), ""},
		{"row off: the ratio decides", rowOff, results(20, Failed), ReasonRatio},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, got := NewHost("h:80", tt.config), ""
			for _, r := range tt.all {
				if e := call(t, &h, r, t0); e != nil {
					got = e.Reason
				}
			}
			if got != tt.want {
				t.Errorf("after %v: opened for %q, want %q", tt.all, got, tt.want)
			}
		})
	}
}

// heard reports one result of a shop.
func heard(h *Host, shop string, r Result, now time.Time) *Event {
	p, _ := h.Start(time.Second, now)
	return h.Report(p, r, shop, now)
}

// The same failures are an outage of the host, or the trouble of one shop: what
// others hear decides.
func TestOutageOrShop(t *testing.T) {
	tests := map[string]struct {
		before func(h *Host)
		fails  []string // shops, in turn, ten failures each
		want   *Event
	}{
		"nobody was heard of":           {nil, []string{"a"}, &Event{Scope: "host", Host: "h:80", To: Open, Reason: ReasonRow, Reach: ReachShop}},
		"calls without a shop":          {nil, []string{""}, &Event{Scope: "host", Host: "h:80", To: Open, Reason: ReasonRow, Reach: ReachAnybody}},
		"others fail too":               {nil, []string{"b", "a"}, &Event{Scope: "host", Host: "h:80", To: Open, Reason: ReasonRow, Reach: ReachShops}},
		"another is well":               {func(h *Host) { heard(h, "b", Served, t0) }, []string{"a"}, &Event{Scope: "shop", Host: "h:80", Shop: "a", To: Open, Reason: ReasonOneShop}},
		"somebody is well":              {func(h *Host) { heard(h, "", Alive, t0) }, []string{"a"}, &Event{Scope: "shop", Host: "h:80", Shop: "a", To: Open, Reason: ReasonOneShop}},
		"itself was well":               {func(h *Host) { heard(h, "a", Alive, t0) }, []string{"a"}, &Event{Scope: "host", Host: "h:80", To: Open, Reason: ReasonRow, Reach: ReachShop}},
		"another was well, then not":    {func(h *Host) { heard(h, "b", Alive, t0); heard(h, "b", Failed, at(time.Second)) }, []string{"a"}, &Event{Scope: "host", Host: "h:80", To: Open, Reason: ReasonRow, Reach: ReachShops}},
		"another was well long ago":     {func(h *Host) { heard(h, "b", Alive, t0.Add(-time.Minute)) }, []string{"a"}, &Event{Scope: "host", Host: "h:80", To: Open, Reason: ReasonRow, Reach: ReachShop}},
		"others are well, nobody's not": {func(h *Host) { heard(h, "b", Alive, t0) }, []string{""}, &Event{Scope: "host", Host: "h:80", To: Open, Reason: ReasonRow, Reach: ReachAnybody}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := NewHost("h:80", config)
			if tt.before != nil {
				tt.before(&h)
			}
			var got []Event
			for i := range 10 {
				now := at(2*time.Second + time.Duration(i))
				if e := heard(&h, tt.fails[i%len(tt.fails)], Failed, now); e != nil {
					if since := e.Outage; e.Scope == "host" && !since.Equal(e.At) {
						t.Errorf("the outage began %v, want %v", since, e.At)
					}
					e.At, e.Until, e.Outage = time.Time{}, time.Time{}, time.Time{}
					got = append(got, *e)
				}
				if h.State(now) != Closed {
					break
				}
			}
			if diff := cmp.Diff([]Event{*tt.want}, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// Where everybody fails once the shop was blamed, the host is cut off after all; and
// a shop that was well in between is blamed anew.
func TestOneShopIsBlamedOnce(t *testing.T) {
	h := NewHost("h:80", config)
	heard(&h, "b", Alive, t0)
	var got []string
	report := func(shop string, r Result, n int) {
		for range n {
			if e := heard(&h, shop, r, t0); e != nil {
				got = append(got, e.Scope+" "+e.Shop)
			}
		}
	}
	report("a", Failed, 7)
	report("a", Alive, 1)
	report("b", Alive, 1)
	report("a", Failed, 7)
	report("b", Failed, 1) // an accident: what the shop that is blamed fails is no word against the host
	if len(got) != 2 {
		t.Errorf("events = %q, want the host open", got)
	}
	report("b", Failed, 4)
	if want := []string{"shop a", "shop a", "host "}; !slices.Equal(got, want) {
		t.Errorf("events = %q, want %q", got, want)
	}
	if s := h.Status(t0); !s.Outage.Equal(t0) || s.Reach != ReachShops {
		t.Errorf("Status = %+v, want an outage of several shops since t0", s)
	}
	h.Reset(t0)
	if s := h.Status(t0); !s.Outage.IsZero() || s.Reach != ReachUnknown {
		t.Errorf("Status after a reset = %+v, want no outage", s)
	}
}

// Of two shops one is dead. The other keeps its host, but for its own failures, and
// gets it back after an outage though the dead one failed next.
func TestDeadShopBesideAnother(t *testing.T) {
	h, now := NewHost("h:80", config), t0
	heard(&h, "well", Served, now)
	for range 600 {
		now = now.Add(100 * time.Millisecond)
		heard(&h, "dead", Failed, now)
		heard(&h, "dead", Failed, now)
		r := Served
		if now.Second()%10 == 0 {
			r = Failed // an accident now and then
		}
		if now.Nanosecond() == 0 {
			heard(&h, "well", r, now)
		}
		if h.State(now) != Closed {
			t.Fatalf("%v after %v", h.Status(now), now.Sub(t0))
		}
	}
	for range 5 {
		heard(&h, "well", Failed, now)
	}
	if h.State(now) != Open {
		t.Fatal("both fail, yet the host is not cut off")
	}
	now = now.Add(2 * time.Second)
	heard(&h, "well", Served, now)
	for range 8 {
		heard(&h, "dead", Failed, now)
	}
	if h.State(now) != Closed {
		t.Errorf("%+v, want it known that another is well", h.Status(now))
	}
}

// Several shops may fail alone, as long as more succeed; where one is lucky and the
// others are not it is an outage.
func TestSeveralShopsOrAnOutage(t *testing.T) {
	for _, tt := range []struct {
		dead, well int
		open       bool
	}{{1, 1, false}, {2, 1, true}, {3, 1, true}, {2, 3, false}, {3, 5, false}, {5, 2, true}} {
		h, now, opened := NewHost("h:80", config), t0, false
		for i := 0; i < 400 && !opened; i++ {
			now = now.Add(10 * time.Millisecond)
			for range 3 { // they repeat
				heard(&h, fmt.Sprint("dead", i%tt.dead), Failed, now)
				opened = opened || h.State(now) != Closed
			}
			if now = now.Add(time.Millisecond); h.State(now) == Closed {
				heard(&h, fmt.Sprint("well", i%tt.well), Served, now)
			}
		}
		if opened != tt.open {
			t.Errorf("%d shops fail, %d do not: opened %v, want %v", tt.dead, tt.well, opened, tt.open)
		}
		if len(h.blamed) > len(h.good) {
			t.Errorf("%d shops are remembered as blamed", len(h.blamed))
		}
	}
}

// A shop that was found to fail alone goes on to do so while the others are silent; its
// failures count again once the newest word of the others is one as well.
func TestBlamedShopFailsOnAlone(t *testing.T) {
	h := NewHost("h:80", config)
	heard(&h, "b", Alive, t0)
	for i := range 100 {
		heard(&h, "a", Failed, at(time.Duration(i)*time.Second))
	}
	if s := h.Status(at(100 * time.Second)); s.State != Closed {
		t.Fatalf("Status = %+v, want closed", s)
	}
	heard(&h, "b", Failed, at(101*time.Second))
	for range 3 {
		heard(&h, "a", Failed, at(102*time.Second))
	}
	if e := heard(&h, "a", Failed, at(102*time.Second)); e == nil || e.Scope != "host" || e.Reach != ReachShops {
		t.Errorf("event = %+v, want an outage of several shops", e)
	}
}

// An outage begins when the host was cut off first, not with its last probe.
func TestOutageBeginsOnce(t *testing.T) {
	h := opened(t, config)
	heard(h, "", Failed, at(2*time.Second))
	if s := h.Status(at(3 * time.Second)); !s.Outage.Equal(t0) || !s.Since.Equal(at(2*time.Second)) {
		t.Errorf("Status = %+v, want an outage since t0", s)
	}
}

func TestWindowForgets(t *testing.T) {
	h := NewHost("h:80", config)
	for i := range 19 { // one a second: never 20 within the window
		call(t, &h, Result(1+i%2), at(time.Duration(i)*time.Second))
	}
	if s := h.Status(at(18 * time.Second)); s.Calls != 10 || s.State != Closed {
		t.Errorf("Status = %d calls, %v, want 10, closed", s.Calls, s.State)
	}
	if s := h.Status(at(time.Hour)); s.Calls != 0 || s.Failures != 0 {
		t.Errorf("Status an hour later = %d calls, %d failures, want none", s.Calls, s.Failures)
	}
}

func TestHostCycle(t *testing.T) {
	h := opened(t, config)
	if ok, next := h.Allow(at(2*time.Second - 1)); ok || !next.Equal(at(2*time.Second)) {
		t.Fatalf("Allow before the probe is due = %v, %v, want false, 2s", ok, next.Sub(t0))
	}
	now, spans := t0, []time.Duration{2, 4, 8, 8} // what each opening lasts, in seconds
	for _, span := range spans {
		now = now.Add(span * time.Second)
		if got := h.Next(now.Add(-1)); !got.Equal(now) {
			t.Fatalf("Next = %v, want %v", got.Sub(t0), now.Sub(t0))
		}
		p, e := h.Start(time.Second, now)
		if want := (Event{Scope: "host", Host: "u1.test:80", From: Open, To: HalfOpen, Reason: ReasonProbe, At: now, Outage: t0}); *e != want {
			t.Fatalf("Start = %v, want %v", *e, want)
		}
		if e := h.Report(p, Failed, "", now); e.From != HalfOpen || e.To != Open || e.Reason != ReasonProbeBad {
			t.Fatalf("Report(failed probe) = %v, want half_open to open", *e)
		}
	}
	now = now.Add(8 * time.Second)
	p, _ := h.Start(time.Second, now)
	if e := h.Report(p, Alive, "", now); e.From != HalfOpen || e.To != Closed || e.Reason != ReasonProbeOK || !e.Outage.Equal(t0) {
		t.Fatalf("Report(alive probe) = %v, want half_open to closed, the outage since %v", *e, t0)
	}
	for range 5 { // the doubling is forgotten with the closing
		call(t, h, Failed, now)
	}
	if s := h.Status(now); s.State != Open || !s.Until.Equal(now.Add(2*time.Second)) {
		t.Errorf("Status = %v until +%v, want open until +2s", s.State, s.Until.Sub(now))
	}
}

func TestCase_CB_01_ExactlyProbesInHalfOpen(t *testing.T) {
	for _, probes := range []int{0, 1, 3} {
		c := config
		c.Probes = probes
		h, now, passes := opened(t, c), at(2*time.Second), []Pass{}
		for range 100 {
			if ok, _ := h.Allow(now); ok {
				p, _ := h.Start(time.Second, now)
				passes = append(passes, p)
			}
		}
		if want := max(probes, 1); len(passes) != want {
			t.Fatalf("probes %d: %d let through, want %d", probes, len(passes), want)
		}
		h.Report(passes[0], Excluded, "", now)
		if ok, _ := h.Allow(now); !ok {
			t.Errorf("probes %d: a place given back is not free", probes)
		}
		p, e := h.Start(time.Second, now)
		if e != nil {
			t.Errorf("Start of a further probe = %v, want no change", *e)
		}
		if ok, _ := h.Allow(now); ok {
			t.Errorf("probes %d: one too many", probes)
		}
		h.Report(p, Alive, "", now)
		if got := h.State(now); got != Closed {
			t.Errorf("State = %v, want closed by the first sign of life", got)
		}
	}
}

func TestCase_CB_08_LateResultsAreIgnored(t *testing.T) {
	h := NewHost("u1.test:80", config)
	var slow []Pass
	for range 20 {
		p, _ := h.Start(5*time.Second, t0)
		slow = append(slow, p)
	}
	for range 5 {
		call(t, &h, Failed, t0)
	}
	probe, _ := h.Start(5*time.Second, at(2100*time.Millisecond))
	for i, p := range slow {
		r := Result(1 + i%2) // neither good nor bad old news counts
		if e := h.Report(p, r, "", at(2500*time.Millisecond)); e != nil {
			t.Fatalf("Report(late %v) = %v, want ignored", r, *e)
		}
	}
	if e := h.Report(probe, Alive, "", at(3100*time.Millisecond)); e == nil || e.To != Closed || !e.At.Equal(at(3100*time.Millisecond)) {
		t.Errorf("Report(probe) = %v, want closed at 3.1s", e)
	}
	if e := h.Report(probe, Failed, "", at(3100*time.Millisecond)); e != nil || h.row != 0 {
		t.Errorf("the probe reported again = %v, row %d, want ignored", e, h.row)
	}
}

func TestSilentProbe(t *testing.T) {
	h, due := opened(t, config), at(2*time.Second)
	p, _ := h.Start(15*time.Second, due)
	ends := due.Add(15 * time.Second)
	if got := h.Next(due); !got.Equal(ends) {
		t.Errorf("Next = %v, want %v", got.Sub(t0), ends.Sub(t0))
	}
	if e := h.Expire(ends.Add(-1)); e != nil {
		t.Errorf("Expire early = %v, want nothing", *e)
	}
	e := h.Expire(ends)
	if e == nil || e.To != Open || e.Reason != ReasonProbeMute || !e.Until.Equal(ends.Add(4*time.Second)) {
		t.Fatalf("Expire = %v, want open for the doubled time", e)
	}
	if e := h.Report(p, Alive, "", ends.Add(time.Second)); e != nil {
		t.Errorf("Report(after its time) = %v, want ignored", *e)
	}
	p, _ = h.Start(0, ends.Add(4*time.Second))
	if e := h.Expire(at(time.Hour)); e != nil || !h.Next(at(time.Hour)).IsZero() {
		t.Errorf("a probe without a time-out: Expire = %v, want nothing", e)
	}
	h.Report(p, Failed, "", at(time.Hour))
}

func TestDialNeverHeals(t *testing.T) {
	h := NewHost("h:443", config)
	for range 4 {
		call(t, &h, Failed, t0)
	}
	p, _ := h.Dial(t0)
	h.Report(p, Alive, "", t0)
	if s := h.Status(t0); s.Row != 4 || s.Calls != 4 {
		t.Errorf("after a good dial: row %d, calls %d, want 4, 4", s.Row, s.Calls)
	}
	p, _ = h.Dial(t0)
	if e := h.Report(p, Failed, "", t0); e == nil || e.To != Open {
		t.Fatalf("Report(failed dial) = %v, want open", e)
	}
	now := at(2 * time.Second)
	p, e := h.Dial(now)
	if e == nil || e.To != HalfOpen {
		t.Errorf("Dial when due = %v, want half-open", e)
	}
	if ok, _ := h.Allow(now); !ok {
		t.Error("a dial took the probe's place")
	}
	h.Report(p, Alive, "", now)
	if got := h.State(now); got != HalfOpen {
		t.Errorf("State after a good dial = %v, want half_open", got)
	}
	p, _ = h.Dial(now)
	if e := h.Report(p, Failed, "", now); e == nil || e.To != Open {
		t.Errorf("Report(failed dial while half-open) = %v, want open", e)
	}
}

func TestQuietHostBeginsAnew(t *testing.T) {
	h := opened(t, config)
	h.Report(first(h.Start(0, at(2*time.Second))), Failed, "", at(2*time.Second)) // now 4 s
	if h.Forgettable(at(14 * time.Second)) {
		t.Error("Forgettable within open_max after the probe was due = true, want false")
	}
	now := at(14*time.Second + 1)
	if !h.Forgettable(now) {
		t.Error("Forgettable long after the probe was due = false, want true")
	}
	e := h.Report(first(h.Start(0, now)), Failed, "", now)
	if want := now.Add(2 * time.Second); !e.Until.Equal(want) {
		t.Errorf("a failure long after the last: until +%v, want +2s", e.Until.Sub(now))
	}
}

func first(p Pass, _ *Event) Pass { return p }

func TestReset(t *testing.T) {
	h := opened(t, config)
	p, _ := h.Start(0, at(2*time.Second))
	if e := h.Reset(at(3 * time.Second)); e == nil || e.To != Closed || e.Reason != ReasonOperator {
		t.Errorf("Reset = %v, want closed by the operator", e)
	}
	if e := h.Report(p, Failed, "", at(3*time.Second)); e != nil || h.row != 0 {
		t.Errorf("Report of a probe from before = %v, row %d, want ignored", e, h.row)
	}
	call(t, h, Failed, at(3*time.Second))
	if e := h.Reset(at(4 * time.Second)); e != nil || h.row != 0 {
		t.Errorf("Reset while closed = %v, row %d, want no change and an empty row", e, h.row)
	}
}

func TestConfigureKeepsState(t *testing.T) {
	h := opened(t, config)
	c := config
	c.Open, c.OpenMax, c.Probes = 100*time.Millisecond, 500*time.Millisecond, 2
	h.Configure(c, t0)
	if s := h.Status(t0); s.State != Open || !s.Until.Equal(at(500*time.Millisecond)) {
		t.Errorf("Status = %v until %v, want open until 500ms", s.State, s.Until.Sub(t0))
	}
	now := at(500 * time.Millisecond)
	h.Start(0, now)
	if ok, _ := h.Allow(now); !ok {
		t.Error("the second of two probes is not let through")
	}
	closed := NewHost("h:80", config)
	call(t, &closed, Failed, t0)
	c.Window = time.Minute
	closed.Configure(c, t0)
	if s := closed.Status(t0); s.Row != 1 || s.Calls != 0 {
		t.Errorf("after a new window: row %d, calls %d, want 1, 0", s.Row, s.Calls)
	}
}

func TestHealthy(t *testing.T) {
	tests := []struct {
		all  []Result
		want bool
	}{
		{nil, false},
		{results(9, Alive), false},
		{results(10, Alive), true},
		{results(8, Alive, 2, Failed), true},
		{results(8, Alive, 3, Failed), false},
	}
	for _, tt := range tests {
		h := NewHost("h:80", config)
		for _, r := range tt.all {
			call(t, &h, r, t0)
		}
		if got := h.Healthy(t0); got != tt.want {
			t.Errorf("Healthy after %v = %v, want %v", tt.all, got, tt.want)
		}
		if h.Healthy(at(11 * time.Second)) {
			t.Errorf("Healthy after %v and a quiet window = true, want false", tt.all)
		}
	}
}

func TestStateNumbers(t *testing.T) {
	got := fmt.Sprint(uint8(Closed), uint8(HalfOpen), uint8(Open), " ", Closed, HalfOpen, Open, " ", Excluded, Alive, Failed)
	if diff := cmp.Diff("0 1 2 closed half_open open excluded alive failed", got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// FuzzHost drives the machine with any sequence of steps and holds what must
// hold in every state.
func FuzzHost(f *testing.F) {
	f.Add([]byte{0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 9, 0, 0, 1})
	f.Add([]byte{5, 2, 5, 2, 5, 2, 5, 2, 5, 2, 9, 9, 5, 1, 0, 0, 6})
	f.Fuzz(func(t *testing.T, steps []byte) {
		c := config
		c.Probes = 2
		h, now, passes := NewHost("h:80", c), t0, []Pass{}
		inProbe := map[Pass]bool{}
		for _, s := range steps {
			before, generation := h.state, h.generation
			var e *Event
			switch ok, next := h.Allow(now); {
			case s%10 < 3 && len(passes) > 0:
				p := passes[0]
				passes = passes[1:]
				delete(inProbe, p)
				e = h.Report(p, Result(s%3), "", now)
			case s%10 < 5 && ok:
				var p Pass
				p, e = h.Start(time.Second, now)
				passes = append(passes, p)
			case s%10 == 5 && ok:
				var p Pass
				p, e = h.Dial(now)
				passes = append(passes, p)
			case s%10 == 6:
				e = h.Expire(now)
			case !ok && !next.IsZero() && !next.After(now):
				t.Fatalf("Allow: next %v is not after now %v", next, now)
			default:
				now = now.Add(time.Duration(s) * 20 * time.Millisecond)
			}
			if (e != nil) != (h.generation != generation) || (e != nil && (e.From != before || e.To != h.state || e.From == e.To)) {
				t.Fatalf("step %d: event %v, but %v to %v", s, e, before, h.state)
			}
			if len(h.probes) > 2 || (h.state != HalfOpen && len(h.probes) > 0) {
				t.Fatalf("%d probes while %v", len(h.probes), h.state)
			}
			if tot := h.window.total(now); tot.calls < 0 || tot.failures < 0 || tot.failures > tot.calls {
				t.Fatalf("window holds %+v", tot)
			}
		}
	})
}

func BenchmarkHost(b *testing.B) {
	b.ReportAllocs()
	h := NewHost("h:80", config)
	now := t0
	for b.Loop() {
		now = now.Add(time.Millisecond)
		if ok, _ := h.Allow(now); ok {
			p, _ := h.Start(time.Second, now)
			h.Report(p, Alive, "", now)
		}
	}
}
