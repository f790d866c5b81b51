package deadletter

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// What a bulk does unless it is told otherwise.
const (
	UsualRate   = time.Second // between two letters
	UsualCanary = 1
	mostCanary  = 100
	fastest     = 10 * time.Millisecond
)

// ParseRate reads 5/s, 30/m or 10/h as the time from one letter to the next.
// Errors: ErrInput.
func ParseRate(text string) (time.Duration, error) {
	number, unit, _ := strings.Cut(text, "/")
	per := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 || per == 0 {
		return 0, wrong("rate", "want a rate such as 5/s, 30/m or 10/h, not %q", text)
	}
	every := per / time.Duration(n)
	if every < fastest {
		return 0, wrong("rate", "%s is more than %d/s", text, time.Second/fastest)
	}
	return every, nil
}

// CheckCanary bounds how many letters go ahead. Errors: ErrInput.
func CheckCanary(n int) error {
	if n < 0 || n > mostCanary {
		return wrong("canary", "%d must be from 0 to %d", n, mostCanary)
	}
	return nil
}

// window is how many of the latest ends a bulk is judged by.
const window = 10

// Watch judges a bulk by how its letters end.
type Watch struct {
	canary int
	failed [window]bool
	ended  int
}

// NewWatch begins with so many canaries: none of them may fail.
func NewWatch(canary int) Watch { return Watch{canary: canary} }

// Ended takes in how one more letter ended; a text says why the bulk has to stop.
func (w *Watch) Ended(well bool) (stop string) {
	w.failed[w.ended%window] = !well
	w.ended++
	switch n := w.failures(); {
	case !well && w.ended <= w.canary:
		return fmt.Sprintf("canary %d of %d did not end done", w.ended, w.canary)
	case n > window/2:
		return fmt.Sprintf("%d of the last %d did not end done", n, min(w.ended, window))
	}
	return ""
}

func (w *Watch) failures() (n int) {
	for _, failed := range w.failed {
		if failed {
			n++
		}
	}
	return n
}
