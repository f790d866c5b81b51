package breaker

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var shopConfig = ShopConfig{IdenticalFailures: 3, ProbeEvery: 30 * time.Second}

func trip(s *Shops, shop, host string) (last *Event) {
	for range shopConfig.IdenticalFailures {
		last = s.Report(shop, host, "status_401", false, t0)
	}
	return last
}

func TestShopTrips(t *testing.T) {
	tests := []struct {
		name string
		ends []string // reasons; "ok": success
		want bool     // may retry
	}{
		{"two alike", []string{"status_401", "status_401"}, true},
		{"three alike", []string{"status_401", "status_401", "status_401"}, false},
		{"another reason begins anew", []string{"status_401", "status_401", "status_403", "status_401"}, true},
		{"a success begins anew", []string{"status_401", "status_401", "ok", "status_401"}, true},
		{"three of the second kind", []string{"status_401", "status_403", "status_403", "status_403"}, false},
		{"any success closes it", []string{"status_401", "status_401", "status_401", "ok"}, true},
		{"tripped stays tripped", []string{"status_401", "status_401", "status_401", "status_503"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := NewShops(shopConfig)
			for _, e := range tt.ends {
				s.Report("s17", "h:443", e, e == "ok", t0)
			}
			if got, _ := s.MayRetry("s17", "h:443", t0); got != tt.want {
				t.Errorf("MayRetry after %v = %v, want %v", tt.ends, got, tt.want)
			}
			for _, other := range [][2]string{{"s18", "h:443"}, {"s17", "g:443"}} {
				if ok, _ := s.MayRetry(other[0], other[1], t0); !ok {
					t.Errorf("MayRetry(%v) = false, want true: another breaker", other)
				}
			}
		})
	}
}

func TestShopProbesOnceEach(t *testing.T) {
	s := NewShops(shopConfig)
	want := Event{Scope: "shop", Host: "h:443", Shop: "s17", From: Closed, To: Open, Reason: "status_401", At: t0, Until: at(30 * time.Second)}
	if got := trip(s, "s17", "h:443"); got == nil || *got != want {
		t.Fatalf("Report = %v, want %v", got, want)
	}
	allowed := 0
	for d := time.Duration(0); d < 5*time.Minute; d += time.Second {
		ok, next := s.MayRetry("s17", "h:443", at(d))
		if ok {
			allowed++
		} else if !next.After(at(d)) || next.Sub(at(d)) > 30*time.Second {
			t.Fatalf("MayRetry at %v: next %v", d, next.Sub(t0))
		}
	}
	if allowed != 9 { // at 30, 60 … 270 s
		t.Errorf("%d retries in 5 minutes, want 9", allowed)
	}
}

func TestShopCloses(t *testing.T) {
	s := NewShops(shopConfig)
	for _, shop := range []string{"b", "a", "c"} {
		trip(s, shop, "h:443")
	}
	trip(s, "a", "g:443")
	s.Report("d", "h:443", "status_401", false, t0)
	if diff := cmp.Diff([]ShopStatus{
		{"a", "g:443", "status_401", 3, t0, at(30 * time.Second)},
		{"a", "h:443", "status_401", 3, t0, at(30 * time.Second)},
		{"b", "h:443", "status_401", 3, t0, at(30 * time.Second)},
		{"c", "h:443", "status_401", 3, t0, at(30 * time.Second)},
	}, s.Tripped()); diff != "" {
		t.Errorf("Tripped (-want +got):\n%s", diff)
	}
	if e := s.Reset("b", "h:443", t0); e == nil || e.To != Closed || e.Reason != ReasonOperator {
		t.Errorf("Reset = %v, want closed", e)
	}
	if e := s.Reset("b", "h:443", t0); e != nil {
		t.Errorf("Reset again = %v, want nothing", *e)
	}
	if got := s.hostClosed("h:443", t0); len(got) != 2 || got[0].Reason != ReasonHostClosed {
		t.Errorf("hostClosed = %d events, want those of a and c", len(got))
	}
	if got := s.Tripped(); len(got) != 1 || got[0].Host != "g:443" {
		t.Errorf("Tripped = %v, want the other host's", got)
	}
	s.Report("d", "h:443", "status_401", false, t0)
	s.Report("d", "h:443", "status_401", false, t0)
	if ok, _ := s.MayRetry("d", "h:443", t0); !ok {
		t.Error("the row from before the host recovered still counts")
	}
}

