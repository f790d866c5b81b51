package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// Arm is the policy by which a call lives: the variant of p that the hash of its
// tenant and key falls on, p itself where it has none. It depends on nothing else,
// so it is the same in every process and after a restart; a call without a key has
// its own id here. Ranges lie in the order of the variants: when only weights
// change, a key moves only where a border passed it.
func (p *Policy) Arm(tenant, key string) *Policy {
	if len(p.Variants) == 0 {
		return p
	}
	point, _ := bits.Mul64(armHash(p.Name, tenant, key), p.Weights())
	for _, v := range p.Variants {
		if w := uint64(v.Weight); point >= w {
			point -= w
			continue
		}
		return v
	}
	panic("bug: a point beyond all weights")
}

// Weights is the sum over the variants.
func (p *Policy) Weights() (sum uint64) {
	for _, v := range p.Variants {
		sum += uint64(v.Weight)
	}
	return sum
}

// armHash is uniform over 64 bits. The policy is part of it, so that the arms of
// two policies do not hold the same shops and keys.
func armHash(policy, tenant, key string) uint64 {
	var room [512]byte
	text := append(append(room[:0], policy...), 0)
	text = append(append(append(text, tenant...), 0), key...)
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:])
}
