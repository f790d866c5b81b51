package sqlite

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
)

// forged is a frame as a client could send it, who does not know the id of the database.
func forged(format byte) string {
	f := append(newFrame(nil), "payload."...)
	copy(f, redoMagic[:3])
	f[3] = format
	binary.LittleEndian.PutUint64(f[8:], 0x1234)
	binary.LittleEndian.PutUint64(f[16:], 1<<62)
	binary.LittleEndian.PutUint32(f[24:], 8)
	binary.LittleEndian.PutUint32(f[28:], checksum(f))
	return string(f)
}

// What a client sends is left in the log behind what is written later. It may look like
// frames, wherever those could begin.
func TestFramesThatClientsSend(t *testing.T) {
	for _, format := range []byte(redoMagic[3:] + "4") {
		c := config(t.TempDir())
		c.Log = func(msg string, _ ...any) { t.Errorf("the operator was told %q", msg) }
		r := &rig{t, opened(t, c)}
		q := &idempotency.Request{Body: []byte(strings.Repeat(forged(format)+"x", 500))}
		if _, err := r.Begin(t.Context(), idempotency.Claim{ID: key("a", 0), Owner: "o", Request: q}, start); err != nil {
			t.Fatal(err)
		}
		r.swept(start)
		r.fresh(key("a", 1), start)
		var left Config
		r.onWriter(func(*writer) { left = r.copied() })
		text, err := os.ReadFile(filepath.Join(left.Path, File+".redo1"))
		if err != nil {
			t.Fatal(err)
		}
		r.sameAs(left, 2, r.everything(2))
		// Nor are they frames where the next one would begin.
		r.onWriter(func(*writer) { left = r.copied() })
		_, size := frameAt(text)
		rewrite(t, left, append(text[:size:size], forged(format)...))
		r.sameAs(left, 2, r.everything(2))
	}
}

var errDisk = errors.New("input/output error")

// failing makes the next sync of the log fail, and gives the files as they are on the
// disk then: that they are cut afterwards does not survive a loss of power.
func (r *rig) failing() map[string][]byte {
	r.Helper()
	left := map[string][]byte{}
	r.onWriter(func(w *writer) {
		w.redo.sync = func(f *os.File) error {
			text, err := os.ReadFile(f.Name())
			if err != nil {
				return err
			}
			left[filepath.Base(f.Name())] = text
			w.redo.sync = syncData
			return errDisk
		}
	})
	return left
}

// crashed is what a crash leaves now, with some files as they were earlier.
func (r *rig) crashed(earlier map[string][]byte) (left Config) {
	r.Helper()
	r.onWriter(func(*writer) { left = r.copied() })
	for name, text := range earlier {
		if err := os.WriteFile(filepath.Join(left.Path, name), text, 0o600); err != nil {
			r.Fatal(err)
		}
	}
	return left
}

// finished is a call that needs the database from its beginning to its end.
func (r *rig) finished(id idempotency.ID) {
	r.Helper()
	big := make([]byte, largeBody+1)
	if _, err := r.Begin(r.Context(), idempotency.Claim{ID: id, Owner: "o", Request: &idempotency.Request{Body: big}}, start); err != nil {
		r.Fatal(err)
	}
	ch := idempotency.Change{Now: start, Owner: "o", Answer: &idempotency.Answer{Status: 200, Kept: true, Stored: start, Body: big[:900]}}
	if err := r.direct(r.Context(), func(w *writer) error {
		_, err := w.advance(id, idempotency.StateRunning, idempotency.StateDone, ch)
		return err
	}); err != nil {
		r.Fatal(err)
	}
}

