// Package backoff answers one question: how long until the next attempt?
//
// Everything here is arithmetic: chance comes in as u in [0,1], time as now.
package backoff

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"strconv"
	"time"
)

// The kinds of jitter.
const (
	JitterRandom = "random" // nominal ± Ratio, never above Max
	JitterFull   = "full"   // anywhere from 0 to nominal
	JitterNone   = "none"   // nominal itself
	JitterStable = "stable" // half to all of nominal; u comes from Stable
)

// Policy says how waits grow from retry to retry.
type Policy struct {
	Base, Max  time.Duration
	Multiplier float64 // below 1 counts as 1: a wait never shrinks
	Jitter     string  // JitterRandom, JitterFull, JitterNone or JitterStable
	Ratio      float64 // of JitterRandom, 0.2 is ±20 %
}

// Delay is the wait before retry n; n = 1 is the first. It is never negative
// and never above Max, whatever n and u are.
func (p Policy) Delay(n int, u float64) time.Duration {
	nominal := p.nominal(n)
	switch p.Jitter {
	case JitterRandom:
		nominal *= 1 + p.Ratio*(2*u-1)
	case JitterFull:
		nominal *= u
	case JitterStable:
		nominal *= 0.5 + 0.5*u
	}
	return clamp(nominal, p.Max)
}

// Nominal is the wait before retry n without jitter.
func (p Policy) Nominal(n int) time.Duration { return clamp(p.nominal(n), p.Max) }

// nominal is the same in nanoseconds.
func (p Policy) nominal(n int) float64 {
	growth := math.Pow(max(p.Multiplier, 1), float64(max(n, 1)-1))
	if p.Base <= 0 || p.Max <= 0 {
		return 0 // also keeps 0·Inf, which is no number, out
	}
	return min(float64(p.Base)*growth, float64(p.Max))
}

// clamp turns nanoseconds into a duration in [0, limit]; no number is 0.
func clamp(ns float64, limit time.Duration) time.Duration {
	switch {
	case !(ns > 0):
		return 0
	case ns >= float64(limit):
		return max(limit, 0)
	}
	return time.Duration(ns)
}

// Stable is the u of JitterStable: the same for the same id and n in every
// process, different for every id. It is u32be(sha256("{id}:{n}")[0:4])/(2^32−1).
func Stable(id string, n int) float64 {
	var room [300]byte // a key of 255 bytes still fits
	text := append(append(room[:0], id...), ':')
	sum := sha256.Sum256(strconv.AppendInt(text, int64(n), 10))
	return float64(binary.BigEndian.Uint32(sum[:4])) / math.MaxUint32
}

// FastDelay is the wait before the first retry of an isolated failure: 5 to 25 ms.
func FastDelay(u float64) time.Duration {
	return 5*time.Millisecond + clamp(u*float64(20*time.Millisecond), 20*time.Millisecond)
}

// Wait joins our own delay with what the server asked for: the longer of the
// two, the server's at most limit.
func Wait(own, retryAfter, limit time.Duration) time.Duration {
	return max(own, min(retryAfter, limit))
}

// spreadOver bounds what Spread looks at, so that a long wait is not stretched by minutes.
const spreadOver = 10 * time.Second

// Spread adds up to ratio of min(wait, 10 s), so that those told the same date
// do not come back at the same moment. It never subtracts.
func Spread(wait time.Duration, ratio, u float64) time.Duration {
	extra := clamp(ratio*u*float64(min(wait, spreadOver)), spreadOver)
	return wait + min(extra, math.MaxInt64-max(wait, 0))
}
