package admin

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/go-chi/chi/v5"

	"retryproxy/attempt"
	"retryproxy/deadletter"
	"retryproxy/idempotency"
	"retryproxy/journal"
	"retryproxy/redact"
)

// callView is a call as the API shows it.
type callView struct {
	ID        string     `json:"id"`
	Origin    string     `json:"origin,omitempty"` // of a call that no client waits for: restart, parked, requeue, redrive
	Mode      string     `json:"mode"`
	Policy    string     `json:"policy"`
	State     string     `json:"state"`
	Result    string     `json:"result,omitempty"`
	Reason    string     `json:"reason"`
	Detail    string     `json:"detail,omitempty"`
	NextAt    *time.Time `json:"next_at"` // null: it waits for nothing with a date
	Cause     string     `json:"cause,omitempty"`
	Dimension string     `json:"dimension,omitempty"` // of a wait for tokens: global, task_type or shop
	Lane      string     `json:"lane,omitempty"`      // at the gate of its host: fresh or backlog
	Place     int        `json:"place,omitempty"`     // in that lane, of tokens in the line before them; 1 is next
	Status    int        `json:"status"`              // 0: the client has no answer yet
	Executed  string     `json:"executed"`            // may the upstream have acted: no, maybe, yes

	Labels   attempt.Labels `json:"labels"`
	User     string         `json:"user,omitempty"`
	Client   string         `json:"client"`
	Method   string         `json:"method"`
	Scheme   string         `json:"scheme"`
	Host     string         `json:"host"`
	Path     string         `json:"path"`
	KeyHash  string         `json:"key_hash,omitempty"`
	ClientID string         `json:"client_request_id,omitempty"`
	Trace    string         `json:"traceparent,omitempty"`

	Started    time.Time          `json:"started"`
	Ended      *time.Time         `json:"ended"` // null: not yet
	DurationMS int64              `json:"duration_ms"`
	OverheadUS int64              `json:"overhead_us,omitempty"` // our own part
	Bytes      int64              `json:"bytes"`
	Previous   int                `json:"previous_attempts"` // by earlier runs on the record
	Waits      []waitView         `json:"waits,omitempty"`
	Attempts   []attempt.FullView `json:"attempts"`
}

// waitView is one wait that ended.
type waitView struct {
	Cause      string `json:"cause"`
	DurationMS int64  `json:"duration_ms"`
}

// viewCall turns a summary into what is shown.
func viewCall(s *attempt.Summary) callView {
	v := callView{
		ID: s.ID, Origin: s.Origin, Mode: s.Mode, Policy: s.Policy, State: s.State, Result: s.Result, Reason: s.Reason,
		Detail: s.Detail, Cause: s.Cause, Dimension: s.Dimension, Lane: s.Lane, Place: s.Place, Status: s.Status, Executed: s.Executed.String(),
		Labels: s.Labels, User: s.User, Client: s.Client, Method: s.Method, Scheme: s.Scheme, Host: s.Host, Path: s.Path,
		KeyHash: s.KeyHash, ClientID: s.ClientID, Trace: s.Trace,
		Started: s.Started, Ended: timeOrNull(s.Ended), DurationMS: s.Duration.Milliseconds(), OverheadUS: s.Overhead.Microseconds(),
		Bytes: s.Bytes, Previous: s.Previous, Attempts: s.Attempts.FullViews(),
	}
	v.NextAt = timeOrNull(s.NextAt)
	for _, w := range s.Waits {
		v.Waits = append(v.Waits, waitView{w.Cause, w.For.Milliseconds()})
	}
	return v
}

// listCalls shows calls in progress first, then those that ended, each part newest
// first; those that wait, where only they are asked for, by host, lane and place. Where the list goes on is in Link (RFC 8288).
func (s *server) listCalls(w http.ResponseWriter, r *http.Request) {
	q, err := s.query(r)
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	if r.URL.Query().Get("format") == "csv" {
		s.exportCalls(w, r, q)
		return
	}
	calls, next, err := s.Find(r.Context(), q)
	if err != nil {
		notFoundBy(w, err)
		return
	}
	views := make([]callView, 0, len(calls))
	for _, c := range calls {
		views = append(views, viewCall(c))
	}
	if next != "" {
		w.Header().Set("Link", "<"+nextPage(r.URL, next)+`>; rel="next"`)
	}
	show(w, views)
}

// nextPage is the address of what comes behind a place of a list.
func nextPage(u *url.URL, place string) string {
	values := u.Query()
	values.Set("after", place)
	return u.Path + "?" + values.Encode()
}

// notFoundBy answers where looking for calls failed.
func notFoundBy(w http.ResponseWriter, err error) {
	if errors.Is(err, journal.ErrCursor) {
		fail(w, http.StatusBadRequest, "bad_request", "after: "+err.Error())
		return
	}
	fail(w, http.StatusServiceUnavailable, "store_unavailable", "the history of calls cannot be read; state=waiting and state=running do without it: "+err.Error())
}

