package main

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"retryproxy/deadletter"
	"retryproxy/idempotency"
)

// runsLater has a letter run again at a time.
func (r *rig) runsLater(id, body string) {
	r.t.Helper()
	got := r.orderLetter(id+"/requeue", body, 202)
	var begun struct {
		CallID string `json:"call_id"`
		At     time.Time
	}
	if err := json.Unmarshal([]byte(got.Body), &begun); err != nil || begun.CallID != "" || !begun.At.After(time.Now()) {
		r.t.Errorf("requeue %s = %s, want a time and no call", body, got.Body)
	}
}

// A letter that is to run later runs at its time and not before, also when the proxy was
// restarted meanwhile, and once.
func TestLaterRunsAtItsTime(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		u := r.upstream("u1.test:80", answer(503, ""), answer(503, ""), answer(201, "order 1"))
		r.post("http://u1.test/", "{}", keyed)
		v := r.letter()
		due := time.Now().Add(15 * time.Minute)
		r.runsLater(v.ID, `{"at":"15m","by":"ann","note":"maintenance"}`)
		v = r.letter()
		if l := v.Later; l == nil || !l.At.Equal(due) || l.By != "ann" || l.Note != "maintenance" || l.ExecutedUnknown || v.NextAt == nil || !v.NextAt.Equal(due) || v.Todo != "later" || v.State != "dead" {
			r.t.Fatalf("letter = %+v, later %+v, want it at %v", v, v.Later, due)
		}
		rest(5 * time.Minute)
		again()
		if v = r.letter(); v.Later == nil || !v.Later.At.Equal(due) || v.Later.By != "ann" {
			t.Errorf("after a restart: later %+v", v.Later)
		}
		rest(time.Until(due) - time.Millisecond)
		r.want(reply{}, 0, u, 2)
		rest(2 * time.Second)
		r.want(reply{}, 0, u, 3)
		r.wantSent(u, 3, "X-Idempotency-Key", "k")
		got := r.letterOf(v.ID)
		if got.State != "done" || len(got.Runs) != 2 || got.Runs[1].Kind != "requeue" || got.Runs[1].Started.Before(due) || len(got.Notes) != 1 || got.Later != nil {
			t.Errorf("after its time: %+v", got)
		}
		rest(20 * time.Minute)
		r.want(reply{}, 0, u, 3)
	}, quick...)
}

// It waits where the process was off at its time, and for the deadline of the call nothing
// counts that was before.
func TestLaterWhileTheProxyWasOff(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		u := r.upstream("u1.test:80", answer(503, ""), answer(503, ""), answer(201, "order 1"))
		r.post("http://u1.test/", "{}", keyed)
		r.runsLater(r.letter().ID, `{"at":"1h"}`)
		r.end()
		rest(50 * time.Hour)
		again()
		rest(2 * time.Second)
		r.want(reply{}, 0, u, 3)
	}, patches(quick, []string{"idempotency: {ttl: 1h}", "dead_letters: {keep: 24h}\nidempotency: {ttl: 1h}"})...)
}

// What has a time can be given another, run at once, dropped and resolved; nothing of that
// leaves anything to run at the time it had.
func TestLaterCanBeChanged(t *testing.T) {
	for _, tt := range []struct {
		name, path, body string
		sent             int // requests in the end
		state            string
	}{
		{"another time", "requeue", `{"at":"20m"}`, 3, "done"},
		{"at once", "requeue", `{}`, 3, "done"},
		{"at once, by a time that is over", "requeue", `{"at":"1999-01-01T00:00:00Z"}`, 3, "done"},
		{"at once, by an empty one", "requeue", `{"at":" "}`, 3, "done"},
		{"dropped", "drop", `{"by":"ann","note":"not wanted"}`, 2, "failed"},
		{"executed", "resolve", `{"executed":true,"by":"ann","note":"done there"}`, 2, "done"},
		{"not executed", "resolve", `{"executed":false,"by":"ann","note":"not done"}`, 2, "failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lasting(t, func(r *rig, _ func()) {
				u := r.upstream("u1.test:80", answer(503, ""), answer(503, ""), answer(201, "order 1"))
				r.post("http://u1.test/", "{}", keyed)
				v := r.letter()
				r.runsLater(v.ID, `{"at":"10m"}`)
				rest(5 * time.Minute)
				if got := r.admin("POST", lettersAPI+"/"+v.ID+"/"+tt.path, tt.body, nil); got.Status > 202 {
					r.t.Fatalf("%s %s = %d %s", tt.path, tt.body, got.Status, got.Body)
				}
				rest(time.Second)
				if at := map[bool]int{true: 3, false: 2}[strings.HasPrefix(tt.name, "at once")]; u.count() != at {
					t.Errorf("%d requests at once, want %d", u.count(), at)
				}
				rest(19 * time.Minute)
				if strings.HasPrefix(tt.name, "another") && u.count() != 2 {
					t.Errorf("%d requests before the new time, want 2", u.count())
				}
				rest(2 * time.Minute)
				r.want(reply{}, 0, u, tt.sent)
				if got := r.letterOf(v.ID); got.State != tt.state || got.Later != nil {
					t.Errorf("letter = %+v, want it %s", got, tt.state)
				}
			}, patches(quick, []string{"idempotency: {ttl: 1h}", "idempotency: {ttl: 24h}"})...)
		})
	}
}

