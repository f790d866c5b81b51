package redis

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/message"
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

// loose is a text that a client or an upstream chose: in JSON it is a string, or
// [base64] when it is not UTF-8.
type loose string

// MarshalJSON implements json.Marshaler.
func (l loose) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(l)) {
		return json.Marshal(string(l))
	}
	return json.Marshal([][]byte{[]byte(l)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *loose) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		var s string
		err := json.Unmarshal(text, &s)
		*l = loose(s)
		return err
	}
	var parts [][]byte
	if err := json.Unmarshal(text, &parts); err != nil || len(parts) != 1 {
		return fmt.Errorf("no text: %s", text)
	}
	*l = loose(parts[0])
	return nil
}

// data is a record as JSON, but for what stands beside it: its name, version,
// owner and state.
type data struct {
	Policy      string        `json:"policy,omitempty"`
	Shop        loose         `json:"shop,omitempty"`
	ShopTier    loose         `json:"shop_tier,omitempty"`
	TaskType    loose         `json:"task_type,omitempty"`
	Method      loose         `json:"method,omitempty"`
	Host        loose         `json:"host,omitempty"`
	Path        loose         `json:"path,omitempty"`
	Receipt     string        `json:"receipt,omitempty"`
	Keyless     bool          `json:"keyless,omitempty"`
	Honoured    bool          `json:"honoured,omitempty"`
	Created     time.Time     `json:"created,omitzero"`
	Updated     time.Time     `json:"updated,omitzero"`
	Deadline    time.Time     `json:"deadline,omitzero"`
	NextAt      time.Time     `json:"next_at,omitzero"`
	Parked      time.Time     `json:"parked,omitzero"`
	Expires     time.Time     `json:"expires,omitzero"`
	TTL         time.Duration `json:"ttl_ns,omitempty"`
	Reason      string        `json:"reason,omitempty"`
	Executed    string        `json:"executed"`
	ClientCount int           `json:"client_count,omitempty"`
	Attempts    int           `json:"attempts,omitempty"`
	Runs        []run         `json:"runs,omitempty"`
	History     []try         `json:"history,omitempty"`
	Notes       []note        `json:"notes,omitempty"`
	Answer      *answer       `json:"answer,omitempty"`
	Terms       []uint64      `json:"terms,omitempty"`
	Fingerprint []byte        `json:"fingerprint"`
	Credentials []byte        `json:"credentials,omitempty"`
}

