package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"retryproxy/idempotency"
)

// fillValue gives every field of a value something of its own.
func fillValue(v reflect.Value, n *int64) {
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("\x00ü%d", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(-*n * 1e12)
	case reflect.Uint8:
		v.SetUint(uint64(*n % 200))
	case reflect.Uint64:
		v.SetUint(uint64(-*n))
	case reflect.Array:
		for i := range v.Len() {
			fillValue(v.Index(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range v.Len() {
			fillValue(v.Index(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem(), n)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(start.Add(time.Duration(*n) * 1e15)))
			return
		}
		for i := range v.NumField() {
			fillValue(v.Field(i), n)
		}
	default:
		panic("bug: nothing for " + v.Kind().String())
	}
}

// What the log says of a row is all that there is to say: a field that somebody adds
// has to be coded.
func TestEntriesAreWhole(t *testing.T) {
	for _, c := range []Config{config("nowhere"), sealedConfig(t, "nowhere", "a")} {
		s := &Store{}
		s.setConfig(c)
		var n int64
		var rec idempotency.Record
		var q idempotency.Request
		fillValue(reflect.ValueOf(&rec).Elem(), &n)
		fillValue(reflect.ValueOf(&q).Elem(), &n)
		r := &row{rec: rec, request: codedRequest(&q)}
		in := coder{buf: s.appendEntry(nil, r, partNew, partNew), reading: true}
		e, err := s.parseEntry(&in)
		if err != nil || len(in.buf) > 0 {
			t.Fatalf("parseEntry = %v, and %d bytes are left", err, len(in.buf))
		}
		if diff := cmp.Diff(rec, e.rec); diff != "" {
			t.Errorf("the record (-want +got):\n%s", diff)
		}
		got, err := parseRequest(e.body)
		if diff := cmp.Diff(&q, got); err != nil || diff != "" {
			t.Errorf("the request: %v (-want +got):\n%s", err, diff)
		}
		text := s.appendEntry(nil, &row{}, partSame, partNone)
		in = coder{buf: text, reading: true}
		if e, err = s.parseEntry(&in); err != nil || e.request != partSame || e.answer != partNone || !reflect.DeepEqual(e.rec, idempotency.Record{}) {
			t.Errorf("an empty entry: %+v, %v", e, err)
		}
		for i := range text {
			in = coder{buf: text[:i:i], reading: true}
			if _, err := s.parseEntry(&in); err == nil && i > 0 {
				t.Errorf("the first %d of %d bytes are an entry", i, len(text))
			}
		}
	}
}

// FuzzEntry reads what nobody wrote.
func FuzzEntry(f *testing.F) {
	s := &Store{}
	s.setConfig(config("nowhere"))
	r := &row{rec: idempotency.Record{ID: key("a", 1), State: idempotency.StateDone, Answer: told()}, request: codedRequest(secret())}
	f.Add(s.appendEntry(nil, r, partNew, partNew))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := coder{buf: text, reading: true}
		e, err := s.parseEntry(&c)
		if err != nil {
			return
		}
		if e.request == partNew {
			_, _ = parseRequest(e.body)
		}
		if len(c.buf) > len(text) {
			t.Error("more is left than there was")
		}
	})
}

// copied is what a crash would leave now: the files as they are, in a new directory.
func (r *rig) copied() Config {
	r.Helper()
	c := *r.bounds()
	c.Path = r.TempDir()
	for _, end := range []string{"", "-wal", ".redo1", ".redo2"} {
		text, err := os.ReadFile(r.path + end)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(c.Path, File+end), text, 0o600)
		}
		if err != nil {
			r.Error(err)
		}
	}
	return c
}

// onWriter does something between two batches.
func (r *rig) onWriter(do func(*writer)) {
	r.Helper()
	if err := r.submit(context.Background(), func(w *writer) error { do(w); return nil }); err != nil {
		r.Fatal(err)
	}
}

// everything is what is known of the keys.
func (r *rig) everything(keys int) map[string]any {
	out := map[string]any{}
	for i := range keys {
		id := key("a", i)
		rec, err := r.Get(context.Background(), id, start)
		q, err2 := r.Load(context.Background(), id)
		body := ""
		if q != nil {
			body, q.Body = string(q.Body), nil // which is compared at once
		}
		out[id.Key] = []any{rec, err, q, body, err2}
	}
	return out
}

