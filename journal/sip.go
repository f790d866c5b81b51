package journal

import (
	"encoding/binary"
	"math/bits"
)

// toLower makes all cases of a term alike. It takes letters to lower case and _ to
// a character that is in no term, and leaves digits and - as they are.
const toLower = 0x2020202020202020

// hash is SipHash-2-4 (Aumasson and Bernstein, 2012) of a text, all its bytes or'ed
// with those of fold: made for short texts under a secret key, and the standard
// library has none that outlives a process.
func (s *Salt) hash(text []byte, fold uint64) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(s[:8]), binary.LittleEndian.Uint64(s[8:])
	v0, v1, v2, v3 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d, k0^0x6c7967656e657261, k1^0x7465646279746573
	last := uint64(len(text)) << 56
	for ; len(text) >= 8; text = text[8:] {
		m := binary.LittleEndian.Uint64(text) | fold
		v0, v1, v2, v3 = sipRound(sipRound(v0, v1, v2, v3^m))
		v0 ^= m
	}
	for i, c := range text {
		last |= uint64(c|byte(fold)) << (8 * i)
	}
	v0, v1, v2, v3 = sipRound(sipRound(v0, v1, v2, v3^last))
	v0 ^= last
	v0, v1, v2, v3 = sipRound(sipRound(v0, v1, v2^0xff, v3))
	v0, v1, v2, v3 = sipRound(sipRound(v0, v1, v2, v3))
	return v0 ^ v1 ^ v2 ^ v3
}

func sipRound(a, b, c, d uint64) (uint64, uint64, uint64, uint64) {
	a += b
	b = bits.RotateLeft64(b, 13) ^ a
	a = bits.RotateLeft64(a, 32)
	c += d
	d = bits.RotateLeft64(d, 16) ^ c
	a += d
	d = bits.RotateLeft64(d, 21) ^ a
	c += b
	b = bits.RotateLeft64(b, 17) ^ c
	c = bits.RotateLeft64(c, 32)
	return a, b, c, d
}
