package simulate

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"retryproxy/config"
)

// Spread is how long something takes, as a distribution: "200ms",
// "uniform 100ms 300ms", "exponential 5s" (its mean) or "lognormal 200ms 0.5" (its
// median and the deviation of its logarithm). The zero value is not given.
type Spread struct {
	kind  string
	a, b  time.Duration
	sigma float64
}

// The kinds of distributions.
const (
	kindFixed       = "fixed"
	kindUniform     = "uniform"
	kindExponential = "exponential"
	kindLognormal   = "lognormal"
)

// longest bounds a sample: the tails of distributions have no end.
const longest = 24 * time.Hour

var errSpread = errors.New(`want a duration such as 200ms, "uniform 100ms 300ms", "exponential 5s" (mean) or "lognormal 200ms 0.5" (median, sigma)`)

// UnmarshalText reads the text of a scenario.
func (s *Spread) UnmarshalText(text []byte) error {
	words := strings.Fields(string(text))
	if len(words) == 1 {
		words = []string{kindFixed, words[0]}
	}
	needs := map[string]int{kindFixed: 2, kindExponential: 2, kindUniform: 3, kindLognormal: 3}
	if len(words) == 0 || len(words) != needs[words[0]] {
		return errSpread
	}
	var err error
	if s.a, err = config.ParseDuration(words[1]); err != nil {
		return errSpread
	}
	switch s.kind = words[0]; s.kind {
	case kindUniform:
		if s.b, err = config.ParseDuration(words[2]); err != nil {
			return errSpread
		}
		if s.b < s.a {
			return fmt.Errorf("uniform: %v is below %v", s.b, s.a)
		}
	case kindLognormal:
		if s.sigma, err = strconv.ParseFloat(words[2], 64); err != nil || !(s.sigma >= 0 && s.sigma <= 5) {
			return errors.New("lognormal: sigma must be a number from 0 to 5")
		}
	}
	return nil
}

// given says that the scenario has it.
func (s *Spread) given() bool { return s.kind != "" }

// mean is the mean of many samples.
func (s *Spread) mean() time.Duration {
	d := float64(s.a)
	switch s.kind {
	case kindUniform:
		d = float64(s.a+s.b) / 2
	case kindLognormal:
		d *= math.Exp(s.sigma * s.sigma / 2)
	}
	return time.Duration(min(d, float64(longest)))
}

// sample draws one duration.
func (s *Spread) sample(dice *rand.Rand) time.Duration {
	d := float64(s.a)
	switch s.kind {
	case kindUniform:
		d += dice.Float64() * float64(s.b-s.a)
	case kindExponential:
		d *= dice.ExpFloat64()
	case kindLognormal:
		d *= math.Exp(s.sigma * dice.NormFloat64())
	}
	return time.Duration(min(d, float64(longest)))
}
