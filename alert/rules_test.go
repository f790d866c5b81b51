package alert

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// start is on a full hour, so that hours and slots are easy to count.
var start = time.Date(2026, 3, 4, 5, 0, 0, 0, time.UTC)

// script drives rules at given times.
type script struct {
	t     *testing.T
	rules rules
	now   time.Time
	said  []string
	all   []Message
}

func newScript(t *testing.T, list ...Rule) *script {
	s := &script{t: t, now: start}
	s.rules.configure(list, s.now)
	return s
}

// take notes what was said: at which time, by which rule, in which state.
func (s *script) take(list []Message) {
	for i := range list {
		m := &list[i]
		s.all = append(s.all, *m)
		s.said = append(s.said, fmt.Sprintf("%s %s %s %s", short(s.now.Sub(start)), m.Rule, m.State, key(&m.Group)))
	}
}

func key(l *Labels) string {
	k := strings.Trim(strings.Join([]string{l.Scope, l.Host, l.Reason, l.TaskType, l.Shop}, "/"), "/")
	if l.Others {
		k = "others"
	}
	return k
}

func (s *script) event(e event) { s.take(s.rules.event(&e, s.now)) }

func (s *script) tick(m Measured) { s.take(s.rules.tick(&m, s.now)) }

// pass lets time go by, with a look every five seconds as Run does.
func (s *script) pass(d time.Duration, m Measured) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(min(tickEvery, end.Sub(s.now)))
		s.tick(m)
	}
}

// want compares what was said so far, and forgets it.
func (s *script) want(lines ...string) {
	s.t.Helper()
	if diff := cmp.Diff(lines, s.said); diff != "" {
		s.t.Errorf("said (-want +got):\n%s", diff)
	}
	s.said = nil
}

// letter is a dead letter of a shop.
func letter(shop string) event {
	return event{kind: DeadLetters, callID: "call-" + shop, labels: Labels{Host: "a.test:443", Reason: "attempts_exhausted", TaskType: "ship", Shop: shop}}
}

func counting(name string) Rule {
	return Rule{Name: name, On: DeadLetters, By: []string{"host", "reason", "task_type"}, Count: 3, Within: 10 * time.Minute, Quiet: 30 * time.Minute, To: []string{"ops"}}
}

const shipGroup = "a.test:443/attempts_exhausted/ship"

func TestCountFiresAtItsThresholdAndEndsWhenNoneCome(t *testing.T) {
	s := newScript(t, counting("letters"))
	s.event(letter("1"))
	s.event(letter("2"))
	s.want()
	s.pass(time.Minute, Measured{})
	s.event(letter("3"))
	s.want("1m letters firing " + shipGroup)
	if m := s.all[0]; m.Count != 3 || m.Total != 3 || !m.Since.Equal(start) || m.What != "3 dead letters in 10m" || m.Call != "call-3" {
		t.Errorf("message = %+v, want three since the start", m)
	}
	s.pass(10*time.Minute-tickEvery, Measured{})
	s.want()
	s.pass(tickEvery, Measured{})
	s.want("11m letters recovered " + shipGroup)
	if m := s.all[1]; m.What != "no new dead letters for 10m, after 3" || len(m.Do) > 0 {
		t.Errorf("message = %+v, want how many there were", m)
	}
	s.pass(2*time.Hour, Measured{})
	s.want()
	if n := len(s.rules.books[0].groups); n != 0 {
		t.Errorf("%d groups are kept for ever, want none", n)
	}
}

func TestOldEventsDoNotCount(t *testing.T) {
	s := newScript(t, counting("letters"))
	for range 20 {
		s.event(letter("1"))
		s.pass(6*time.Minute, Measured{}) // two in ten minutes
	}
	s.want()
}

