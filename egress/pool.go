package egress

import (
	"cmp"
	"slices"
)

// A pool gives each shop one of its members by rendezvous hashing: the member
// whose hash together with the shop's is the highest. So a shop moves only when
// its own member goes, or when a new one beats it. The numbers depend on nothing
// but the configuration: they are the same on every machine.

// best is the index of the member that a shop belongs to.
func best(members []uint64, shop string) int {
	s, top, index := mix(fnv1a(offset64, shop)), uint64(0), 0
	for i, m := range members {
		if score := mix(m ^ s); i == 0 || score > top {
			top, index = score, i
		}
	}
	return index
}

// order is the members' indexes as a shop moves through them: whoever loses its
// member falls to the one that it would have without it.
func order(members []uint64, shop string) []int {
	s := mix(fnv1a(offset64, shop))
	out := make([]int, len(members))
	for i := range out {
		out[i] = i
	}
	slices.SortFunc(out, func(a, b int) int { return cmp.Compare(mix(members[b]^s), mix(members[a]^s)) })
	return out
}

// member is the hash of a proxy in a pool.
func member(rule string, p Proxy) uint64 {
	h := fnv1a(offset64, rule)
	for _, text := range []string{p.addr(), p.User} {
		h = fnv1a(fnv1a(h, "\x00"), text)
	}
	return mix(h)
}

// Constants of FNV-1a with 64 bits.
const (
	offset64 = 14695981039346656037
	prime64  = 1099511628211
)

func fnv1a(h uint64, text string) uint64 {
	for i := 0; i < len(text); i++ {
		h = (h ^ uint64(text[i])) * prime64
	}
	return h
}

// mix spreads every bit of h over all others (the finalizer of MurmurHash3):
// FNV alone leaves the last bytes in the low bits.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
