package main

import "testing"

// An IPv4 address that was asked for is not one of IPv6 as well.
func TestListenTCPTakesIPv4AtItsWord(t *testing.T) {
	l, err := listenTCP("0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if at := addressOf(l).Addr(); !at.Is4() {
		t.Errorf("listenTCP(0.0.0.0:0) listens on %v, want an IPv4 address", at)
	}
}
