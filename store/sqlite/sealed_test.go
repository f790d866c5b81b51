package sqlite

import (
	"bytes"
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"retryproxy/idempotency"
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

func sealedConfig(t testing.TB, dir string, ids ...string) Config {
	c := config(dir)
	c.Keys = keys(t, ids...)
	return c
}

func TestConformanceSealed(t *testing.T) {
	open := func(t *testing.T) idempotency.Store { return opened(t, sealedConfig(t, t.TempDir(), "a")) }
	storetest.Exercise(t, open)
	storetest.ExerciseDurable(t, open, func(t *testing.T, old idempotency.Store) idempotency.Store {
		s := old.(*Store)
		s.kill(t)
		return opened(t, *s.bounds())
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

// told is an answer whose every part that is sealed holds the word.
func told() *idempotency.Answer {
	return &idempotency.Answer{Status: 200, Kept: true, Stored: start, Body: []byte("hush-answer-body"), Fields: message.Fields{{Name: "X-Token", Value: "hush-answer-fields"}}}
}

// keep makes one parked record with a request, and one done with an answer.
func (r *rig) keep(parked, done idempotency.ID) {
	r.Helper()
	for _, id := range []idempotency.ID{parked, done} {
		if _, err := r.Begin(context.Background(), idempotency.Claim{ID: id, Owner: "o", Request: secret()}, start); err != nil {
			r.Fatal(err)
		}
	}
	for id, to := range map[idempotency.ID]idempotency.State{parked: idempotency.StateParked, done: idempotency.StateDone} {
		ch := idempotency.Change{Owner: "o", Now: start}
		if to == idempotency.StateDone {
			ch.Answer = told()
		}
		if _, err := r.Advance(context.Background(), id, idempotency.StateRunning, to, ch); err != nil {
			r.Fatal(err)
		}
	}
}

// kept wants what keep made.
func (r *rig) kept(parked, done idempotency.ID) {
	r.Helper()
	q, err := r.Load(context.Background(), parked)
	if diff := cmp.Diff(secret(), q); err != nil || diff != "" {
		r.Errorf("Load = %v (-want +got):\n%s", err, diff)
	}
	rec, err := r.Get(context.Background(), done, start)
	if diff := cmp.Diff(told(), rec.Answer); err != nil || diff != "" {
		r.Errorf("Get = %v, answer (-want +got):\n%s", err, diff)
	}
}

// onDisk is all that the directory of a store holds.
func onDisk(t *testing.T, dir string) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	var all []byte
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	return all
}

func TestWhatIsSealedCannotBeReadOnDisk(t *testing.T) {
	for _, closed := range []bool{false, true} {
		dir := t.TempDir()
		r := &rig{t, opened(t, sealedConfig(t, dir, "a"))}
		r.keep(key("a", 1), key("a", 2))
		r.kept(key("a", 1), key("a", 2))
		if closed {
			r.Close()
		}
		if text := onDisk(t, dir); bytes.Contains(text, []byte("hush")) {
			t.Errorf("closed %v: the files hold %q", closed, text[bytes.Index(text, []byte("hush")):][:20])
		}
	}
	dir := t.TempDir()
	r := &rig{t, opened(t, config(dir))}
	r.keep(key("a", 1), key("a", 2))
	if !bytes.Contains(onDisk(t, dir), []byte("hush")) {
		t.Error("the test looks in the wrong place")
	}
}

func TestAKeyCanComeLater(t *testing.T) {
	dir := t.TempDir()
	r := &rig{t, opened(t, config(dir))}
	r.keep(key("a", 1), key("a", 2))
	r.Close()
	r = &rig{t, opened(t, sealedConfig(t, dir, "a"))}
	r.kept(key("a", 1), key("a", 2))
	r.keep(key("b", 1), key("b", 2))
	r.kept(key("b", 1), key("b", 2))
}

func TestKeysAreChanged(t *testing.T) {
	dir := t.TempDir()
	r := &rig{t, opened(t, sealedConfig(t, dir, "old"))}
	r.keep(key("a", 1), key("a", 2))
	r.Close()
	r = &rig{t, opened(t, sealedConfig(t, dir, "new", "old"))}
	r.kept(key("a", 1), key("a", 2))
	r.keep(key("b", 1), key("b", 2))
	r.Close()
	for _, c := range []Config{sealedConfig(t, dir, "new"), sealedConfig(t, dir, "other", "new")} {
		refused(t, c, migrations, `2 requests and answers in it are sealed by the key "old", which store.key does not hold`)
	}
	refused(t, config(dir), migrations, `sealed by the key "new", which store.key does not hold`)
	r = &rig{t, opened(t, sealedConfig(t, dir, "old", "new"))}
	r.kept(key("b", 1), key("b", 2))
}

func TestAnotherKeyOfTheSameIDIsRefused(t *testing.T) {
	dir := t.TempDir()
	opened(t, sealedConfig(t, dir, "a")).Close()
	c := config(dir)
	var err error
	if c.Keys, err = seal.Parse("a:" + base64.StdEncoding.EncodeToString(make([]byte, 32))); err != nil {
		t.Fatal(err)
	}
	refused(t, c, migrations, `the key "a" in store.key is not the one of that id`)
}

func TestAKeyThatNothingNeedsMayGo(t *testing.T) {
	dir := t.TempDir()
	r := &rig{t, opened(t, sealedConfig(t, dir, "old"))}
	r.keep(key("a", 1), key("a", 2))
	alter(t, r.Store, "DELETE FROM requests; DELETE FROM answers")
	r.Close()
	opened(t, sealedConfig(t, dir, "new")).Close()
	opened(t, sealedConfig(t, dir, "new")).Close() // and stays unneeded
	opened(t, config(dir))                         // as is new itself
}

// alter changes the file behind the store's back.
func alter(t *testing.T, s *Store, query string, args ...any) {
	t.Helper()
	if err := s.direct(t.Context(), func(w *writer) error {
		_, err := w.conn.ExecContext(t.Context(), query, args...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestSealedColumnsCannotBeExchanged(t *testing.T) {
	for _, column := range []string{"target", "others", "fields", "trailers", "body"} {
		t.Run("between requests: "+column, func(t *testing.T) {
			r := &rig{t, opened(t, sealedConfig(t, t.TempDir(), "a"))}
			r.keep(key("a", 1), key("a", 2))
			r.keep(key("b", 1), key("b", 2))
			alter(t, r.Store, "UPDATE requests SET "+column+" = (SELECT q."+column+" FROM requests q WHERE q.record <> requests.record)")
			r.unreadable(key("a", 1), key("b", 2))
		})
	}
	t.Run("between columns", func(t *testing.T) {
		r := &rig{t, opened(t, sealedConfig(t, t.TempDir(), "a"))}
		r.keep(key("a", 1), key("a", 2))
		alter(t, r.Store, "UPDATE requests SET fields = trailers, trailers = fields")
		alter(t, r.Store, "UPDATE answers SET body = fields")
		r.unreadable(key("a", 1), key("a", 2))
	})
	t.Run("between answers", func(t *testing.T) {
		r := &rig{t, opened(t, sealedConfig(t, t.TempDir(), "a"))}
		r.keep(key("a", 1), key("a", 2))
		r.keep(key("b", 1), key("b", 2))
		alter(t, r.Store, "UPDATE answers SET body = (SELECT o.body FROM answers o WHERE o.id <> answers.id)")
		alter(t, r.Store, "UPDATE requests SET body = x'00'")
		r.unreadable(key("a", 1), key("a", 2))
	})
}

// unreadable wants a request that is not there any more, and an answer of which
// only the marker is: neither is an error that would stop the others.
func (r *rig) unreadable(request, answer idempotency.ID) {
	r.Helper()
	if q, err := r.Load(context.Background(), request); err != idempotency.ErrNotFound {
		r.Errorf("Load = %+v, %v, want ErrNotFound", q, err)
	}
	if answer.Tenant == "b" {
		return // it was left alone
	}
	begun, err := r.Begin(context.Background(), idempotency.Claim{ID: answer, Owner: "p"}, start)
	if err != nil || begun.Result != idempotency.Replay || begun.Record.Answer.Kept {
		r.Errorf("Begin = %v, %v, want a replay of a marker", begun.Result, err)
	}
}

func TestReseal(t *testing.T) {
	dir := t.TempDir()
	r := &rig{t, opened(t, config(dir))}
	r.keep(key("clear", 1), key("clear", 2))
	r.Close()
	r = &rig{t, opened(t, sealedConfig(t, dir, "old"))}
	for n := range resealedTogether {
		r.keep(key("old", 2*n), key("old", 2*n+1))
	}
	if _, err := Reseal(t.Context(), sealedConfig(t, dir, "new", "old")); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("Reseal of a store in use = %v", err)
	}
	r.Close()
	if _, err := Reseal(t.Context(), config(dir)); err == nil || !strings.Contains(err.Error(), "store.key") {
		t.Errorf("Reseal without a key = %v", err)
	}
	rows, err := Reseal(t.Context(), sealedConfig(t, dir, "new", "old"))
	if want := 2 + 2*resealedTogether; err != nil || rows != want {
		t.Errorf("Reseal = %d, %v, want %d", rows, err, want)
	}
	if rows, err = Reseal(t.Context(), sealedConfig(t, dir, "new", "old")); err != nil || rows != 0 {
		t.Errorf("Reseal once more = %d, %v, want 0", rows, err)
	}
	if bytes.Contains(onDisk(t, dir), []byte("hush")) {
		t.Error("something is still there in the clear")
	}
	r = &rig{t, opened(t, sealedConfig(t, dir, "new"))}
	r.kept(key("clear", 1), key("clear", 2))
	for _, n := range []int{0, resealedTogether - 1} {
		r.kept(key("old", 2*n), key("old", 2*n+1))
	}
}

func TestResealLeavesWhatDoesNotOpen(t *testing.T) {
	dir := t.TempDir()
	c := sealedConfig(t, dir, "old")
	r := &rig{t, opened(t, c)}
	r.keep(key("a", 1), key("a", 2))
	r.keep(key("b", 1), key("b", 2))
	alter(t, r.Store, "UPDATE answers SET body = x'00' WHERE id = 1")
	r.Close()
	var logged []string
	c.Keys, c.Log = keys(t, "new", "old"), func(msg string, _ ...any) { logged = append(logged, msg) }
	if rows, err := Reseal(t.Context(), c); err != nil || rows != 4 {
		t.Errorf("Reseal = %d, %v, want 4 rows that were looked at", rows, err)
	}
	if !slices.Contains(logged, "a row of answers cannot be read") {
		t.Errorf("logged %q", logged)
	}
	r = &rig{t, opened(t, sealedConfig(t, dir, "new", "old"))}
	r.kept(key("b", 1), key("b", 2))
}

func BenchmarkSealedCall(b *testing.B) {
	for _, ids := range [][]string{nil, {"a"}} {
		b.Run(strings.Join(append([]string{"keys"}, ids...), "-"), func(b *testing.B) {
			c := config(b.TempDir())
			c.Entries, c.Bytes = 0, 0
			if ids != nil {
				c.Keys = keys(b, ids...)
			}
			s := opened(b, c)
			b.ReportAllocs()
			for n := int64(0); b.Loop(); n++ {
				if err := keyedCall(s, n); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
