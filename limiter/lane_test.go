package limiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"retryproxy/breaker"
)

// line has n equal claims wait for a slot.
func (d *desk) line(n int, c Claim) (all []*Ticket) {
	d.Helper()
	for range n {
		_, ticket := d.l.Ask(d.claim(c), d.now)
		if ticket == nil {
			d.Fatalf("%+v does not wait", c)
		}
		all = append(all, ticket)
	}
	return all
}

// floor is a gate whose slots are all in use, with the grants that hold them.
type floor struct {
	*desk
	grants []Grant
}

func newFloor(t *testing.T, c Config) *floor {
	f := &floor{desk: newDesk(t, c)}
	for range c.MaxInFlight {
		f.grants = append(f.grants, f.start(Claim{}))
	}
	return f
}

// turn ends the attempt that holds a slot for longest, and returns who got it; -1:
// none of the lines.
func (f *floor) turn(lines ...[]*Ticket) (line int) {
	f.Helper()
	f.end(f.grants[0], breaker.Alive)
	f.grants = f.grants[1:]
	got := -1
	for i, l := range lines {
		for _, ticket := range l {
			if ticket != nil && !f.waits(ticket) && ticket.Answer().Refused == "" && !slices.Contains(f.grants, ticket.Answer().Grant) {
				if ticket.Answer().Grant.gate.find(ticket.Answer().Grant) == nil {
					continue // it came and went
				}
				if got >= 0 {
					f.Fatal("one slot went to two")
				}
				f.grants, got = append(f.grants, ticket.Answer().Grant), i
			}
		}
	}
	return got
}

// While both lanes want slots, the backlog gets its share and no more, however few
// slots there are; alone, either has them all.
func TestLanesShareTheSlots(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 40} {
		t.Run(fmt.Sprint(n, " slots"), func(t *testing.T) {
			f := newFloor(t, slots(n))
			fresh, late := f.line(400, Claim{}), f.line(400, Claim{Retry: true, Retries: 1})
			count := [lanes]int{}
			most := 0
			for i := range 400 {
				if i == 40 {
					count = [lanes]int{} // the first come into a floor of fresh calls only
				}
				count[f.turn(fresh, late)]++
				most = max(most, f.l.Hosts(f.now)[0].Backlog)
			}
			if share := float64(count[laneBacklog]) / 360; share < 0.26 || share > 0.31 {
				t.Errorf("the backlog had %.2f of the starts, want about 0.3", share)
			}
			if want := max(1, n*3/10); most > want {
				t.Errorf("the backlog held %d slots, want at most %d", most, want)
			}
		})
	}
}

func TestFreePlacesGoToWhoeverWaits(t *testing.T) {
	f := newFloor(t, slots(10))
	late := f.line(30, Claim{Retry: true})
	for range 20 {
		if f.turn(late) != 0 {
			t.Fatal("a free place was kept from the backlog")
		}
	}
	if v := f.l.Hosts(f.now)[0]; v.Backlog != 10 || v.InFlight != 10 || v.Late != 10 {
		t.Errorf("%+v, want all places held by the backlog", v)
	}
	fresh := f.line(7, Claim{})
	for i := range 7 { // it gives back what it holds beyond its share
		if f.turn(fresh, late) != 0 {
			t.Fatalf("place %d did not go to a fresh call", i)
		}
	}
	if v := f.l.Hosts(f.now)[0]; v.Backlog != 3 {
		t.Errorf("the backlog holds %d, want its 3", v.Backlog)
	}
}

