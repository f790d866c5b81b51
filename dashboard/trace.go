package dashboard

import (
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// call is a call as the API shows it.
type call struct {
	ID        string    `json:"id"`
	Origin    string    `json:"origin"`
	Mode      string    `json:"mode"`
	Policy    string    `json:"policy"`
	State     string    `json:"state"`
	Result    string    `json:"result"`
	Reason    string    `json:"reason"`
	Detail    string    `json:"detail"`
	NextAt    time.Time `json:"next_at"`
	Cause     string    `json:"cause"`
	Dimension string    `json:"dimension"`
	Lane      string    `json:"lane"`
	Place     int       `json:"place"`
	Status    int       `json:"status"`
	Executed  string    `json:"executed"`
	Labels    labels    `json:"labels"`
	User      string    `json:"user"`
	Client    string    `json:"client"`
	Method    string    `json:"method"`
	Scheme    string    `json:"scheme"`
	Host      string    `json:"host"`
	Path      string    `json:"path"`
	KeyHash   string    `json:"key_hash"`
	ClientID  string    `json:"client_request_id"`
	Trace     string    `json:"traceparent"`
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
	Duration  int64     `json:"duration_ms"`
	Bytes     int64     `json:"bytes"`
	Previous  int       `json:"previous_attempts"`
	Waits     []struct {
		Cause    string `json:"cause"`
		Duration int64  `json:"duration_ms"`
	} `json:"waits"`
	Attempts []try    `json:"attempts"`
	Records  []record `json:"records"`
}

type labels struct {
	Shop     string `json:"shop"`
	Tier     string `json:"shop_tier"`
	TaskType string `json:"task_type"`
}

// try is one attempt.
type try struct {
	N          int       `json:"n"`
	Started    time.Time `json:"started"`
	Duration   int64     `json:"duration_ms"`
	Class      string    `json:"class"`
	Reason     string    `json:"reason"`
	Status     int       `json:"status"`
	Detail     string    `json:"detail"`
	Delay      int64     `json:"delay_ms"`
	Cause      string    `json:"cause"`
	Host       string    `json:"host"`
	Supplier   string    `json:"supplier"`
	Egress     string    `json:"egress"`
	RetryCount int       `json:"retry_count"`
	Basis      string    `json:"basis"`
	Executed   string    `json:"executed"`
	RetryAfter int64     `json:"retry_after_ms"`
	Reused     bool      `json:"reused"`
	UpstreamID string    `json:"upstream_request_id"`
}

// record is what is known under a key now.
type record struct {
	State    string     `json:"state"`
	Reason   string     `json:"reason"`
	Owner    string     `json:"call_id"`
	Receipt  string     `json:"receipt"`
	Shop     string     `json:"shop"`
	Policy   string     `json:"policy"`
	Executed string     `json:"executed"`
	Attempts int        `json:"attempts"`
	NextAt   *time.Time `json:"next_at"`
	Expires  *time.Time `json:"expires"`
	Todo     string     `json:"todo"`
	Advice   string     `json:"advice"`
	Keyless  bool       `json:"keyless"`
	Answer   string     `json:"answer"`
	History  []try      `json:"history"`
	Notes    []note     `json:"notes"`
	// Said and Heard are request and answer, what is secret hidden.
	Said  *contents `json:"request"`
	Heard *contents `json:"stored_answer"`
}

type note struct {
	At   time.Time `json:"at"`
	By   string    `json:"by"`
	Did  string    `json:"did"`
	Text string    `json:"text"`
}

// contents are those of a message, as far as they are kept and may be shown.
type contents struct {
	URL     string `json:"url"`
	Status  int    `json:"status"`
	Bytes   int    `json:"bytes"`
	Headers []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"headers"`
	Body *struct {
		Text   string `json:"text"`
		Base64 string `json:"base64"`
		Cut    bool   `json:"cut"`
	} `json:"body"`
}

// traceView is the page that traces one order.
type traceView struct {
	Query string
	Calls []call // found, the newest first
	More  bool
	One   *story // of them; nil: none or several
}

// story is one call with its picture and a sentence for each decision.
type story struct {
	*call
	Picture template.HTML
	Whole   bool // with request and answer
	Steps   []step
}

// step is one sentence of a story.
type step struct {
	At    time.Time
	Level string // ok, warn, bad or empty
	Text  string
}

const mostFound = 100

// fillTrace looks for a call by its id, then a key or its hash, then a text: the bot's own
// request id and order numbers are texts.
func fillTrace(v *visit) (any, error) {
	q := v.r.URL.Query().Get("q")
	out := traceView{Query: q}
	if q == "" {
		return out, nil
	}
	calls, more, err := v.find(q)
	if err != nil {
		return nil, err
	}
	out.Calls, out.More = calls, more
	chosen := v.r.URL.Query().Get("call")
	if chosen == "" && len(calls) > 0 && sameOrder(calls) {
		chosen = calls[0].ID
	}
	if chosen != "" {
		one, path := call{}, "/api/v1/calls/"+url.PathEscape(chosen)
		whole := v.r.URL.Query().Get("reveal") != "" && v.session.IsAdmin()
		if whole {
			path += "?reveal=1"
		}
		if err := v.get(path, &one); err != nil {
			return nil, err
		}
		out.One = v.tell(&one)
		out.One.Whole = whole
	}
	return out, nil
}

// sameOrder says whether all calls are about one key; of a single call it is true.
func sameOrder(calls []call) bool {
	for i := range calls[1:] {
		if calls[i+1].KeyHash != calls[0].KeyHash || calls[0].KeyHash == "" {
			return false
		}
	}
	return true
}

// find gives the calls that a text leads to; more: there are others.
func (v *visit) find(q string) (calls []call, more bool, err error) {
	var one call
	err = v.get("/api/v1/calls/"+url.PathEscape(q), &one)
	if err == nil && one.KeyHash != "" {
		calls, more, err = v.list("key_hash", one.KeyHash)
		if !slices.ContainsFunc(calls, func(c call) bool { return c.ID == one.ID }) {
			calls = append([]call{one}, calls...)
		}
		return calls, more, err
	}
	if err == nil {
		return []call{one}, false, nil
	}
	if !isReason(err, "not_found") {
		return nil, false, err
	}
	for _, by := range []string{"key", "text"} {
		calls, more, err = v.list(by, q)
		if isReason(err, "bad_request") { // no word, or no history to look into
			return nil, false, nil
		}
		if err != nil || len(calls) > 0 {
			return calls, more, err
		}
	}
	return nil, false, nil
}

func (v *visit) list(name, value string) (calls []call, more bool, err error) {
	h, err := v.call(http.MethodGet, "/api/v1/calls?"+query([]any{name, value, "limit", mostFound}), nil, &calls)
	return calls, h.Get("Link") != "", err
}

// tell makes a story of a call.
func (v *visit) tell(c *call) *story {
	s := &story{call: c, Picture: v.swimLanes(c)}
	add := func(at time.Time, level, key string, values ...any) {
		s.Steps = append(s.Steps, step{at, level, v.words.say(key, values...)})
	}
	w := v.words
	begin := "story.begins"
	if c.Origin != "" {
		begin = "story.begins_" + c.Origin
	}
	add(c.Started, "", begin, c.Method, hostName(c.Host)+c.Path, w.say("nobody.if", c.Labels.Shop), c.Policy)
	if c.Previous > 0 {
		add(c.Started, "", "story.previous", c.Previous)
	}
	for i := range c.Attempts {
		v.tellTry(&c.Attempts[i], add)
	}
	switch {
	case c.State == "waiting" || c.State == "parked":
		add(v.now, "warn", "story.waits", w.cause(c.Cause), v.until(c.NextAt))
	case c.State == "running":
		add(v.now, "", "story.runs")
	default:
		add(c.Ended, levelOf(c.Result), "story.ends_"+c.Result, c.Status, w.reason(c.Reason))
	}
	return s
}

// tellTry says what one attempt came to, and what it waited for.
func (v *visit) tellTry(t *try, add func(time.Time, string, string, ...any)) {
	w := v.words
	if t.Delay > 0 && t.Cause != "" {
		add(t.Started, "", "story.waited", w.lasts(time.Duration(t.Delay)*time.Millisecond), w.cause(t.Cause))
	}
	took := w.lasts(time.Duration(t.Duration) * time.Millisecond)
	if t.Class == "success" {
		add(t.Started, "ok", "story.succeeded", t.N, hostName(t.Host), w.reason(t.Reason), took)
		return
	}
	level := "warn"
	if t.Class == "permanent" || t.Class == "unknown" {
		level = "bad"
	}
	safe := w.say("story.unsafe")
	if t.Basis != "" {
		safe = w.say("basis." + t.Basis)
	}
	add(t.Started, level, "story.failed", t.N, hostName(t.Host), w.reason(t.Reason), took, w.say("executed."+t.Executed), safe)
}

func (v *visit) until(t time.Time) string {
	if t.IsZero() {
		return v.words.say("story.no_date")
	}
	return v.words.say("story.for", v.words.lasts(t.Sub(v.now)))
}

// levelOf is the light of a result.
func levelOf(result string) string {
	switch result {
	case "success", "recovered", "replay":
		return "ok"
	case "failed":
		return "bad"
	}
	return "warn"
}

// exportTrace gives what the API knows of an order as one JSON file.
func (s *server) exportTrace(w http.ResponseWriter, r *http.Request) {
	v := s.visit(r)
	q := r.URL.Query().Get("q")
	calls, more, err := v.find(q)
	if err == nil && len(calls) == 0 {
		err = &problem{Status: http.StatusNotFound, Reason: "not_found", Detail: v.words.say("trace.none")}
	}
	out := struct {
		Query string            `json:"query"`
		At    time.Time         `json:"at"`
		More  bool              `json:"more"`
		Calls []json.RawMessage `json:"calls"`
	}{q, v.now, more, nil}
	for i := range calls {
		var text json.RawMessage
		if err == nil {
			err = v.get("/api/v1/calls/"+url.PathEscape(calls[i].ID), &text)
			out.Calls = append(out.Calls, text)
		}
	}
	var p *problem
	if errors.As(err, &p) {
		http.Error(w, p.Error(), p.Status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Disposition", `attachment; filename="trace.json"`)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(out) // a browser that left is no fault of ours
}
