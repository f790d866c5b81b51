package admin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"retryproxy/policy"
)

// Switch says where retries are on, off or only observed.
type Switch struct {
	Default string  `json:"default"`
	Scopes  []Scope `json:"scopes"` // the first that matches wins over Default
}

// Scope overrides the default for the calls it matches.
type Scope struct {
	Match policy.Match
	Value string
	Until time.Time // zero: for good
}

// maxScopes bounds what operators can pile up.
const maxScopes = 1000

// errSwitch is wrapped with what is wrong with an order.
var errSwitch = errors.New("retries")

// scopeText is a Scope in JSON.
type scopeText struct {
	Match matchText `json:"match"`
	Value string    `json:"value"`
	Until time.Time `json:"until,omitzero"`
}

// matchText is a policy.Match in JSON, as the configuration spells it.
type matchText struct {
	TaskType  patterns `json:"task_type,omitempty"`
	Shop      patterns `json:"shop,omitempty"`
	ShopTier  patterns `json:"shop_tier,omitempty"`
	Host      patterns `json:"host,omitempty"`
	Path      patterns `json:"path,omitempty"`
	Method    patterns `json:"method,omitempty"`
	HourRange patterns `json:"hour_range,omitempty"`
}

// patterns is a list of globs; a single one may stand for itself.
type patterns []string

// UnmarshalJSON reads a string or a list of strings.
func (p *patterns) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*p = patterns{one}
		return nil
	}
	var many []string
	err := json.Unmarshal(b, &many)
	*p = many
	if len(many) == 0 {
		*p = nil // the same as left out
	}
	return err
}

// MarshalJSON writes the scope as the configuration spells it.
func (s Scope) MarshalJSON() ([]byte, error) {
	m := s.Match
	t := matchText{m.TaskType, m.Shop, m.ShopTier, m.Host, m.Path, m.Method, hourTexts(m.Hours)}
	return json.Marshal(scopeText{t, s.Value, s.Until})
}

// scope turns the text into a Scope.
func (t *scopeText) scope() (Scope, error) {
	m := &t.Match
	s := Scope{policy.Match{
		TaskType: m.TaskType, Shop: m.Shop, ShopTier: m.ShopTier, Host: m.Host, Path: m.Path, Method: m.Method,
	}, t.Value, t.Until}
	for _, text := range m.HourRange {
		from, to, _ := strings.Cut(text, "-")
		f, err1 := strconv.Atoi(from)
		u, err2 := strconv.Atoi(to)
		h := policy.HourRange{From: f, To: u}
		if err := cmp.Or(err1, err2); err != nil {
			return s, fmt.Errorf("%w: hour_range: want hours such as 2-6", errSwitch)
		}
		if err := h.Validate(); err != nil {
			return s, fmt.Errorf("%w: %w", errSwitch, err)
		}
		s.Match.Hours = append(s.Match.Hours, h)
	}
	return s, known(s.Value)
}

// known says whether a value of the switch exists.
func known(value string) error {
	if value == "on" || value == "off" || value == "observe" {
		return nil
	}
	return fmt.Errorf("%w: want on, off or observe, not %q", errSwitch, value)
}

// order is what a PUT may say: the whole switch (default, scopes), or one value
// for the calls that match.
type order struct {
	Default string      `json:"default"`
	Scopes  []scopeText `json:"scopes"`
	scopeText
}

// apply gives the switch after the order; until is the timer of the request,
// zero without one.
func (o *order) apply(now Switch, until, at time.Time) (Switch, error) {
	whole := o.Default != "" || o.Scopes != nil
	switch {
	case whole && o.Value != "":
		return now, fmt.Errorf("%w: want either default and scopes, or value and match", errSwitch)
	case whole && until.IsZero():
		return o.whole()
	case whole && o.Scopes != nil:
		return now, fmt.Errorf("%w: for goes with value, or with default alone; scopes have until", errSwitch)
	case whole: // the default for a while is a scope for all calls
		o.Value = o.Default
	}
	if o.Until.IsZero() {
		o.Until = until
	}
	return o.one(now, at)
}

