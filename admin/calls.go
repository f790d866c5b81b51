package admin

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"retryproxy/attempt"
)

// Bounds of the list of calls.
const (
	defaultLimit = 100
	maxLimit     = 10_000
)

// callView is a call as the API shows it.
type callView struct {
	ID       string     `json:"id"`
	Mode     string     `json:"mode"`
	Policy   string     `json:"policy"`
	State    string     `json:"state"`
	Result   string     `json:"result,omitempty"`
	Reason   string     `json:"reason"`
	Detail   string     `json:"detail,omitempty"`
	NextAt   *time.Time `json:"next_at"` // null: it waits for nothing with a date
	Cause    string     `json:"cause,omitempty"`
	Place    int        `json:"place,omitempty"`
	Status   int        `json:"status"`   // 0: the client has no answer yet
	Executed string     `json:"executed"` // may the upstream have acted: no, maybe, yes

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

	Started    time.Time     `json:"started"`
	DurationMS int64         `json:"duration_ms"`
	OverheadUS int64         `json:"overhead_us,omitempty"` // our own part
	Bytes      int64         `json:"bytes"`
	Previous   int           `json:"previous_attempts"` // by earlier runs on the record
	Waits      []waitView    `json:"waits,omitempty"`
	Attempts   []attemptView `json:"attempts"`
}

// waitView is one wait that ended.
type waitView struct {
	Cause      string `json:"cause"`
	DurationMS int64  `json:"duration_ms"`
}

// attemptView is an attempt as in a problem document, and what an operator
// wants to know beyond it.
type attemptView struct {
	attempt.View
	Cause        string `json:"cause,omitempty"` // of the wait before it
	Host         string `json:"host"`
	Egress       string `json:"egress,omitempty"` // the proxy it went through
	RetryCount   int    `json:"retry_count"`
	Basis        string `json:"basis,omitempty"` // why a repeat is safe
	Executed     string `json:"executed"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
	Reused       bool   `json:"reused,omitempty"`
	UpstreamID   string `json:"upstream_request_id,omitempty"`
}

// viewCall turns a summary into what is shown.
func viewCall(s *attempt.Summary) callView {
	v := callView{
		ID: s.ID, Mode: s.Mode, Policy: s.Policy, State: s.State, Result: s.Result, Reason: s.Reason,
		Detail: s.Detail, Cause: s.Cause, Place: s.Place, Status: s.Status, Executed: s.Executed.String(),
		Labels: s.Labels, User: s.User, Client: s.Client, Method: s.Method, Scheme: s.Scheme, Host: s.Host, Path: s.Path,
		KeyHash: s.KeyHash, ClientID: s.ClientID, Trace: s.Trace,
		Started: s.Started, DurationMS: s.Duration.Milliseconds(), OverheadUS: s.Overhead.Microseconds(),
		Bytes: s.Bytes, Previous: s.Previous, Attempts: make([]attemptView, len(s.Attempts)),
	}
	if !s.NextAt.IsZero() {
		v.NextAt = &s.NextAt
	}
	for _, w := range s.Waits {
		v.Waits = append(v.Waits, waitView{w.Cause, w.For.Milliseconds()})
	}
	for i := range s.Attempts {
		v.Attempts[i] = viewAttempt(&s.Attempts[i])
	}
	return v
}

func viewAttempt(a *attempt.Attempt) attemptView {
	return attemptView{
		View: a.View(), Cause: a.Cause, Host: a.Host, Egress: a.Egress, RetryCount: a.Count, Basis: string(a.Verdict.Basis),
		Executed: a.Verdict.Executed.String(), RetryAfterMS: a.Verdict.RetryAfter.Milliseconds(),
		Reused: a.Reused, UpstreamID: a.UpstreamID,
	}
}

// filter is what the query of a list asks for; an empty one is not asked.
type filter struct {
	shop, host, state, taskType, key string
	limit                            int
}

// parseFilter reads the query; the error names a wrong limit.
func parseFilter(r *http.Request) (filter, error) {
	q := r.URL.Query()
	f := filter{q.Get("shop"), strings.ToLower(q.Get("host")), q.Get("state"), q.Get("task_type"), q.Get("key"), defaultLimit}
	if text := q.Get("limit"); text != "" {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return f, err
		}
		f.limit = min(int(n), maxLimit)
	}
	return f, nil
}

// wants says whether a call is asked for. A host without a port is any port.
func (f *filter) wants(s *attempt.Summary) bool {
	name, _, _ := cutPort(s.Host)
	return is(f.shop, s.Labels.Shop) && is(f.state, s.State) && is(f.taskType, s.Labels.TaskType) &&
		is(f.key, s.KeyHash) && (is(f.host, s.Host) || f.host == name)
}

func is(want, value string) bool { return want == "" || want == value }

// cutPort splits host:port; an IPv6 address keeps its brackets.
func cutPort(hostport string) (host, port string, ok bool) {
	i := strings.LastIndexByte(hostport, ':')
	if i < 0 || i < strings.LastIndexByte(hostport, ']') {
		return hostport, "", false
	}
	return hostport[:i], hostport[i+1:], true
}

// listCalls shows calls in progress first, each part newest first.
func (s *server) listCalls(w http.ResponseWriter, r *http.Request) {
	f, err := parseFilter(r)
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", "limit: want a number")
		return
	}
	calls := slices.DeleteFunc(slices.Clone(s.Calls()), func(c *attempt.Summary) bool { return !f.wants(c) })
	slices.SortStableFunc(calls, newestFirst)
	views := make([]callView, 0, min(len(calls), f.limit))
	for _, c := range calls[:min(len(calls), f.limit)] {
		views = append(views, viewCall(c))
	}
	show(w, views)
}

// newestFirst puts calls in progress before those that ended.
func newestFirst(a, b *attempt.Summary) int {
	if done := a.State == stateDone; done != (b.State == stateDone) {
		if done {
			return 1
		}
		return -1
	}
	return b.Started.Compare(a.Started)
}

// States of a call that are looked for here.
const (
	stateWaiting = "waiting"
	stateDone    = "done"
)

func (s *server) showCall(w http.ResponseWriter, r *http.Request) {
	c := s.Call(chi.URLParam(r, "id"))
	if c == nil {
		fail(w, http.StatusNotFound, "not_found", "no such call is in progress or remembered")
		return
	}
	show(w, viewCall(c))
}
