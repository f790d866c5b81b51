package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"retryproxy/attempt"
	"retryproxy/deadletter"
	"retryproxy/idempotency"
	"retryproxy/redact"
)

// Letters are the calls that were given up: what proxy does with them. All are
// required.
type Letters struct {
	List      func(ctx context.Context, f deadletter.Filter, after string, limit int) (found []idempotency.Record, next string, err error)
	Each      func(ctx context.Context, f deadletter.Filter, do func(*idempotency.Record) error) error
	Show      func(ctx context.Context, id string) (idempotency.Record, *idempotency.Request, error)
	Requeue   func(ctx context.Context, id string, o deadletter.Order) (callID string, err error)
	Later     func(ctx context.Context, id string, o deadletter.Order) error // Requeue at o.At
	Resolve   func(ctx context.Context, id string, executed bool, s deadletter.Signed) error
	Drop      func(ctx context.Context, id string, s deadletter.Signed) error
	DropAll   func(ctx context.Context, f deadletter.Filter, all bool, s deadletter.Signed) (dropped, refused int, more bool, err error)
	Preview   func(ctx context.Context, o deadletter.BulkOrder) (deadletter.Preview, error)
	StartBulk func(o deadletter.BulkOrder) (deadletter.Bulk, error)
	Bulk      func() deadletter.Bulk
	StopBulk  func(by string) deadletter.Bulk
	Revealed  func(what, client string) // somebody is shown requests and answers
	Hide      func() *redact.Names      // what is shown nowhere
}

// letterFaults are the answers to what goes wrong with letters.
var letterFaults = []struct {
	err    error
	status int
	reason string
}{
	{deadletter.ErrInput, http.StatusBadRequest, "bad_request"},
	{idempotency.ErrCursor, http.StatusBadRequest, "bad_request"},
	{deadletter.ErrNotFound, http.StatusNotFound, "not_found"},
	{attempt.ErrNoCall, http.StatusNotFound, "not_found"},
	{attempt.ErrNotWaiting, http.StatusConflict, "not_waiting"},
	{attempt.ErrNotNow, http.StatusConflict, "not_now"},
	{deadletter.ErrNotKept, http.StatusConflict, "not_kept"},
	{deadletter.ErrClosed, http.StatusConflict, "closed"},
	{deadletter.ErrBusy, http.StatusConflict, "busy"},
	{deadletter.ErrRefused, http.StatusConflict, "refused"},
	{deadletter.ErrNoRequest, http.StatusConflict, "request_not_kept"},
	{deadletter.ErrBulk, http.StatusConflict, "bulk_running"},
	{deadletter.ErrDraining, http.StatusServiceUnavailable, "shutting_down"},
	{deadletter.ErrNoRoom, http.StatusServiceUnavailable, "local_resource"},
	{idempotency.ErrFull, http.StatusServiceUnavailable, "store_full"},
	{idempotency.ErrUnavailable, http.StatusServiceUnavailable, "store_unavailable"},
}

// failLetter answers with what went wrong.
func failLetter(w http.ResponseWriter, err error) {
	for _, f := range letterFaults {
		if errors.Is(err, f.err) {
			fail(w, f.status, f.reason, err.Error())
			return
		}
	}
	fail(w, http.StatusInternalServerError, "internal", err.Error())
}

