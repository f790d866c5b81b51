package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// migration leads from one schema version to the next.
type migration struct {
	text string
	// move then moves what was in tables that drop takes away; nil: nothing has to be.
	move func(ctx context.Context, tx *sql.Tx) error
	drop string
}

// migrations are those from the beginning: the first makes version 1.
var migrations = []migration{{text: schema1}, {text: schema2}, {text: schema3}, {text: schema4}, {schema5, moveCalls, dropCalls4}, {text: schema6}}

const schema1 = `
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

-- One row for each (tenant, key). Times are UTC text of fixed width.
CREATE TABLE records (
  id           INTEGER PRIMARY KEY,
  tenant       TEXT    NOT NULL,
  key          TEXT    NOT NULL,
  state        TEXT    NOT NULL CHECK (state IN ('running','waiting','parked','done','free','dead','in_doubt')),
  past         INTEGER NOT NULL DEFAULT 0, -- 1: its ttl is over and only its history is left
  version      INTEGER NOT NULL,
  owner        TEXT    NOT NULL,           -- call id of the last run
  policy       TEXT    NOT NULL,
  shop         TEXT    NOT NULL,
  shop_tier    TEXT    NOT NULL,
  task_type    TEXT    NOT NULL,
  method       TEXT    NOT NULL,
  host         TEXT    NOT NULL,
  path         TEXT    NOT NULL,
  created      TEXT    NOT NULL,
  updated      TEXT    NOT NULL,
  deadline     TEXT,                       -- of the last run
  next_at      TEXT,                       -- waiting, parked: when it goes on
  expires      TEXT,                       -- ended: when the key is new again; past: when the row goes
  ttl          TEXT    NOT NULL,
  reason       TEXT    NOT NULL,
  executed     TEXT    NOT NULL CHECK (executed IN ('no','maybe','yes')),
  client_count INTEGER NOT NULL,           -- largest X-Retry-Count a client sent
  attempts     INTEGER NOT NULL,
  runs         TEXT    NOT NULL,           -- JSON
  history      TEXT    NOT NULL,           -- JSON: attempts
  status       INTEGER,                    -- done: of the answer, 0 when unknown
  status_text  TEXT,
  stored       TEXT,
  answer       INTEGER,                    -- answers.id; NULL: no answer, or only this marker of it
  bytes        INTEGER NOT NULL DEFAULT 0, -- of that answer
  fingerprint  BLOB    NOT NULL,
  credentials  BLOB,
  UNIQUE (tenant, key)
);
CREATE INDEX records_life ON records (past, expires, state, bytes);

-- What it takes to send a call again: kept until it ends done or failed.
CREATE TABLE requests (
  record    INTEGER PRIMARY KEY REFERENCES records (id) ON DELETE CASCADE,
  mode      TEXT NOT NULL,
  scheme    TEXT NOT NULL,
  authority TEXT NOT NULL,
  target    TEXT NOT NULL,
  exempt    INTEGER NOT NULL,
  others    TEXT NOT NULL, -- JSON: [{"Scheme", "Authority", "Target", "Exempt"}, ...]
  honoured  INTEGER NOT NULL,
  version   TEXT NOT NULL,
  fields    TEXT NOT NULL, -- JSON: [[name, value], ...]
  trailers  TEXT NOT NULL,
  listener  TEXT NOT NULL,
  client    TEXT NOT NULL,
  user      TEXT NOT NULL,
  body      BLOB           -- NULL: none
);

-- What is replayed, in the order in which it was stored.
CREATE TABLE answers (
  id     INTEGER PRIMARY KEY,
  record INTEGER NOT NULL,
  fields TEXT NOT NULL,
  body   BLOB
);
`