// What an outage left has a smaller share, until it is worked off.
func TestBacklogShareAfterAnOutage(t *testing.T) {
	d := newDesk(t, slots(10))
	d.fail(host)
	late := d.line(41, Claim{})
	d.until(at(2 * time.Second)) // they have waited for a second: they are the backlog
	probe := d.granted("probe", late[0])
	if v := d.l.Hosts(d.now)[0]; v.Late != 40 || v.Capacity != 1 || v.Breaker.State != breaker.HalfOpen {
		t.Errorf("%+v, want 40 in the backlog", v)
	}
	d.end(probe.Grant, breaker.Alive)
	f := &floor{desk: d}
	for _, x := range late[1:11] {
		f.grants = append(f.grants, d.granted("freed", x).Grant)
	}
	fresh := d.line(300, Claim{})
	count := [lanes]int{}
	for i := range 120 {
		lane := f.turn(fresh, late[11:])
		if i >= 20 {
			count[lane]++
		}
	}
	if count[laneBacklog] != 10 {
		t.Errorf("the backlog had %d of 100 starts, want 10", count[laneBacklog])
	}
	if o := d.l.Hosts(d.now)[0].Outage; o == nil || !o.Since.Equal(t0) || o.Reach != "unlabelled" {
		t.Errorf("Outage = %+v, want one since t0", o)
	}
	for range 400 {
		if len(f.grants) > 0 {
			f.turn(fresh, late[11:])
		}
	}
	for _, g := range f.grants {
		d.end(g, breaker.Alive)
	}
	if v := d.l.Hosts(d.now)[0]; v.Outage != nil || v.Waiting != 0 {
		t.Errorf("%+v, want the outage over with its backlog", v)
	}
}

// Probes go by age, whichever their lane: the backlog does not owe them afterwards.
func TestProbesAreNoDebtOfTheBacklog(t *testing.T) {
	c := slots(1)
	c.Breaker.OpenMax = c.Breaker.Open
	d := newDesk(t, c)
	d.fail(host)
	late := d.line(60, Claim{Retry: true, Arrived: t0.Add(-time.Hour)})
	for i := range 10 { // an outage in which fresh calls keep coming
		d.until(d.now.Add(1500 * time.Millisecond))
		left := d.line(1, Claim{})
		d.until(d.now.Add(500 * time.Millisecond))
		d.end(d.granted("probe", late[i]).Grant, breaker.Failed)
		d.l.Leave(left[0], d.now)
	}
	d.until(d.now.Add(2 * time.Second))
	d.end(d.granted("probe", late[10]).Grant, breaker.Alive)
	f := &floor{desk: d, grants: []Grant{d.granted("freed", late[11]).Grant}}
	fresh, count := d.line(60, Claim{}), [lanes]int{}
	for range 40 {
		count[f.turn(fresh, late[12:])]++
	}
	if got := count[laneBacklog]; got < 3 || got > 5 {
		t.Errorf("the backlog had %d of 40 starts, want its tenth", got)
	}
}

// Shops take turns within a lane, however many calls each has waiting.
func TestShopsTakeTurns(t *testing.T) {
	for name, retry := range map[string]bool{"fresh": false, "backlog": true} {
		t.Run(name, func(t *testing.T) {
			f := newFloor(t, slots(1))
			var lines [][]*Ticket
			for i, n := range []int{50, 3, 10} {
				lines = append(lines, f.line(n, Claim{Retry: retry, Shop: fmt.Sprint(i), TaskType: fmt.Sprint(i % 2)}))
			}
			var got []int
			for range 63 {
				f.checkPlaces(lines)
				got = append(got, f.turn(lines...))
			}
			want := []int{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2}
			for len(want) < 63 {
				want = append(want, 0)
			}
			if !slices.Equal(got, want) {
				t.Errorf("turns %v, want %v", got, want)
			}
		})
	}
}

// A shop whose only call comes back at once has had its turn: it does not pass over a
// shop that has many waiting.
func TestShopsThatComeBackTakeTurns(t *testing.T) {
	f := newFloor(t, slots(1))
	many := f.line(30, Claim{Shop: "many"})
	var back [2][]*Ticket
	count := [3]int{}
	for range 30 {
		for i := range back {
			if n := len(back[i]); n == 0 || !f.waits(back[i][n-1]) {
				back[i] = append(back[i], f.line(1, Claim{Shop: fmt.Sprint(i), Arrived: f.now.Add(-time.Minute)})...)
			}
		}
		f.checkPlaces([][]*Ticket{many, back[0], back[1]})
		count[f.turn(many, back[0], back[1])]++
	}
	if want := [3]int{10, 10, 10}; count != want {
		t.Errorf("turns %v, want %v", count, want)
	}
}

// checkPlaces: the places that are shown are a count from 1.
func (f *floor) checkPlaces(lines [][]*Ticket) {
	f.Helper()
	var places, want []int
	for _, l := range lines {
		for _, ticket := range l {
			if f.waits(ticket) {
				places = append(places, f.l.View(ticket, f.now).Place)
				want = append(want, len(want)+1)
			}
		}
	}
	slices.Sort(places)
	if !slices.Equal(places, want) {
		f.Fatalf("places %v, want each once", places)
	}
}