// sameAs wants what a crash leaves to be what is known.
func (r *rig) sameAs(c Config, keys int, want map[string]any) {
	r.Helper()
	again := &rig{r.T, opened(r, c)}
	opt := cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateErrors()}
	if diff := cmp.Diff(want, again.everything(keys), opt); diff != "" {
		r.Fatalf("after a crash (-want +got):\n%s", diff)
	}
	again.rows("answers a WHERE NOT EXISTS (SELECT 1 FROM records WHERE answer = a.id)", 0)
	again.rows("requests q JOIN records r ON r.id = q.record WHERE r.state = 'done' OR r.state = 'failed'", 0)
	if got, want := again.Stats(), r.Stats(); !cmp.Equal(got.ByState, want.ByState) || got.Bytes != want.Bytes {
		r.Fatalf("after a crash the counts are %+v, want %+v", got, want)
	}
	again.Close()
}

// random makes a change that may be refused.
func (r *rig) random(random *rand.Rand, keys, step int) {
	id, owner := key("a", random.IntN(keys)), "o"
	rec, err := r.Get(r.Context(), id, start)
	if err != nil || rec.State == idempotency.StateFailed || random.IntN(8) == 0 {
		c := idempotency.Claim{ID: id, Owner: owner, Fingerprint: rec.Fingerprint}
		if random.IntN(3) > 0 {
			c.Request = secret()
			c.Request.Body = fmt.Append(c.Request.Body, step, strings.Repeat("b", random.IntN(2)*random.IntN(100_000)))
		}
		_, _ = r.Begin(r.Context(), c, start)
		return
	}
	states := idempotency.States()
	ch := idempotency.Change{Now: start, Owner: owner, Reason: fmt.Sprint("step ", step), NextAt: start.Add(time.Hour), Append: benchDone(owner, start).Append}
	if random.IntN(2) == 0 {
		ch.Answer = told()
		ch.Answer.Body = fmt.Append(ch.Answer.Body, step, strings.Repeat("a", random.IntN(2)*random.IntN(1000)))
	}
	_, _ = r.Advance(r.Context(), id, rec.State, states[random.IntN(len(states))], ch)
}

// At any instant a crash leaves what was acknowledged: before and after what is
// carried over, in the database and not, with all that may have been there before.
func TestCrashAtAnyStep(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			c := config(t.TempDir())
			c.Durability = []string{Process, Full}[seed%2]
			if seed%3 == 0 {
				c.Keys = keys(t, "a")
			}
			r := &rig{t, opened(t, c)}
			const keys = 12
			for step := range 100 {
				r.random(random, keys, step)
				switch random.IntN(12) {
				case 0:
					r.onWriter(func(w *writer) { _ = w.settleMost() })
				case 1:
					r.onWriter(func(w *writer) { w.carryOver() }) // and the rest fails
				case 2:
					r.swept(start)
				case 6:
					r.failing() // what is synced next
				case 3:
					r.Close()
					r = &rig{t, opened(t, c)}
				case 4, 5:
					var left Config
					r.onWriter(func(*writer) { left = r.copied() })
					r.sameAs(left, keys, r.everything(keys))
				}
			}
		})
	}
}

// ahead makes a store whose log has three batches, and gives the copy of its files.
func ahead(t *testing.T, durability string) (r *rig, left Config) {
	c := config(t.TempDir())
	c.Durability = durability
	r = &rig{t, opened(t, c)}
	for i := range 3 {
		r.fresh(key("a", i), start)
	}
	r.onWriter(func(w *writer) {
		if len(w.ahead) != 3 {
			t.Skip("the machine is too slow: the log is in the database already")
		}
		left = r.copied()
	})
	return r, left
}

// frames are where the frames of a log begin, and where the last one ends.
func frames(t *testing.T, c Config) (text []byte, at []int) {
	text, err := os.ReadFile(filepath.Join(c.Path, File+".redo1"))
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from < len(text); {
		_, size := frameAt(text[from:])
		if size == 0 {
			t.Fatalf("no frame at byte %d", from)
		}
		at = append(at, from)
		from += size
	}
	return text, append(at, len(text))
}