// A bot that repeats the key before the time does what the letter was to do: it is not run
// again then, even where the repeat failed.
func TestLaterAfterARepeat(t *testing.T) {
	for name, script := range map[string][]step{
		"that succeeded": {answer(503, ""), answer(503, ""), answer(201, "order 1")},
		"that failed":    {answer(503, ""), answer(503, ""), answer(422, "no"), answer(201, "twice")},
		"that died":      {answer(503, ""), answer(503, ""), answer(503, ""), answer(503, ""), answer(201, "twice")},
	} {
		t.Run(name, func(t *testing.T) {
			lasting(t, func(r *rig, _ func()) {
				u := r.upstream("u1.test:80", script...)
				r.post("http://u1.test/", "{}", keyed)
				r.runsLater(r.letter().ID, `{"at":"10m"}`)
				rest(5 * time.Minute)
				r.post("http://u1.test/", "{}", keyed)
				sent := u.count()
				for _, v := range r.lettersOf("") {
					if v.Later != nil || v.NextAt != nil {
						t.Errorf("after the repeat: %+v, later %+v", v, v.Later)
					}
				}
				rest(10 * time.Minute)
				r.want(reply{}, 0, u, sent)
			}, patches(quick, []string{"idempotency: {ttl: 1h}", "idempotency: {ttl: 24h}"})...)
		})
	}
}

// A rule that forbids the run when its time comes leaves the letter where it was, with the
// reason for people to see.
func TestLaterRefusedAtItsTime(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		u := r.upstream("u1.test:80", answer(500, ""))
		r.post("http://u1.test/", "{}", keyed)
		v := r.letter()
		r.wantLetter(v, "dead", "attempts_exhausted", "maybe", 2)
		r.runsLater(v.ID, `{"at":"20m","by":"ann"}`)
		r.repolicy("max_retries: 1, forward_headers: []")
		rest(20*time.Minute + time.Second)
		r.want(reply{}, 0, u, 2)
		v = r.letter()
		n := v.Notes[len(v.Notes)-1]
		if v.Later != nil || v.NextAt != nil || n.Did != "not_run" || n.By != "retryproxy" || !strings.Contains(n.Text, "no honoured key") {
			t.Errorf("letter = %+v, later %+v, want the reason on it", v, v.Later)
		}
		var one struct {
			Records []struct{ Notes []deadletter.NoteView }
		}
		if r.admin("GET", "/api/v1/calls/"+v.ID, "", &one); len(one.Records) != 1 || one.Records[0].Notes[1].Did != "not_run" {
			t.Errorf("why = %+v, want the reason", one)
		}
		if n := len(r.logged("a dead letter is not tried again by itself")); n != 1 {
			t.Errorf("the log has %d lines about it, want 1", n)
		}
		rest(20 * time.Minute)
		r.want(reply{}, 0, u, 2)
	}, patches(quick)...)
}

// A host that is cut off at the time puts it off, and it stays what it is.
func TestLaterIsPutOff(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(500, ""))
		r.post("http://u1.test/", "{}", keyed)
		v := r.letter()
		r.runsLater(v.ID, `{"at":"10m","by":"ann"}`)
		rest(9*time.Minute + 59*time.Second)
		for range 5 {
			r.get("http://u1.test/")
		}
		sent := u.count()
		rest(3 * time.Second)
		v = r.letter()
		if v.Later == nil || v.Later.By != "ann" || len(v.Runs) != 1 || u.count() != sent {
			t.Errorf("while the host is cut off: %+v, later %+v, %d requests", v, v.Later, u.count()-sent)
		}
		rest(3 * time.Minute)
		if v = r.letter(); v.Later != nil || len(v.Runs) != 2 || v.Runs[1].Kind != "requeue" {
			t.Errorf("after that: %+v, later %+v", v, v.Later)
		}
	}, patches(plain, []string{"max_retries: 3", "max_retries: 1"}, []string{"open: 2s, open_max: 2s", "open: 20s, open_max: 20s"})...)
}

