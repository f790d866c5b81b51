package presets

import (
	"strings"
	"time"

	"retryproxy/document"
	"retryproxy/signer"
)

// file is a preset as it is written; docs/presets.md says what each key means.
type file struct {
	Preset     string   `key:"preset"`
	Version    string   `key:"version"`
	Title      string   `key:"title"`
	Confidence string   `key:"confidence"`
	Enabled    bool     `key:"enabled"`
	Extends    string   `key:"extends"`
	Sources    []string `key:"sources"`
	Notes      []string `key:"notes"`

	Hosts   []string `key:"hosts"`
	Paths   []string `key:"paths"`
	Forward []string `key:"forward_headers"`
	Renew   []string `key:"renew_headers"`

	Operation   []document.Place `key:"operation"`
	Token       []document.Place `key:"token"`
	BusinessKey []document.Place `key:"business_key"`
	Volatile    []string         `key:"volatile"`
	Secrets     []string         `key:"secrets"`
	Reads       Reads            `key:"reads"`
	Idempotent  []idempotentText `key:"idempotent"`
	Scarce      []string         `key:"scarce"`
	Limits      []limitText      `key:"limits"`

	Sign   signer.Scheme `key:"sign"`
	Replay string        `key:"replay"`
	Submit Submit        `key:"submit"`

	Query queryText `key:"query"`

	Answer      answerText `key:"answer"`
	RulesBefore []RuleText `key:"rules_before"`
	Rules       []RuleText `key:"rules"`
	Fixtures    []Fixture  `key:"fixtures"`
}

type idempotentText struct {
	Operation string                 `key:"operation"`
	Where     []requestConditionText `key:"where"`
}

type requestConditionText struct {
	At      document.Place `key:"at"`
	Is      []string       `key:"is"`
	Not     []string       `key:"not"`
	Absent  bool           `key:"absent"`
	Present bool           `key:"present"`
	Matches string         `key:"matches"`
}

type limitText struct {
	Operation string `key:"operation"`
	Scope     string `key:"scope"`
	Rate      string `key:"rate"`
}

type answerText struct {
	Format    string          `key:"format"`
	Charset   string          `key:"charset"`
	Unpack    []document.Path `key:"unpack"`
	Code      []document.Path `key:"code"`
	Sub       []document.Path `key:"sub"`
	Message   []document.Path `key:"message"`
	RequestID []document.Path `key:"request_id"`
	Success   []conditionText `key:"success"`
}

type conditionText struct {
	At      string   `key:"at"`
	Is      []string `key:"is"`
	Not     []string `key:"not"`
	Only    []string `key:"only"`
	Absent  bool     `key:"absent"`
	Present bool     `key:"present"`
	Matches string   `key:"matches"`
}

// RuleText is a rule as it is written.
type RuleText struct {
	Name       string          `key:"name"`
	Enabled    bool            `key:"enabled"`
	Confidence string          `key:"confidence"`
	Why        string          `key:"why"`
	Status     []string        `key:"status"`
	Code       []string        `key:"code"`
	Sub        []string        `key:"sub"`
	Message    string          `key:"message"`
	Body       string          `key:"body"`
	Operation  []string        `key:"operation"`
	Calls      string          `key:"calls"`
	Where      []conditionText `key:"where"`
	Is         string          `key:"is"`
	Failover   bool            `key:"failover"`
	Scope      string          `key:"scope"`
	Wait       []hintText      `key:"wait"`
}

// Defaults is what a rule has that says nothing.
func (r *RuleText) Defaults() { r.Enabled, r.Failover = true, true }

type hintText struct {
	At      string        `key:"at"`
	Message string        `key:"message"`
	Unit    string        `key:"unit"`
	Until   string        `key:"until"`
	Zone    string        `key:"zone"`
	Cost    costText      `key:"cost"`
	Base    time.Duration `key:"base"`
}

type costText struct {
	Need document.Path `key:"need"`
	Have document.Path `key:"have"`
	Rate document.Path `key:"rate"`
}

func (c *costText) given() bool { return !c.Need.IsZero() || !c.Have.IsZero() || !c.Rate.IsZero() }

// Fixture is an answer and what it means.
type Fixture struct {
	Name       string            `key:"name"`
	Method     string            `key:"method"`
	Operation  string            `key:"operation"`
	Calls      string            `key:"calls"` // read, write; empty: as the operation says
	Now        time.Time         `key:"now"`
	Status     int               `key:"status"`
	Headers    map[string]string `key:"headers"`
	Body       string            `key:"body"`
	BodyBase64 string            `key:"body_base64"`
	Cut        bool              `key:"cut"`
	Is         string            `key:"is"` // "status": the status decides
	Rule       string            `key:"rule"`
	Wait       time.Duration     `key:"wait"`
}

// Defaults is what a fixture has that says nothing.
func (f *Fixture) Defaults() { f.Status, f.Method = 200, "POST" }

// When is what an answer has to have, in words.
func (r *RuleText) When() string {
	var parts []string
	add := func(name string, values ...string) {
		if text := strings.Join(values, " "); text != "" {
			parts = append(parts, name+" "+text)
		}
	}
	add("status", r.Status...)
	add("code", r.Code...)
	add("sub code", r.Sub...)
	add("message ~", r.Message)
	add("body ~", r.Body)
	add("operation", r.Operation...)
	add("", r.Calls)
	for _, c := range r.Where {
		parts = append(parts, c.At)
	}
	return strings.TrimSpace(strings.Join(parts, ", "))
}
