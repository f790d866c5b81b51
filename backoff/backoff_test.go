package backoff

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const s = time.Second

func TestDelayGrows(t *testing.T) {
	p := Policy{Base: s, Max: 60 * s, Multiplier: 2, Jitter: JitterNone}
	tests := []struct {
		name string
		p    Policy
		n    int
		want time.Duration
	}{
		{"first", p, 1, s},
		{"second", p, 2, 2 * s},
		{"sixth", p, 6, 32 * s},
		{"at the cap", p, 7, 60 * s},
		{"no overflow", p, math.MaxInt, 60 * s},
		{"before the first", p, 0, s},
		{"far before the first", p, math.MinInt, s},
		{"base above the cap", Policy{Base: 90 * s, Max: 60 * s, Multiplier: 2, Jitter: JitterNone}, 1, 60 * s},
		{"flat", Policy{Base: 10 * s, Max: 120 * s, Multiplier: 1, Jitter: JitterNone}, 9, 10 * s},
		{"multiplier left out", Policy{Base: 10 * s, Max: 120 * s, Jitter: JitterNone}, 9, 10 * s},
		{"no base", Policy{Max: 120 * s, Multiplier: 2, Jitter: JitterNone}, math.MaxInt, 0},
		{"longest cap", Policy{Base: s, Max: math.MaxInt64, Multiplier: 2, Jitter: JitterNone}, 500, math.MaxInt64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.p.Delay(tt.n, 0.5); got != tt.want {
				t.Errorf("Delay(%d) = %v, want %v", tt.n, got, tt.want)
			}
		})
	}
}

func TestDelayJitter(t *testing.T) {
	tests := []struct {
		jitter string
		n      int
		u      float64
		want   time.Duration
	}{
		{JitterRandom, 1, 0, 8 * s},
		{JitterRandom, 1, 0.5, 10 * s},
		{JitterRandom, 1, 0.75, 11 * s},
		{JitterRandom, 3, 0.75, 40 * s}, // 44 s, but never above max
		{JitterRandom, 3, 0, 32 * s},
		{JitterFull, 1, 0, 0},
		{JitterFull, 1, 0.25, 2500 * time.Millisecond},
		{JitterNone, 1, 0.9, 10 * s},
		{JitterStable, 1, 0, 5 * s},
		{JitterStable, 1, 1, 10 * s},
	}
	for _, tt := range tests {
		p := Policy{Base: 10 * s, Max: 40 * s, Multiplier: 2, Jitter: tt.jitter, Ratio: 0.2}
		if got := p.Delay(tt.n, tt.u); got != tt.want {
			t.Errorf("%s: Delay(%d, %v) = %v, want %v", tt.jitter, tt.n, tt.u, got, tt.want)
		}
	}
}

func TestCase_BO_01_no_wait_wraps(t *testing.T) {
	p := Policy{Base: 2 * time.Millisecond, Max: 10 * time.Millisecond, Multiplier: 2, Jitter: JitterRandom, Ratio: 0.2}
	for n := 4; n <= 200; n++ {
		for _, u := range []float64{0, 0.5, 1} {
			if got := p.Delay(n, u); got < 8*time.Millisecond || got > p.Max {
				t.Errorf("Delay(%d, %v) = %v, want 8ms to 10ms", n, u, got)
			}
		}
	}
}

func TestCase_BO_02_the_cap_bounds_the_wait_after_jitter(t *testing.T) {
	p := Policy{Base: 900 * time.Millisecond, Max: s, Multiplier: 2, Jitter: JitterRandom, Ratio: 0.2}
	for u := 0.0; u <= 1; u += 0.01 {
		if got := p.Delay(1, u); got > s || got < 720*time.Millisecond {
			t.Errorf("Delay(1, %v) = %v, want 720ms to 1s", u, got)
		}
	}
}

func TestStablePublishedSequences(t *testing.T) {
	p := Policy{Base: 2 * s, Max: 60 * s, Multiplier: 2, Jitter: JitterStable}
	for id, want := range map[string][]int{
		"flight-1": {1, 2, 4, 11, 16, 35},
		"flight-2": {1, 2, 4, 15, 19, 54},
	} {
		var got []int
		for n := 1; n <= 6; n++ {
			got = append(got, max(1, int(p.Delay(n, Stable(id, n))/s)))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: whole seconds (-want +got):\n%s", id, diff)
		}
	}
}

func TestFastDelay(t *testing.T) {
	for u, want := range map[float64]time.Duration{0: 5 * time.Millisecond, 0.5: 15 * time.Millisecond, 1: 25 * time.Millisecond} {
		if got := FastDelay(u); got != want {
			t.Errorf("FastDelay(%v) = %v, want %v", u, got, want)
		}
	}
}

func TestWait(t *testing.T) {
	tests := []struct {
		name                   string
		own, retryAfter, limit time.Duration
		want                   time.Duration
	}{
		{"the server asks for more", s, 30 * s, 120 * s, 30 * s},
		{"RA-08 shorter never shortens", 10 * s, 3 * s, 120 * s, 10 * s},
		{"RA-08 zero never shortens", s, 0, 120 * s, s},
		{"over the cap", s, 3600 * s, 120 * s, 120 * s},
		{"own above the cap", 200 * s, 3600 * s, 120 * s, 200 * s},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Wait(tt.own, tt.retryAfter, tt.limit); got != tt.want {
				t.Errorf("Wait(%v, %v, %v) = %v, want %v", tt.own, tt.retryAfter, tt.limit, got, tt.want)
			}
		})
	}
}

func TestSpread(t *testing.T) {
	tests := []struct {
		wait  time.Duration
		u     float64
		want  time.Duration
		about string
	}{
		{5 * s, 0, 5 * s, "nothing is subtracted"},
		{5 * s, 0.5, 5500 * time.Millisecond, "a share of a short wait"},
		{100 * s, 1, 102 * s, "a long wait grows by a share of 10 s"},
		{math.MaxInt64, 1, math.MaxInt64, "no overflow"},
		{0, 1, 0, "no wait"},
	}
	for _, tt := range tests {
		if got := Spread(tt.wait, 0.2, tt.u); got != tt.want {
			t.Errorf("%s: Spread(%v, 0.2, %v) = %v, want %v", tt.about, tt.wait, tt.u, got, tt.want)
		}
	}
}

func FuzzDelay(f *testing.F) {
	f.Add(int64(s), int64(60*s), 2.0, 0.2, 3, 0.5)
	f.Add(int64(1), int64(math.MaxInt64), 1e300, 1.0, math.MaxInt, 1.0)
	f.Add(int64(-1), int64(-5), math.NaN(), math.Inf(1), math.MinInt, math.NaN())
	f.Fuzz(func(t *testing.T, base, limit int64, multiplier, ratio float64, n int, u float64) {
		for _, jitter := range []string{JitterRandom, JitterFull, JitterNone, JitterStable} {
			p := Policy{time.Duration(base), time.Duration(limit), multiplier, jitter, ratio}
			if got := p.Delay(n, u); got < 0 || got > max(p.Max, 0) {
				t.Errorf("%+v.Delay(%d, %v) = %d, want 0..%d", p, n, u, got, p.Max)
			}
		}
	})
}

func BenchmarkDelayStable(b *testing.B) {
	p := Policy{Base: s, Max: 60 * s, Multiplier: 2, Jitter: JitterStable}
	b.ReportAllocs()
	for b.Loop() {
		p.Delay(3, Stable("0197c9d2-7f0a-4c1c-9a55-1b1b4c6f2a11", 3))
	}
}
