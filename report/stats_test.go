package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// near says whether got is want within so much; NaN is near NaN.
func near(got, want, by float64) bool {
	return math.IsNaN(got) && math.IsNaN(want) || math.Abs(got-want) <= by
}

func wantEstimate(t *testing.T, what string, got, want Estimate, by float64) {
	t.Helper()
	if !near(got.Value, want.Value, by) || !near(got.Low, want.Low, by) || !near(got.High, want.High, by) {
		t.Errorf("%s = %+v, want %+v", what, got, want)
	}
}

// The examples of Newcombe (1998), Statistics in Medicine 17, 857-872, table I.
func TestProportion(t *testing.T) {
	for _, c := range []struct {
		k, n int
		want Estimate
	}{
		{81, 263, Estimate{0.3080, 0.2553, 0.3662}},
		{15, 148, Estimate{0.1014, 0.0624, 0.1605}},
		{0, 20, Estimate{0, 0, 0.1611}},
		{1, 29, Estimate{0.0345, 0.0061, 0.1718}},
		{20, 20, Estimate{1, 0.8389, 1}},
		{0, 0, unknown},
	} {
		wantEstimate(t, fmt.Sprintf("proportion(%d, %d)", c.k, c.n), proportion(c.k, c.n), c.want, 5e-5)
	}
}

// The examples of Newcombe (1998), Statistics in Medicine 17, 873-890, table II,
// method 10; there the first proportion is the minuend.
func TestDifferenceOfProportions(t *testing.T) {
	for _, c := range []struct {
		k1, n1, k2, n2 int
		want           Estimate
	}{
		{56, 70, 48, 80, Estimate{0.2, 0.0524, 0.3339}},
		{9, 10, 3, 10, Estimate{0.6, 0.1705, 0.8090}},
		{5, 56, 0, 29, Estimate{0.0893, -0.0381, 0.1926}},
		{10, 10, 0, 20, Estimate{1, 0.6791, 1}},
	} {
		got := difference(proportion(c.k2, c.n2), proportion(c.k1, c.n1))
		wantEstimate(t, fmt.Sprintf("%d/%d less %d/%d", c.k1, c.n1, c.k2, c.n2), got, c.want, 5e-5)
	}
}

// Quantiles of the table of Student's t.
func TestStudent(t *testing.T) {
	for freedom, want := range map[int]float64{29: 2.0452, 30: 2.0423, 40: 2.0211, 60: 2.0003, 99: 1.9842, 120: 1.9799, 1000: 1.9623, 1_000_000: 1.9600} {
		if got := student(freedom); !near(got, want, 1e-4) {
			t.Errorf("student(%d) = %.4f, want %.4f", freedom, got, want)
		}
	}
}

func momentsOf(values ...float64) (m moments) {
	for _, x := range values {
		m.add(x)
	}
	return m
}

// plainly computes the sums from the definition.
func plainly(values []float64) (m moments) {
	for _, x := range values {
		m.mean += x / float64(len(values))
	}
	for _, x := range values {
		d := x - m.mean
		m.m2, m.m3 = m.m2+d*d, m.m3+d*d*d
	}
	m.n = len(values)
	return m
}