func TestQuietRemindsAndSaysWhatCameMeanwhile(t *testing.T) {
	s := newScript(t, counting("letters"))
	for range 3 {
		s.event(letter("1"))
	}
	s.want("0s letters firing " + shipGroup)
	for range 10 { // one each five minutes: it goes on
		s.pass(5*time.Minute, Measured{})
		s.event(letter("2"))
	}
	s.want("30m letters still " + shipGroup)
	if m := s.all[1]; m.What != "5 dead letters more, 8 since it began" {
		t.Errorf("reminder = %q, want what came meanwhile", m.What)
	}
	s.pass(15*time.Minute, Measured{})
	s.want("1h letters recovered " + shipGroup) // the reminder that is due at that moment falls away
}

func TestGroupsAndMatch(t *testing.T) {
	r := counting("one")
	r.Count, r.Host, r.Reason = 1, []string{"*.test"}, []string{"attempts_*"}
	byShop := counting("shops")
	byShop.Count, byShop.By, byShop.Shop = 1, []string{"shop"}, []string{"*"}
	s := newScript(t, r, byShop)
	e := letter("7")
	s.event(e)
	e.labels.TaskType = "upload"
	s.event(e)
	e.labels.Host = "b.example:443"
	s.event(e)
	e.labels = Labels{Host: "c.test:80", Reason: "manual_review"}
	s.event(e)
	e.kind = Reasons
	s.event(e)
	s.want("0s one firing "+shipGroup, "0s shops firing 7", "0s one firing a.test:443/attempts_exhausted/upload")
}

func TestGroupsAreBounded(t *testing.T) {
	r := counting("letters")
	r.Count, r.By = 1, []string{"shop"}
	s := newScript(t, r)
	for i := range 3 * mostGroups {
		s.event(letter(fmt.Sprint(i)))
	}
	if n := len(s.rules.books[0].groups); n != mostGroups+1 {
		t.Errorf("%d groups, want %d and one for all others", n, mostGroups)
	}
	if n := len(s.said); n != mostGroups+1 || !strings.HasSuffix(s.said[n-1], "others") {
		t.Errorf("%d messages, the last %q, want one for all others", n, s.said[n-1])
	}
}

func TestUsual(t *testing.T) {
	r := counting("spike")
	r.Factor, r.Count, r.Within = 3, 5, time.Hour
	s := newScript(t, r)
	hour := func(n int) {
		for range n {
			s.event(letter("1"))
		}
		s.pass(time.Hour, Measured{})
	}
	for range leastHours - 1 {
		hour(100) // whatever it is: nobody knows yet what is usual
	}
	s.pass(time.Hour-time.Second, Measured{})
	for range 100 {
		s.event(letter("1"))
	}
	s.want()
	s = newScript(t, r)
	for range 24 {
		hour(10)
	}
	hour(29)
	s.want()
	for range 40 {
		s.event(letter("1"))
	}
	s.want("25h spike firing " + shipGroup)
	if m := s.all[0]; !strings.Contains(m.What, "usually 11") {
		t.Errorf("message = %q, want the usual", m.What)
	}
	quiet := newScript(t, r) // nothing ever happens: count decides
	quiet.pass(7*time.Hour, Measured{})
	for range 4 {
		quiet.event(letter("1"))
	}
	quiet.want()
	quiet.event(letter("1"))
	quiet.want("7h spike firing " + shipGroup)
}

// What comes seldom is counted to the end of its hour, or nothing would be usual.
func TestUsualOfAGroupThatRests(t *testing.T) {
	r := counting("spike")
	r.Factor, r.Count = 10, 5
	s := newScript(t, r)
	for range leastHours + 4 {
		for range 20 { // in ten minutes a third of ten times the usual
			s.event(letter("1"))
		}
		s.pass(time.Hour, Measured{})
	}
	s.want()
}

func TestUsualIsTheMeanOfADayThenFollows(t *testing.T) {
	var u usual
	for h := range 24 {
		for range h % 3 { // 0 1 2
			u.add(h)
		}
	}
	if m := u.perHour(24); m < 0.999 || m > 1.001 {
		t.Errorf("mean of a day = %v, want 1", m)
	}
	var gap usual
	gap.add(0)
	gap.add(0)
	if a := gap.perHour(4); a != 0.5 {
		t.Errorf("two in the first of four hours = %v an hour, want 0.5", a)
	}
	for h := 24; h < 24*7; h++ {
		for range 10 {
			u.add(h)
		}
	}
	if m := u.perHour(24 * 7); m < 9.9 || m > 10 {
		t.Errorf("mean after six days of 10 = %v, want nearly 10", m)
	}
	if m := u.perHour(24 * 7 * 1000); m > 1e-9 {
		t.Errorf("mean after years of nothing = %v, want 0", m)
	}
}