type run struct {
	CallID   loose     `json:"call_id"`
	ClientID loose     `json:"client_id,omitempty"`
	Kind     string    `json:"kind,omitempty"`
	Started  time.Time `json:"started,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	First    int       `json:"first"`
	Reason   string    `json:"reason,omitempty"`
}

type note struct {
	At   time.Time `json:"at,omitzero"`
	By   loose     `json:"by,omitempty"`
	Did  string    `json:"did,omitempty"`
	Text loose     `json:"text,omitempty"`
}

// answer is what a marker says; fields and body have a key of their own.
type answer struct {
	Status int       `json:"status"`
	Reason loose     `json:"reason,omitempty"`
	Stored time.Time `json:"stored,omitzero"`
}

type try struct {
	N           int           `json:"n"`
	Count       int           `json:"count,omitempty"`
	Started     time.Time     `json:"started,omitzero"`
	Duration    time.Duration `json:"duration_ns,omitempty"`
	Host        loose         `json:"host,omitempty"`
	Status      int           `json:"status,omitempty"`
	Class       string        `json:"class"`
	Reason      string        `json:"reason,omitempty"`
	Basis       string        `json:"basis,omitempty"`
	Executed    string        `json:"executed"`
	Detail      loose         `json:"detail,omitempty"`
	Delay       time.Duration `json:"delay_ns,omitempty"`
	Cause       string        `json:"cause,omitempty"`
	RetryAfter  time.Duration `json:"retry_after_ns,omitempty"`
	HostFault   bool          `json:"host_fault,omitempty"`
	Alive       bool          `json:"alive,omitempty"`
	EgressFault bool          `json:"egress_fault,omitempty"`
	Egress      loose         `json:"egress,omitempty"`
	Reused      bool          `json:"reused,omitempty"`
	UpstreamID  loose         `json:"upstream_id,omitempty"`
}

func recordText(r *idempotency.Record) []byte {
	d := data{
		Policy: r.Policy, Shop: loose(r.Labels.Shop), ShopTier: loose(r.Labels.ShopTier), TaskType: loose(r.Labels.TaskType),
		Method: loose(r.Method), Host: loose(r.Host), Path: loose(r.Path), Receipt: r.Receipt, Keyless: r.Keyless, Honoured: r.Honoured,
		Created: r.Created.UTC(), Updated: r.Updated.UTC(), Deadline: r.Deadline.UTC(), NextAt: r.NextAt.UTC(), Parked: r.Parked.UTC(), Expires: r.Expires.UTC(),
		TTL: r.TTL, Reason: r.Reason, Executed: r.Executed.String(), ClientCount: r.ClientCount, Attempts: r.Attempts,
		Terms: r.Terms, Fingerprint: r.Fingerprint[:],
	}
	if r.Credentials != [32]byte{} {
		d.Credentials = r.Credentials[:]
	}
	for i := range r.Runs {
		x := &r.Runs[i]
		d.Runs = append(d.Runs, run{loose(x.CallID), loose(x.ClientID), string(x.Kind), x.Started.UTC(), x.Ended.UTC(), x.First, x.Reason})
	}
	for i := range r.History {
		d.History = append(d.History, tryOf(&r.History[i]))
	}
	for i := range r.Notes {
		x := &r.Notes[i]
		d.Notes = append(d.Notes, note{x.At.UTC(), loose(x.By), x.Did, loose(x.Text)})
	}
	if a := r.Answer; a != nil {
		d.Answer = &answer{a.Status, loose(a.Reason), a.Stored.UTC()}
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

func tryOf(a *attempt.Attempt) try {
	v := &a.Verdict
	return try{
		N: a.N, Count: a.Count, Started: a.Started.UTC(), Duration: a.Duration, Host: loose(a.Host), Status: a.Status,
		Class: v.Class.String(), Reason: v.Reason, Basis: string(v.Basis), Executed: v.Executed.String(),
		Detail: loose(a.Detail), Delay: a.Delay, Cause: a.Cause, RetryAfter: v.RetryAfter,
		HostFault: v.HostFault, Alive: v.Alive, EgressFault: v.EgressFault,
		Egress: loose(a.Egress), Reused: a.Reused, UpstreamID: loose(a.UpstreamID),
	}
}

func (t *try) attempt() (attempt.Attempt, error) {
	class, err1 := token(t.Class, classes)
	executed, err2 := token(t.Executed, executions)
	return attempt.Attempt{
		N: t.N, Count: t.Count, Started: t.Started, Duration: t.Duration, Host: string(t.Host), Status: t.Status,
		Detail: string(t.Detail), Delay: t.Delay, Cause: t.Cause, Egress: string(t.Egress), Reused: t.Reused, UpstreamID: string(t.UpstreamID),
		Verdict: classify.Verdict{
			Class: class, Reason: t.Reason, Basis: classify.Basis(t.Basis), Executed: executed,
			HostFault: t.HostFault, Alive: t.Alive, EgressFault: t.EgressFault, RetryAfter: t.RetryAfter,
		},
	}, errors.Join(err1, err2)
}

// What tokens may be.
var (
	states     = idempotency.States()
	classes    = []classify.Class{0, classify.Success, classify.Transient, classify.Permanent, classify.Unknown}
	executions = []classify.Executed{classify.ExecutedNo, classify.ExecutedMaybe, classify.ExecutedYes}
)

// token finds the value that has this name.
func token[T fmt.Stringer](name string, all []T) (T, error) {
	for _, v := range all {
		if v.String() == name {
			return v, nil
		}
	}
	var none T
	return none, fmt.Errorf("unknown token %q", name)
}

func parseRecord(text string, r *idempotency.Record) error {
	var d data
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	executed, err := token(d.Executed, executions)
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
	for i := range d.Runs {
		x := &d.Runs[i]
		r.Runs = append(r.Runs, idempotency.Run{
			CallID: string(x.CallID), ClientID: string(x.ClientID), Kind: idempotency.Kind(x.Kind), Started: x.Started, Ended: x.Ended, First: x.First, Reason: x.Reason,
		})
	}
	for i := range d.History {
		a, err := d.History[i].attempt()
		if err != nil {
			return err
		}
		r.History = append(r.History, a)
	}
	for i := range d.Notes {
		x := &d.Notes[i]
		r.Notes = append(r.Notes, idempotency.Note{At: x.At, By: string(x.By), Did: x.Did, Text: string(x.Text)})
	}
	if a := d.Answer; a != nil {
		r.Answer = &idempotency.Answer{Status: a.Status, Reason: string(a.Reason), Stored: a.Stored}
	}
	return nil
}

// fieldsText is a list of lines, [name, value] each.
func fieldsText(f message.Fields) []byte {
	lines := make([][2]loose, len(f))
	for i := range f {
		lines[i] = [2]loose{loose(f[i].Name), loose(f[i].Value)}
	}
	return encoded(lines)
}

func parseFields(text string) (message.Fields, error) {
	var lines [][2]loose
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
	Scheme    string `json:"scheme"`
	Authority loose  `json:"authority"`
	Target    loose  `json:"target"`
	Exempt    bool   `json:"exempt,omitempty"`
}

// requestFields are name and value in turn.
func requestFields(q *idempotency.Request, c closer) []any {
	out := []any{
		"mode", q.Mode, "scheme", q.Scheme, "authority", q.Authority, "target", c.seal("requests.target", []byte(q.Target)),
		"exempt", flag(q.Exempt), "honoured", flag(q.Honoured), "version", q.Version,
		"fields", c.seal("requests.fields", fieldsText(q.Fields)), "trailers", c.seal("requests.trailers", fieldsText(q.Trailers)),
		"listener", q.Listener, "client", q.Client, "user", q.User, "sealed", c.key(),
	}
	if len(q.Others) > 0 {
		others := make([]spot, len(q.Others))
		for i, o := range q.Others {
			others[i] = spot{o.Scheme, loose(o.Authority), loose(o.Target), o.Exempt}
		}
		out = append(out, "others", c.seal("requests.others", encoded(others)))
	}
	if q.Body != nil {
		out = append(out, "body", c.seal("requests.body", q.Body))
	}
	return out
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return ""
}

// parseRequest reads a request. Errors: errSealed.
func parseRequest(f map[string]string, o *opener) (*idempotency.Request, error) {
	for _, name := range []string{"target", "others", "fields", "trailers", "body"} {
		if value, ok := f[name]; ok {
			f[name] = o.open("requests."+name, value)
		}
	}
	if o.err != nil {
		return nil, o.err
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
	if r.State, err = token(text(2), states); err != nil {
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
	if o.err != nil {
		s.unreadable("an answer", r.ID, o.err) // what is left is the marker
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
