//go:build !race

package upstream

import (
	"context"
	"testing"
)

// A GET on a kept connection: the header, its fields, the Response.
func TestAllocations(t *testing.T) {
	target := benchServer(t)
	c := client(t, Config{})
	a := attempt(target, "GET", "/", nil, "Accept", "*/*")
	buf := make([]byte, 1024)
	got := testing.AllocsPerRun(500, func() {
		r := c.Send(context.Background(), a)
		for {
			if _, err := r.Response.Body.Read(buf); err != nil {
				break
			}
		}
		_ = r.Response.Body.Close()
	})
	if got > 3 {
		t.Errorf("allocations of a GET = %v, want at most 3", got)
	}
}
