package redis

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"retryproxy/idempotency"
	"retryproxy/internal/redistest"
	"retryproxy/internal/seal"
	"retryproxy/message"
	"retryproxy/store/storetest"
)

// keys are those of the ids, all bytes of each being its first letter.
func keys(t testing.TB, ids ...string) *seal.Keys {
	t.Helper()
	var text []string
	for _, id := range ids {
		text = append(text, id+":"+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(id[:1]), 32)))
	}
	k, err := seal.Parse(strings.Join(text, ","))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestConformanceSealed(t *testing.T) {
	at := redistest.Start(t)
	storetest.Exercise(t, func(t *testing.T) idempotency.Store {
		c := config(at)
		c.Keys = keys(t, "a")
		return opened(t, c)
	})
}

// secret is a request whose every part that is sealed holds the word.
func secret() *idempotency.Request {
	return &idempotency.Request{
		Mode: "forward", Place: idempotency.Place{Scheme: "http", Authority: "u1.test", Target: "/order?token=hush-target"},
		Others: []idempotency.Place{{Scheme: "http", Authority: "u2.test", Target: "/order?token=hush-others"}},
		Fields: message.Fields{{Name: "Authorization", Value: "Bearer hush-fields"}}, Trailers: message.Fields{{Name: "T", Value: "hush-trailers"}},
		Body: []byte("hush-body"),
	}
}

// toldAnswer is an answer whose every part that is sealed holds the word.
func toldAnswer() *idempotency.Answer {
	return &idempotency.Answer{Status: 200, Kept: true, Stored: start, Body: []byte("hush-answer-body"), Fields: message.Fields{{Name: "X-Token", Value: "hush-answer-fields"}}}
}

// keepSecrets makes one parked record with a request, and one done with an answer.
func (r *rig) keepSecrets() (parked, done idempotency.ID) {
	r.Helper()
	parked, done = key("t", 1), key("t", 2)
	r.begin(parked, secret())
	r.move(parked, idempotency.StateRunning, idempotency.StateParked, idempotency.Change{})
	r.begin(done, secret())
	r.move(done, idempotency.StateRunning, idempotency.StateDone, idempotency.Change{Answer: toldAnswer()})
	return parked, done
}

// Whoever has the memory of Redis reads nothing of what bots sent and got.
func TestNothingIsReadable(t *testing.T) {
	c := config(redistest.Start(t))
	c.Keys = keys(t, "a")
	r := &rig{t, opened(t, c)}
	r.keepSecrets()
	ctx, all := context.Background(), ""
	for _, name := range r.db.Keys(ctx, "*").Val() {
		if r.db.Type(ctx, name).Val() == "hash" {
			for field, value := range r.db.HGetAll(ctx, name).Val() {
				all += name + field + value + "\n"
			}
		}
	}
	if !strings.Contains(all, "u1.test") {
		t.Fatal("nothing was found at all")
	}
	if i := strings.Index(all, "hush"); i >= 0 {
		t.Errorf("it is readable: …%q…", all[max(i-40, 0):min(i+40, len(all))])
	}
}

func TestKeysRotate(t *testing.T) {
	c := config(redistest.Start(t))
	c.Keys = keys(t, "a")
	old := &rig{t, opened(t, c)}
	parked, done := old.keepSecrets()

	c.Keys = keys(t, "b", "a")
	next := &rig{t, opened(t, c)}
	q, err := next.Load(context.Background(), parked)
	if diff := cmp.Diff(secret(), q); err != nil || diff != "" {
		t.Errorf("Load with the old key behind = %v, (-want +got):\n%s", err, diff)
	}
	rec, err := next.Get(context.Background(), done, start)
	if diff := cmp.Diff(toldAnswer(), rec.Answer); err != nil || diff != "" {
		t.Errorf("Get with the old key behind = %v, (-want +got):\n%s", err, diff)
	}

	c.Keys = keys(t, "b")
	if _, err := Open(context.Background(), c); err == nil || !strings.Contains(err.Error(), `2 requests and answers are sealed by the key "a"`) {
		t.Errorf("Open without the key that is needed = %v", err)
	}
	c.Keys = nil
	if _, err := Open(context.Background(), c); err == nil {
		t.Error("Open without any key works")
	}
	wrong, err := seal.Parse("a:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 32)))
	if err != nil {
		t.Fatal(err)
	}
	c.Keys = wrong
	if _, err := Open(context.Background(), c); err == nil || !strings.Contains(err.Error(), `the key "a" in store.key is not the one`) {
		t.Errorf("Open with another key of the same id = %v", err)
	}

	next.move(parked, idempotency.StateParked, idempotency.StateFailed, idempotency.Change{})
	next.remove(done)
	c.Keys = keys(t, "b")
	opened(t, c) // nothing needs the old key any more
}

// A replica that has not got the new key yet forgets nothing.
func TestUnknownKeyLeavesAMarker(t *testing.T) {
	c := config(redistest.Start(t))
	c.Keys = keys(t, "a")
	old := &rig{t, opened(t, c)}
	c.Keys = keys(t, "b", "a")
	next := &rig{t, opened(t, c)}
	parked, done := next.keepSecrets()
	if rec, err := old.Get(context.Background(), done, start); err != nil || rec.Answer == nil || rec.Answer.Kept {
		t.Errorf("Get without the key = %+v, %v, want a marker", rec.Answer, err)
	}
	if _, err := old.Load(context.Background(), parked); !errors.Is(err, idempotency.ErrNotFound) {
		t.Errorf("Load without the key = %v, want %v", err, idempotency.ErrNotFound)
	}
	if rec, err := next.Get(context.Background(), done, start); err != nil || !rec.Answer.Kept {
		t.Errorf("Get with the key = %+v, %v", rec.Answer, err)
	}
}
