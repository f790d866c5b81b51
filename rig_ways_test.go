package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/config"
)

// The ways into a rig beside the plain forward call.

// adminAddr is where the rig's admin side listens.
const adminAddr = "127.0.0.1:18090"

// ask sends raw bytes on a connection of its own and reads one answer.
func (r *rig) ask(text string) reply { return r.askAt(proxyAddr, text) }

// askAt is ask at another listener.
func (r *rig) askAt(addr, text string) reply {
	r.t.Helper()
	c := r.dialAt(addr)
	defer c.Close()
	method, _, _ := strings.Cut(text, " ")
	return r.exchange(c, text, method)
}

// dialAt opens a client connection to any address.
func (r *rig) dialAt(addr string) net.Conn { return r.dialFrom("127.0.0.1", addr) }

// dialFrom is dialAt for a client of another address.
func (r *rig) dialFrom(from, addr string) net.Conn {
	r.t.Helper()
	c, err := r.net.DialFrom(r.t.Context(), netip.MustParseAddr(from), addr)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// origin sends a request in origin-form, as to a server.
func (r *rig) origin(method, host, path, body string, headers ...string) reply {
	r.t.Helper()
	return r.ask(rawOrigin(method, host, path, body, headers...))
}

// rawOrigin is the text of a request in origin-form.
func rawOrigin(method, host, path, body string, headers ...string) string {
	text := rawRequest(method, "http://"+host+path, body, headers...)
	return strings.Replace(text, " http://"+host+path+" ", " "+path+" ", 1)
}

// connect asks for a tunnel. The connection is the client's to close.
func (r *rig) connect(target string, headers ...string) (net.Conn, *bufio.Reader, reply) {
	r.t.Helper()
	return r.connectOn(r.dial(), target, headers...)
}

func (r *rig) connectOn(c net.Conn, target string, headers ...string) (net.Conn, *bufio.Reader, reply) {
	r.t.Helper()
	text := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	for _, h := range headers {
		text += h + "\r\n"
	}
	if _, err := io.WriteString(c, text+"\r\n"); err != nil {
		return c, nil, reply{Err: err}
	}
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, &http.Request{Method: "CONNECT"})
	if err != nil {
		return c, in, reply{Err: err}
	}
	got := reply{Status: res.StatusCode, Header: res.Header, Proto: res.Proto}
	if got.Status != 200 { // else what follows is the tunnel
		body, err := io.ReadAll(res.Body)
		got.Body, got.Err = string(body), err
	}
	return c, in, got
}

// admin asks the admin API; out, if not nil, takes the JSON of the answer.
func (r *rig) admin(method, path, body string, out any) reply {
	r.t.Helper()
	return r.adminAs("X-Nobody: 1", method, path, body, out)
}

// adminAs is admin with a header that says who asks.
func (r *rig) adminAs(who, method, path, body string, out any) reply {
	r.t.Helper()
	text := method + " " + path + " HTTP/1.1\r\nHost: " + adminAddr + "\r\nConnection: close\r\n" + who + "\r\n" +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	got := r.askAt(adminAddr, text)
	if out == nil {
		return got
	}
	if err := json.Unmarshal([]byte(got.Body), out); err != nil {
		r.t.Fatalf("%s %s = %d %q: %v", method, path, got.Status, got.Body, err)
	}
	return got
}

// async does f and hands its answer on.
func (r *rig) async(f func() reply) <-chan reply {
	done := make(chan reply, 1)
	go func() { done <- f() }()
	return done
}

// together sends the same from n clients at one instant.
func (r *rig) together(n int, f func(i int) reply) []reply {
	out := make([]reply, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { out[i] = f(i) })
	}
	group.Wait()
	synctest.Wait()
	return out
}

// statuses counts answers by status; 0 is none.
func statuses(all []reply) map[int]int {
	out := map[int]int{}
	for i := range all {
		out[all[i].Status]++
	}
	return out
}

// within counts the requests that came in [from, to) after a moment.
func (s *scripted) within(start time.Time, from, to time.Duration) (n int) {
	for _, q := range s.seen() {
		if since := q.At.Sub(start); from <= since && since < to {
			n++
		}
	}
	return n
}

// echo answers 200 with the header of the request as it came.
func echo(_ *scripted, c net.Conn, req *request) bool {
	text := string(req.Raw)
	_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: "+strconv.Itoa(len(text))+"\r\n\r\n"+text)
	return err == nil
}

// none checks that text is nowhere in what the product shows of itself: log,
// metrics, admin API.
func (r *rig) none(secrets ...string) {
	r.t.Helper()
	synctest.Wait()
	shown := map[string]string{"the log": r.log.String()}
	for _, path := range []string{
		"/metrics", "/api/v1/calls", "/api/v1/breakers", "/api/v1/limits", "/api/v1/config", "/api/v1/retries", "/api/v1/shops",
	} {
		shown[path] = r.admin("GET", path, "", nil).Body
	}
	for where, text := range shown {
		for _, s := range secrets {
			if strings.Contains(text, s) {
				r.t.Errorf("%s shows %q:\n%s", where, s, text)
			}
		}
	}
}

// rest lets time pass, then waits until everybody rests.
func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// tunnelEnd is an upstream behind tunnels: serve gets each raw connection.
func (r *rig) tunnelEnd(host string, serve func(net.Conn)) *scripted {
	s := r.upstream(host)
	s.wrap = func(c net.Conn) net.Conn { return &served{c, serve} }
	return s
}

// served is a connection whose first Read hands it to somebody else.
type served struct {
	net.Conn
	serve func(net.Conn)
}

// Read serves the connection and ends it.
func (s *served) Read([]byte) (int, error) {
	s.serve(s.Conn)
	return 0, io.EOF
}

// responseHead reads up to the empty line.
func responseHead(t *testing.T, in *bufio.Reader) string {
	t.Helper()
	var b strings.Builder
	for {
		line, err := in.ReadString('\n')
		b.WriteString(line)
		if err != nil || line == "\r\n" {
			return b.String()
		}
	}
}

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

// parseText reads a configuration.
func parseText(text string) (*config.Config, error) {
	return config.Parse("test.yaml", []byte(text), config.Options{Getenv: func(string) string { return "" }})
}

// wantDials checks how often the product dialled.
func (r *rig) wantDials(n int32) {
	r.t.Helper()
	if got := r.dials.Load(); got != n {
		r.t.Errorf("dials = %d, want %d", got, n)
	}
}

// silentEnd is the end of a tunnel that says nothing.
func silentEnd(c net.Conn) { io.Copy(io.Discard, c) }
