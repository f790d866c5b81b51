package sqlite

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// filter is a Bloom filter of hashes of 64 bits: 2^n words, little-endian.
type filter []byte

// probes is how many bits a hash sets. With at most half of all bits set one of 64
// that were not added is taken for one that was.
const probes = 6

// makeFilter has room for that many hashes before fold.
func makeFilter(hashes int) filter {
	const perHash = 12 // bits, of which less than half are set
	words := 1
	for words*64 < hashes*perHash {
		words *= 2
	}
	return make(filter, 8*words)
}

// at gives the first bit of a hash, and how far it is to the next. Terms are odd,
// and have to be spread.
func (f filter) at(hash uint64) (bit, step, mask uint64) {
	hash *= 0x9e3779b97f4a7c15
	return hash >> 32, hash | 1, uint64(8*len(f) - 1)
}

func (f filter) add(hash uint64) {
	bit, step, mask := f.at(hash)
	for range probes {
		f[bit&mask/8] |= 1 << (bit & 7)
		bit += step
	}
}

func (f filter) has(hash uint64) bool {
	bit, step, mask := f.at(hash)
	for range probes {
		if f[bit&mask/8]&(1<<(bit&7)) == 0 {
			return false
		}
		bit += step
	}
	return true
}

// folded is the filter as small as it may be: a bit of the half stands for two.
func (f filter) folded() filter {
	for len(f) > 8 {
		half := make(filter, len(f)/2)
		set := 0
		for i := 0; i < len(half); i += 8 {
			word := binary.LittleEndian.Uint64(f[i:]) | binary.LittleEndian.Uint64(f[i+len(half):])
			binary.LittleEndian.PutUint64(half[i:], word)
			set += bits.OnesCount64(word)
		}
		if set > 4*len(half) {
			return f
		}
		f = half
	}
	return f
}

// mayHave says that there may be a call with one hash of each list. What is no
// filter says nothing.
func (f filter) mayHave(wanted [][]uint64) bool {
	if len(f) < 8 || len(f)&(len(f)-1) != 0 {
		return true
	}
	for _, any := range wanted {
		if !slices.ContainsFunc(any, f.has) {
			return false
		}
	}
	return true
}
