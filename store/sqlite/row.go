package sqlite

import (
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"retryproxy/idempotency"
	"retryproxy/store/codec"
)

// row is a record with its place in the file.
type row struct {
	id     int64 // records.id; 0: not there yet
	answer int64 // answers.id; 0: none
	bytes  int64 // of that answer
	past   bool  // its ttl is over
	rec    idempotency.Record
}

const (
	columns = `r.id, r.tenant, r.key, r.state, r.past, r.version, r.owner, r.policy, r.shop, r.shop_tier, r.task_type,
  r.method, r.host, r.path, r.created, r.updated, coalesce(r.deadline, ''), coalesce(r.next_at, ''), coalesce(r.expires, ''),
  r.ttl, r.reason, r.executed, r.client_count, r.attempts, r.runs, r.history, r.fingerprint, r.credentials,
  coalesce(r.receipt, ''), r.keyless, r.honoured, r.terms, coalesce(r.parked, ''), r.notes,
  r.status, r.status_text, r.stored, coalesce(r.answer, 0), r.bytes`
	selectOne = "SELECT " + columns + ", coalesce(a.fields, ''), a.body, a.sealed FROM records r" +
		" LEFT JOIN answers a ON a.id = r.answer WHERE r.tenant = ? AND r.key = ?"
	selectPending = "SELECT " + columns + ", '', NULL, NULL FROM records r WHERE r.past = 0 AND r.expires IS NULL AND r.state <> 'parked' ORDER BY r.next_at, r.updated, r.id"
	selectDue     = "SELECT " + columns + ", '', NULL, NULL FROM records r INDEXED BY records_due WHERE r.past = 0 AND (r.state = 'parked' OR r.state = 'dead' OR r.state = 'in_doubt') AND r.next_at <= ? ORDER BY r.next_at LIMIT ?"
	selectNext    = "SELECT coalesce(min(next_at), '') FROM records INDEXED BY records_due WHERE past = 0 AND (state = 'parked' OR state = 'dead' OR state = 'in_doubt') AND next_at > ?"
	selectParked  = "SELECT coalesce(min(parked), '') FROM records INDEXED BY records_parked WHERE parked IS NOT NULL"
	selectRequest = `SELECT q.mode, q.scheme, q.authority, q.target, q.exempt, q.others, q.honoured, q.version, q.fields, q.trailers, q.listener, q.client, q.user, q.body, q.body IS NOT NULL, q.sealed
  FROM records r JOIN requests q ON q.record = r.id WHERE r.tenant = ? AND r.key = ?`

	insertRecord = `INSERT INTO records (tenant, key, created, owner, policy, shop, shop_tier, task_type, method, host, path, fingerprint, credentials, keyless, honoured, terms,
  state, version, updated, deadline, ttl, reason, executed, client_count, attempts, runs, history)
  VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?, 'running', ?,?,?,?, '', 'no', ?, 0, ?, '[]') ON CONFLICT (tenant, key) DO NOTHING`
	reopenRecord = `UPDATE records SET created=?, owner=?, policy=?, shop=?, shop_tier=?, task_type=?, method=?, host=?, path=?, fingerprint=?, credentials=?, keyless=?, honoured=?, terms=?,
  receipt=?, parked=?, notes=?, state=?, version=?, updated=?, deadline=?, next_at=?, expires=?, ttl=?, reason=?, executed=?, client_count=?, attempts=?, runs=?, history=?, status=?, status_text=?, stored=?, answer=?, bytes=?, past=0
  WHERE id=?`
	moveRecord = `UPDATE records SET owner=?, host=?, deadline=?, receipt=?, parked=?, notes=?, state=?, version=?, updated=?, next_at=?, expires=?, reason=?, executed=?, attempts=?, runs=?, history=?, status=?, status_text=?, stored=?, answer=?, bytes=?
  WHERE id=?`
	putRequest = `INSERT INTO requests (record, mode, scheme, authority, target, exempt, others, honoured, version, fields, trailers, listener, client, user, body, sealed) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)
  ON CONFLICT (record) DO UPDATE SET mode=excluded.mode, scheme=excluded.scheme, authority=excluded.authority, target=excluded.target,
  exempt=excluded.exempt, others=excluded.others, honoured=excluded.honoured, version=excluded.version,
  fields=excluded.fields, trailers=excluded.trailers, listener=excluded.listener, client=excluded.client, user=excluded.user, body=excluded.body, sealed=excluded.sealed`
	dropRequest  = "DELETE FROM requests WHERE record = ?"
	insertAnswer = "INSERT INTO answers (record, fields, body, sealed) VALUES (?,?,?,?)"
	dropAnswer   = "DELETE FROM answers WHERE id = ?"
)