func TestMoments(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	values := make([]float64, 1000)
	for i := range values {
		values[i] = 1e6 + dice.ExpFloat64()*100
	}
	want := plainly(values)
	for name, got := range map[string]moments{
		"one by one": momentsOf(values...), "of two parts": momentsOf(values[:300]...).and(momentsOf(values[300:]...)),
		"with nothing": moments{}.and(momentsOf(values...)), "and nothing": momentsOf(values...).and(moments{}),
	} {
		if got.n != want.n || !near(got.mean, want.mean, 1e-6) || !near(got.m2, want.m2, 1e-6*want.m2) || !near(got.m3, want.m3, 1e-6*want.m3) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestMean(t *testing.T) {
	var thirty []float64
	for i := range 30 {
		thirty = append(thirty, float64(i+1)) // mean 15.5, variance 77.5
	}
	half := 2.04523 * math.Sqrt(77.5/30)
	wantEstimate(t, "the mean of 1 to 30", momentsOf(thirty...).estimate(), Estimate{15.5, 15.5 - half, 15.5 + half}, 1e-3)
	wantEstimate(t, "the mean of 29 values", momentsOf(thirty[:29]...).estimate(), Estimate{15, math.NaN(), math.NaN()}, 1e-9)
	wantEstimate(t, "the mean of nothing", moments{}.estimate(), unknown, 0)
	rare := make([]float64, 40)
	rare[0] = 1
	if got := momentsOf(rare...).estimate(); got.Low != 0 {
		t.Errorf("the mean of what is never below 0 may be %v", got.Low)
	}
}

// Cochran's rule: for a part p of ones G1² is (1-2p)²/(p(1-p)).
func TestNormal(t *testing.T) {
	values := make([]float64, 100)
	for i := range 2 {
		values[i] = 1
	}
	m := momentsOf(values...) // G1² = 0.96²/0.0196 = 47.02, times 25: 1175.5
	if m.normal(1175) || !m.normal(1176) {
		t.Errorf("with 2 %% of ones: normal(1175) = %v, normal(1176) = %v, want false and true", m.normal(1175), m.normal(1176))
	}
	if !momentsOf(1, 1, 1).normal(3) {
		t.Error("what never varies is not normal")
	}
}

func TestBuckets(t *testing.T) {
	last := -1.0
	for i := range buckets {
		low, high := edges(i)
		if low != last+1 || bucket(int64(low)) != i || bucket(int64(high)) != i {
			t.Fatalf("bucket %d is %v to %v, after %v; its values are in %d and %d", i, low, high, last, bucket(int64(low)), bucket(int64(high)))
		}
		if low >= 64 && (high-low+1)/low > 1.0/fine+1e-9 {
			t.Errorf("bucket %d, %v to %v, is wider than a 32nd", i, low, high)
		}
		last = high
	}
	if last != math.Exp2(powers)-1 {
		t.Errorf("the last bucket ends at %v, want 2^32-1", last)
	}
	if got := bucket(math.MaxInt64); got != buckets-1 {
		t.Errorf("the largest value is in bucket %d, want the last", got)
	}
}

func TestQuantile(t *testing.T) {
	var h histogram
	for ms := range int64(60) {
		h.add(ms)
	}
	wantEstimate(t, "of 0 to 59", h.quantile(60), Estimate{56, math.NaN(), math.NaN()}, 0) // rank 57; the upper rank 61 is none
	var g histogram
	for i := range 400 {
		g.add(int64(i / 10)) // 0 to 39, ten times each
	}
	// Ranks 380 ± 1.96·√(400·0.95·0.05) = 371.5 and 388.5, outwards: 371 and 389.
	wantEstimate(t, "of 400 values", g.quantile(400), Estimate{37, 37, 38}, 0)
	wantEstimate(t, "of nothing", new(histogram).quantile(0), unknown, 0)
	if e := h.quantile(60); e.Value != 56 {
		t.Errorf("quantile changed the histogram: %v", e)
	}
}

// An interval of 95 % holds the true figure in about 95 % of all trials, and a
// difference is seen where there is none in about 5 % at most.
func TestIntervalsHoldWhatTheyPromise(t *testing.T) {
	dice := rand.New(rand.NewPCG(7, 11))
	const trials, calls = 1000, 400
	const rate = 0.1 // of calls with a retry that waits 1 s on average
	sample := func() (success, attempts, p95 Estimate) {
		var m moments
		var h histogram
		succeeded := 0
		for range calls {
			added, n := 0.0, 1.0
			if dice.Float64() < rate {
				added, n = 1000*dice.ExpFloat64(), 2
			}
			m.add(n)
			h.add(int64(added))
			if dice.Float64() < 0.97 {
				succeeded++
			}
		}
		return proportion(succeeded, calls), m.estimate(), h.quantile(calls)
	}
	held, seen := [3]int{}, [3]int{}
	truth := [3]float64{0.97, 1 + rate, 1000 * math.Ln2} // half of those that wait are above p95
	for range trials {
		a, b := [3]Estimate{}, [3]Estimate{}
		a[0], a[1], a[2] = sample()
		b[0], b[1], b[2] = sample()
		for i := range a {
			if a[i].Low <= truth[i] && truth[i] <= a[i].High {
				held[i]++
			}
			if d := difference(a[i], b[i]); d.Low > 0 || d.High < 0 {
				seen[i]++
			}
		}
	}
	for i, name := range []string{"success", "attempts", "p95"} {
		if held[i] < 930 {
			t.Errorf("%s: %d of %d intervals hold the true figure, want about 950 or more", name, held[i], trials)
		}
		if seen[i] > 70 {
			t.Errorf("%s: a difference is seen in %d of %d trials without one, want about 50 or fewer", name, seen[i], trials)
		}
	}
	if !slices.ContainsFunc(seen[:], func(n int) bool { return n > 0 }) {
		t.Error("no difference was ever seen by chance: the intervals are too wide")
	}
	t.Logf("held %v, seen %v", held, seen)
}
