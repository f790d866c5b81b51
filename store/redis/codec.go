package redis

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"retryproxy/attempt"
	"retryproxy/idempotency"
	"retryproxy/message"
	"retryproxy/store/codec"
)

// nameOf is a record's name in keys and indexes: tenant:key. The tenant is
// escaped, so that the first colon ends it.
func nameOf(id idempotency.ID) string { return url.QueryEscape(id.Tenant) + ":" + id.Key }

func parseName(name string) (idempotency.ID, error) {
	escaped, key, ok := strings.Cut(name, ":")
	tenant, err := url.QueryUnescape(escaped)
	if err != nil || !ok {
		return idempotency.ID{}, fmt.Errorf("%q is not the name of a record", name)
	}
	return idempotency.ID{Tenant: tenant, Key: key}, nil
}

// data is a record as JSON, but for what stands beside it: its name, version,
// owner and state.
type data struct {
	Policy      string          `json:"policy,omitempty"`
	Shop        codec.Text      `json:"shop,omitempty"`
	ShopTier    codec.Text      `json:"shop_tier,omitempty"`
	TaskType    codec.Text      `json:"task_type,omitempty"`
	Method      codec.Text      `json:"method,omitempty"`
	Host        codec.Text      `json:"host,omitempty"`
	Path        codec.Text      `json:"path,omitempty"`
	Receipt     string          `json:"receipt,omitempty"`
	Keyless     bool            `json:"keyless,omitempty"`
	Honoured    bool            `json:"honoured,omitempty"`
	Created     time.Time       `json:"created,omitzero"`
	Updated     time.Time       `json:"updated,omitzero"`
	Deadline    time.Time       `json:"deadline,omitzero"`
	NextAt      time.Time       `json:"next_at,omitzero"`
	Parked      time.Time       `json:"parked,omitzero"`
	Expires     time.Time       `json:"expires,omitzero"`
	TTL         time.Duration   `json:"ttl_ns,omitempty"`
	Reason      string          `json:"reason,omitempty"`
	Executed    string          `json:"executed"`
	ClientCount int             `json:"client_count,omitempty"`
	Attempts    int             `json:"attempts,omitempty"`
	Runs        []codec.Run     `json:"runs,omitempty"`
	History     []codec.Attempt `json:"history,omitempty"`
	Notes       []codec.Note    `json:"notes,omitempty"`
	Answer      *answer         `json:"answer,omitempty"`
	Terms       []uint64        `json:"terms,omitempty"`
	Fingerprint []byte          `json:"fingerprint"`
	Credentials []byte          `json:"credentials,omitempty"`
}

// answer is what a marker says; fields and body have a key of their own.
type answer struct {
	Status int        `json:"status"`
	Reason codec.Text `json:"reason,omitempty"`
	Stored time.Time  `json:"stored,omitzero"`
}

func recordText(r *idempotency.Record) []byte {
	d := data{
		Policy: r.Policy, Shop: codec.Text(r.Labels.Shop), ShopTier: codec.Text(r.Labels.ShopTier), TaskType: codec.Text(r.Labels.TaskType),
		Method: codec.Text(r.Method), Host: codec.Text(r.Host), Path: codec.Text(r.Path), Receipt: r.Receipt, Keyless: r.Keyless, Honoured: r.Honoured,
		Created: r.Created.UTC(), Updated: r.Updated.UTC(), Deadline: r.Deadline.UTC(), NextAt: r.NextAt.UTC(), Parked: r.Parked.UTC(), Expires: r.Expires.UTC(),
		TTL: r.TTL, Reason: r.Reason, Executed: r.Executed.String(), ClientCount: r.ClientCount, Attempts: r.Attempts,
		Runs: codec.RunsOf(r.Runs), History: codec.HistoryOf(r.History), Notes: codec.NotesOf(r.Notes),
		Terms: r.Terms, Fingerprint: r.Fingerprint[:],
	}
	if r.Credentials != [32]byte{} {
		d.Credentials = r.Credentials[:]
	}
	if a := r.Answer; a != nil {
		d.Answer = &answer{a.Status, codec.Text(a.Reason), a.Stored.UTC()}
	}
	return encoded(&d)
}

// encoded is JSON of values that always have one.
func encoded(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("bug: plain values that are no JSON: " + err.Error())
	}
	return text
}

func parseRecord(text string, r *idempotency.Record) error {
	var d data
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	executed, err := codec.Executed(d.Executed)
	if err != nil {
		return err
	}
	r.Policy, r.Receipt, r.Keyless, r.Honoured = d.Policy, d.Receipt, d.Keyless, d.Honoured
	r.Labels = attempt.Labels{Shop: string(d.Shop), ShopTier: string(d.ShopTier), TaskType: string(d.TaskType)}
	r.Method, r.Host, r.Path = string(d.Method), string(d.Host), string(d.Path)
	r.Created, r.Updated, r.Deadline, r.NextAt, r.Parked, r.Expires = d.Created, d.Updated, d.Deadline, d.NextAt, d.Parked, d.Expires
	r.TTL, r.Reason, r.Executed, r.ClientCount, r.Attempts, r.Terms = d.TTL, d.Reason, executed, d.ClientCount, d.Attempts, d.Terms
	copy(r.Fingerprint[:], d.Fingerprint)
	copy(r.Credentials[:], d.Credentials)
	r.Runs, r.Notes = codec.Runs(d.Runs), codec.Notes(d.Notes)
	if r.History, err = codec.History(d.History); err != nil {
		return err
	}
	if a := d.Answer; a != nil {
		r.Answer = &idempotency.Answer{Status: a.Status, Reason: string(a.Reason), Stored: a.Stored}
	}
	return nil
}