// schema2 makes the table anew: the state free is called failed, and a record has
// what receipts and letters need. Lists of IN would cost a table of their own with
// every statement.
const schema2 = `
CREATE TABLE records2 (
  id           INTEGER PRIMARY KEY,
  tenant       TEXT    NOT NULL,
  key          TEXT    NOT NULL,
  state        TEXT    NOT NULL CHECK (state = 'running' OR state = 'done' OR state = 'waiting' OR state = 'parked' OR state = 'failed' OR state = 'dead' OR state = 'in_doubt'),
  past         INTEGER NOT NULL DEFAULT 0, -- 1: its ttl is over and only its history is left
  version      INTEGER NOT NULL,
  owner        TEXT    NOT NULL,           -- call id of the last run
  policy       TEXT    NOT NULL,
  shop         TEXT    NOT NULL,
  shop_tier    TEXT    NOT NULL,
  task_type    TEXT    NOT NULL,
  method       TEXT    NOT NULL,
  host         TEXT    NOT NULL,
  path         TEXT    NOT NULL,
  receipt      TEXT,                       -- its name for clients and people, once it needs one
  keyless      INTEGER NOT NULL DEFAULT 0, -- 1: the key was made here
  honoured     INTEGER NOT NULL DEFAULT 0, -- 1: the key goes upstream
  terms        BLOB,                       -- 8 bytes each: hashes of what it can be found by
  created      TEXT    NOT NULL,
  updated      TEXT    NOT NULL,
  deadline     TEXT,                       -- of the last run
  parked       TEXT,                       -- since when this run waits without a client
  next_at      TEXT,                       -- waiting, parked: when it goes on; dead: when it is tried again; in_doubt: when its key is new
  expires      TEXT,                       -- ended: when the key is new again; past: when the row goes
  ttl          TEXT    NOT NULL,
  reason       TEXT    NOT NULL,
  executed     TEXT    NOT NULL CHECK (executed = 'no' OR executed = 'yes' OR executed = 'maybe'),
  client_count INTEGER NOT NULL,           -- largest X-Retry-Count a client sent
  attempts     INTEGER NOT NULL,
  runs         TEXT    NOT NULL,           -- JSON
  history      TEXT    NOT NULL,           -- JSON: attempts
  notes        TEXT    NOT NULL DEFAULT '[]', -- JSON: what people decided
  status       INTEGER,                    -- of the answer, 0 when unknown
  status_text  TEXT,
  stored       TEXT,
  answer       INTEGER,                    -- answers.id; NULL: no answer, or only this marker of it
  bytes        INTEGER NOT NULL DEFAULT 0, -- of that answer
  fingerprint  BLOB    NOT NULL,
  credentials  BLOB,
  UNIQUE (tenant, key)
);
INSERT INTO records2 (id, tenant, key, state, past, version, owner, policy, shop, shop_tier, task_type, method, host, path,
  receipt, honoured, created, updated, deadline, parked, next_at, expires, ttl, reason, executed, client_count, attempts,
  runs, history, status, status_text, stored, answer, bytes, fingerprint, credentials)
SELECT r.id, tenant, key, CASE state WHEN 'free' THEN 'failed' ELSE state END, past, r.version, owner, policy, shop, shop_tier, task_type, method, host, path,
  CASE WHEN state IN ('parked','dead','in_doubt') THEN owner END, coalesce(q.honoured, 0), created, updated, deadline,
  CASE state WHEN 'parked' THEN updated END, CASE state WHEN 'in_doubt' THEN expires ELSE next_at END, expires, ttl, reason, executed, client_count, attempts,
  runs, history, status, status_text, stored, answer, bytes, fingerprint, credentials
FROM records r LEFT JOIN requests q ON q.record = r.id;
DROP TABLE records;
ALTER TABLE records2 RENAME TO records;
CREATE INDEX records_life ON records (past, expires, state, bytes);
CREATE INDEX records_due ON records (next_at) WHERE past = 0 AND (state = 'parked' OR state = 'dead' OR state = 'in_doubt');
CREATE INDEX records_letters ON records (updated) WHERE past = 0 AND (state = 'dead' OR state = 'in_doubt');
CREATE INDEX records_receipt ON records (receipt) WHERE receipt IS NOT NULL;
CREATE INDEX records_parked ON records (parked) WHERE parked IS NOT NULL;
CREATE INDEX records_of_host ON records (host, updated) WHERE past = 0 AND state = 'parked';
`

