package report

import (
	"math"
	"math/bits"
)

// Confidence of all intervals.
const Confidence = 0.95

// z is the quantile of the normal distribution that belongs to it.
const z = 1.959963984540054

// Bounds below which an interval says nothing.
const (
	leastForMean = 30   // values: fewer, and t is not good enough for what is not normal
	skewFactor   = 25   // Cochran (1977), Sampling Techniques, section 2.15: n > 25·G1², the skewness, for a mean to be about normal
	tail         = 0.95 // the quantile that is shown
)

// Estimate is a figure with its interval; NaN: not known.
type Estimate struct{ Value, Low, High float64 }

// unknown is the figure of no calls.
var unknown = Estimate{math.NaN(), math.NaN(), math.NaN()}

// proportion estimates k of n by the interval of Wilson (1927), which holds for few
// calls and near 0 and 1 as well.
func proportion(k, n int) Estimate {
	if n == 0 {
		return unknown
	}
	p, m := float64(k)/float64(n), float64(n)
	middle, half := p+z*z/(2*m), z*math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return Estimate{p, max((middle-half)/(1+z*z/m), 0), min((middle+half)/(1+z*z/m), 1)}
}

// moments are the mean and the sums of the squares and cubes of the differences to
// it, kept up to date by the formulas of Welford and Pébay (2008): sums of the plain
// powers would lose all digits.
type moments struct {
	n            int
	mean, m2, m3 float64
}

func (m *moments) add(x float64) {
	before := float64(m.n)
	m.n++
	n := float64(m.n)
	d := x - m.mean
	step := d / n
	t := d * step * before
	m.mean += step
	m.m3 += t*step*(n-2) - 3*step*m.m2
	m.m2 += t
}

// and are the moments of both together.
func (m moments) and(o moments) moments {
	if m.n == 0 || o.n == 0 {
		return moments{m.n + o.n, m.mean + o.mean, m.m2 + o.m2, m.m3 + o.m3}
	}
	a, b, n, d := float64(m.n), float64(o.n), float64(m.n+o.n), o.mean-m.mean
	return moments{
		m.n + o.n, m.mean + d*b/n, m.m2 + o.m2 + d*d*a*b/n,
		m.m3 + o.m3 + d*d*d*a*b*(a-b)/(n*n) + 3*d*(a*o.m2-b*m.m2)/n,
	}
}

// estimate is the mean with the interval of Student.
func (m moments) estimate() Estimate {
	switch {
	case m.n == 0:
		return unknown
	case m.n < leastForMean:
		return Estimate{m.mean, math.NaN(), math.NaN()}
	}
	half := student(m.n-1) * math.Sqrt(m.m2/float64(m.n-1)/float64(m.n))
	return Estimate{m.mean, max(m.mean-half, 0), m.mean + half} // nothing here is below 0
}

// student is the quantile of the t distribution, by the expansion in Abramowitz and
// Stegun, 26.7.5: from 29 degrees of freedom on right to four places.
func student(freedom int) float64 {
	f := float64(freedom)
	z3, z5, z7 := z*z*z, z*z*z*z*z, z*z*z*z*z*z*z
	return z + (z3+z)/(4*f) + (5*z5+16*z3+3*z)/(96*f*f) + (3*z7+19*z5+17*z3-15*z)/(384*f*f*f)
}

// normal says that n values of this distribution are enough for their mean to be
// about normal, so that its interval holds what it promises.
func (m moments) normal(n int) bool {
	if m.m2 == 0 {
		return true
	}
	total := float64(m.n)
	return float64(n) > skewFactor*total*m.m3*m.m3/(m.m2*m.m2*m.m2)
}

// histogram counts milliseconds: exact below 64, beyond that in steps of a 32nd of
// the power of two below.
type histogram [buckets]int

const (
	fine    = 32
	powers  = 32 // up to 2^32 ms, 49 days
	buckets = (powers - 4) * fine
)

func (h *histogram) add(ms int64) { h[bucket(ms)]++ }

func bucket(ms int64) int {
	shift := max(bits.Len64(uint64(ms))-6, 0)
	return min(shift*fine+int(ms>>shift), buckets-1)
}

// edges are the least and the largest value of a bucket.
func edges(i int) (low, high float64) {
	shift := max(i/fine-1, 0)
	from := int64(i-shift*fine) << shift
	return float64(from), float64(from + 1<<shift - 1)
}

// quantile estimates the tail of n values. Its interval is that of the ranks, which
// holds whatever the distribution (David and Nagaraja, Order Statistics, 7.1).
func (h *histogram) quantile(n int) Estimate {
	if n == 0 {
		return unknown
	}
	rank, half := tail*float64(n), z*math.Sqrt(tail*(1-tail)*float64(n))
	low, high := h.at(int(math.Ceil(rank)))
	e := Estimate{(low + high) / 2, math.NaN(), math.NaN()}
	if last := int(math.Ceil(rank + half)); last <= n {
		e.Low, _ = h.at(max(int(math.Floor(rank-half)), 1))
		_, e.High = h.at(last)
	}
	return e
}

// at are the edges of the bucket with the value of that rank, from 1.
func (h *histogram) at(rank int) (low, high float64) {
	seen := 0
	for i := range h {
		if seen += h[i]; seen >= rank {
			return edges(i)
		}
	}
	panic("bug: a rank beyond all values")
}

// difference is b less a, its interval made of those of both (Newcombe 1998, method
// 10; Zou and Donner 2008 for anything but proportions). For means it comes to the
// interval of Welch.
func difference(a, b Estimate) Estimate {
	d := b.Value - a.Value
	return Estimate{
		d,
		d - math.Hypot(b.Value-b.Low, a.High-a.Value),
		d + math.Hypot(b.High-b.Value, a.Value-a.Low),
	}
}
