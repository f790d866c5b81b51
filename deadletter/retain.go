package deadletter

import "time"

// Keep is how long letters are kept, and how many.
type Keep struct {
	For time.Duration
	Max int
}

// Why letters go.
const (
	ByAge = "age"
	ByMax = "max"
)

// warnEvery is how often the same is said.
const warnEvery = 24 * time.Hour

// Notice is how long beforehand it is said that letters will go by their age: a
// day, or half of what they are kept.
func (k Keep) Notice() time.Duration { return min(24*time.Hour, k.For/2) }

// Excess is how many of so many dead letters are too much.
func (k Keep) Excess(dead int) int { return max(0, dead-k.Max) }

// Fills says that so many dead letters are 90 per cent of what is kept.
func (k Keep) Fills(dead int) bool { return dead > 0 && int64(dead)*10 >= int64(k.Max)*9 }

// Said remembers when what was said.
type Said map[string]time.Time

// Due says whether a cause may be said again.
func (s Said) Due(cause string, now time.Time) bool {
	at, ok := s[cause]
	return !ok || !now.Before(at.Add(warnEvery))
}