// schema3 adds the history of calls, and says which rows are sealed.
const schema3 = `
ALTER TABLE requests ADD COLUMN sealed TEXT; -- id of the key that target, others, fields, trailers and body are sealed by; NULL: they are not
ALTER TABLE answers  ADD COLUMN sealed TEXT; -- the same of fields and body

-- One row for each call that ended, keyed or not, in the order in which they were noted.
CREATE TABLE calls (
  id          INTEGER PRIMARY KEY,
  call_id     TEXT    NOT NULL,
  call_hash   INTEGER NOT NULL, -- of call_id, see docs/store.md
  tenant      TEXT,             -- of its record; NULL: it had none
  key         TEXT,
  key_hash    INTEGER,          -- as logs show it, printf('%016x', key_hash); NULL: it had no key
  started     TEXT    NOT NULL,
  ended       TEXT    NOT NULL,
  duration_ns INTEGER NOT NULL, -- within its last process
  overhead_ns INTEGER NOT NULL, -- of that, our own part
  result      TEXT    NOT NULL, -- success, recovered, replay, failed, rejected, cancelled
  reason      TEXT    NOT NULL,
  detail      TEXT,
  status      INTEGER NOT NULL, -- what the client got; 0: nothing, 499: it had left
  executed    TEXT    NOT NULL, -- no, maybe, yes
  mode        TEXT    NOT NULL,
  policy      TEXT,
  shop        TEXT,
  shop_tier   TEXT,
  task_type   TEXT,
  user        TEXT,
  client      TEXT    NOT NULL,
  method      TEXT    NOT NULL,
  scheme      TEXT    NOT NULL,
  host        TEXT    NOT NULL,
  path        TEXT    NOT NULL, -- without query
  client_id   TEXT,             -- the client's X-Request-Id
  trace       TEXT,             -- the client's traceparent
  bytes       INTEGER NOT NULL, -- of the answer
  previous    INTEGER NOT NULL, -- attempts of earlier runs
  attempts    TEXT,             -- JSON, as records.history; NULL: none
  waits       TEXT              -- JSON: cause, for_ns; NULL: none
);
CREATE INDEX calls_ended ON calls (ended, shop, task_type, host, result, reason);
CREATE INDEX calls_call ON calls (call_hash);
CREATE INDEX calls_key ON calls (key_hash) WHERE key_hash IS NOT NULL;

-- What a text is looked for in: hashes of 8 bytes, by the time of the end.
CREATE TABLE call_terms (
  ended INTEGER NOT NULL, -- of calls.ended, in ns since 1970
  call  INTEGER NOT NULL, -- calls.id
  terms BLOB    NOT NULL,
  PRIMARY KEY (ended, call)
) WITHOUT ROWID;
`

// schema4 tells calls that no client waited for from those of clients.
const schema4 = `
ALTER TABLE calls ADD COLUMN origin TEXT; -- restart, parked, requeue, redrive; NULL: a client
`

