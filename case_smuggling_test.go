package main

import (
	"bufio"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// refusedAndClosed sends raw bytes and checks that one answer comes, with
// Connection: close, and then the end of the connection.
func (r *rig) refusedAndClosed(text string, statuses ...int) reply {
	r.t.Helper()
	c := r.dial()
	defer c.Close()
	io.WriteString(c, text) // a refusal may come before all of it is taken
	all, _ := io.ReadAll(c)
	in := bufio.NewReader(strings.NewReader(string(all)))
	got := readReply(in, "POST")
	if !slices.Contains(statuses, got.Status) {
		r.t.Errorf("%.80q = %d %v, want one of %v", text, got.Status, got.Err, statuses)
	}
	if !strings.Contains(string(all), "\r\nConnection: close\r\n") {
		r.t.Errorf("%.80q: the answer %.300q does not say Connection: close", text, all)
	}
	if rest, _ := io.ReadAll(in); len(rest) > 0 {
		r.t.Errorf("%.80q: a second answer came: %.200q", text, rest)
	}
	return got
}

func TestCase_SM_01_LengthWithTransferEncoding(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, "ok"))
		const smuggled = "0\r\n\r\nGET http://u1.test/smuggled HTTP/1.1\r\nHost: u1.test\r\n\r\n"
		for _, framing := range []string{
			"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
			"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
			"Transfer-Encoding: identity\r\nContent-Length: 4\r\n",
			"Transfer_Encoding: chunked\r\nContent-Length: 4\r\n",
		} {
			got := r.refusedAndClosed("POST http://u1.test/x HTTP/1.1\r\nHost: u1.test\r\n"+framing+"\r\n"+smuggled, 400)
			r.wantHeader(got, "X-Retry-Reason", "bad_request")
			r.wantHeader(got, "X-Retry-Executed", "no")
		}
		if u.count() != 0 {
			t.Errorf("requests at the upstream = %v, want none", u.seen())
		}
		r.wantMetric(4, "stops_total", "reason=bad_request")
	})
}

func TestCase_SM_03_OddFraming(t *testing.T) {
	for _, tt := range []struct {
		name, framing string
		ok            bool
	}{
		{"two lengths", "Content-Length: 4\r\nContent-Length: 5\r\n", false},
		{"a list of lengths", "Content-Length: 4, 4\r\n", false},
		{"a signed length", "Content-Length: +4\r\n", false},
		{"an unknown coding", "Transfer-Encoding: xchunked\r\n", false},
		{"chunked is not last", "Transfer-Encoding: chunked, identity\r\n", false},
		{"space before the colon", "Transfer-Encoding : chunked\r\n", false},
		{"a tab in the value", "Transfer-Encoding: \x0bchunked\r\n", false},
		{"a folded line", "Transfer-Encoding:\r\n chunked\r\n", false},
		{"chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", false},
		{"upper case", "Transfer-Encoding: CHUNKED\r\n", true},
		{"two equal lengths", "Content-Length: 4\r\nContent-Length: 4\r\n", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				u := r.upstream("u1.test:80", answer(200, "ok"))
				body := "abcd"
				if strings.Contains(tt.framing, "CHUNKED") {
					body = "4\r\nabcd\r\n0\r\n\r\n"
				}
				text := "POST http://u1.test/x HTTP/1.1\r\nHost: u1.test\r\n" + tt.framing + "\r\n" + body
				if !tt.ok {
					r.refusedAndClosed(text, 400, 501)
					r.wantDials(0)
					return
				}
				r.want(r.ask(text), 200, u, 1)
				q := u.seen()[0]
				if string(q.Body) != "abcd" {
					t.Errorf("body upstream = %q, want abcd", q.Body)
				}
				lengths := strings.Count(strings.ToLower(string(q.Raw)), "content-length:")
				codings := strings.Count(strings.ToLower(string(q.Raw)), "transfer-encoding:")
				if lengths+codings != 1 {
					t.Errorf("upstream got %q, want one framing field", q.Raw)
				}
			})
		})
	}
}

func TestCase_SM_05_OversizedHeaders(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", raw("HTTP/1.1 200 OK\r\nX-Big: "+strings.Repeat("b", 2<<20)+"\r\nContent-Length: 2\r\n\r\nok"))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := r.refusedAndClosed("GET http://u1.test/x HTTP/1.1\r\nHost: u1.test\r\nX-Big: "+strings.Repeat("a", 2<<20)+"\r\n\r\n", 431)
		r.wantHeader(got, "X-Retry-Reason", "header_too_large")
		r.want(got, 431, u, 0)

		// The contract: what breaks the protocol is malformed, and never repeated.
		got = r.post("http://u1.test/x", "{}", keyed)
		r.want(got, 502, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "manual_review")
		r.wantHeader(got, "X-Retry-Executed", "maybe")
		r.wantHeader(got, "X-Retry-Advice", "check")
		r.wantVerdict(1, "unknown", "malformed")
		synctest.Wait()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 16<<20 {
			t.Errorf("memory grew by %d bytes, want less than 16 MiB", grown)
		}
	})
}