func breakerRule() Rule {
	return Rule{Name: "cut", On: Breakers, By: []string{"host", "shop"}, KeepFiringFor: time.Minute, Quiet: 30 * time.Minute}
}

func opens(scope, host, shop string) event {
	return event{kind: Breakers, detail: "consecutive_failures", labels: Labels{Scope: scope, Host: host, Shop: shop}}
}

func closes(scope, host, shop string) event {
	e := opens(scope, host, shop)
	e.over = true
	return e
}

func TestBreakerOpensAndCloses(t *testing.T) {
	s := newScript(t, breakerRule())
	open := Measured{Open: []Cut{{Labels: Labels{Scope: "host", Host: "a.test:443"}}}}
	s.event(opens("host", "a.test:443", ""))
	s.event(opens("host", "a.test:443", "")) // a probe failed
	s.want("0s cut firing host/a.test:443")
	s.pass(5*time.Minute, open)
	s.event(closes("host", "a.test:443", ""))
	s.pass(time.Minute-tickEvery, Measured{})
	s.want()
	s.pass(tickEvery, Measured{})
	s.want("6m cut recovered host/a.test:443")
	if m := s.all[1].What; m != "the host is reached again, after 5m" {
		t.Errorf("recovery = %q, want how long it lasted", m)
	}
	s.event(opens("shop", "a.test:443", "17"))
	s.event(opens("egress", "proxy-a (10.0.0.1:1080)", ""))
	s.want("6m cut firing shop/a.test:443///17", "6m cut firing egress/proxy-a (10.0.0.1:1080)")
}

// What flaps is told less and less often, and the last word is always true.
func TestBreakersBeyondTheGroups(t *testing.T) {
	s := newScript(t, breakerRule())
	for i := range mostGroups + 1 {
		s.event(opens("host", fmt.Sprintf("h%d.test:443", i), ""))
	}
	if m := s.all[len(s.all)-1]; !m.Group.Others || m.What != "a host, shop or egress proxy is cut off: only failures come back" {
		t.Errorf("message = %+v, want a sentence about any", m)
	}
}

func TestBreakerThatFlaps(t *testing.T) {
	s := newScript(t, breakerRule())
	open := Measured{Open: []Cut{{Labels: Labels{Scope: "host", Host: "a.test:443"}}}}
	for s.now.Sub(start) < 2*time.Hour {
		s.event(opens("host", "a.test:443", ""))
		s.pass(30*time.Second, open)
		s.event(closes("host", "a.test:443", ""))
		s.pass(90*time.Second, Measured{})
	}
	told := 0
	for _, line := range s.said {
		if strings.Contains(line, "firing") {
			told++
		}
	}
	if told > 2 {
		t.Errorf("%d alarms for a breaker that opens every two minutes, want at most 2: %q", told, s.said)
	}
	s.pass(time.Hour, Measured{})
	if last := s.said[len(s.said)-1]; !strings.Contains(last, "recovered") {
		t.Errorf("the last word is %q, though it is over", last)
	}
	s.said = nil
	s.event(opens("host", "a.test:443", ""))
	if len(s.said) != 1 {
		t.Errorf("it is back after an hour, and nobody was told: %q", s.said)
	}
}

func TestBreakerMustLast(t *testing.T) {
	r := breakerRule()
	r.For = time.Minute
	s := newScript(t, r)
	open := Measured{Open: []Cut{{Labels: Labels{Scope: "host", Host: "a.test:443"}}}}
	s.event(opens("host", "a.test:443", ""))
	s.pass(30*time.Second, open)
	s.event(closes("host", "a.test:443", ""))
	s.event(opens("host", "a.test:443", ""))
	s.pass(time.Minute-tickEvery, open)
	s.want()
	s.pass(tickEvery, open)
	s.want("1m30s cut firing host/a.test:443")
}

