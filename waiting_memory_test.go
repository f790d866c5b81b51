package main

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"retryproxy/internal/race"
)

// A call that waits keeps two goroutines of 2 and 4 KiB. A little more on the
// stack of one, in the frames below wait, would double it.
func TestWaitingCallsKeepSmallStacks(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector has frames of its own")
	}
	addr := serving(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // its goroutines are not to be counted
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(429)
	})
	a, _ := onSockets(t, "retry_limits: {global: off, task_type: off, shop: off}\n")
	const calls = 200
	before := stacks()
	for i := range calls {
		c, err := net.Dial("tcp", a.proxies[0].Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "GET http://%s/x HTTP/1.1\r\nHost: %[1]s\r\nX-Idempotency-Key: k%d\r\n\r\n", addr, i)
	}
	for end := time.Now().Add(30 * time.Second); a.proxy.Waiting()["retry_after"] < calls; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waiting = %v, want %d for their Retry-After", a.proxy.Waiting(), calls)
		}
	}
	each := int64(1 << 40)
	// A stack shrinks at a collection, unless it is in use just then.
	for end := time.Now().Add(10 * time.Second); each > 9<<10 && time.Now().Before(end); runtime.Gosched() {
		each = min(each, (int64(stacks())-int64(before))/calls)
	}
	if each > 9<<10 {
		t.Errorf("stacks = %d bytes for each waiting call, want below 9 KiB", each)
	}
}

// stacks is the memory of all stacks, once those that can have shrunk.
func stacks() uint64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.StackInuse
}
