package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"retryproxy/attempt"
	"retryproxy/idempotency"
	"retryproxy/journal"
)

// refused opens a store that is not to be opened.
func refused(t *testing.T, c Config, steps []migration, want ...string) {
	t.Helper()
	s, err := open(t.Context(), c, steps)
	if err == nil {
		s.Close()
		t.Fatalf("Open worked, want an error with %q", want)
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("Open = %q, want %q in it", err, text)
		}
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	c := config(t.TempDir())
	s := opened(t, c)
	refused(t, c, migrations, filepath.Join(c.Path, "retryproxy.db.lock"), "another process")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	opened(t, c)
}

func TestFilesArePrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	c := config(filepath.Join(t.TempDir(), "new", "data"))
	s := opened(t, c)
	(&rig{t, s}).fresh(key("a", 1), start)
	err := filepath.WalkDir(c.Path, func(path string, d fs.DirEntry, _ error) error {
		info, err := d.Info()
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestStrangePaths(t *testing.T) {
	for _, name := range []string{"with space", "100%25", "a?b#c&d+e", "目录"} {
		if runtime.GOOS == "windows" && strings.Contains(name, "?") {
			continue
		}
		c := config(filepath.Join(t.TempDir(), name))
		r := &rig{t, opened(t, c)}
		r.fresh(key("a", 1), start)
		if _, err := os.Stat(filepath.Join(c.Path, File)); err != nil {
			t.Errorf("the file of %q is elsewhere: %v", name, err)
		}
	}
}

func TestNewerVersionIsRefused(t *testing.T) {
	c := config(t.TempDir())
	s, err := open(t.Context(), c, append(slices.Clone(migrations), migration{text: "CREATE TABLE later (a)"}))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	before := contents(t, c)
	known := len(migrations)
	refused(t, c, migrations, fmt.Sprint("version ", known+1), "newer retryproxy", fmt.Sprint("up to ", known))
	if !bytes.Equal(contents(t, c), before) {
		t.Error("a refused file was changed")
	}
}

func contents(t *testing.T, c Config) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Path, File))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestMigrationKeepsACopy(t *testing.T) {
	c := config(t.TempDir())
	r := &rig{t, opened(t, c)}
	r.reach(key("a", 1), idempotency.StateParked, 0, start)
	r.Close()

	broken := append(slices.Clone(migrations), migration{text: "CREATE TABLE later (a); CREATE TABLE later (b)"})
	refused(t, c, broken, fmt.Sprint("migration to version ", len(broken)), "nothing of it is kept")

	next := append(slices.Clone(migrations), migration{text: "CREATE TABLE later (a)"})
	s, err := open(t.Context(), c, next)
	if err != nil {
		t.Fatal(err)
	}
	(&rig{t, s}).want(key("a", 1), "parked")
	s.Close()
	copied := config(t.TempDir())
	text, err := os.ReadFile(filepath.Join(c.Path, fmt.Sprintf("%s.v%d.bak", File, len(migrations))))
	if err == nil {
		err = os.WriteFile(filepath.Join(copied.Path, File), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	(&rig{t, opened(t, copied)}).want(key("a", 1), "parked")
}

// What version 1 held is there in version 2, under its new names.
func TestMigrationFromVersion1(t *testing.T) {
	c := config(t.TempDir())
	s := &Store{path: filepath.Join(c.Path, File)}
	s.setConfig(c)
	if err := s.prepareFile(t.Context(), migrations[:1]); err != nil {
		t.Fatal(err)
	}
	const old = `
INSERT INTO records (id, tenant, key, state, version, owner, policy, shop, shop_tier, task_type, method, host, path, created, updated,
  next_at, expires, ttl, reason, executed, client_count, attempts, runs, history, status, answer, bytes, fingerprint)
SELECT n, 't', 'k' || n, column2, 3, 'call-' || n, 'default', 's1', '', '', 'POST', 'u1.test:80', '/', '2126-03-04T05:06:07.000000089Z', '2126-03-04T05:06:08.000000000Z',
  CASE column2 WHEN 'parked' THEN '2126-03-04T05:06:09.000000000Z' END, CASE WHEN column2 IN ('parked', 'running') THEN NULL ELSE '2126-03-05T05:06:08.000000000Z' END,
  '24h0m0s', 'because', 'maybe', 0, 1, '[{"call_id":"call-' || n || '","started":"2126-03-04T05:06:07.000000089Z","first":1}]', '[]',
  CASE column2 WHEN 'done' THEN 200 END, CASE column2 WHEN 'done' THEN 7 END, 0, x'01'
FROM (SELECT column1 AS n, column2 FROM (VALUES (1, 'free'), (2, 'in_doubt'), (3, 'parked'), (4, 'done'), (5, 'running')));
INSERT INTO answers (id, record, fields, body) VALUES (7, 4, '[]', 'hello');
INSERT INTO requests SELECT id, 'forward', 'http', 'u1.test', '/?q=1', 0, 'null', 1, '1.1', '[]', '[]', '', '', '', 'body' FROM records WHERE id IN (2, 3, 5);`
	if err := s.with(writing, func(db *sql.DB) error { _, err := db.Exec(old); return err }); err != nil {
		t.Fatal(err)
	}
	r := &rig{t, opened(t, c)}
	want := map[string]string{"k1": "failed", "k2": "in_doubt", "k3": "parked", "k4": "done", "k5": "running"}
	for k, state := range want {
		id := idempotency.ID{Tenant: "t", Key: k}
		r.want(id, state)
		q, err := r.Load(t.Context(), id)
		if kept := state == "in_doubt" || state == "parked" || state == "running"; kept != (err == nil) || kept && string(q.Body) != "body" {
			t.Errorf("the request of a record that was %s: %v, %v", state, q, err)
		}
		rec, _ := r.Get(t.Context(), id, start)
		if named := state == "in_doubt" || state == "parked"; named != (rec.Receipt != "") || named && !rec.Honoured {
			t.Errorf("a record that was %s has receipt %q, honoured %v", state, rec.Receipt, rec.Honoured)
		}
		if state == "done" && (rec.Answer == nil || string(rec.Answer.Body) != "hello") {
			t.Errorf("the answer is %v", rec.Answer)
		}
	}
	if due, next, err := r.Due(t.Context(), start.Add(time.Hour), 10); len(due) != 1 || due[0].Key != "k3" || next.IsZero() || err != nil {
		t.Errorf("Due = %v, %v, %v, want the parked one, then the one in doubt", due, next, err)
	}
}

// The history of version 4, a row for each call, is found in version 5 as it was.
func TestMigrationFromVersion4(t *testing.T) {
	c := config(t.TempDir())
	s := &Store{path: filepath.Join(c.Path, File)}
	s.setConfig(c)
	if err := s.prepareFile(t.Context(), migrations[:4]); err != nil {
		t.Fatal(err)
	}
	const calls = 2*fewCalls + 7 // more than a block
	want := make([]*attempt.Summary, calls)
	err := s.with(writing, func(db *sql.DB) error {
		if _, err := db.Exec("BEGIN"); err != nil { // of its only connection
			return err
		}
		for n := range want {
			want[n] = benchCall(n, start)
			if n%3 == 0 { // one without all that may be missing
				want[n] = &attempt.Summary{ID: fmt.Sprint("bare-", n), State: "done", Started: want[n].Started, Ended: want[n].Ended}
			}
			if err := insertCall4(db, n+1, want[n]); err != nil {
				return err
			}
		}
		_, err := db.Exec("COMMIT")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t, opened(t, c)}
	slices.Reverse(want)
	r.same(journal.Query{}, want...)
	one := want[6]
	for _, q := range []journal.Query{{CallID: one.ID}, {KeyHash: one.KeyHash}, {Words: benchSalts.Words(one.ClientID)}, {Shop: one.Labels.Shop, Host: "gw-api.pinduoduo.com", Reason: "status_503", Since: one.Ended, Until: one.Ended.Add(1)}} {
		r.same(q, one)
	}
	r.rows("sqlite_schema WHERE name LIKE 'calls4%' OR name = 'call_terms'", 0)
	r.rows("calls", calls)
	r.noted(call(1, 1000*time.Hour))
	r.rows("calls", calls+1)
	if _, err := os.Stat(r.path + ".v4.bak"); err != nil {
		t.Errorf("there is no copy of version 4: %v", err)
	}
}

// same requires the calls that a query finds.
func (r *rig) same(q journal.Query, want ...*attempt.Summary) {
	r.Helper()
	q.Limit = journal.MostLimit
	found, _, err := r.Find(r.T.Context(), q)
	var got []*attempt.Summary
	for _, c := range found {
		got = append(got, c.Summary)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(attempt.Summary{}, "Terms")); diff != "" || err != nil {
		r.Errorf("Find(%+v) = %v (-want +got):\n%s", q, err, diff)
	}
}

func insertCall4(db *sql.DB, id int, c *attempt.Summary) error {
	keyHash := any(nil)
	if n, err := strconv.ParseUint(c.KeyHash, 16, 64); err == nil {
		keyHash = int64(n)
	}
	history := any(nil)
	if len(c.Attempts) > 0 {
		history = historyText(c.Attempts)
	}
	waits := any(nil)
	if len(c.Waits) > 0 {
		waits = fmt.Sprintf(`[{"cause":%q,"for_ns":%d}]`, c.Waits[0].Cause, c.Waits[0].For)
	}
	_, err := db.Exec(`INSERT INTO calls (id, call_id, call_hash, tenant, key, key_hash, started, ended, duration_ns, overhead_ns, result, reason, detail, status, executed, mode, policy,
  shop, shop_tier, task_type, user, client, method, scheme, host, path, client_id, trace, bytes, previous, attempts, waits, origin)
  VALUES (?,?,0,NULL,NULL,?,?,?,?,?,?,?,NULL,?,?,?,?,?,NULL,?,NULL,?,?,?,?,?,?,NULL,?,?,?,?,NULL)`,
		id, c.ID, keyHash, timeText(c.Started), timeText(c.Ended), int64(c.Duration), int64(c.Overhead), c.Result, c.Reason, c.Status, c.Executed.String(), c.Mode, textOrNull(c.Policy),
		textOrNull(c.Labels.Shop), textOrNull(c.Labels.TaskType), c.Client, c.Method, c.Scheme, c.Host, c.Path, textOrNull(c.ClientID), c.Bytes, c.Previous, history, waits)
	if err == nil && len(c.Terms) > 0 {
		_, err = db.Exec("INSERT INTO call_terms (ended, call, terms) VALUES (?,?,?)", c.Ended.UnixNano(), id, termsBlob(c.Terms))
	}
	return err
}

func TestDamagedFileIsLeftAsItIs(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(text []byte) []byte
		want  string
	}{
		{"no database", func([]byte) []byte { return bytes.Repeat([]byte("no database "), 1000) }, "is damaged and was left as it is"},
		{"a page lost", func(text []byte) []byte {
			for at := 4096; at < len(text); at += 4096 {
				copy(text[at:at+100], make([]byte, 100))
			}
			return text
		}, "is damaged and was left as it is"},
		{"cut off", func(text []byte) []byte { return text[:len(text)/2] }, "is damaged and was left as it is"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := config(t.TempDir())
			r := &rig{t, opened(t, c)}
			for i := range 50 {
				r.reach(key("a", i), idempotency.StateDone, 1000, start)
			}
			r.Close()
			spoilt := tt.spoil(contents(t, c))
			if err := os.WriteFile(filepath.Join(c.Path, File), spoilt, 0o600); err != nil {
				t.Fatal(err)
			}
			refused(t, c, migrations, tt.want, File)
			if !bytes.Equal(contents(t, c), spoilt) {
				t.Error("a refused file was changed")
			}
		})
	}
}

func TestAnotherDatabaseIsRefused(t *testing.T) {
	c := config(t.TempDir())
	s := opened(t, c)
	s.Close()
	db, err := s.connect(writing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("DROP TABLE meta"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	refused(t, c, migrations, "not one of retryproxy")
}

// A full disk fails what is asked meanwhile, and nothing else.
func TestFullDisk(t *testing.T) {
	r := newRig(t, 0, 0)
	r.reach(key("a", 0), idempotency.StateParked, 0, start)
	limit := func(pages string) {
		r.now(func(w *writer) { w.exec("PRAGMA max_page_count = " + pages) })
	}
	large := idempotency.Claim{ID: key("a", 1), Owner: "o", Request: &idempotency.Request{Body: make([]byte, 1<<20)}}
	limit("1") // as large as it is now
	for range 3 {
		if _, err := r.Begin(t.Context(), large, start); !errors.Is(err, idempotency.ErrUnavailable) {
			t.Errorf("Begin on a full disk = %v, want ErrUnavailable", err)
		}
	}
	r.want(key("a", 0), "parked")
	r.want(key("a", 1), "")
	limit("1000000")
	r.fresh(key("a", 1), start)
}

// A connection that failed is replaced by the next change.
func TestLostConnection(t *testing.T) {
	r := newRig(t, 0, 0)
	var told []string
	c := *r.bounds()
	c.Log = func(msg string, _ ...any) { told = append(told, msg) }
	r.setConfig(c)
	r.fresh(key("a", 0), start)
	r.direct(t.Context(), func(w *writer) error { return w.conn.Close() })
	if got, err := r.claim(key("a", 1), start); err == nil {
		r.want(key("a", 1), "running")
	} else if !errors.Is(err, idempotency.ErrUnavailable) {
		t.Errorf("Begin without a connection = %v, %v, want ErrUnavailable", got, err)
	}
	r.fresh(key("a", 2), start)
	r.want(key("a", 0), "running")
	r.Close()
	if got := strings.Join(told, ", "); got != "store unavailable, store available again" {
		t.Errorf("the operator was told %q", got)
	}
}

// A caller who gave up before his change was queued changes nothing.
func TestCallerWhoGivesUp(t *testing.T) {
	r := newRig(t, 0, 0)
	r.fresh(key("a", 1), start)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		_, err := r.Begin(ctx, idempotency.Claim{ID: key("a", 0), Owner: "o"}, start)
		if !errors.Is(err, idempotency.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("Begin of one who gave up = %v, want ErrUnavailable and context.Canceled", err)
		}
		_, err = r.Advance(ctx, key("a", 1), idempotency.StateRunning, idempotency.StateFailed, idempotency.Change{Now: start, Owner: "o"})
		if !errors.Is(err, idempotency.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("Advance of one who gave up = %v, want ErrUnavailable and context.Canceled", err)
		}
	}
	r.want(key("a", 0), "")
	r.want(key("a", 1), "running")
}

// A change that is queued has an owner: its caller learns what came of it, though
// he wanted to leave. Else a key would be in use for ever, by nobody.
func TestCallerWhoGivesUpTooLate(t *testing.T) {
	r := newRig(t, 0, 0)
	r.fresh(key("a", 1), start)
	hold, held := make(chan struct{}), make(chan struct{})
	go r.submit(context.Background(), func(*writer) error { close(held); <-hold; return nil })
	<-held
	ctx, cancel := context.WithCancel(t.Context())
	begun, advanced := make(chan error, 1), make(chan error, 1)
	go func() {
		got, err := r.Begin(ctx, idempotency.Claim{ID: key("a", 0), Owner: "o"}, start)
		if err == nil && got.Result != idempotency.Fresh {
			err = errors.New("the result is not fresh")
		}
		begun <- err
	}()
	go func() {
		got, err := r.Advance(ctx, key("a", 1), idempotency.StateRunning, idempotency.StateFailed, idempotency.Change{Now: start, Owner: "o"})
		if err == nil && got.State != idempotency.StateFailed {
			err = errors.New("the record is not free")
		}
		advanced <- err
	}()
	for len(r.queue) < 2 {
		runtime.Gosched()
	}
	cancel()
	select { // what would come at once
	case err := <-begun:
		t.Errorf("Begin = %v before it was done", err)
		begun <- err
	case <-time.After(20 * time.Millisecond):
	}
	close(hold)
	if err := <-begun; err != nil {
		t.Errorf("Begin = %v, want fresh", err)
	}
	if err := <-advanced; err != nil {
		t.Errorf("Advance = %v, want free", err)
	}
	r.want(key("a", 0), "running")
	r.want(key("a", 1), "failed")
}

// What a request held is nowhere in the files once it was deleted.
func TestDeletedRequestsAreOverwritten(t *testing.T) {
	r := newRig(t, 0, 0)
	secret := func(i int) string { return fmt.Sprintf("Bearer secret-%04d-", i) }
	const calls = 1000
	end := func(i int) {
		if _, err := r.Advance(t.Context(), key("a", i), idempotency.StateRunning, idempotency.StateDone, idempotency.Change{Now: start, Owner: "o"}); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	var open []int
	for i := range calls {
		q := &idempotency.Request{Body: make([]byte, random.IntN(9000))}
		if i%3 == 0 {
			q.Fields.Add("Cookie", strings.Repeat("c", 5000)) // the rest is in another page
		}
		q.Fields.Add("Authorization", secret(i)+strings.Repeat("x", random.IntN(600)*random.IntN(2)*random.IntN(20)))
		if _, err := r.Begin(t.Context(), idempotency.Claim{ID: key("a", i), Owner: "o", Request: q}, start); err != nil {
			t.Fatal(err)
		}
		open = append(open, i)
		for len(open) > 40 || len(open) > 1 && random.IntN(3) == 0 {
			n := random.IntN(len(open))
			end(open[n])
			open = slices.Delete(open, n, n+1)
		}
	}
	kept := len(open)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if log, err := os.ReadFile(r.path + "-wal"); err == nil && len(log) > 0 {
		t.Errorf("the log has %d bytes after Close, want none", len(log))
	}
	text := contents(t, *r.bounds())
	found := 0
	for i := range calls {
		if bytes.Contains(text, []byte(secret(i))) != slices.Contains(open, i) {
			found++
		}
	}
	if found > 0 {
		t.Errorf("%d of %d requests are found where they should not be, or not where they should (%d are kept)", found, calls, kept)
	}
}

// A large body is not copied on its way: what the driver hands to SQLite is not
// of this heap.
func TestBodiesAreNotCopied(t *testing.T) {
	r := newRig(t, 0, 0)
	const size = 16 << 20
	c := idempotency.Claim{ID: key("a", 0), Owner: "o", Request: &idempotency.Request{Body: make([]byte, size)}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := r.Begin(t.Context(), c, start); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > size/4 {
		t.Errorf("Begin with %d bytes took %d bytes of the heap, want no copy", size, took)
	}
}

func TestCloseAppliesWhatWaits(t *testing.T) {
	c := config(t.TempDir())
	s := opened(t, c)
	errs := make(chan error, 64)
	for i := range 64 {
		go func() {
			_, err := s.Begin(context.Background(), idempotency.Claim{ID: key("a", i), Owner: "o"}, start)
			errs <- err
		}()
	}
	done := 0
	s.Close()
	for range 64 {
		if err := <-errs; err == nil {
			done++
		} else if !errors.Is(err, idempotency.ErrUnavailable) {
			t.Errorf("Begin = %v, want ErrUnavailable", err)
		}
	}
	(&rig{t, opened(t, c)}).rows("records", done)
}

// TestKilledProcess kills another process that writes, again and again. What it
// said was done is there.
func TestKilledProcess(t *testing.T) {
	if dir := os.Getenv("SQLITE_TEST_VICTIM"); dir != "" {
		writeForever(dir)
	}
	c := config(t.TempDir())
	c.Entries = 0
	kept := make(map[string]string)
	for round := range 5 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledProcess$")
		cmd.Env = append(os.Environ(), "SQLITE_TEST_VICTIM="+c.Path, fmt.Sprint("SQLITE_TEST_ROUND=", round))
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == 200+37*round {
				cmd.Process.Kill()
			}
			if k, state, ok := strings.Cut(lines.Text(), " "); ok {
				kept[k] = state
			}
		}
		cmd.Wait()
		r := &rig{t, opened(t, c)}
		for k, state := range kept {
			rec, err := r.Get(t.Context(), idempotency.ID{Tenant: "a", Key: k}, start)
			if err != nil || rec.State.String() != state && state == "done" {
				t.Errorf("round %d: %s is %v, %v, want %s", round, k, rec.State, err, state)
			}
			if _, err := r.Load(t.Context(), rec.ID); err == nil == (rec.State == idempotency.StateDone) {
				t.Errorf("round %d: Load(%s %s) = %v", round, k, rec.State, err)
			}
		}
		r.Close()
	}
	if len(kept) < 500 {
		t.Errorf("only %d calls were made", len(kept))
	}
}

// writeForever is the process that is killed: it says what it has done.
func writeForever(dir string) {
	c := config(dir)
	c.Entries = 0
	s, err := Open(context.Background(), c)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go func() { time.Sleep(time.Minute); os.Exit(1) }() // when nobody kills it
	for w := range 8 {
		go func() {
			for n := 0; ; n++ {
				k := fmt.Sprintf("%s-%d-%d", os.Getenv("SQLITE_TEST_ROUND"), w, n)
				id := idempotency.ID{Tenant: "a", Key: k}
				s.Begin(context.Background(), idempotency.Claim{ID: id, Owner: "o", TTL: ttl, Request: &idempotency.Request{}}, start)
				fmt.Println(k + " running")
				s.Advance(context.Background(), id, idempotency.StateRunning, idempotency.StateDone, idempotency.Change{Now: start, Owner: "o"})
				fmt.Println(k + " done")
			}
		}()
	}
	select {}
}