// letterQuery reads conditions from a query, and what else it may hold: own gets
// each value by its name and says whether it is known.
func (s *server) letterQuery(q url.Values, own func(name, value string) (known bool, err error)) (f deadletter.Filter, err error) {
	now := s.now()
	for name, values := range q {
		if len(values) > 1 {
			return f, fmt.Errorf("%w: %s: is given %d times", deadletter.ErrInput, name, len(values))
		}
		known, err := own(name, values[0])
		if err == nil && !known {
			err = f.Set(name, values[0], now)
		}
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

// Bounds of a list.
const (
	usualLetters = 100
	mostLetters  = 1000
)

// letterList is one piece of the list.
type letterList struct {
	Letters []deadletter.View `json:"letters"`
	Next    string            `json:"next"` // for after=; empty: that was all
}

func (s *server) listLetters(w http.ResponseWriter, r *http.Request) {
	limit, after := usualLetters, ""
	f, err := s.letterQuery(r.URL.Query(), func(name, value string) (bool, error) {
		switch name {
		case "after":
			after = value
			return true, nil
		case "limit":
			n, err := strconv.ParseUint(value, 10, 31)
			if err != nil || n == 0 {
				return true, fmt.Errorf("%w: limit: want a number from 1 on, not %q", deadletter.ErrInput, value)
			}
			limit = min(int(n), mostLetters)
			return true, nil
		}
		return false, nil
	})
	if err != nil {
		failLetter(w, err)
		return
	}
	found, next, err := s.Letters.List(r.Context(), f, after, limit)
	if err != nil {
		failLetter(w, err)
		return
	}
	list := letterList{make([]deadletter.View, len(found)), next}
	for i := range found {
		list.Letters[i] = deadletter.NewView(&found[i])
	}
	show(w, list)
}

// letterCounts are how many letters there are of each kind.
type letterCounts struct {
	Letters  int            `json:"letters"`
	Oldest   *time.Time     `json:"oldest"` // null: there is none
	State    map[string]int `json:"by_state"`
	Reason   map[string]int `json:"by_reason"`
	Executed map[string]int `json:"by_executed"`
	Host     map[string]int `json:"by_host"`
	Shop     map[string]int `json:"by_shop"` // -: without one
	TaskType map[string]int `json:"by_task_type"`
	Todo     map[string]int `json:"by_todo"`
}

func (s *server) countLetters(w http.ResponseWriter, r *http.Request) {
	f, err := s.letterQuery(r.URL.Query(), func(string, string) (bool, error) { return false, nil })
	c := letterCounts{State: map[string]int{}, Reason: map[string]int{}, Executed: map[string]int{}, Host: map[string]int{}, Shop: map[string]int{}, TaskType: map[string]int{}, Todo: map[string]int{}}
	if err == nil {
		err = s.Letters.Each(r.Context(), f, func(rec *idempotency.Record) error {
			c.add(deadletter.NewView(rec))
			return nil
		})
	}
	if err != nil {
		failLetter(w, err)
		return
	}
	show(w, c)
}

func (c *letterCounts) add(v deadletter.View) {
	c.Letters++
	if c.Oldest == nil || v.Since.Before(*c.Oldest) {
		c.Oldest = &v.Since
	}
	c.State[v.State]++
	c.Reason[v.Reason]++
	c.Executed[v.Executed]++
	c.Host[v.Host]++
	c.Shop[cmp.Or(v.Labels.Shop, "-")]++
	c.TaskType[cmp.Or(v.Labels.TaskType, "-")]++
	c.Todo[v.Todo]++
}

// showLetter shows one letter; ?reveal=1 shows key, request and answer, but for the values of secrets.
func (s *server) showLetter(w http.ResponseWriter, r *http.Request) {
	reveal, err := yesNo("reveal", r.URL.Query().Get("reveal"))
	if err != nil {
		failLetter(w, err)
		return
	}
	rec, request, err := s.Letters.Show(r.Context(), chi.URLParam(r, "id"))
	if err != nil {
		failLetter(w, err)
		return
	}
	if reveal {
		s.Letters.Revealed(rec.Receipt, r.RemoteAddr)
	}
	v := deadletter.NewView(&rec)
	v.Whole(&rec, request, reveal, s.Letters.Hide())
	show(w, v)
}

// yesNo reads a switch of a query.
func yesNo(name, value string) (bool, error) {
	switch value {
	case "", "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	}
	return false, fmt.Errorf("%w: %s: want 1 or 0, not %q", deadletter.ErrInput, name, value)
}

// requeueText is a letterOrder on the wire.
type requeueText struct {
	ExecutedUnknown bool   `json:"executed_unknown"`
	At              string `json:"at"` // not before: a time, or how long from now; empty: at once
	deadletter.Signed
}

func (s *server) requeueLetter(w http.ResponseWriter, r *http.Request) {
	var t requeueText
	if t.As(who(r).name); r.ContentLength != 0 && !read(w, r, &t) {
		return
	}
	at, err := deadletter.ParseAt(t.At, s.now())
	o := deadletter.Order{Kind: idempotency.Requeued, ExecutedUnknown: t.ExecutedUnknown, At: at, Signed: t.Signed}
	var begun struct {
		CallID string    `json:"call_id,omitempty"`
		At     time.Time `json:"at,omitzero"` // it did not begin: it will
	}
	switch begun.At = at; {
	case err != nil:
	case at.IsZero():
		begun.CallID, err = s.Letters.Requeue(r.Context(), chi.URLParam(r, "id"), o)
	default:
		err = s.Letters.Later(r.Context(), chi.URLParam(r, "id"), o)
	}
	if err != nil {
		failLetter(w, err)
		return
	}
	write(w, http.StatusAccepted, "application/json", begun)
}

func (s *server) resolveLetter(w http.ResponseWriter, r *http.Request) {
	var t struct {
		Executed *bool `json:"executed"`
		deadletter.Signed
	}
	if !read(w, r, &t) {
		return
	}
	err := fmt.Errorf("%w: executed: is missing; say true or false", deadletter.ErrInput)
	if t.Executed != nil {
		err = s.Letters.Resolve(r.Context(), chi.URLParam(r, "id"), *t.Executed, t.Signed)
	}
	s.closed(w, r, err)
}

func (s *server) dropLetter(w http.ResponseWriter, r *http.Request) {
	var t deadletter.Signed
	if read(w, r, &t) {
		s.closed(w, r, s.Letters.Drop(r.Context(), chi.URLParam(r, "id"), t))
	}
}

// closed shows what became of a letter.
func (s *server) closed(w http.ResponseWriter, r *http.Request, err error) {
	if err != nil {
		failLetter(w, err)
		return
	}
	rec, _, err := s.Letters.Show(r.Context(), chi.URLParam(r, "id"))
	if err != nil {
		failLetter(w, err)
		return
	}
	show(w, deadletter.NewView(&rec))
}

// conditions is a Filter on the wire.
type conditions map[string]string

func (c conditions) filter(now time.Time) (f deadletter.Filter, err error) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if err = f.Set(name, c[name], now); err != nil {
			return f, err
		}
	}
	return f, nil
}

// bulkText is a BulkOrder on the wire.
type bulkText struct {
	Filter conditions `json:"filter"`
	All    bool       `json:"all"`
	DryRun bool       `json:"dry_run"`
	Rate   string     `json:"rate"`
	Canary *int       `json:"canary"`
	At     string     `json:"at"`
	deadletter.Signed
}

// order reads it, its times as of now. What is left out is as usual.
func (t *bulkText) order(now time.Time) (o deadletter.BulkOrder, err error) {
	o = deadletter.BulkOrder{All: t.All, Every: deadletter.UsualRate, Canary: deadletter.UsualCanary, Signed: t.Signed}
	if o.Filter, err = t.Filter.filter(now); err != nil {
		return o, err
	}
	if o.At, err = deadletter.ParseAt(t.At, now); err != nil {
		return o, err
	}
	if t.Rate != "" {
		if o.Every, err = deadletter.ParseRate(t.Rate); err != nil {
			return o, err
		}
	}
	if t.Canary != nil {
		o.Canary = *t.Canary
	}
	return o, o.Check()
}

func (s *server) requeueLetters(w http.ResponseWriter, r *http.Request) {
	var t bulkText
	if !read(w, r, &t) {
		return
	}
	o, err := t.order(s.now())
	if err == nil && t.DryRun {
		var p deadletter.Preview
		if p, err = s.Letters.Preview(r.Context(), o); err == nil {
			show(w, p)
			return
		}
	}
	var b deadletter.Bulk
	if err == nil {
		b, err = s.Letters.StartBulk(o)
	}
	if err != nil {
		failLetter(w, err)
		return
	}
	write(w, http.StatusAccepted, "application/json", b)
}

func (s *server) showBulk(w http.ResponseWriter, _ *http.Request) { show(w, s.Letters.Bulk()) }

// stopBulk ends the bulk; ?by= says for whom.
func (s *server) stopBulk(w http.ResponseWriter, r *http.Request) {
	show(w, s.Letters.StopBulk(cmp.Or(signed(r).By, r.RemoteAddr)))
}

func (s *server) dropLetters(w http.ResponseWriter, r *http.Request) {
	var t struct {
		Filter conditions `json:"filter"`
		All    bool       `json:"all"`
		deadletter.Signed
	}
	if !read(w, r, &t) {
		return
	}
	f, err := t.Filter.filter(s.now())
	if err != nil {
		failLetter(w, err)
		return
	}
	dropped, refused, more, err := s.Letters.DropAll(r.Context(), f, t.All, t.Signed)
	if err != nil {
		failLetter(w, err)
		return
	}
	show(w, struct {
		Dropped int  `json:"dropped"`
		Refused int  `json:"refused"` // in doubt, or on their way
		More    bool `json:"more"`    // ask again
	}{dropped, refused, more})
}

// exportLetters writes all letters, the oldest first, as JSON lines or CSV. One that
// cannot be completed breaks off, so that nobody takes it for the whole.
func (s *server) exportLetters(w http.ResponseWriter, r *http.Request) {
	format, reveal := deadletter.JSONL, false
	f, err := s.letterQuery(r.URL.Query(), func(name, value string) (known bool, err error) {
		switch name {
		case "format":
			format = value
			return true, nil
		case "reveal":
			reveal, err = yesNo(name, value)
			return true, err
		}
		return false, nil
	})
	out := &lateWriter{w: w, kind: map[string]string{deadletter.JSONL: "application/jsonl", deadletter.CSV: "text/csv; charset=utf-8"}[format]}
	var e *deadletter.Exporter
	if err == nil {
		e, err = deadletter.NewExporter(format, out)
	}
	if err != nil {
		failLetter(w, err)
		return
	}
	if reveal {
		s.Letters.Revealed("export", r.RemoteAddr)
	}
	control := http.NewResponseController(w)
	err = s.Letters.Each(r.Context(), f, func(rec *idempotency.Record) error {
		_ = control.SetWriteDeadline(time.Now().Add(exportFor)) // a recorder of tests has none
		return s.exportLetter(r.Context(), e, rec, reveal)
	})
	if err == nil {
		err = e.Close()
	}
	switch {
	case err == nil:
		out.begin()
	case !out.begun:
		failLetter(w, err)
	default:
		panic(http.ErrAbortHandler)
	}
}

// exportLetter writes one letter; revealed, with request and answer.
func (s *server) exportLetter(ctx context.Context, e *deadletter.Exporter, rec *idempotency.Record, reveal bool) error {
	v := deadletter.NewView(rec)
	if reveal {
		whole, request, err := s.Letters.Show(ctx, rec.Receipt)
		switch {
		case errors.Is(err, deadletter.ErrNotFound):
			return nil // it went meanwhile
		case err != nil:
			return err
		}
		v = deadletter.NewView(&whole)
		v.Whole(&whole, request, true, s.Letters.Hide())
	}
	return e.Write(&v)
}

// lateWriter begins the answer with its first byte, so that what fails before can
// still be told.
type lateWriter struct {
	w     http.ResponseWriter
	kind  string
	begun bool
}

func (l *lateWriter) begin() {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", l.kind)
		l.w.WriteHeader(http.StatusOK)
	}
}

// Write implements io.Writer.
func (l *lateWriter) Write(p []byte) (int, error) {
	l.begin()
	return l.w.Write(p)
}

var _ io.Writer = (*lateWriter)(nil)
