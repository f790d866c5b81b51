package inbound

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"retryproxy/message"
)

// told is a client that remembers its answers.
type told struct {
	nobody
	mu       sync.Mutex
	statuses []int
}

func (c *told) trailers() message.Fields { return message.Fields{{Name: "X-Sum", Value: "1"}} }

func (c *told) interim(status int, _ message.Fields) error { return c.add(status) }

func (c *told) answer(_ *Call, r *message.Response, _ time.Duration) (int64, error) {
	n, _ := io.Copy(io.Discard, r.Body)
	return n, errors.Join(c.add(r.Status), r.Body.Close())
}

func (c *told) add(status int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statuses = append(c.statuses, status)
	return nil
}

func held(ctx context.Context) (*told, *Call, *Held) {
	c := &told{nobody: nobody{ctx: ctx}}
	client := &Call{via: c, KeepAlive: true, Request: message.Request{Version: "1.1"}}
	return c, client, Hold(ctx, client)
}

func response(status int) *message.Response {
	return &message.Response{Status: status, Body: io.NopCloser(strings.NewReader("body"))}
}

// While it is held the client gets the answer of the work, which says whether the
// connection goes on.
func TestHeldClientIsAnswered(t *testing.T) {
	c, client, h := held(t.Context())
	if err := h.Call.Interim(103, nil); err != nil {
		t.Error(err)
	}
	h.Call.KeepAlive = false
	if n, err := h.Call.Answer(response(201), time.Minute); n != 4 || err != nil {
		t.Errorf("Answer = %d, %v", n, err)
	}
	if h.Release() {
		t.Error("a client that was answered was let go")
	}
	if _, err := h.Call.Answer(response(500), time.Minute); !errors.Is(err, ErrAnswered) {
		t.Errorf("a second answer = %v, want %v", err, ErrAnswered)
	}
	if len(c.statuses) != 2 || c.statuses[0] != 103 || c.statuses[1] != 201 || client.KeepAlive {
		t.Errorf("the client got %v, keep-alive %v", c.statuses, client.KeepAlive)
	}
	if len(h.Call.Trailers()) != 1 {
		t.Errorf("trailers %v", h.Call.Trailers())
	}
}

// Once it was let go the work answers nobody.
func TestReleasedClientIsNotAnswered(t *testing.T) {
	c, _, h := held(t.Context())
	if !h.Release() {
		t.Fatal("the client was not let go")
	}
	if err := h.Call.Interim(103, nil); err != nil {
		t.Error(err)
	}
	body := &unread{t: t}
	if n, err := h.Call.Answer(&message.Response{Status: 201, Body: body}, time.Minute); n != 0 || !errors.Is(err, ErrClient) || !body.closed {
		t.Errorf("Answer = %d, %v, closed %v", n, err, body.closed)
	}
	if len(c.statuses) != 0 {
		t.Errorf("the client got %v", c.statuses)
	}
}

// A client that is to be answered by the work is not let go any more.
func TestKeptClientIsNotLetGo(t *testing.T) {
	c, _, h := held(t.Context())
	if !h.Keep() || h.Release() || !h.Keep() {
		t.Error("a client that was kept was let go")
	}
	if _, err := h.Call.Answer(response(422), time.Minute); err != nil || len(c.statuses) != 1 {
		t.Errorf("Answer = %v, the client got %v", err, c.statuses)
	}
	_, _, h = held(t.Context())
	if !h.Release() || h.Keep() {
		t.Error("a client that was let go was kept")
	}
}

// Whoever is first answers, and nobody else.
func TestHeldRace(t *testing.T) {
	for range 200 {
		c, _, h := held(t.Context())
		var group sync.WaitGroup
		var released bool
		var err error
		group.Go(func() { released = h.Release() })
		group.Go(func() { _, err = h.Call.Answer(response(201), time.Minute) })
		group.Wait()
		if released != errors.Is(err, ErrClient) || released != (len(c.statuses) == 0) {
			t.Fatalf("released %v, the answer %v, the client got %v", released, err, c.statuses)
		}
	}
}