func TestShopsWithoutALabelOrSwitchedOff(t *testing.T) {
	s := NewShops(shopConfig)
	if e := trip(s, "", "h:443"); e != nil {
		t.Errorf("without a shop: %v, want nothing", *e)
	}
	s.Configure(ShopConfig{})
	if e := trip(s, "s17", "h:443"); e != nil {
		t.Errorf("identical_failures 0: %v, want nothing", *e)
	}
}

func TestShopsAreBounded(t *testing.T) {
	s := NewShops(shopConfig)
	for i := range 3 * shopEntries {
		s.Report(fmt.Sprint(i), "h:443", "status_401", false, t0)
	}
	if got := s.entries.Len(); got != shopEntries {
		t.Errorf("%d entries, want %d", got, shopEntries)
	}
}

func TestShopsInParallel(t *testing.T) {
	s := NewShops(shopConfig)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 500 {
				now := at(time.Duration(j) * time.Second)
				s.Report(fmt.Sprint(j%5), "h:443", "status_401", j%17 == 0, now)
				s.MayRetry(fmt.Sprint(i%5), "h:443", now)
				if j%50 == 0 {
					s.hostClosed("h:443", now)
					s.Tripped()
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkShopsOfAHealthyHost(b *testing.B) {
	b.ReportAllocs()
	s := NewShops(shopConfig)
	for b.Loop() {
		s.Report("s17", "h:443", "", true, t0)
	}
}

// A shop that the host's gate found to fail alone is tripped at once, and only once.
func TestShopsFollowTheBlameOfAHost(t *testing.T) {
	blame := Event{Scope: "shop", Host: "h:80", Shop: "a", From: Closed, To: Open, Reason: ReasonOneShop, At: t0}
	s := NewShops(shopConfig)
	tripped := blame
	tripped.Until = at(30 * time.Second)
	if diff := cmp.Diff([]Event{tripped}, s.Follow(blame)); diff != "" {
		t.Fatalf("Follow (-want +got):\n%s", diff)
	}
	if again := s.Follow(blame); len(again) > 0 {
		t.Errorf("Follow again = %+v, want nothing", again)
	}
	if ok, _ := s.MayRetry("a", "h:80", t0); ok {
		t.Error("a tripped shop may retry")
	}
	if ok, _ := s.MayRetry("b", "h:80", t0); !ok {
		t.Error("another shop may not retry")
	}
	if e := s.Report("a", "h:80", "", true, t0); e == nil || e.To != Closed {
		t.Errorf("a success = %+v, want it closed", e)
	}
	if all := NewShops(ShopConfig{}).Follow(blame); len(all) > 0 {
		t.Errorf("Follow with the rule off = %+v, want nothing", all)
	}
}

// What a host's breaker reports is told, and only its recovery closes those of its shops.
func TestShopsFollowTheirHost(t *testing.T) {
	s := NewShops(shopConfig)
	trip(s, "a", "h:443")
	trip(s, "b", "g:443")
	for _, e := range []Event{
		{Scope: "host", Host: "h:443", From: Closed, To: Open},
		{Scope: "host", Host: "h:443", From: Open, To: HalfOpen},
		{Scope: "host", Host: "h:443", From: Closed, To: Closed, Reason: ReasonWorkedOff},
		{Scope: "egress", Host: "h:443", From: HalfOpen, To: Closed},
	} {
		if diff := cmp.Diff([]Event{e}, s.Follow(e)); diff != "" {
			t.Errorf("Follow (-want +got):\n%s", diff)
		}
	}
	closed := Event{Scope: "host", Host: "h:443", From: HalfOpen, To: Closed, At: t0}
	shop := Event{Scope: "shop", Host: "h:443", Shop: "a", From: Open, To: Closed, Reason: ReasonHostClosed, At: t0}
	if diff := cmp.Diff([]Event{closed, shop}, s.Follow(closed)); diff != "" {
		t.Errorf("Follow of the recovery (-want +got):\n%s", diff)
	}
}