// A breaker that was forgotten, or that was open before the rule was.
func TestBreakersAreReconciled(t *testing.T) {
	s := newScript(t, breakerRule())
	s.tick(Measured{Open: []Cut{{Labels: Labels{Scope: "host", Host: "a.test:443"}}}})
	s.want("0s cut firing host/a.test:443")
	s.pass(time.Minute+tickEvery, Measured{})
	s.want("1m5s cut recovered host/a.test:443")
}

// An open breaker that nobody calls is not told again and again.
func TestBreakerWithoutTrafficIsNotRepeated(t *testing.T) {
	s := newScript(t, breakerRule())
	open := Measured{Open: []Cut{{Labels: Labels{Scope: "host", Host: "a.test:443"}}}}
	s.event(opens("host", "a.test:443", ""))
	s.want("0s cut firing host/a.test:443")
	s.pass(5*time.Hour, open)
	s.want()
	s.event(opens("host", "a.test:443", ""))
	s.want("5h cut still host/a.test:443")
}

func TestParked(t *testing.T) {
	r := Rule{Name: "parked", On: Parked, OlderThan: 10 * time.Minute, Count: 100, KeepFiringFor: time.Minute, Quiet: time.Hour}
	s := newScript(t, r)
	few := Measured{Parked: 3, OldestParked: start}
	s.pass(10*time.Minute-tickEvery, few)
	s.want()
	s.pass(tickEvery, few)
	s.want("10m parked firing ")
	if m := s.all[0]; m.What != "3 calls are parked, the oldest for 10m" || m.Count != 3 {
		t.Errorf("message = %+v, want number and age", m)
	}
	s.pass(time.Hour, few)
	s.want("1h10m parked still ")
	s.pass(time.Minute+tickEvery, Measured{Parked: 3, OldestParked: s.now})
	s.want("1h11m5s parked recovered ")
	s.pass(tickEvery, Measured{Parked: 100, OldestParked: s.now})
	if len(s.said) != 1 {
		t.Errorf("100 parked calls: %q, want an alarm", s.said)
	}
}

func TestStore(t *testing.T) {
	s := newScript(t, Rule{Name: "store", On: StoreFails, KeepFiringFor: time.Minute, Quiet: time.Hour})
	bad := func(reason string) event {
		return event{kind: StoreFails, detail: "disk is full", labels: Labels{Reason: reason}}
	}
	works := func(reason string) event {
		return event{kind: StoreFails, over: true, labels: Labels{Reason: reason}}
	}
	s.event(bad("store_full"))
	s.event(bad("store_unavailable"))
	s.event(works("store_unavailable"))
	s.want("0s store firing store_full", "0s store firing store_unavailable")
	s.pass(2*time.Minute, Measured{})
	s.want("1m store recovered store_unavailable")
	s.event(works(""))
	s.pass(time.Minute+tickEvery, Measured{})
	s.want("3m store recovered store_full")
}

func TestRetention(t *testing.T) {
	r := Rule{Name: "going", On: Retention, Before: time.Hour, Quiet: 24 * time.Hour}
	s := newScript(t, r)
	s.tick(Measured{Expiring: map[time.Duration]Expiring{time.Minute: {Letters: 9}}})
	s.want()
	soon := Measured{Expiring: map[time.Duration]Expiring{time.Hour: {Letters: 2, First: start.Add(30 * time.Minute)}}}
	s.tick(soon)
	s.want("0s going firing ")
	if m := s.all[0]; m.What != "2 dead letters will be removed within 1h" || m.Detail != "the first goes in 30m" {
		t.Errorf("message = %+v, want how many and when", m)
	}
	s.pass(24*time.Hour, soon)
	s.want("24h going still ")
	s.tick(Measured{})
	s.want("24h going recovered ")
}