// A change of which the caller heard that it failed takes nothing back that came later.
func TestSyncThatFails(t *testing.T) {
	c := config(t.TempDir())
	c.Durability, c.Bytes = Full, 0
	r := &rig{t, opened(t, c)}
	r.now(func(w *writer) { w.exec("PRAGMA busy_timeout = 10") })
	r.fresh(key("a", 0), start)
	unlock := r.lockedBy("BEGIN IMMEDIATE")
	torn := r.failing()
	if _, err := r.claim(key("a", 1), start); !errors.Is(err, idempotency.ErrUnavailable) {
		t.Fatalf("Begin when neither log nor database can be written = %v, want ErrUnavailable", err)
	}
	unlock()
	r.finished(key("a", 1))
	r.sameAs(r.crashed(torn), 2, r.everything(2))
	r.fresh(key("a", 2), start)
	r.sameAs(r.crashed(nil), 3, r.everything(3))
}

// The same of what is carried over.
func TestCarryThatFails(t *testing.T) {
	c := config(t.TempDir())
	c.Durability, c.Bytes = Full, 0
	r := &rig{t, opened(t, c)}
	r.fresh(key("a", 0), start)
	torn := r.failing()
	r.onWriter(func(w *writer) {
		if err := w.settleMost(); err != nil || len(torn) != 1 {
			t.Errorf("settleMost = %v, and %d syncs failed", err, len(torn))
		}
	})
	if err := r.direct(t.Context(), func(w *writer) error {
		_, err := w.advance(key("a", 0), idempotency.StateRunning, idempotency.StateDone, idempotency.Change{Now: start, Owner: "o", Answer: told()})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r.sameAs(r.crashed(torn), 1, r.everything(1))
	r.fresh(key("a", 1), start)
	r.sameAs(r.crashed(torn), 2, r.everything(2))
}

// Nothing is acknowledged by a file that a loss of power may take away.
func TestNameThatIsNotSynced(t *testing.T) {
	r := newRig(t, 0, 0)
	tries, ill := 0, true
	r.onWriter(func(w *writer) {
		w.redo.syncName = func() error {
			if tries++; ill {
				return errDisk
			}
			return nil
		}
	})
	for i := range 2 {
		r.fresh(key("a", i), start)
		r.onWriter(func(w *writer) {
			if len(w.ahead) > 0 {
				t.Errorf("change %d is in the log alone", i)
			}
		})
	}
	ill = false
	r.fresh(key("a", 2), start)
	if r.fresh(key("a", 3), start); tries != 3 {
		t.Errorf("%d tries to sync the name, want 3", tries)
	}
}

// While the database cannot follow, the log does not grow, though small changes succeed.
func TestDatabaseThatCannotFollow(t *testing.T) {
	r := newRig(t, 0, 0)
	var logged []string
	c := *r.bounds()
	c.Log = func(msg string, _ ...any) { logged = append(logged, msg) }
	r.setConfig(c)
	r.now(func(w *writer) {
		w.exec("CREATE TRIGGER ill BEFORE INSERT ON records BEGIN SELECT RAISE(ABORT, 'no'); END")
	})
	r.fresh(key("a", 0), start)
	r.onWriter(func(w *writer) {
		if w.settleAll() == nil || w.settleMost() == nil {
			t.Error("the database follows")
		}
	})
	for i := range 10 {
		r.noted(call(i, 0))
		if _, err := r.claim(key("b", i), start); !errors.Is(err, idempotency.ErrUnavailable) {
			t.Errorf("Begin while the database cannot follow = %v, want ErrUnavailable", err)
		}
	}
	r.want(key("a", 0), "running")
	if len(logged) != 1 {
		t.Errorf("the operator was told %q, want it once", logged)
	}
	if err := r.lone("DROP TRIGGER ill"); err != nil {
		t.Fatal(err)
	}
	r.fresh(key("b", 0), start)
	r.want(key("a", 0), "running")
	if len(logged) != 2 {
		t.Errorf("the operator was told %q, want that it is available again", logged)
	}
}

// lone is a statement of another program.
func (r *rig) lone(statement string) error {
	db, err := r.connect([]string{patience})
	if err != nil {
		return err
	}
	_, err = db.Exec(statement)
	return errors.Join(err, db.Close())
}

// What can be used after a loss of power stays where it is until the database has it.
func TestStartAfterALossOfPowerThatFails(t *testing.T) {
	_, left := ahead(t, Process)
	text, at := frames(t, left)
	clear(text[at[1]:at[2]])
	rewrite(t, left, text)
	file := &rig{t, &Store{path: filepath.Join(left.Path, File)}}
	file.setConfig(left)
	if err := file.lone("CREATE TRIGGER ill BEFORE INSERT ON records BEGIN SELECT RAISE(ABORT, 'no'); END"); err != nil {
		t.Fatal(err)
	}
	refused(t, left, migrations, "no")
	if err := file.lone("DROP TRIGGER ill"); err != nil {
		t.Fatal(err)
	}
	(&rig{t, opened(t, left)}).want(key("a", 0), "running")
}

// A log that is sealed by a key that is gone keeps all that it has.
func TestLogWithoutItsKey(t *testing.T) {
	c := sealedConfig(t, t.TempDir(), "a")
	r := &rig{t, opened(t, c)}
	r.fresh(key("a", 0), start)
	r.finished(key("a", 1))
	r.fresh(key("a", 2), start)
	want, left := r.everything(3), r.crashed(nil)
	for _, ids := range [][]string{nil, {"b"}} {
		left.Keys = nil
		if ids != nil {
			left.Keys = keys(t, ids...)
		}
		refused(t, left, migrations, "sealed")
	}
	left.Keys = keys(t, "b", "a")
	r.sameAs(left, 3, want)
}

// What is coded otherwise needs another format: a log that an earlier version left would
// be misread.
func TestFormatOfEntries(t *testing.T) {
	s := &Store{}
	s.setConfig(config("nowhere"))
	var n int64
	var rec idempotency.Record
	var q idempotency.Request
	fillValue(reflect.ValueOf(&rec).Elem(), &n)
	fillValue(reflect.ValueOf(&q).Elem(), &n)
	text := s.appendEntry(nil, &row{rec: rec, request: codedRequest(&q)}, partNew, partNew)
	for _, state := range idempotency.States() {
		text = fmt.Appendf(text, "%d %s ", state, state)
	}
	for i := range 5 {
		text = fmt.Appendf(text, "%d %s ", i, classify.Class(i))
	}
	for i := range 3 {
		text = fmt.Appendf(text, "%d %s ", i, classify.Executed(i))
	}
	want := map[string]string{"rpR3": "8ca4ecf1115bd226fbfe11e368ee6f453d3317c626ad7ae3568bfb52aed8be52"}
	if got := fmt.Sprintf("%x", sha256.Sum256(text)); got != want[redoMagic] {
		t.Errorf("format %s has the sum %s, want %s: what is coded otherwise needs another format", redoMagic, got, want[redoMagic])
	}
}

// Logs that earlier versions left are read, and say nothing of what those did not know.
func TestLogsOfTheFormatsBefore(t *testing.T) {
	for format := byte(redoFirst); format < redoMagic[3]; format++ {
		rec := idempotency.Record{
			ID: key("a", 1), State: idempotency.StateWaiting, Host: "u1.test:443",
			History: attempt.History{{N: 1, Host: "u1.test:443", Verdict: classify.Verdict{Class: classify.Transient, Reason: "status_503", RetryAfter: 5}}},
			Runs:    []idempotency.Run{{CallID: "a", First: 1, Reason: "because"}, {CallID: "b", First: 2}},
		}
		if format == '2' {
			rec.History[0].Supplier = "b"
			rec.Runs[0].Supplier = idempotency.Supplier{Name: "b", OrderNo: "1"}
		}
		out := coder{format: format}
		out.record(&rec)
		in := coder{buf: out.buf, reading: true, format: format}
		var got idempotency.Record
		in.record(&got)
		if diff := cmp.Diff(rec, got); diff != "" || in.bad || len(in.buf) > 0 {
			t.Errorf("format %c: bad %v, %d bytes are left (-want +got):\n%s", format, in.bad, len(in.buf), diff)
		}
		l := redoLog{id: 7}
		if err := l.own(&frame{format: format, id: 7}); err != nil {
			t.Errorf("format %c: own = %v", format, err)
		}
	}
}
