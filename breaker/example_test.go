package breaker_test

import (
	"fmt"
	"time"

	"retryproxy/breaker"
)

// Two failures in a row open this breaker; one probe is let through a second
// later, and its answer closes it.
func ExampleHost() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h := breaker.NewHost("u1.test:80", breaker.Config{ConsecutiveFailures: 2, MinCalls: 20, Window: 10 * time.Second, Open: time.Second, OpenMax: 5 * time.Second, Probes: 1})
	for range 2 {
		p, _ := h.Start(15*time.Second, now)
		h.Report(p, breaker.Failed, "", now)
	}
	ok, at := h.Allow(now)
	fmt.Println(h.State(now), ok, at.Sub(now))

	now = at
	probe, event := h.Start(15*time.Second, now)
	ok, _ = h.Allow(now)
	fmt.Println(event.From, "to", event.To, ok)
	event = h.Report(probe, breaker.Alive, "", now)
	fmt.Println(event.From, "to", event.To, event.Reason)
	// Output:
	// open false 1s
	// open to half_open false
	// half_open to closed probe_alive
}