// What nobody can know to be safe needs the word of a person when it gets its time. A doubt
// keeps its key closed until then.
func TestLaterOfDoubt(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		u := r.upstream("gw-api.pinduoduo.com:80", answer(502, "broken"), answer(201, "order 1"))
		ask := func() reply { return r.post("http://gw-api.pinduoduo.com/orders?n=1", "two books", keyed) }
		r.want(ask(), 502, u, 1)
		v := r.letter()
		if got := r.orderLetter(v.ID+"/requeue", `{"at":"50m"}`, 409); !strings.Contains(got.Body, "executed_unknown") {
			t.Errorf("refused with %s, want what is missing", got.Body)
		}
		if got := r.orderLetter(v.ID+"/requeue", `{"at":"2h","executed_unknown":true}`, 400); !strings.Contains(got.Body, "at: want a time before") {
			t.Errorf("past the end of the doubt: %s", got.Body)
		}
		r.runsLater(v.ID, `{"at":"50m","executed_unknown":true,"by":"ann"}`)
		if v = r.letter(); v.State != "in_doubt" || v.Later == nil || !v.Later.ExecutedUnknown || v.Todo != "later" {
			t.Errorf("letter = %+v, later %+v", v, v.Later)
		}
		rest(40 * time.Minute)
		again()
		asked := time.Now()
		if r.want(ask(), 409, u, 1); time.Since(asked) > time.Second {
			t.Errorf("the 409 took %v, want none to wait for a person", time.Since(asked))
		}
		rest(10*time.Minute + 2*time.Second)
		r.want(reply{}, 0, u, 2)
		if v = r.letterOf(v.ID); v.State != "done" || v.Runs[1].Kind != "requeue" {
			t.Errorf("after its time: %+v", v)
		}
	}, patches(plain, lays("upgrade_to_https: []"))...)
}

// Without a key it needs that word, too, and then runs as it was.
func TestLaterOfAKeylessLetter(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(503, "down"), answer(503, "down"), answer(201, "order 1"))
		r.post("http://u1.test/", "{}")
		v := r.letter()
		if got := r.orderLetter(v.ID+"/requeue", `{"at":"1h"}`, 409); !strings.Contains(got.Body, "no key") {
			t.Errorf("refused with %s", got.Body)
		}
		r.runsLater(v.ID, `{"at":"10m","executed_unknown":true}`)
		rest(10*time.Minute + time.Second)
		r.want(reply{}, 0, u, 3)
		r.wantSent(u, 3, "X-Idempotency-Key", "")
	}, quick...)
}

// Times that cannot be are refused, and say what one looks like.
func TestLaterWantsATime(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(503, ""))
		r.post("http://u1.test/", "{}", keyed)
		v := r.letter()
		for _, x := range [][2]string{
			{"tomorrow", "at: want a time such as"},
			{"22:00", "at: want a time"},
			{"5x", "at: want"},
			{"31d", "at: "},
			{"721h", "more than 30 days ahead"},
			{"2d", "at: want a time before"},
			{"2h ", ""},
		} {
			at, want := x[0], x[1]
			body := fmt.Sprintf(`{"at":%q}`, at)
			for _, path := range []string{v.ID + "/requeue", "requeue"} {
				if path == "requeue" {
					body = fmt.Sprintf(`{"all":true,"dry_run":true,"at":%q}`, at)
				}
				got := r.admin("POST", lettersAPI+"/"+path, body, nil)
				bulk := path == "requeue" && (want == "" || at == "2d") // that of one letter is its own refusal
				if fine := want == "" || bulk; fine != (got.Status < 300) || !fine && (got.Status != 400 || !strings.Contains(got.Body, want)) {
					t.Errorf("%s %s = %d %s, want %q", path, body, got.Status, got.Body, want)
				}
				if at == "2d" && bulk && !strings.Contains(got.Body, `"would_refuse": 1`) {
					t.Errorf("dry run = %s, want it refused", got.Body)
				}
			}
		}
		r.want(reply{}, 0, u, 2)
	}, patches(quick, []string{"idempotency: {ttl: 1h}", "dead_letters: {keep: 24h}\nidempotency: {ttl: 1h}"})...)
}