// schema5 keeps the history in blocks. Columns that searches and sweeps read come
// first.
const schema5 = `
ALTER TABLE calls RENAME TO calls4;

-- One row for some calls that ended, keyed or not. Look at them in the view calls.
CREATE TABLE call_blocks (
  id     INTEGER PRIMARY KEY, -- number of its last call, in the order in which they were noted
  calls  INTEGER NOT NULL,    -- how many
  first  TEXT    NOT NULL,    -- when the first and the last of them ended
  last   TEXT    NOT NULL,
  few    INTEGER NOT NULL,    -- 1: it is to be put together with others
  filter BLOB    NOT NULL,    -- what is in none of the calls, see docs/store.md
  marks  BLOB    NOT NULL,    -- number, end, size of its text and hashes of each call
  texts  TEXT    NOT NULL     -- JSON: a list of the calls, each a list of what the view has
);
CREATE INDEX call_blocks_time ON call_blocks (last, first, calls);
CREATE INDEX call_blocks_few ON call_blocks (few, calls) WHERE few = 1;

CREATE VIEW calls AS
SELECT b.id AS block,
  c.value ->> 0 AS call_id,
  nullif(c.value ->> 1, '') AS tenant, -- of its record; NULL: it had none
  nullif(c.value ->> 2, '') AS key,
  nullif(c.value ->> 3, '') AS key_hash, -- as logs show it; NULL: it had no key
  strftime('%Y-%m-%dT%H:%M:%S', (c.value ->> 4) / 1000000000, 'unixepoch') || printf('.%09dZ', (c.value ->> 4) % 1000000000) AS started,
  strftime('%Y-%m-%dT%H:%M:%S', (coalesce(c.value ->> 4, 0) + (c.value ->> 5)) / 1000000000, 'unixepoch') || printf('.%09dZ', (coalesce(c.value ->> 4, 0) + (c.value ->> 5)) % 1000000000) AS ended,
  c.value ->> 6 AS duration_ns, -- within its last process
  c.value ->> 7 AS overhead_ns, -- of that, our own part
  c.value ->> 8 AS result, -- success, recovered, replay, failed, rejected, cancelled
  c.value ->> 9 AS reason,
  nullif(c.value ->> 10, '') AS detail,
  c.value ->> 11 AS status, -- what the client got; 0: nothing, 499: it had left
  c.value ->> 12 AS executed, -- no, maybe, yes
  c.value ->> 13 AS mode,
  nullif(c.value ->> 14, '') AS policy,
  nullif(c.value ->> 15, '') AS shop,
  nullif(c.value ->> 16, '') AS shop_tier,
  nullif(c.value ->> 17, '') AS task_type,
  nullif(c.value ->> 18, '') AS user,
  c.value ->> 19 AS client,
  c.value ->> 20 AS method,
  c.value ->> 21 AS scheme,
  c.value ->> 22 AS host,
  c.value ->> 23 AS path, -- without query
  nullif(c.value ->> 24, '') AS client_id, -- the client's X-Request-Id
  nullif(c.value ->> 25, '') AS trace, -- the client's traceparent
  c.value ->> 26 AS bytes, -- of the answer
  c.value ->> 27 AS previous, -- attempts of earlier runs
  nullif(c.value ->> 28, '') AS origin, -- restart, parked, requeue, redrive; NULL: a client
  (SELECT json_group_array(json_patch('{}', json_object( -- as records.history; what is zero is left out
    'n', a.value ->> 0,
    'count', nullif(a.value ->> 1, 0),
    'started', 
      strftime('%Y-%m-%dT%H:%M:%S', (coalesce(c.value ->> 4, 0) + (a.value ->> 2)) / 1000000000, 'unixepoch') || printf('.%09dZ', (coalesce(c.value ->> 4, 0) + (a.value ->> 2)) % 1000000000),
    'duration_ns', nullif(a.value ->> 3, 0),
    'host', nullif(a.value ->> 4, ''),
    'status', nullif(a.value ->> 5, 0),
    'class', nullif(a.value ->> 6, ''),
    'reason', nullif(a.value ->> 7, ''),
    'basis', nullif(a.value ->> 8, ''),
    'executed', nullif(a.value ->> 9, ''),
    'detail', nullif(a.value ->> 10, ''),
    'delay_ns', nullif(a.value ->> 11, 0),
    'cause', nullif(a.value ->> 12, ''),
    'retry_after_ns', nullif(a.value ->> 13, 0),
    'host_fault', json(iif((a.value ->> 14) & 1, 'true', 'null')),
    'alive', json(iif((a.value ->> 14) & 2, 'true', 'null')),
    'egress_fault', json(iif((a.value ->> 14) & 4, 'true', 'null')),
    'egress', nullif(a.value ->> 15, ''),
    'reused', json(iif((a.value ->> 14) & 8, 'true', 'null')),
    'upstream_id', nullif(a.value ->> 16, '')))) FROM json_each(c.value, '$[29]') a) AS attempts,
  (SELECT json_group_array(json_object('cause', w.value ->> 0, 'for_ns', w.value ->> 1)) FROM json_each(c.value, '$[30]') w) AS waits
FROM call_blocks b, json_each(b.texts) c;
`

// schema6 notes how far the database is: what came later is in the redo log, of which
// earlier versions know nothing.
const schema6 = `
INSERT INTO meta (name, value) VALUES ('redo', lower(hex(randomblob(8))) || ' 0');
`

// checkedWhole is the size up to which all of a file is checked at the start.
const checkedWhole = 64 << 20

// prepareFile makes the file, checks it, and brings it to the present version.
func (s *Store) prepareFile(ctx context.Context, steps []migration) error {
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	info, err := f.Stat()
	f.Close()
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := s.with(looking, func(db *sql.DB) error { return s.check(ctx, db, info.Size(), len(steps)) }); err != nil {
		return s.explained(err)
	}
	// A table that is made anew must not take along what refers to it.
	pragmas := slices.DeleteFunc(slices.Clone(writing), func(p string) bool { return p == "foreign_keys(1)" })
	if info.Size() == 0 {
		pragmas = append([]string{"auto_vacuum(INCREMENTAL)"}, pragmas...) // before the first table
	}
	return s.explained(s.with(pragmas, func(db *sql.DB) error { return s.migrate(ctx, db, steps) }))
}

// with does something with a connection of its own.
func (s *Store) with(pragmas []string, do func(*sql.DB) error) error {
	db, err := s.connect(pragmas)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	return do(db)
}

// explained says in a line for the operator why a file cannot be used.
func (s *Store) explained(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errDamaged), ok && (e.Code()&0xff == sqlite3.SQLITE_CORRUPT || e.Code()&0xff == sqlite3.SQLITE_NOTADB):
		return fmt.Errorf("store: %s is damaged and was left as it is; restore a copy, or move it away to start without its records: %w", s.path, err)
	case ok && e.Code()&0xff == sqlite3.SQLITE_BUSY:
		return fmt.Errorf("store: %s is locked by another program, such as a sqlite3 shell: %w", s.path, err)
	}
	return fmt.Errorf("store: %s: %w", s.path, err)
}