// fieldsText is a list of lines, [name, value] each.
func fieldsText(f message.Fields) []byte {
	lines := make([][2]codec.Text, len(f))
	for i := range f {
		lines[i] = [2]codec.Text{codec.Text(f[i].Name), codec.Text(f[i].Value)}
	}
	return encoded(lines)
}

func parseFields(text string) (message.Fields, error) {
	var lines [][2]codec.Text
	if err := json.Unmarshal([]byte(text), &lines); err != nil || len(lines) == 0 {
		return nil, err
	}
	out := make(message.Fields, len(lines))
	for i := range lines {
		out[i] = message.Field{Name: string(lines[i][0]), Value: string(lines[i][1])}
	}
	return out, nil
}

// spot is idempotency.Place as JSON.
type spot struct {
	Scheme    string     `json:"scheme"`
	Authority codec.Text `json:"authority"`
	Target    codec.Text `json:"target"`
	Exempt    bool       `json:"exempt,omitempty"`
}

// requestFields are name and value in turn.
func requestFields(q *idempotency.Request, c codec.Sealer) []any {
	out := []any{
		"mode", q.Mode, "scheme", q.Scheme, "authority", q.Authority, "target", c.Seal("requests.target", []byte(q.Target)),
		"exempt", flag(q.Exempt), "honoured", flag(q.Honoured), "version", q.Version,
		"fields", c.Seal("requests.fields", fieldsText(q.Fields)), "trailers", c.Seal("requests.trailers", fieldsText(q.Trailers)),
		"listener", q.Listener, "client", q.Client, "user", q.User, "sealed", c.KeyID(),
	}
	if len(q.Others) > 0 {
		others := make([]spot, len(q.Others))
		for i, o := range q.Others {
			others[i] = spot{o.Scheme, codec.Text(o.Authority), codec.Text(o.Target), o.Exempt}
		}
		out = append(out, "others", c.Seal("requests.others", encoded(others)))
	}
	if q.Body != nil {
		out = append(out, "body", c.Seal("requests.body", q.Body))
	}
	return out
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return ""
}

// parseRequest reads a request. Errors: codec.ErrSealed.
func parseRequest(f map[string]string, o *opener) (*idempotency.Request, error) {
	for _, name := range []string{"target", "others", "fields", "trailers", "body"} {
		if value, ok := f[name]; ok {
			f[name] = o.open("requests."+name, value)
		}
	}
	if o.Err != nil {
		return nil, o.Err
	}
	q := &idempotency.Request{
		Mode: f["mode"], Place: idempotency.Place{Scheme: f["scheme"], Authority: f["authority"], Target: f["target"], Exempt: f["exempt"] != ""},
		Honoured: f["honoured"] != "", Version: f["version"], Listener: f["listener"], Client: f["client"], User: f["user"],
	}
	if body, ok := f["body"]; ok {
		q.Body = []byte(body)
	}
	var err1, err2, err3 error
	q.Fields, err1 = parseFields(f["fields"])
	q.Trailers, err2 = parseFields(f["trailers"])
	if f["others"] != "" {
		var others []spot
		err3 = json.Unmarshal([]byte(f["others"]), &others)
		for _, o := range others {
			q.Others = append(q.Others, idempotency.Place{Scheme: o.Scheme, Authority: string(o.Authority), Target: string(o.Target), Exempt: o.Exempt})
		}
	}
	return q, errors.Join(err1, err2, err3)
}

// found is a record as it is in Redis, in the server's time.
type found struct {
	rec     idempotency.Record
	replica string // that runs it
	mark    string // of the change that wrote it
	score   string // its place, in a list
	lapses  uint64 // of the lease, when it was known to be run here
}

// parseFound reads what current in lib.lua gives.
func (s *Store) parseFound(reply any) (*found, error) {
	all, ok := reply.([]any)
	if !ok || len(all) != 11 {
		return nil, garbled(fmt.Errorf("a record of %T", reply))
	}
	text := func(i int) string { s, _ := all[i].(string); return s }
	f := &found{replica: text(3), mark: text(4), score: text(8)}
	r := &f.rec
	var err error
	if r.ID, err = parseName(text(7)); err != nil {
		return nil, garbled(err)
	}
	if r.Version, err = strconv.ParseUint(text(0), 10, 64); err != nil {
		return nil, garbled(err)
	}
	r.Owner = text(1)
	if r.State, err = codec.State(text(2)); err != nil {
		return nil, garbled(err)
	}
	if err := parseRecord(text(6), r); err != nil {
		return nil, garbled(err)
	}
	if text(5) != "1" || r.Answer == nil || text(8) == "" {
		return f, nil
	}
	o := s.opener(r.ID, text(10))
	fields, body := o.open("answers.fields", text(8)), o.open("answers.body", text(9))
	if o.Err != nil {
		s.unreadable("an answer", r.ID, o.Err) // what is left is the marker
		return f, nil
	}
	if r.Answer.Fields, err = parseFields(fields); err != nil {
		return nil, garbled(err)
	}
	r.Answer.Kept = true
	if body != "" {
		r.Answer.Body = []byte(body)
	}
	return f, nil
}

// garbled is the error of what nobody of ours wrote.
func garbled(err error) error {
	return fmt.Errorf("%w: redis: it cannot be read: %w", idempotency.ErrUnavailable, err)
}

// parseAll reads a list of records.
func (s *Store) parseAll(reply any) ([]*found, error) {
	all, _ := reply.([]any)
	out := make([]*found, 0, len(all))
	for _, one := range all {
		f, err := s.parseFound(one)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}