// The place that is shown is the place: whoever has place 1 is next.
func TestPlacesAreTrue(t *testing.T) {
	for seed := range uint64(30) {
		dice := rand.New(rand.NewPCG(seed, 7))
		c := slots(1)
		f := newFloor(t, c)
		line := make([]*Ticket, 0, 60)
		add := func(n int) {
			for range n {
				_, ticket := f.l.Ask(f.claim(Claim{
					Late: true, Shop: fmt.Sprint(dice.IntN(4)), Priority: dice.IntN(2),
					Arrived: f.now.Add(-time.Duration(dice.IntN(50)) * time.Second), MaxWait: time.Duration(10+dice.IntN(20)) * time.Second,
				}), f.now)
				line = append(line, ticket)
			}
		}
		add(40)
		for len(line) > 0 {
			if dice.IntN(4) == 0 && len(line) < 60 && f.now.Before(at(5*time.Second)) {
				add(3)
			}
			next := slices.IndexFunc(line, func(x *Ticket) bool { return f.l.View(x, f.now).Place == 1 })
			f.checkPlaces([][]*Ticket{line})
			f.until(f.now.Add(50 * time.Millisecond))
			line = slices.DeleteFunc(line, func(x *Ticket) bool { return !f.waits(x) && x.Answer().Refused != "" })
			if next = slices.IndexFunc(line, func(x *Ticket) bool { return f.l.View(x, f.now).Place == 1 }); next < 0 {
				break
			}
			want := line[next]
			if f.turn(line) != 0 || f.waits(want) {
				t.Fatalf("seed %d: who had place 1 was not next", seed)
			}
			line = slices.Delete(line, next, next+1)
		}
	}
}

// After half of max_wait age beats priority, so that nobody starves.
func TestAgeBeatsPriority(t *testing.T) {
	f := newFloor(t, slots(1))
	old := f.line(2, Claim{Priority: 9})
	f.until(at(14 * time.Second))
	urgent := f.line(5, Claim{Priority: 1})
	if f.turn(old, urgent) != 1 {
		t.Error("before half of max_wait priority decides")
	}
	f.until(at(15 * time.Second))
	for i := range 2 {
		if f.turn(old, urgent) != 0 {
			t.Errorf("turn %d after half of max_wait went to the younger", i)
		}
	}
	if f.turn(old, urgent) != 1 {
		t.Error("nobody is old any more, yet the urgent are not next")
	}
}

// Only while a gate is below its full capacity does waiting put a call into the backlog.
func TestWaitingAtAFullGateIsNoBacklog(t *testing.T) {
	f := newFloor(t, slots(1))
	f.line(3, Claim{})
	f.until(at(10 * time.Second))
	if v := f.l.Hosts(f.now)[0]; v.Late != 0 || v.Waiting != 3 {
		t.Errorf("%+v, want three fresh calls", v)
	}
}

// A call that hangs up leaves no hole, wherever it stands.
func TestCancellationLeavesNoHole(t *testing.T) {
	f := newFloor(t, slots(1))
	a, b := f.line(20, Claim{Late: true, Shop: "a"}), f.line(20, Claim{Late: true, Shop: "b"})
	for i := range 15 {
		f.l.Leave(a[i], f.now)
	}
	f.checkPlaces([][]*Ticket{a, b})
	var got []int
	for range 10 {
		got = append(got, f.turn(a, b))
	}
	count := 0
	for _, line := range got {
		count += line
	}
	if count != 5 {
		t.Errorf("turns %v, want the shops by turns", got)
	}
}

// A slot given back while nobody waits is there for the next one, whichever lane.
func TestNobodyIsKeptFromAFreeSlot(t *testing.T) {
	f := newFloor(t, slots(2))
	f.end(f.grants[0], breaker.Alive)
	f.start(Claim{Retry: true})
	f.end(f.grants[1], breaker.Alive)
	f.start(Claim{Retry: true})
	if v := f.l.Hosts(f.now)[0]; v.Backlog != 2 {
		t.Errorf("%+v, want both held by retries", v)
	}
}