// identity are the columns that only a new run changes.
func (r *row) identity() []any {
	rec := &r.rec
	var credentials any
	if rec.Credentials != [32]byte{} {
		credentials = rec.Credentials[:]
	}
	return []any{
		timeText(rec.Created), rec.Owner, rec.Policy, rec.Labels.Shop, rec.Labels.ShopTier, rec.Labels.TaskType,
		rec.Method, rec.Host, rec.Path, rec.Fingerprint[:], credentials, rec.Keyless, rec.Honoured, termsBlob(rec.Terms),
	}
}

// first are the columns of a record that was just made. All others have the
// values that any new record has.
func (r *row) first() []any {
	rec := &r.rec
	return append(append([]any{rec.Tenant, rec.Key}, r.identity()...),
		int64(rec.Version), timeText(rec.Updated), timeOrNull(rec.Deadline), rec.TTL.String(), rec.ClientCount, runsText(rec.Runs))
}

// life are all other columns of a record that runs again.
func (r *row) life() []any {
	rec := &r.rec
	return append([]any{
		textOrNull(rec.Receipt), timeOrNull(rec.Parked), notesText(rec.Notes),
		rec.State.String(), int64(rec.Version), timeText(rec.Updated), timeOrNull(rec.Deadline),
		timeOrNull(rec.NextAt), timeOrNull(rec.Expires), rec.TTL.String(), rec.Reason, rec.Executed.String(),
		rec.ClientCount, rec.Attempts, runsText(rec.Runs), historyText(rec.History),
	}, r.marker()...)
}

// moved are the columns that Advance changes.
func (r *row) moved() []any {
	rec := &r.rec
	return append([]any{
		rec.Owner, rec.Host, timeOrNull(rec.Deadline), textOrNull(rec.Receipt), timeOrNull(rec.Parked), notesText(rec.Notes),
		rec.State.String(), int64(rec.Version), timeText(rec.Updated),
		timeOrNull(rec.NextAt), timeOrNull(rec.Expires), rec.Reason, rec.Executed.String(),
		rec.Attempts, runsText(rec.Runs), historyText(rec.History),
	}, r.marker()...)
}

// marker are the columns about the answer.
func (r *row) marker() []any {
	a := r.rec.Answer
	if a == nil {
		return []any{nil, nil, nil, nil, 0}
	}
	var kept any
	if r.answer != 0 {
		kept = r.answer
	}
	return []any{a.Status, a.Reason, timeOrNull(a.Stored), kept, r.bytes}
}

// scanner is a sql.Row or sql.Rows.
type scanner interface{ Scan(to ...any) error }

// texts are the columns that are read as text and mean something else.
type texts struct {
	state, created, updated, deadline, next, expires, ttl, executed, runs, history string
	parked, notes                                                                  string
	fingerprint, credentials, terms                                                []byte
	status                                                                         sql.NullInt64
	phrase, stored                                                                 sql.NullString
	fields                                                                         string
	body                                                                           []byte
	sealed                                                                         sql.NullString
}

// scanRow reads a record. One whose answer does not open has a marker of it.
func (s *Store) scanRow(from scanner) (*row, error) {
	var r row
	var t texts
	rec := &r.rec
	err := from.Scan(&r.id, &rec.Tenant, &rec.Key, &t.state, &r.past, &rec.Version, &rec.Owner, &rec.Policy,
		&rec.Labels.Shop, &rec.Labels.ShopTier, &rec.Labels.TaskType, &rec.Method, &rec.Host, &rec.Path,
		&t.created, &t.updated, &t.deadline, &t.next, &t.expires, &t.ttl, &rec.Reason, &t.executed,
		&rec.ClientCount, &rec.Attempts, &t.runs, &t.history, &t.fingerprint, &t.credentials,
		&rec.Receipt, &rec.Keyless, &rec.Honoured, &t.terms, &t.parked, &t.notes,
		&t.status, &t.phrase, &t.stored, &r.answer, &r.bytes, &t.fields, &t.body, &t.sealed)
	if err != nil {
		return nil, err
	}
	copy(rec.Fingerprint[:], t.fingerprint)
	copy(rec.Credentials[:], t.credentials)
	err = errors.Join(t.times(rec), t.tokens(rec), t.lists(rec), t.answer(&r, s))
	if r.past {
		rec.Expires = time.Time{} // the column says when the row goes; the key is new
	}
	return &r, err
}

