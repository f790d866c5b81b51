package egress

import (
	"fmt"
	"slices"
	"testing"
)

const manyShops = 10000

// poolOf has proxies 10.0.0.1 to 10.0.0.n, less those left out.
func poolOf(n int, without ...int) Rule {
	r := Rule{Name: "pool", Match: Match{Host: []string{"*"}}}
	for i := 1; i <= n; i++ {
		if !slices.Contains(without, i) {
			r.Proxies = append(r.Proxies, Proxy{Scheme: "http", Host: fmt.Sprintf("10.0.0.%d", i), Port: 3128})
		}
	}
	return r
}

// owners is the host of the first exit of each shop.
func owners(t *testing.T, r Rule) []string {
	t.Helper()
	table := newTable(t, Config{Rules: []Rule{r}})
	out := make([]string, manyShops)
	for i := range out {
		w, err := table.Way(fmt.Sprintf("s%d", i), "", "a.test")
		if err != nil {
			t.Fatal(err)
		}
		_, out[i], _ = w.Exits[0].Proxy()
	}
	return out
}

func TestPoolIsEven(t *testing.T) {
	const n = 10
	count := map[string]int{}
	for _, host := range owners(t, poolOf(n)) {
		count[host]++
	}
	for i := 1; i <= n; i++ {
		host := fmt.Sprintf("10.0.0.%d", i)
		// 1000 expected, with a standard deviation of 30.
		if got := count[host]; got < 880 || got > 1120 {
			t.Errorf("%s has %d shops of %d", host, got, manyShops)
		}
	}
}

// TestPoolMovesOnlyWhoMust: a member that goes moves its own shops, evenly; one
// that comes takes its share and moves nobody else.
func TestPoolMovesOnlyWhoMust(t *testing.T) {
	all, less := owners(t, poolOf(10)), owners(t, poolOf(10, 4))
	heirs := map[string]int{}
	for i := range all {
		switch {
		case all[i] == "10.0.0.4":
			heirs[less[i]]++
		case all[i] != less[i]:
			t.Fatalf("shop s%d moved from %s to %s", i, all[i], less[i])
		}
	}
	for host, n := range heirs {
		if n < 75 || n > 150 { // 111 expected
			t.Errorf("%s inherits %d shops", host, n)
		}
	}
	if len(heirs) != 9 {
		t.Errorf("%d heirs, want 9", len(heirs))
	}
}

func TestPoolOrderOfMembersDoesNotCount(t *testing.T) {
	r := poolOf(10)
	before := owners(t, r)
	slices.Reverse(r.Proxies)
	if after := owners(t, r); !slices.Equal(before, after) {
		t.Error("shops moved when the pool was written in another order")
	}
}

// TestPoolDependsOn: the rule and the user, not the password or the scheme.
func TestPoolDependsOn(t *testing.T) {
	change := func(f func(*Rule)) []string {
		r := poolOf(4)
		f(&r)
		return owners(t, r)
	}
	each := func(f func(*Proxy)) func(*Rule) {
		return func(r *Rule) {
			for i := range r.Proxies {
				f(&r.Proxies[i])
			}
		}
	}
	base := change(each(func(p *Proxy) { p.User = "u" }))
	tests := []struct {
		name string
		got  []string
		same bool
	}{
		{"rule", change(func(r *Rule) { r.Name = "other"; each(func(p *Proxy) { p.User = "u" })(r) }), false},
		{"user", change(each(func(p *Proxy) { p.User = "v" })), false},
		{"password", change(each(func(p *Proxy) { p.User, p.Password = "u", "x" })), true},
		{"scheme", change(each(func(p *Proxy) { p.User, p.Scheme = "u", "socks5" })), true},
	}
	for _, test := range tests {
		if slices.Equal(base, test.got) != test.same {
			t.Errorf("%s: the same shops: %v, want %v", test.name, !test.same, test.same)
		}
	}
}

// TestPoolIsTheSameEverywhere pins the hash: a release must not move shops.
func TestPoolIsTheSameEverywhere(t *testing.T) {
	table := newTable(t, Config{Rules: []Rule{poolOf(5)}})
	got := map[string]string{}
	for _, shop := range []string{"", "s1", "s2", "s3", "店"} {
		w, _ := table.Way(shop, "", "a.test")
		_, got[shop], _ = w.Exits[0].Proxy()
	}
	want := map[string]string{"": "10.0.0.4", "s1": "10.0.0.3", "s2": "10.0.0.4", "s3": "10.0.0.5", "店": "10.0.0.3"}
	diff(t, "members", want, got)
}

// TestNextOrder: every member once, each shop's own first, and without it the
// rest in the same order.
func TestNextOrder(t *testing.T) {
	order := func(r Rule, shop string) []string {
		r.OnFailure = Next
		w, err := newTable(t, Config{Rules: []Rule{r}}).Way(shop, "", "a.test")
		if err != nil {
			t.Fatal(err)
		}
		var hosts []string
		for _, e := range w.Exits {
			_, host, _ := e.Proxy()
			hosts = append(hosts, host)
		}
		return hosts
	}
	seconds := map[string]bool{}
	for i := range 50 {
		shop := fmt.Sprintf("s%d", i)
		all := order(poolOf(5), shop)
		stay, _ := newTable(t, Config{Rules: []Rule{poolOf(5)}}).Way(shop, "", "a.test")
		if _, own, _ := stay.Exits[0].Proxy(); len(stay.Exits) != 1 || own != all[0] {
			t.Errorf("%s: stays with %v, begins next with %s", shop, stay.Exits, all[0])
		}
		var gone int
		fmt.Sscanf(all[0], "10.0.0.%d", &gone)
		diff(t, shop+" without its own", all[1:], order(poolOf(5, gone), shop))
		if all[0] == "10.0.0.1" {
			seconds[all[1]] = true
		}
		if slices.Sort(all); len(slices.Compact(all)) != 5 {
			t.Errorf("%s: %v, want each member once", shop, all)
		}
	}
	if len(seconds) < 2 {
		t.Errorf("all shops of a member move on to %v", seconds)
	}
}

// TestPoolOfSessions: the exit is the member's under the shop's name.
func TestPoolOfSessions(t *testing.T) {
	r := Rule{Name: "r", Match: Match{Host: []string{"*"}}, OnFailure: Next}
	r.Proxies = proxies(t, "http://u-{shop}@10.0.0.1", "http://10.0.0.2")
	table := newTable(t, Config{Rules: []Rule{r}})
	w, err := table.Way("s1", "", "a.test")
	if err != nil || len(w.Exits) != 2 {
		t.Fatalf("Way = %v, %v", w, err)
	}
	names := []string{w.Exits[0].Name(), w.Exits[1].Name()}
	slices.Sort(names)
	diff(t, "names", []string{"r (10.0.0.1:80, shop s1)", "r (10.0.0.2:80)"}, names)
	again, _ := table.Way("s1", "", "a.test")
	if !slices.Equal(w.Exits, again.Exits) {
		t.Error("a second look gives other exits")
	}
}