var errDamaged = errors.New("the check found")

// check looks for a version that is not known here, and for damage: everywhere
// in a small file, in a large one where the start reads anyway.
func (s *Store) check(ctx context.Context, db *sql.DB, size int64, known int) error {
	version, err := schemaVersion(ctx, db)
	switch {
	case err != nil:
		return err
	case version > known:
		return fmt.Errorf("it has version %d, written by a newer retryproxy; this one knows versions up to %d", version, known)
	}
	scopes := []string{"1"}
	if size > checkedWhole {
		scopes = []string{"sqlite_schema", "meta"}
	}
	for _, scope := range scopes {
		var found string
		if err := db.QueryRowContext(ctx, "PRAGMA quick_check("+scope+")").Scan(&found); err != nil {
			return err
		}
		if found != "ok" {
			return fmt.Errorf("%w: %s", errDamaged, found)
		}
	}
	return nil
}

// migrate applies the steps that the file has not seen, each in a transaction,
// after a copy of what was there.
func (s *Store) migrate(ctx context.Context, db *sql.DB, steps []migration) error {
	version, err := schemaVersion(ctx, db)
	switch {
	case err != nil:
		return err
	case version == len(steps):
		return nil
	case version > 0:
		if err := s.backup(ctx, db, version); err != nil {
			return fmt.Errorf("no copy before the migration: %w", err)
		}
	}
	made := version == 0
	for ; version < len(steps); version++ {
		if err := step(ctx, db, steps[version], version+1); err != nil {
			return fmt.Errorf("migration to version %d, nothing of it is kept: %w", version+1, err)
		}
		if !made {
			s.bounds().Log("store migrated", "file", s.path, "version", version+1)
		}
	}
	return nil
}

func schemaVersion(ctx context.Context, db *sql.DB) (int, error) {
	var tables int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil || tables == 0 {
		return 0, err
	}
	var text string
	if err := db.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = 'schema'").Scan(&text); err != nil {
		return 0, fmt.Errorf("it is a database, but not one of retryproxy: %w", err)
	}
	return strconv.Atoi(text)
}

// step is one migration.
func step(ctx context.Context, db *sql.DB, m migration, version int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if _, err := tx.ExecContext(ctx, m.text); err != nil {
		return err
	}
	if m.move != nil {
		if err := m.move(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, m.drop); err != nil {
			return err
		}
	}
	const note = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
	if _, err := tx.ExecContext(ctx, note, "schema", strconv.Itoa(version)); err != nil {
		return err
	}
	if version == 1 {
		if _, err := tx.ExecContext(ctx, note, "created", timeText(time.Now())); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// backup writes a copy beside the file. One that was cut off never has the
// final name.
func (s *Store) backup(ctx context.Context, db *sql.DB, version int) error {
	to := fmt.Sprintf("%s.v%d.bak", s.path, version)
	part := to + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", part); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(part, 0o600), os.Rename(part, to)); err != nil {
		return err
	}
	s.bounds().Log("store copied before a migration", "copy", to)
	return nil
}

// What connections are told first. What is deleted is overwritten: requests hold
// credentials.
var (
	patience = "busy_timeout(2000)" // when a sqlite3 shell is busy with the file
	looking  = []string{patience, "query_only(1)", "cache_size(-8192)"}
	writing  = []string{
		patience, "journal_mode(WAL)", "foreign_keys(1)", "cache_size(-16384)", "temp_store(MEMORY)",
		"secure_delete(ON)", "wal_autocheckpoint(4000)", "journal_size_limit(67108864)",
	}
)

// connect opens the file. Nothing is read yet.
func (s *Store) connect(pragmas []string) (*sql.DB, error) {
	sync := "FULL"
	if s.bounds().Durability == Process {
		sync = "NORMAL"
	}
	db, err := sql.Open("sqlite", fileURI(s.path)+"?mode=rw&_pragma=synchronous("+sync+")&_pragma="+strings.Join(pragmas, "&_pragma="))
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", s.path, err)
	}
	return db, nil
}

// fileURI is a path as SQLite reads it, see https://sqlite.org/uri.html.
func fileURI(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a drive letter
	}
	var out []byte
	for _, c := range []byte(path) {
		if slices.Contains([]byte("?#%&+ "), c) {
			out = fmt.Appendf(out, "%%%02X", c)
			continue
		}
		out = append(out, c)
	}
	return "file://" + string(out)
}