func rewrite(t *testing.T, c Config, text []byte) {
	if err := os.WriteFile(filepath.Join(c.Path, File+".redo1"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A frame that was cut off anywhere was not acknowledged, and takes nothing along.
func TestTornLog(t *testing.T) {
	for _, durability := range []string{Process, Full} {
		_, left := ahead(t, durability)
		text, at := frames(t, left)
		end := len(bytes.TrimRight(text[:at[3]], "\x00")) // what follows is as good when it is lost
		for cut := at[2]; cut < end; cut += 11 {
			torn := &rig{t, &Store{path: filepath.Join(left.Path, File)}}
			torn.setConfig(left)
			c := torn.copied()
			rewrite(t, c, append(text[:cut:cut], make([]byte, (cut%2)*(at[3]-cut))...))
			again := &rig{t, opened(t, c)}
			again.want(key("a", 1), "running")
			again.want(key("a", 2), "")
			again.Close()
		}
	}
}

// What is damaged before the end is nothing that a kill leaves.
func TestDamagedLog(t *testing.T) {
	_, left := ahead(t, Full)
	text, at := frames(t, left)
	text[at[1]+redoHeader+3] ^= 1
	rewrite(t, left, text)
	refused(t, left, migrations, File+".redo1", fmt.Sprint("is damaged at byte ", at[1]))
	left.Durability = Process // what was synced stays so
	refused(t, left, migrations, "is damaged at byte")
	if got, err := os.ReadFile(filepath.Join(left.Path, File+".redo1")); err != nil || !bytes.Equal(got, text) {
		t.Errorf("a refused log was changed: %v", err)
	}
}

// Without syncs a loss of power may leave anything. What comes before is used.
func TestLogAfterALossOfPower(t *testing.T) {
	for _, lost := range []int{0, 1} {
		_, left := ahead(t, Process)
		text, at := frames(t, left)
		clear(text[at[lost]:at[lost+1]])
		rewrite(t, left, text)
		var told []string
		left.Log = func(msg string, _ ...any) { told = append(told, msg) }
		r := &rig{t, opened(t, left)}
		for i := range 3 {
			r.want(key("a", i), map[bool]string{true: "running"}[i < lost])
		}
		if len(told) != 1 || !strings.Contains(told[0], "loss of power") {
			t.Errorf("the operator was told %q", told)
		}
		if kept, err := os.ReadFile(filepath.Join(left.Path, File+".redo1.bad")); err != nil || !bytes.Equal(kept, text) {
			t.Errorf("what was set aside: %v", err)
		}
		r.fresh(key("a", 2), start)
		r.Close()
		(&rig{t, opened(t, left)}).want(key("a", 2), "running")
	}
}

func TestLogOfAnotherDatabase(t *testing.T) {
	_, left := ahead(t, Process)
	text, _ := frames(t, left)
	c := config(t.TempDir())
	opened(t, c).Close()
	rewrite(t, c, text)
	refused(t, c, migrations, "belongs to another database", File+".redo1")
}

// A copy of the database beside a log of a later time.
func TestLogThatGoesOnLater(t *testing.T) {
	c := config(t.TempDir())
	c.Durability = Full
	r := &rig{t, opened(t, c)}
	r.fresh(key("a", 0), start)
	r.Close()
	old := r.copied()
	r = &rig{t, opened(t, c)}
	r.fresh(key("a", 1), start)
	r.swept(start)
	r.fresh(key("a", 2), start)
	text, err := os.ReadFile(r.path + ".redo1")
	if err != nil {
		t.Fatal(err)
	}
	rewrite(t, old, text)
	refused(t, old, migrations, "redo1", "goes on with change")
}

func TestLogOfANewerFormat(t *testing.T) {
	_, left := ahead(t, Full)
	text, at := frames(t, left)
	text[3]++
	copy(text[28:], []byte{0, 0, 0, 0})
	sum := checksum(text[:at[1]])
	for i := range 4 {
		text[28+i] = byte(sum >> (8 * i))
	}
	if _, size := frameAt(text); size == 0 {
		t.Fatal("the test does not know the format")
	}
	rewrite(t, left, text)
	refused(t, left, migrations, "written by a newer retryproxy")
}

// A log that cannot be written costs time and nothing else.
func TestLogThatCannotBeWritten(t *testing.T) {
	r := newRig(t, 0, 0)
	var logged []string
	c := *r.bounds()
	c.Log = func(msg string, _ ...any) { logged = append(logged, msg) }
	r.setConfig(c)
	r.fresh(key("a", 0), start)
	r.onWriter(func(w *writer) { w.redo.files[w.redo.at].File.Close() })
	for i, to := range []idempotency.State{idempotency.StateDead, idempotency.StateDone, idempotency.StateRunning} {
		if i == 0 { // which only the log has
			if _, err := r.Advance(t.Context(), key("a", 0), idempotency.StateRunning, to, idempotency.Change{Now: start, Owner: "o", Answer: told()}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		r.reach(key("a", i), to, 10, start)
	}
	left := r.copied()
	r.want(key("a", 0), "dead")
	r.want(key("a", 2), "running")
	r.sameAs(left, 4, r.everything(4))
	r.onWriter(func(w *writer) { w.redo.files[w.redo.at].File = nil })
	r.fresh(key("a", 4), start)
	r.onWriter(func(*writer) { left = r.copied() })
	r.sameAs(left, 5, r.everything(5))
	if got := strings.Join(logged, ", "); got != "the redo log cannot be written, changes go to the database at once, the redo log is written again" {
		t.Errorf("the operator was told %q", got)
	}
}

// A call that ends soon is written to the database once, when it is over; one that
// does not is there all the same.
func TestDatabaseFollows(t *testing.T) {
	c := config(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t, opened(t, c)}
		state := func(i int, want string) {
			t.Helper()
			synctest.Wait()
			var got string
			if err := r.reader.QueryRow("SELECT coalesce((SELECT state FROM records WHERE key = ?), '')", key("a", i).Key).Scan(&got); err != nil || got != want {
				t.Errorf("key %d is %q in the database, %v, want %q", i, got, err, want)
			}
		}
		r.fresh(key("a", 0), time.Now())
		r.reach(key("a", 1), idempotency.StateDone, 10, time.Now())
		state(1, "")
		time.Sleep(settleEvery)
		state(0, "")
		state(1, "done")
		time.Sleep(settleEvery)
		state(0, "running")
		r.reach(key("a", 2), idempotency.StateParked, 0, time.Now())
		if list, _, err := r.List(t.Context(), idempotency.Query{States: []idempotency.State{idempotency.StateParked}}); err != nil || len(list) != 1 {
			t.Errorf("List = %d records, %v, want the one that was just parked", len(list), err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if left, _ := filepath.Glob(filepath.Join(c.Path, "*.redo?")); len(left) > 0 {
		t.Errorf("after Close there is %q", left)
	}
}

// While the database cannot be written nothing new is begun; afterwards nothing is
// missing.
func TestLockedDatabase(t *testing.T) {
	r := newRig(t, 0, 0)
	r.now(func(w *writer) { w.exec("PRAGMA busy_timeout = 10") })
	r.fresh(key("a", 0), start)
	unlock := r.lockedBy("BEGIN IMMEDIATE")
	for {
		if _, err := r.claim(key("a", 1), start); errors.Is(err, idempotency.ErrUnavailable) {
			break
		}
		runtime.Gosched()
	}
	r.want(key("a", 0), "running")
	unlock()
	for {
		if _, err := r.claim(key("a", 2), start); err == nil {
			break
		}
	}
	r.want(key("a", 0), "running")
	r.want(key("a", 2), "running")
}

// The filter says of no key that is there that it is new, also while it is made anew.
func TestKnownKeys(t *testing.T) {
	r := newRig(t, 0, 0)
	const keys = 3 * learntAtOnce
	for i := range keys {
		r.reach(key("a", i), idempotency.StateFailed, 0, start)
	}
	r.Close()
	r = &rig{t, opened(t, *r.bounds())}
	check := func(n int) {
		t.Helper()
		r.onWriter(func(w *writer) {
			for i := range n {
				if w.isNew(key("a", i)) {
					t.Fatalf("key %d of %d is taken to be new", i, n)
				}
			}
		})
	}
	loaded := func() (yes bool) {
		r.onWriter(func(w *writer) { yes = w.known != nil && w.learning == nil })
		return yes
	}
	check(keys)
	for i := keys; i < keys+100 || !loaded(); i++ {
		r.fresh(key("a", i), start)
		check(i + 1)
	}
	n := 0
	r.onWriter(func(w *writer) {
		for i := range 10_000 {
			if w.isNew(key("b", i)) {
				n++
			}
		}
	})
	if n < 9_900 {
		t.Errorf("of 10,000 new keys %d are taken to be new, want nearly all", n)
	}
	r.onWriter(func(w *writer) { // the second new key of a batch is one too many
		for i := range 3 {
			if i == 1 {
				w.known.room = 0
			}
			if _, err := w.begin(idempotency.Claim{ID: key("c", i), Owner: "o"}, start); err != nil {
				t.Error(err)
			}
		}
	})
	for i := 3; !loaded(); i++ {
		r.fresh(key("c", i), start)
	}
	check(keys + 100)
	if got, err := r.claim(key("c", 0), start); got != idempotency.Busy || err != nil {
		t.Errorf("Begin of a key that came while the filter was made = %v, %v, want busy", got, err)
	}
	r.onWriter(func(w *writer) {
		for i := range 3 {
			if w.isNew(key("c", i)) {
				t.Errorf("key %d of those that came as the filter was begun is taken to be new", i)
			}
		}
		if w.known.room == 0 {
			t.Error("the filter that was full is still used")
		}
	})
}

// A file of the log that grew takes no room once all of it is in the database.
func TestLargeLogIsCut(t *testing.T) {
	r := newRig(t, 0, 0)
	r.fresh(key("a", 0), start)
	r.onWriter(func(w *writer) {
		if err := w.settleAll(); err != nil {
			t.Error(err)
		}
		f := &w.redo.files[w.redo.at]
		for _, x := range []struct{ end, want int64 }{{redoLarge, redoLarge}, {redoLarge + 1, 0}} {
			if err := f.Truncate(x.end); err != nil {
				t.Error(err)
				return
			}
			f.end = x.end
			w.redo.settle(w.redo.number)
			if info, err := f.Stat(); err != nil || info.Size() != x.want || f.end != 0 {
				t.Errorf("after %d bytes the file is %+v, %v, want %d bytes", x.end, info, err, x.want)
			}
		}
	})
}

// Frames that an earlier turn left behind the last one are not read.
func TestFramesOfEarlierTurns(t *testing.T) {
	r := newRig(t, 0, 0)
	for i := range 20 {
		r.fresh(key("a", i), start)
	}
	r.swept(start)
	r.fresh(key("a", 20), start)
	var left Config
	r.onWriter(func(*writer) { left = r.copied() })
	text, err := os.ReadFile(filepath.Join(left.Path, File+".redo1"))
	if err != nil || bytes.Count(text, []byte(redoMagic)) < 10 {
		t.Fatalf("the file has %d frames, %v, want those of an earlier turn", bytes.Count(text, []byte(redoMagic)), err)
	}
	r.sameAs(left, 21, r.everything(21))
}

// Whoever needs the database hears of it when it cannot be had.
func TestDirectChangeOfALockedDatabase(t *testing.T) {
	r := newRig(t, 0, 0)
	r.now(func(w *writer) { w.exec("PRAGMA busy_timeout = 10") })
	unlock := r.lockedBy("BEGIN IMMEDIATE")
	if err := r.direct(t.Context(), func(*writer) error { return nil }); !errors.Is(err, idempotency.ErrUnavailable) {
		t.Errorf("a change of a locked database = %v, want ErrUnavailable", err)
	}
	if _, _, err := r.Due(t.Context(), start, 1); err != nil {
		t.Errorf("Due when the log is empty = %v", err)
	}
	unlock()
	r.now(func(*writer) {})
}

// lockedBy is another program that has the database until the function is called.
func (r *rig) lockedBy(statement string) (unlock func()) {
	r.Helper()
	db, err := r.connect([]string{"busy_timeout(0)"})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(statement); err != nil {
		r.Fatal(err)
	}
	return func() {
		if _, err := db.Exec("ROLLBACK"); err != nil {
			r.Error(err)
		}
	}
}
