package egress

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"retryproxy/classify"
)

const secret = "s3cret-pass"

// exitTo is the exit of a rule "r" with one proxy.
func exitTo(t testing.TB, url string) *Exit {
	t.Helper()
	w, err := newTable(t, Config{Rules: []Rule{{Name: "r", Proxies: proxies(t, url)}}, Shops: map[string]string{"s": "r"}}).Way("s", "t", "")
	if err != nil {
		t.Fatal(err)
	}
	return w.Exits[0]
}

// turn is what a scripted proxy waits for and what it says then.
type turn struct{ hear, say string }

// play is the far end of conn: it hears and says its turns, and then hangs up
// or, with hold, waits for the other end to do so. It returns what went wrong.
func play(conn net.Conn, hold bool, turns ...turn) <-chan string {
	done := make(chan string, 1)
	go func() {
		defer conn.Close()
		for _, turn := range turns {
			got := make([]byte, len(turn.hear))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != turn.hear {
				done <- "heard " + string(got)
				return
			}
			if _, err := io.WriteString(conn, turn.say); err != nil {
				done <- err.Error()
				return
			}
		}
		if hold {
			_, _ = io.Copy(io.Discard, conn)
		}
		done <- ""
	}()
	return done
}

// openScripted opens a way to host:443 through a proxy that follows a script.
func openScripted(t *testing.T, url, host string, turns ...turn) (net.Conn, classify.Fault, error) {
	t.Helper()
	near, far := net.Pipe()
	done := play(far, false, turns...)
	conn, fault, err := exitTo(t, url).Open(context.Background(), near, host, 443)
	near.Close()
	if wrong := <-done; wrong != "" && !strings.Contains(wrong, "closed pipe") {
		t.Errorf("the proxy %s", wrong)
	}
	if err != nil && (conn != nil || strings.Contains(err.Error(), secret)) {
		t.Errorf("Open = %v, %v: want no connection and no password", conn, err)
	}
	if (err != nil) != (fault != classify.FaultNone) {
		t.Errorf("Open: fault %v with error %v", fault, err)
	}
	return conn, fault, err
}