// Many get their times one after the other, at the rate of the bulk; those that may not run
// with others are left out. The dry run says when.
func TestLaterOfMany(t *testing.T) {
	lasting(t, func(r *rig, again func()) {
		down := true
		u := r.upstream("u1.test:80", func(s *scripted, c net.Conn, q *request) bool {
			if down {
				return answer(503, "")(s, c, q)
			}
			return answer(201, "")(s, c, q)
		})
		for i := range 3 {
			r.post("http://u1.test/", "{}", fmt.Sprintf("X-Idempotency-Key: k%d", i))
			rest(time.Second)
		}
		r.post("http://u1.test/", "{}")
		down = false
		sent, due := u.count(), time.Now().Add(10*time.Minute)
		var p deadletter.Preview
		r.admin("POST", lettersAPI+"/requeue", `{"all":true,"dry_run":true,"at":"10m","rate":"6/m"}`, &p)
		if p.Would != 3 || p.Refused != 1 || !p.At.Equal(due) || !p.First[2].At.Equal(due.Add(20*time.Second)) || !p.First[3].At.IsZero() {
			t.Errorf("dry run = %+v", p)
		}
		r.orderLetter("requeue", `{"all":true,"at":"10m","rate":"6/m","by":"ann"}`, 202)
		synctest.Wait()
		var b deadletter.Bulk
		if r.admin("GET", lettersAPI+"/bulk", "", &b); b.State != "ended" || b.Later != 3 || b.Refused != 1 || b.Requeued != 0 || !b.At.Equal(due) {
			t.Errorf("bulk = %+v", b)
		}
		again()
		rest(time.Until(due) - time.Millisecond)
		r.want(reply{}, 0, u, sent)
		for i := range 3 {
			rest(2 * time.Second)
			r.want(reply{}, 0, u, sent+i+1)
			rest(7 * time.Second)
			r.want(reply{}, 0, u, sent+i+1)
			rest(time.Second)
		}
		if all := r.lettersOf(""); len(all) != 1 || !all[0].Keyless {
			t.Errorf("letters = %+v, want the one without a key", all)
		}
	}, patches(quick, []string{"idempotency: {ttl: 1h}", "idempotency: {ttl: 24h}"})...)
}

// One that has its time is not removed for dead_letters.max.
func TestLaterIsNotRetired(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		r.upstream("u1.test:80", answer(503, ""))
		r.post("http://u1.test/", "{}", "X-Idempotency-Key: first")
		first := r.letter().ID
		r.runsLater(first, `{"at":"2h"}`)
		for i := range 3 {
			rest(time.Second)
			r.post("http://u1.test/", "{}", fmt.Sprintf("X-Idempotency-Key: k%d", i))
		}
		rest(10 * time.Second)
		all := r.lettersOf("")
		if len(all) != 2 || all[1].ID != first {
			t.Errorf("letters = %+v, want the latest and %s", all, first)
		}
	}, patches(quick, []string{"idempotency: {ttl: 1h}", "dead_letters: {max: 2}\nidempotency: {ttl: 1h}"})...)
}

// Of several that run a letter at once, by its time and by hand, one does.
func TestLaterHasOneOwner(t *testing.T) {
	lasting(t, func(r *rig, _ func()) {
		u := r.upstream("u1.test:80", answer(503, ""), answer(503, ""), after(300*time.Millisecond, answer(503, "")))
		r.post("http://u1.test/", "{}", keyed)
		v := r.letter()
		r.runsLater(v.ID, `{"at":"30m"}`)
		stale, err := r.app.store.Get(r.t.Context(), idempotency.ID{Tenant: v.Tenant, Key: "k"}, time.Now())
		if err != nil {
			r.t.Fatal(err)
		}
		rest(30*time.Minute - time.Millisecond)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				time.Sleep(time.Millisecond)
				r.admin("POST", lettersAPI+"/"+v.ID+"/requeue", `{}`, nil)
			})
		}
		group.Wait()
		rest(2 * time.Second)
		if v = r.letterOf(v.ID); len(v.Runs) != 2 || u.count() != 4 {
			t.Errorf("%d runs and %d requests, want one more run with its retry", len(v.Runs), u.count())
		}
		begun, err := r.app.store.Begin(r.t.Context(), idempotency.Claim{ID: stale.ID, Version: stale.Version, Owner: "x", Fingerprint: stale.Fingerprint, Kind: idempotency.Requeued}, time.Now())
		if err != nil || begun.Result != idempotency.Busy {
			t.Errorf("a claim by what was read before the run = %v, %v, want it refused", begun.Result, err)
		}
	}, quick...)
}
