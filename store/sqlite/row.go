package sqlite

import (
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"retryproxy/idempotency"
	"retryproxy/store/codec"
)

// row is a record with its place in the database.
type row struct {
	id     int64 // records.id; 0: not there yet
	answer int64 // answers.id; 0: none, or not there yet
	bytes  int64 // of that answer
	past   bool  // its ttl is over
	rec    idempotency.Record

	// What the database does not know yet.
	request []byte               // what takes the place of its request, as codedRequest gives it
	whole   *idempotency.Request // the same, of a change that goes straight to the database
	drops   bool                 // its request goes
	drop    int64                // answers.id of the answer that goes
	carried bool                 // once already, see carryOver
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
	selectGoes    = "SELECT next_at FROM records INDEXED BY records_due WHERE past = 0 AND (state = 'parked' OR state = 'dead' OR state = 'in_doubt') AND state = 'parked' AND next_at < ?"
	countParked   = "SELECT count(*) FROM records INDEXED BY records_life WHERE past = 0 AND expires IS NULL AND state = 'parked'"
	selectParked  = "SELECT coalesce(min(parked), '') FROM records INDEXED BY records_parked WHERE parked IS NOT NULL"
	selectRequest = `SELECT q.mode, q.scheme, q.authority, q.target, q.exempt, q.others, q.honoured, q.version, q.fields, q.trailers, q.listener, q.client, q.user, q.body, q.body IS NOT NULL, q.sealed
  FROM records r JOIN requests q ON q.record = r.id WHERE r.tenant = ? AND r.key = ?`

	insertRecord = `INSERT INTO records (id, tenant, key, created, owner, policy, shop, shop_tier, task_type, method, host, path, fingerprint, credentials, keyless, honoured, terms,
  receipt, parked, notes, state, version, updated, deadline, next_at, expires, ttl, reason, executed, client_count, attempts, runs, history, status, status_text, stored, answer, bytes) VALUES `
	recordPlaces = "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
	updateRecord = `UPDATE records SET created=?, owner=?, policy=?, shop=?, shop_tier=?, task_type=?, method=?, host=?, path=?, fingerprint=?, credentials=?, keyless=?, honoured=?, terms=?,
  receipt=?, parked=?, notes=?, state=?, version=?, updated=?, deadline=?, next_at=?, expires=?, ttl=?, reason=?, executed=?, client_count=?, attempts=?, runs=?, history=?, status=?, status_text=?, stored=?, answer=?, bytes=?, past=0
  WHERE id=?`
	putRequest = `INSERT INTO requests (record, mode, scheme, authority, target, exempt, others, honoured, version, fields, trailers, listener, client, user, body, sealed) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)
  ON CONFLICT (record) DO UPDATE SET mode=excluded.mode, scheme=excluded.scheme, authority=excluded.authority, target=excluded.target,
  exempt=excluded.exempt, others=excluded.others, honoured=excluded.honoured, version=excluded.version,
  fields=excluded.fields, trailers=excluded.trailers, listener=excluded.listener, client=excluded.client, user=excluded.user, body=excluded.body, sealed=excluded.sealed`
	dropRequest  = "DELETE FROM requests WHERE record = ?"
	insertAnswer = "INSERT INTO answers (id, record, fields, body, sealed) VALUES "
	answerPlaces = "(?,?,?,?,?)"
	dropAnswer   = "DELETE FROM answers WHERE id = ?"

	lastIDs = "SELECT coalesce((SELECT max(id) FROM records), 0), coalesce((SELECT max(id) FROM answers), 0)"
)

// values are what a statement is given, in its order.
type values []driver.NamedValue

// add appends a value of a type that drivers know.
func (v values) add(x driver.Value) values {
	return append(v, driver.NamedValue{Ordinal: len(v) + 1, Value: x})
}

// insert inserts rows of a table, several by one statement.
type insert struct{ one, several string }

// severalRows is how many rows are inserted by one statement.
const severalRows = 8

func inserts(into, places string) insert {
	return insert{into + places, into + places + strings.Repeat(","+places, severalRows-1)}
}

var (
	intoRecords = inserts(insertRecord, recordPlaces)
	intoAnswers = inserts(insertAnswer, answerPlaces)
)

// columns are those of a new row.
func (r *row) columns(v values) values {
	return r.life(r.identity(v.add(r.id).add(r.rec.Tenant).add(r.rec.Key)))
}

// identity are the columns that only a new run changes.
func (r *row) identity(v values) values {
	rec := &r.rec
	var credentials driver.Value
	if rec.Credentials != [32]byte{} {
		credentials = rec.Credentials[:]
	}
	return v.add(timeText(rec.Created)).add(rec.Owner).add(rec.Policy).add(rec.Labels.Shop).add(rec.Labels.ShopTier).add(rec.Labels.TaskType).
		add(rec.Method).add(rec.Host).add(rec.Path).add(rec.Fingerprint[:]).add(credentials).add(rec.Keyless).add(rec.Honoured).add(termsBlob(rec.Terms))
}

// life are all other columns.
func (r *row) life(v values) values {
	rec := &r.rec
	v = v.add(textOrNull(rec.Receipt)).add(timeOrNull(rec.Parked)).add(notesText(rec.Notes)).
		add(rec.State.String()).add(int64(rec.Version)).add(timeText(rec.Updated)).add(timeOrNull(rec.Deadline)).
		add(timeOrNull(rec.NextAt)).add(timeOrNull(rec.Expires)).add(rec.TTL.String()).add(rec.Reason).add(rec.Executed.String()).
		add(int64(rec.ClientCount)).add(int64(rec.Attempts)).add(runsText(rec.Runs)).add(historyText(rec.History))
	a := rec.Answer
	if a == nil {
		return v.add(nil).add(nil).add(nil).add(nil).add(int64(0))
	}
	var kept driver.Value
	if r.answer != 0 {
		kept = r.answer
	}
	return v.add(int64(a.Status)).add(a.Reason).add(timeOrNull(a.Stored)).add(kept).add(r.bytes)
}

// answerColumns are the columns of the answer of a row.
func (s *Store) answerColumns(v values, r *row) values {
	a, c := r.rec.Answer, s.closer(r.rec.ID)
	return v.add(r.answer).add(r.id).add(c.text("answers.fields", fieldsText(a.Fields))).add(c.Seal("answers.body", a.Body)).add(c.key())
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
func (s *Store) requestColumns(v values, record int64, id idempotency.ID, q *idempotency.Request) values {
	c := s.closer(id)
	var body driver.Value
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
	return v.add(record).add(q.Mode).add(q.Scheme).add(q.Authority).add(c.text("requests.target", q.Target)).add(q.Exempt).
		add(c.text("requests.others", others)).add(q.Honoured).add(q.Version).
		add(c.text("requests.fields", fieldsText(q.Fields))).add(c.text("requests.trailers", fieldsText(q.Trailers))).
		add(q.Listener).add(q.Client).add(q.User).add(body).add(c.key())
}
