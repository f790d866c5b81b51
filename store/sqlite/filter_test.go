package sqlite

import (
	"math/rand/v2"
	"testing"
)

// Whatever was added is there, little of what was not, and it takes little room.
func TestFilter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 10, 1000, 30_000} {
		f := makeFilter(3 * n) // every hash is in three calls
		var all []uint64
		for range n {
			h := random.Uint64() | 1 // as terms are
			all = append(all, h)
			for range 3 {
				f.add(h)
			}
		}
		f = f.folded()
		for _, h := range all {
			if !f.has(h) || !f.mayHave([][]uint64{{h}}) || !f.mayHave([][]uint64{{h ^ 2, h}, {h}}) {
				t.Fatalf("of %d hashes %x is not there", n, h)
			}
		}
		wrong := 0
		const others = 10_000
		for range others {
			if f.has(random.Uint64() | 1) {
				wrong++
			}
		}
		if wrong > others/40 {
			t.Errorf("with %d hashes %d of %d others are taken for one", n, wrong, others)
		}
		if len(f) > 8+3*n {
			t.Errorf("a filter of %d hashes has %d bytes", n, len(f))
		}
	}
}

// The bits of a hash are in files.
func TestFilterStaysAsItIs(t *testing.T) {
	f := makeFilter(1)
	f.add(byHost.hash("u1.test"))
	if got, want := string(f), "\x08\x04\x02\x81\x00\x00\x00\x10"; got != want {
		t.Errorf("the filter is %q, want %q", got, want)
	}
}
