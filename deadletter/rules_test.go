package deadletter

import (
	"errors"
	"testing"
	"time"

	"retryproxy/classify"
	"retryproxy/idempotency"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// letter is a dead record.
func letter(executed classify.Executed, honoured bool) *idempotency.Record {
	return &idempotency.Record{State: idempotency.StateDead, Executed: executed, Honoured: honoured, Reason: "attempts_exhausted"}
}

// keyless is a dead record of a call that had no key.
func keyless(executed classify.Executed) *idempotency.Record {
	rec := letter(executed, false)
	rec.Keyless = true
	return rec
}

func in(state idempotency.State) *idempotency.Record {
	return &idempotency.Record{State: state, Honoured: true}
}

func TestMayRequeue(t *testing.T) {
	const no, maybe, yes = classify.ExecutedNo, classify.ExecutedMaybe, classify.ExecutedYes
	doubt := in(idempotency.StateInDoubt)
	alone := Order{Kind: idempotency.Requeued}
	unknown := Order{Kind: idempotency.Requeued, ExecutedUnknown: true}
	bulk := Order{Kind: idempotency.Requeued, Bulk: true, ExecutedUnknown: true}
	schedule := Order{Kind: idempotency.Redriven, ExecutedUnknown: true}
	all := [4]Order{alone, unknown, bulk, schedule}
	tests := []struct {
		name string
		rec  *idempotency.Record
		want [4]error // alone, with executed unknown, in bulk, by schedule
	}{
		{"nothing was executed", letter(no, false), [4]error{}},
		{"the key is honoured", letter(maybe, true), [4]error{}},
		{"it may have been", letter(maybe, false), [4]error{ErrRefused, nil, ErrRefused, ErrRefused}},
		{"it may have been, without a key", keyless(maybe), [4]error{ErrRefused, nil, ErrRefused, ErrRefused}},
		{"nothing was executed, without a key", keyless(no), [4]error{ErrRefused, nil, ErrRefused, ErrRefused}},
		{"in doubt", doubt, [4]error{ErrRefused, nil, ErrRefused, ErrRefused}},
		{"it was", letter(yes, true), [4]error{ErrRefused, ErrRefused, ErrRefused, ErrRefused}},
		{"running", in(idempotency.StateRunning), [4]error{ErrBusy, ErrBusy, ErrBusy, ErrBusy}},
		{"parked", in(idempotency.StateParked), [4]error{ErrBusy, ErrBusy, ErrBusy, ErrBusy}},
		{"done", in(idempotency.StateDone), [4]error{ErrClosed, ErrClosed, ErrClosed, ErrClosed}},
		{"failed", in(idempotency.StateFailed), [4]error{ErrClosed, ErrClosed, ErrClosed, ErrClosed}},
	}
	for _, tt := range tests {
		for i := range all {
			if got := MayRequeue(tt.rec, &all[i]); !errors.Is(got, tt.want[i]) {
				t.Errorf("%s: MayRequeue(%+v) = %v, want %v", tt.name, all[i], got, tt.want[i])
			}
		}
	}
}

func TestMayDropAndResolve(t *testing.T) {
	want := map[idempotency.State][2]error{
		idempotency.StateRunning: {ErrBusy, ErrBusy}, idempotency.StateWaiting: {ErrBusy, ErrBusy}, idempotency.StateParked: {ErrBusy, ErrBusy},
		idempotency.StateDone: {ErrClosed, ErrClosed}, idempotency.StateFailed: {ErrClosed, ErrClosed},
		idempotency.StateDead: {nil, nil}, idempotency.StateInDoubt: {ErrRefused, nil},
	}
	for _, state := range idempotency.States() {
		if got := MayDrop(in(state)); !errors.Is(got, want[state][0]) {
			t.Errorf("MayDrop(%s) = %v, want %v", state, got, want[state][0])
		}
		if got := MayResolve(in(state)); !errors.Is(got, want[state][1]) {
			t.Errorf("MayResolve(%s) = %v, want %v", state, got, want[state][1])
		}
	}
}

func TestNextRedrive(t *testing.T) {
	schedule := []time.Duration{time.Hour, 2 * time.Hour, 4 * time.Hour}
	const c, q, r = idempotency.ByClient, idempotency.Requeued, idempotency.Redriven
	tests := []struct {
		name     string
		schedule []time.Duration
		runs     []idempotency.Kind
		executed classify.Executed
		want     time.Duration // 0: never
	}{
		{"after the client's run", schedule, []idempotency.Kind{c}, classify.ExecutedNo, time.Hour},
		{"after the first", schedule, []idempotency.Kind{c, r}, classify.ExecutedNo, 2 * time.Hour},
		{"after the second", schedule, []idempotency.Kind{c, r, r}, classify.ExecutedNo, 4 * time.Hour},
		{"exhausted", schedule, []idempotency.Kind{c, r, r, r}, classify.ExecutedNo, 0},
		{"a requeue begins anew", schedule, []idempotency.Kind{c, r, r, r, q}, classify.ExecutedNo, time.Hour},
		{"so does a client", schedule, []idempotency.Kind{c, r, r, c, r}, classify.ExecutedNo, 2 * time.Hour},
		{"off", nil, []idempotency.Kind{c}, classify.ExecutedNo, 0},
		{"may have been executed", schedule, []idempotency.Kind{c}, classify.ExecutedMaybe, 0},
	}
	definite := letter(classify.ExecutedNo, false)
	definite.Reason = "fail_permanent"
	if got := NextRedrive(schedule, definite, noon); !got.IsZero() {
		t.Errorf("after a definite no: NextRedrive = %v, want never", got)
	}
	for _, tt := range tests {
		rec := letter(tt.executed, false)
		for _, kind := range tt.runs {
			rec.Runs = append(rec.Runs, idempotency.Run{Kind: kind})
		}
		want := time.Time{}
		if tt.want > 0 {
			want = noon.Add(tt.want)
		}
		if got := NextRedrive(tt.schedule, rec, noon); !got.Equal(want) {
			t.Errorf("%s: NextRedrive = %v, want %v", tt.name, got, want)
		}
	}
}

// The longest schedule ends, though a record forgets runs from its middle.
func TestNextRedriveEnds(t *testing.T) {
	schedule := make([]time.Duration, idempotency.RunsLast)
	for i := range schedule {
		schedule[i] = time.Minute
	}
	rec, now := idempotency.Record{}, noon
	end := func(kind idempotency.Kind) {
		t.Helper()
		begun := idempotency.Admit(&rec, idempotency.Claim{Owner: "o", Kind: kind, TTL: 24 * time.Hour}, now)
		if begun.Result != idempotency.Fresh {
			t.Fatalf("Admit = %v", begun.Result)
		}
		var err error
		if rec, err = idempotency.Apply(begun.Record, idempotency.StateRunning, idempotency.StateDead, idempotency.Change{Owner: "o", Now: now}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
	}
	rec = *letter(classify.ExecutedNo, false)
	rec.Expires = noon.Add(time.Hour)
	for range 7 {
		end(idempotency.ByClient)
	}
	tries := 0
	for ; !NextRedrive(schedule, &rec, now).IsZero() && tries < 100; tries++ {
		end(idempotency.Redriven)
	}
	if tries != len(schedule) {
		t.Errorf("it was tried again %d times, want %d", tries, len(schedule))
	}
}

func TestAdvise(t *testing.T) {
	tests := []struct {
		name string
		rec  *idempotency.Record
		want string
	}{
		{"nothing was executed", letter(classify.ExecutedNo, false), TodoRequeue},
		{"the key is honoured", letter(classify.ExecutedMaybe, true), TodoRequeue},
		{"it may have been", letter(classify.ExecutedMaybe, false), TodoCheck},
		{"nothing was executed, without a key", keyless(classify.ExecutedNo), TodoAsk},
		{"it may have been, without a key", keyless(classify.ExecutedMaybe), TodoCheck},
		{"it was", letter(classify.ExecutedYes, true), TodoResolve},
		{"parked", in(idempotency.StateParked), TodoWait},
		{"done", in(idempotency.StateDone), TodoNone},
	}
	seen := map[string]bool{}
	for _, tt := range tests {
		todo, words := Advise(tt.rec)
		if todo != tt.want || words == "" || seen[words] {
			t.Errorf("%s: Advise = %s, %q, want %s in words of its own", tt.name, todo, words, tt.want)
		}
		seen[words] = true
	}
	if todo, _ := Advise(in(idempotency.StateInDoubt)); todo != TodoCheck {
		t.Errorf("Advise(in doubt) = %s", todo)
	}
	rec := letter(classify.ExecutedNo, false)
	rec.Reason = "auth_expired"
	if todo, words := Advise(rec); todo != TodoRequeue || seen[words] {
		t.Errorf("Advise(auth_expired) = %s, %q, want what to mend", todo, words)
	}
}

// Who may be told to requeue may do so.
func TestAdviceCanBeTaken(t *testing.T) {
	for _, honoured := range []bool{true, false} {
		for _, e := range []classify.Executed{classify.ExecutedNo, classify.ExecutedMaybe, classify.ExecutedYes} {
			for _, rec := range []*idempotency.Record{letter(e, honoured), keyless(e)} {
				todo, _ := Advise(rec)
				if err := MayRequeue(rec, &Order{Kind: idempotency.Requeued}); (err == nil) != (todo == TodoRequeue) {
					t.Errorf("executed %s, honoured %v, keyless %v: advice %s, but MayRequeue = %v", e, honoured, rec.Keyless, todo, err)
				}
			}
		}
	}
}

func TestSigned(t *testing.T) {
	long := make([]byte, longestNote+1)
	for i := range long {
		long[i] = 'x'
	}
	tests := []struct {
		s              Signed
		whole, partial string // the field at fault
	}{
		{Signed{"ann", "looked at the shop"}, "", ""},
		{Signed{"小王", "已在后台核对"}, "", ""},
		{Signed{"", "x"}, "by", ""},
		{Signed{" ", "x"}, "by", "by"},
		{Signed{"ann", ""}, "note", ""},
		{Signed{"ann", "two\nlines"}, "note", "note"},
		{Signed{"ann", "\xff"}, "note", "note"},
		{Signed{"ann", string(long)}, "note", "note"},
		{Signed{"ann\x1b[2J", "x"}, "by", "by"},
	}
	for _, tt := range tests {
		faulty(t, tt.s, tt.whole, tt.s.Check())
		faulty(t, tt.s, tt.partial, tt.s.CheckOptional())
	}
}

// faulty wants an ErrInput that names the field; empty: no error.
func faulty(t *testing.T, of any, field string, err error) {
	t.Helper()
	if field == "" && err == nil {
		return
	}
	if field == "" || !errors.Is(err, ErrInput) || !containsText(err.Error(), field+": ") {
		t.Errorf("%+v: error %v, want one about %q", of, err, field)
	}
}
