package policy

import (
	"errors"
	"fmt"
	"math"
	"testing"
)

// armed is a policy with variants of these weights, named by their place.
func armed(name string, weights ...int) *Policy {
	p := &Policy{Name: name}
	for i, w := range weights {
		p.Variants = append(p.Variants, &Policy{Name: fmt.Sprint(name, "/", i), Weight: w, Of: p})
	}
	return p
}

func TestArmWithoutVariants(t *testing.T) {
	p := &Policy{Name: "a"}
	if got := p.Arm("-", "k1"); got != p {
		t.Errorf("Arm = %v, want the policy itself", got.Name)
	}
	v := armed("a", 1, 1).Variants[0]
	if got := v.Arm("-", "k1"); got != v {
		t.Errorf("Arm of a variant = %v, want the variant", got.Name)
	}
}

// These never change: a new version must not move a key to another variant.
func TestArmIsStable(t *testing.T) {
	for _, c := range []struct{ tenant, key, want string }{
		{"-", "order-1", "ship/0"},
		{"-", "order-2", "ship/1"},
		{"-", "order-3", "ship/1"},
		{"user=bot1;shop=17", "order-1", "ship/0"},
		{"user=bot1;shop=18", "order-1", "ship/0"},
		{"user=bot1;shop=18", "order-2", "ship/0"},
	} {
		if got := armed("ship", 1, 1).Arm(c.tenant, c.key).Name; got != c.want {
			t.Errorf("Arm(%s, %s) = %s, want %s", c.tenant, c.key, got, c.want)
		}
	}
}

func TestArmsGetTheirPart(t *testing.T) {
	const calls = 100_000
	p := armed("ship", 90, 9, 1)
	got := map[string]int{}
	for i := range calls {
		got[p.Arm("user=bot1", fmt.Sprint("k", i)).Name]++
	}
	for _, v := range p.Variants {
		part := float64(v.Weight) / 100
		want, sigma := calls*part, math.Sqrt(calls*part*(1-part))
		if n := float64(got[v.Name]); math.Abs(n-want) > 4*sigma {
			t.Errorf("%s got %v of %d calls, want about %v", v.Name, n, calls, want)
		}
	}
}

// Who raises the weight of an arm step by step loses none of its keys.
func TestArmGrowsWithoutLosingKeys(t *testing.T) {
	before, after := armed("ship", 90, 10), armed("ship", 50, 70)
	moved := 0
	for i := range 10_000 {
		key := fmt.Sprint("k", i)
		was, is := before.Arm("-", key).Name, after.Arm("-", key).Name
		if was == "ship/1" && is != was {
			t.Fatalf("%s moved from %s to %s, want the growing arm to keep it", key, was, is)
		}
		if was != is {
			moved++
		}
	}
	if moved == 0 {
		t.Error("no key moved, want some in the arm that grew")
	}
}

// The arms of two policies must not hold the same keys, nor those of two tenants.
func TestArmsOfPoliciesAndTenantsAreIndependent(t *testing.T) {
	a, b := armed("a", 1, 1), armed("b", 1, 1)
	policies, tenants := 0, 0
	const keys = 10_000
	for i := range keys {
		key := fmt.Sprint("k", i)
		arm := a.Arm("-", key).Name[2:]
		if arm == b.Arm("-", key).Name[2:] {
			policies++
		}
		if arm == a.Arm("shop=1", key).Name[2:] {
			tenants++
		}
	}
	for _, n := range []int{policies, tenants} {
		if n < keys/2-200 || n > keys/2+200 {
			t.Errorf("%d of %d keys are in the same arm, want about half", n, keys)
		}
	}
}

func TestArmAllocatesNothing(t *testing.T) {
	p := armed("order_ship", 90, 10)
	if n := testing.AllocsPerRun(100, func() { p.Arm("user=bot1;shop=17", "0123456789abcdef") }); n != 0 {
		t.Errorf("Arm allocates %v times, want 0", n)
	}
}

func TestNamedFindsVariants(t *testing.T) {
	s := mustSet(t, nil, &Policy{Name: "a/b", Match: Match{Shop: []string{"s1"}}}, armed("ship", 1, 1))
	for name, want := range map[string]string{
		"ship": "ship", "ship/1": "ship/1", "ship/gone": "ship", "a/b": "a/b", "a/b/gone": "a/b",
	} {
		if got := s.Named(name); got == nil || got.Name != want {
			t.Errorf("Named(%s) = %v, want %s", name, got, want)
		}
	}
	for _, name := range []string{"gone", "gone/1", "/1", ""} {
		if got := s.Named(name); got != nil {
			t.Errorf("Named(%s) = %s, want none", name, got.Name)
		}
	}
}

func TestNewSetWantsGoodVariants(t *testing.T) {
	twice, weightless, nested, stray := armed("a", 1, 1), armed("a", 1, 0), armed("a", 1, 1), armed("a", 1, 1)
	twice.Variants[1].Name = "a/0"
	nested.Variants[0].Variants = armed("x", 1, 1).Variants
	stray.Variants[0].Of = nil
	for name, p := range map[string]*Policy{"name twice": twice, "no weight": weightless, "nested": nested, "of no policy": stray} {
		if _, err := NewSet([]*Policy{p}, nil); !errors.Is(err, ErrSet) {
			t.Errorf("%s: NewSet = %v, want ErrSet", name, err)
		}
	}
	clash := []*Policy{armed("a", 1, 1), {Name: "a/1"}}
	clash[0].Match = Match{Shop: []string{"s1"}}
	if _, err := NewSet(clash, nil); !errors.Is(err, ErrSet) {
		t.Errorf("a policy with the name of a variant: NewSet = %v, want ErrSet", err)
	}
}

func BenchmarkArm(b *testing.B) {
	p := armed("order_ship", 90, 10)
	b.ReportAllocs()
	for b.Loop() {
		p.Arm("user=bot1;shop=17", "0123456789abcdef")
	}
}