func TestHeartbeat(t *testing.T) {
	s := newScript(t, Rule{Name: "beat", On: Heartbeat, Every: time.Hour}, counting("letters"))
	for range 3 {
		s.event(letter("1"))
	}
	s.said = nil
	s.tick(Measured{})
	s.pass(time.Hour-tickEvery, Measured{})
	s.said = s.said[:1] // the letters recover meanwhile
	s.want("0s beat alive ")
	s.pass(tickEvery, Measured{})
	s.want("1h beat alive ")
	if a, b := s.all[1].headline(), s.all[len(s.all)-1].headline(); !strings.Contains(a, "1 alert is firing") || !strings.Contains(b, "nothing is firing") {
		t.Errorf("heartbeats say %q and %q, want how many alerts are firing", a, b)
	}
}

// A reload keeps what an unchanged rule knows, also when it tells somebody else.
func TestReloadKeepsWhatIsKnown(t *testing.T) {
	one, two := counting("one"), counting("two")
	s := newScript(t, one, two)
	s.event(letter("1"))
	s.event(letter("1"))
	one.To, two.Count = []string{"night"}, 4
	s.rules.configure([]Rule{two, one}, s.now)
	s.event(letter("1"))
	s.want("0s one firing " + shipGroup)
	if to := s.all[0].To; len(to) != 1 || to[0] != "night" {
		t.Errorf("told to %q, want the new one", to)
	}
}

func TestClockThatGoesBack(t *testing.T) {
	s := newScript(t, counting("letters"))
	s.event(letter("1"))
	s.now = s.now.Add(-time.Hour)
	s.event(letter("1"))
	s.event(letter("1"))
	s.want("0s letters firing " + shipGroup)
	s.now = start
	s.pass(time.Hour, Measured{})
	if len(s.said) != 1 || !strings.Contains(s.said[0], "recovered") {
		t.Errorf("said %q, want the recovery", s.said)
	}
}

// That no more are given up does not mean that what was is settled.
func TestRecoveryNamesLettersThatWait(t *testing.T) {
	for letters, want := range map[int]string{0: "no new dead letters for 10m, after 3", 1: "no new dead letters for 10m, after 3; 1 letter still waits to be settled", 14: "no new dead letters for 10m, after 3; 14 letters still wait to be settled"} {
		s := newScript(t, counting("letters"))
		for _, shop := range []string{"1", "2", "3"} {
			s.event(letter(shop))
		}
		s.pass(10*time.Minute+tickEvery, Measured{Letters: letters})
		m := s.all[len(s.all)-1]
		if m.State != Recovered || m.What != want || slices.Contains(m.Do, "retryproxy deadletters ls") != (letters > 0) {
			t.Errorf("%d letters: %+v, want %q", letters, m, want)
		}
	}
}

func TestParkedNamesItsCommand(t *testing.T) {
	s := newScript(t, Rule{Name: "parked", On: Parked, Count: 1, Quiet: time.Hour})
	s.pass(tickEvery, Measured{Parked: 2})
	if len(s.all) != 1 || !slices.Contains(s.all[0].Do, "retryproxy calls -state parked") {
		t.Errorf("messages = %+v, want one with the command that lists parked calls", s.all)
	}
}

func TestAdviceNamesCommands(t *testing.T) {
	r := Rule{Name: "auth", On: Reasons, Reason: []string{"auth_expired"}, By: []string{"host", "reason"}, Count: 1, Within: time.Minute, Quiet: time.Hour}
	s := newScript(t, counting("letters"), r)
	for range 3 {
		s.event(letter("o'ne two"))
	}
	s.event(event{kind: Reasons, callID: "c9", labels: Labels{Host: "a.test:443", Reason: "auth_expired", Shop: "17"}})
	want := [][]string{
		{"retryproxy deadletters ls -reason attempts_exhausted -host a.test:443 -task-type ship", "retryproxy why call-o'ne two"},
		{"log the shop in again: its token is no longer valid", "retryproxy calls -host a.test:443 -shop 17", "retryproxy why c9"},
	}
	for i := range want {
		if diff := cmp.Diff(want[i], s.all[i].Do); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.all[i].Rule, diff)
		}
	}
	if got := quote("o'ne two;rm -rf"); got != "'one two;rm -rf'" {
		t.Errorf("quote = %s, want one word", got)
	}
}