// one puts one value first, in the place of an older one for the same calls.
// Scopes whose time is over are dropped. On for every call ends all exceptions.
func (o *order) one(now Switch, at time.Time) (Switch, error) {
	one, err := o.scope()
	if err != nil {
		return now, err
	}
	same := func(s Scope) bool { return reflect.DeepEqual(s.Match, one.Match) }
	next := Switch{now.Default, slices.DeleteFunc(now.inForce(at), same)}
	switch lasting := one.Until.IsZero(); {
	case lasting && one.forAll() && one.Value == "on":
		return Switch{Default: "on"}, nil
	case lasting && one.forAll():
		next.Default = one.Value
		return next, nil
	case lasting && one.Value == now.Default && !one.needed(now.Scopes, next.Scopes):
		return next, nil
	}
	next.Scopes = slices.Insert(next.Scopes, 0, one)
	return next, nil
}

// needed says whether an order for the default's own value has to be a rule: not
// when it undoes an exception for the same calls, nor where no other is left.
func (s Scope) needed(old, left []Scope) bool {
	exception := func(c Scope) bool { return c.Value != s.Value }
	if slices.ContainsFunc(old, func(c Scope) bool { return exception(c) && reflect.DeepEqual(c.Match, s.Match) }) {
		return false
	}
	return slices.ContainsFunc(left, exception)
}

// inForce are the scopes whose time is not over, as a list of their own.
func (s Switch) inForce(at time.Time) []Scope {
	return slices.DeleteFunc(slices.Clone(s.Scopes), func(c Scope) bool { return !c.Until.IsZero() && !at.Before(c.Until) })
}

// forAll says whether the scope is for every call.
func (s Scope) forAll() bool { return reflect.DeepEqual(s.Match, policy.Match{}) }

// String says it as an operator would: off for host a.test until a time.
func (s Scope) String() string {
	var parts []string
	for _, m := range [...]struct {
		key      string
		patterns []string
	}{
		{"host", s.Match.Host},
		{"shop", s.Match.Shop},
		{"shop_tier", s.Match.ShopTier},
		{"task_type", s.Match.TaskType},
		{"path", s.Match.Path},
		{"method", s.Match.Method},
		{"hour_range", hourTexts(s.Match.Hours)},
	} {
		if len(m.patterns) > 0 {
			parts = append(parts, m.key+" "+strings.Join(m.patterns, "|"))
		}
	}
	text := s.Value + " for " + cmp.Or(strings.Join(parts, ", "), "every call")
	if !s.Until.IsZero() {
		text += " until " + s.Until.Format(time.RFC3339)
	}
	return text
}

func hourTexts(hours []policy.HourRange) (out []string) {
	for _, h := range hours {
		out = append(out, fmt.Sprintf("%d-%d", h.From, h.To))
	}
	return out
}

// whole is the switch as the order says, nothing of the old one.
func (o *order) whole() (Switch, error) {
	next := Switch{Default: o.Default}
	if err := known(o.Default); err != nil {
		return next, fmt.Errorf("default: %w", err)
	}
	for i := range o.Scopes {
		s, err := o.Scopes[i].scope()
		if err != nil {
			return next, fmt.Errorf("scopes[%d]: %w", i, err)
		}
		next.Scopes = append(next.Scopes, s)
	}
	return next, nil
}

func (s *server) showRetries(w http.ResponseWriter, _ *http.Request) {
	sw := s.Retries()
	if sw.Scopes = sw.inForce(time.Now()); sw.Scopes == nil {
		sw.Scopes = []Scope{}
	}
	show(w, sw)
}

// setRetries turns the switch. ?for=30m makes the change end by itself.
func (s *server) setRetries(w http.ResponseWriter, r *http.Request) {
	var o order
	if !read(w, r, &o) {
		return
	}
	now := time.Now()
	until, err := timer(r, now)
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	next, err := o.apply(s.Retries(), until, now)
	if err == nil && len(next.Scopes) > maxScopes {
		err = fmt.Errorf("%w: more than %d scopes", errSwitch, maxScopes)
	}
	if err == nil {
		err = s.SetRetries(next)
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	s.showRetries(w, r)
}

// timer reads ?for=30m; zero: none.
func timer(r *http.Request, now time.Time) (time.Time, error) {
	text := r.URL.Query().Get("for")
	if text == "" {
		return time.Time{}, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return time.Time{}, fmt.Errorf("%w: for: want a duration such as 30m", errSwitch)
	}
	return now.Add(d), nil
}