func (t *texts) times(rec *idempotency.Record) error {
	for _, x := range []struct {
		to   *time.Time
		text string
	}{{&rec.Created, t.created}, {&rec.Updated, t.updated}, {&rec.Deadline, t.deadline}, {&rec.NextAt, t.next}, {&rec.Expires, t.expires}, {&rec.Parked, t.parked}} {
		var err error
		if *x.to, err = parseTime(x.text); err != nil {
			return err
		}
	}
	var err error
	rec.TTL, err = time.ParseDuration(t.ttl)
	return err
}

func (t *texts) tokens(rec *idempotency.Record) (err error) {
	if rec.State, err = codec.State(t.state); err != nil {
		return err
	}
	rec.Executed, err = codec.Executed(t.executed)
	return err
}

func (t *texts) lists(rec *idempotency.Record) (err error) {
	if rec.Runs, err = parseRuns(t.runs); err != nil {
		return err
	}
	if rec.History, err = parseHistory(t.history); err != nil {
		return err
	}
	rec.Terms = parseTerms(t.terms)
	rec.Notes, err = parseNotes(t.notes)
	return err
}

func (t *texts) answer(r *row, s *Store) error {
	if !t.status.Valid {
		return nil
	}
	stored, err := parseTime(t.stored.String)
	if err != nil {
		return err
	}
	a := &idempotency.Answer{Status: int(t.status.Int64), Reason: t.phrase.String, Stored: stored, Kept: r.answer != 0}
	if a.Kept && t.sealed.Valid {
		a.Kept = s.openAnswer(r.rec.ID, t)
	}
	if a.Kept {
		a.Body = t.body
		a.Fields, err = parseFields(t.fields)
	}
	r.rec.Answer = a
	return err
}

// scanRequest reads the request of a record. Errors: codec.ErrSealed.
func (s *Store) scanRequest(from scanner, id idempotency.ID) (*idempotency.Request, error) {
	var q idempotency.Request
	var fields, trailers, others string
	var body bool
	var sealed sql.NullString
	err := from.Scan(&q.Mode, &q.Scheme, &q.Authority, &q.Target, &q.Exempt, &others, &q.Honoured, &q.Version, &fields, &trailers, &q.Listener, &q.Client, &q.User, &q.Body, &body, &sealed)
	if err != nil {
		return nil, err
	}
	if sealed.Valid {
		o := s.opener(id)
		o.text("requests.target", &q.Target)
		o.text("requests.others", &others)
		o.text("requests.fields", &fields)
		o.text("requests.trailers", &trailers)
		if body {
			o.bytes("requests.body", &q.Body)
		}
		if o.Err != nil {
			return nil, o.Err
		}
	}
	if body && q.Body == nil {
		q.Body = []byte{} // an empty one, not none
	}
	if err := json.Unmarshal([]byte(others), &q.Others); err != nil {
		return nil, err
	}
	if q.Fields, err = parseFields(fields); err != nil {
		return nil, err
	}
	q.Trailers, err = parseFields(trailers)
	return &q, err
}

// requestColumns are the columns of a request.
func (s *Store) requestColumns(record int64, id idempotency.ID, q *idempotency.Request) []any {
	c := s.closer(id)
	var body any
	if q.Body != nil {
		body = c.Seal("requests.body", q.Body)
	}
	others := "null"
	if len(q.Others) > 0 {
		text, err := json.Marshal(q.Others)
		if err != nil {
			panic("bug: places of plain values: " + err.Error())
		}
		others = string(text)
	}
	return []any{
		record, q.Mode, q.Scheme, q.Authority, c.text("requests.target", q.Target), q.Exempt, c.text("requests.others", others), q.Honoured, q.Version,
		c.text("requests.fields", fieldsText(q.Fields)), c.text("requests.trailers", fieldsText(q.Trailers)),
		q.Listener, q.Client, q.User, body, c.key(),
	}
}