// showCall shows one call; ?reveal=1 also request and answer under its key, but for the
// values of secrets.
func (s *server) showCall(w http.ResponseWriter, r *http.Request) {
	reveal, err := yesNo("reveal", r.URL.Query().Get("reveal"))
	if err != nil {
		failLetter(w, err)
		return
	}
	calls, _, err := s.Find(r.Context(), journal.Query{CallID: chi.URLParam(r, "id"), Limit: 1})
	switch {
	case err != nil:
		notFoundBy(w, err)
		return
	case len(calls) == 0:
		fail(w, http.StatusNotFound, "not_found", "no such call is in progress or remembered")
		return
	}
	v := oneCall{callView: viewCall(calls[0])}
	records, err := s.recordsOf(r.Context(), &v.callView)
	if err != nil {
		notFoundBy(w, err)
		return
	}
	for i := range records {
		one := viewRecord(&records[i])
		if records[i].State.Letter() && s.keepsLetters(r.Context(), v.KeyHash) {
			one.Todo, one.Advice = deadletter.Advise(&records[i])
		}
		if err := s.addContents(r.Context(), &one, &records[i], reveal); err != nil {
			notFoundBy(w, err)
			return
		}
		v.Records = append(v.Records, one)
	}
	show(w, v)
}

// recordsOf are the records under the key of a call; of one without a key its letter,
// where it was given up.
func (s *server) recordsOf(ctx context.Context, v *callView) ([]idempotency.Record, error) {
	switch {
	case v.KeyHash != "" && s.Records != nil:
		return s.Records(ctx, v.KeyHash)
	case v.KeyHash != "" || s.Letters.Show == nil:
		return nil, nil
	}
	rec, _, err := s.Letters.Show(ctx, v.ID)
	switch {
	case errors.Is(err, idempotency.ErrUnavailable):
		return nil, err
	case err != nil:
		return nil, nil // it has none
	}
	return []idempotency.Record{rec}, nil
}

// addContents adds what a letter shows of itself, too: its request, which is loaded only
// where it is to be revealed, and its answer.
func (s *server) addContents(ctx context.Context, v *recordView, rec *idempotency.Record, reveal bool) (err error) {
	var request *idempotency.Request
	if reveal && s.Request != nil {
		if request, err = s.Request(ctx, rec.ID); err != nil {
			return err
		}
	}
	var hide *redact.Names
	if s.Letters.Hide != nil {
		hide = s.Letters.Hide()
	}
	var whole deadletter.View
	whole.Whole(rec, request, reveal, hide)
	v.Request, v.Stored = whole.Request, whole.Answer
	return nil
}

// keepsLetters says whether a record that is a letter can be asked for as one.
func (s *server) keepsLetters(ctx context.Context, keyHash string) bool {
	_, _, err := s.Letters.List(ctx, deadletter.Filter{KeyHash: keyHash}, "", 1)
	return err == nil
}

// oneCall is a call with what is known under its key now, in one record for each
// tenant that used it.
type oneCall struct {
	callView
	Records []recordView `json:"records,omitempty"`
}

// recordView is a record as the API shows it: without its key, and content only where it
// is to be revealed. Of many attempts, runs and notes it has the first and the last ones.
type recordView struct {
	State    string                `json:"state"`
	Reason   string                `json:"reason,omitempty"`
	Owner    string                `json:"call_id"` // of its last run
	Receipt  string                `json:"receipt,omitempty"`
	Shop     string                `json:"shop,omitempty"`
	Policy   string                `json:"policy"`
	Executed string                `json:"executed"`
	Attempts int                   `json:"attempts"`
	Created  time.Time             `json:"created"`
	Updated  time.Time             `json:"updated"`
	NextAt   *time.Time            `json:"next_at"`          // when it goes on
	Later    *deadletter.LaterView `json:"later,omitempty"`  // a person had it run again then
	Deadline *time.Time            `json:"deadline"`         // of its run
	Expires  *time.Time            `json:"expires"`          // when the key is new again
	Todo     string                `json:"todo,omitempty"`   // of a dead letter, as there
	Advice   string                `json:"advice,omitempty"` // in words

	Keyless bool                  `json:"keyless,omitempty"`
	Answer  string                `json:"answer,omitempty"` // done: kept, not_kept, unknown (a person settled it)
	History []attempt.FullView    `json:"history,omitempty"`
	Runs    []deadletter.RunView  `json:"runs,omitempty"`
	Notes   []deadletter.NoteView `json:"notes,omitempty"`

	Request *deadletter.RequestView `json:"request,omitempty"` // revealed
	Stored  *deadletter.AnswerView  `json:"stored_answer,omitempty"`
}

// answerOf says what is left to replay of a record.
func answerOf(r *idempotency.Record) string {
	switch {
	case r.State != idempotency.StateDone:
		return ""
	case r.Answer == nil || r.Answer.Status == 0:
		return "unknown"
	case !r.Answer.Kept:
		return "not_kept"
	}
	return "kept"
}

func viewRecord(r *idempotency.Record) recordView {
	letter := deadletter.NewView(r)
	return recordView{
		State: r.State.String(), Reason: r.Reason, Owner: r.Owner, Receipt: r.Receipt, Shop: r.Labels.Shop, Policy: r.Policy,
		Executed: r.Executed.String(), Attempts: r.Attempts, Created: r.Created, Updated: r.Updated,
		NextAt: timeOrNull(r.NextAt), Later: letter.Later, Deadline: timeOrNull(r.Deadline), Expires: timeOrNull(r.Expires),
		Keyless: r.Keyless, Answer: answerOf(r), History: letter.Attempts, Runs: letter.Runs, Notes: letter.Notes,
	}
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
