// Package config answers one question: what did the operator ask for?
//
// It reads a YAML or JSON file strictly over the built-in defaults, checks every
// bound, and reports all faults at once by file, line, path and rule.
package config

import (
	"net/netip"
	"net/url"
	"time"

	"retryproxy/internal/seal"
)

// Config is the whole configuration; config.yaml says what each key does. Its
// tags name the keys. Build it with Parse or Default; read only.
type Config struct {
	Instance       string          `key:"instance"`
	Listen         Listen          `key:"listen"`
	Listeners      []Listener      `key:"listeners"`
	Clients        Clients         `key:"clients"`
	Destinations   Destinations    `key:"destinations"`
	Headers        Headers         `key:"headers"`
	Shops          map[string]Shop `key:"shops"`
	UpgradeToHTTPS []string        `key:"upgrade_to_https"` // host patterns
	TLS            TLS             `key:"tls"`
	Intercept      Intercept       `key:"intercept"`
	Egress         []Egress        `key:"egress"`         // the first that matches, unless the shop names one
	EgressDefault  string          `key:"egress_default"` // direct, deny
	Routes         []Route         `key:"routes"`
	RetryPolicies  Policies        `key:"retry_policies"`
	Presets        Presets         `key:"presets"`
	Credentials    []Credentials   `key:"credentials"`
	Timezone       string          `key:"timezone"`
	Retries        Retries         `key:"retries"`
	RetryLimits    RetryLimits     `key:"retry_limits"`
	Slots          Slots           `key:"slots"`
	Breakers       Breakers        `key:"breakers"`
	Idempotency    Idempotency     `key:"idempotency"`
	Body           Body            `key:"body"`
	Limits         Limits          `key:"limits"`
	Store          Store           `key:"store"`
	History        History         `key:"history"`
	DeadLetters    DeadLetters     `key:"dead_letters"`
	Admin          Admin           `key:"admin"`
	Alerts         []Alert         `key:"alerts"`
	Tracing        Tracing         `key:"tracing"`
	Drain          time.Duration   `key:"drain"`
	Log            Log             `key:"log"`

	source source
	zone   *time.Location
}

// Listen are the addresses we listen on.
type Listen struct {
	Proxy  string   `key:"proxy"`
	Admin  string   `key:"admin"`  // empty: no admin listener
	Health string   `key:"health"` // empty: none
	Hosts  []string `key:"hosts"`  // further Host names for origin-form and admin requests
	H2C    bool     `key:"h2c"`    // HTTP/2 without TLS from clients that begin with its preface
}

// Listener is a further proxy address whose calls carry its labels.
type Listener struct {
	Addr     string `key:"addr"`
	Shop     string `key:"shop"`
	ShopTier string `key:"shop_tier"`
	TaskType string `key:"task_type"`
}

// Clients says who may use the proxy.
type Clients struct {
	Allow   []netip.Prefix  `key:"allow"`
	Users   map[string]User `key:"users"`   // by name; any makes credentials required
	Trusted []netip.Prefix  `key:"trusted"` // plain text from here counts as private
}

// User is a proxy user and the labels its calls carry.
type User struct {
	Hash     Secret `key:"hash"` // bcrypt
	Shop     string `key:"shop"`
	ShopTier string `key:"shop_tier"`
	TaskType string `key:"task_type"`
}

// Destinations says where calls may go. Allow and Deny hold prefixes, addresses
// and host patterns.
type Destinations struct {
	Private      string   `key:"private"` // auto, allow, deny
	Allow        []string `key:"allow"`
	Deny         []string `key:"deny"`
	ConnectPorts []int    `key:"connect_ports"`
}

// Headers are the names of our request headers.
type Headers struct {
	IdempotencyKey Names  `key:"idempotency_key"`
	RetryCount     string `key:"retry_count"`
	Shop           string `key:"shop"`
	ShopTier       string `key:"shop_tier"`
	TaskType       string `key:"task_type"`
	Timeout        string `key:"timeout"`
	Via            bool   `key:"via"`
}

// Shop is what is known about a shop beforehand.
type Shop struct {
	Tier   string `key:"tier"`
	Egress string `key:"egress"` // the name of a rule
}

// TLS is how upstreams are trusted.
type TLS struct {
	CAFiles []string `key:"ca_files"`

	pem [][]byte // contents of CAFiles
}

// Intercept says which CONNECT tunnels are opened under our own CA. CACert and
// CAKey name its files, both or neither: then it is made on first use.
type Intercept struct {
	CACert string   `key:"ca_cert"`
	CAKey  string   `key:"ca_key"`
	Hosts  []string `key:"hosts"` // host patterns
}

// Route maps a path prefix or a Host to upstreams.
type Route struct {
	Name        string   `key:"name"` // Parse fills in prefix or host when empty
	Prefix      string   `key:"prefix"`
	Host        string   `key:"host"`
	Upstreams   []string `key:"upstreams"` // base URLs; h2c://… is HTTP/2 without TLS
	StripPrefix bool     `key:"strip_prefix"`
	Preset      string   `key:"preset"`
	CrossSite   bool     `key:"cross_site"`
}

// Presets says where the operator's own are.
type Presets struct {
	Dir string `key:"dir"` // empty: none
}

// Credentials are what signatures and queries of a platform need, for some shops.
type Credentials struct {
	Preset Patterns          `key:"preset"`
	Shop   Patterns          `key:"shop"` // none: every shop, and calls without one
	Values map[string]Secret `key:"values"`
}

// Retries is the switch: on, off or observe.
type Retries struct {
	Default string  `key:"default"`
	Scopes  []Scope `key:"scopes"` // the first that matches wins over Default
}

// Scope sets the switch for some calls, until a time unless that is zero.
type Scope struct {
	Match Match     `key:"match"`
	Value string    `key:"value"`
	Until time.Time `key:"until"`
}

// RetryLimits are the token buckets a retry draws from.
type RetryLimits struct {
	Global   Limit `key:"global"`
	TaskType Limit `key:"task_type"`
	Shop     Limit `key:"shop"`
}

// Slots bound the attempts in flight per host and the calls that wait for one.
type Slots struct {
	MaxInFlight  int           `key:"max_in_flight"`
	Adaptive     bool          `key:"adaptive"`
	RetryShare   float64       `key:"retry_share"`
	BacklogShare float64       `key:"backlog_share"`
	Ramp         time.Duration `key:"ramp"`
	MaxWait      time.Duration `key:"max_wait"`
	MaxWaiting   int           `key:"max_waiting"`
}

// Breakers cut off hosts and shops that only fail.
type Breakers struct {
	Host HostBreaker `key:"host"`
	Shop ShopBreaker `key:"shop"`
}

// HostBreaker is the rule per host.
type HostBreaker struct {
	ConsecutiveFailures int           `key:"consecutive_failures"`
	FailureRatio        float64       `key:"failure_ratio"`
	MinCalls            int           `key:"min_calls"`
	Window              time.Duration `key:"window"`
	Open                time.Duration `key:"open"`
	OpenMax             time.Duration `key:"open_max"`
	Probes              int           `key:"probes"`
}

// ShopBreaker is the rule per shop and host.
type ShopBreaker struct {
	IdenticalFailures int           `key:"identical_failures"`
	ProbeEvery        time.Duration `key:"probe_every"`
}

// Idempotency bounds the records of keyed calls.
type Idempotency struct {
	TTL         time.Duration `key:"ttl"`
	Entries     int           `key:"entries"`
	Bytes       Size          `key:"bytes"`
	MaxResponse Size          `key:"max_response"`
}

// Body bounds request and answer bodies.
type Body struct {
	Memory      Size   `key:"memory"`
	Limit       Size   `key:"limit"`
	Over        string `key:"over"` // stream, reject
	Hold        Size   `key:"hold"`
	InspectMax  Size   `key:"inspect_max"`
	MemoryTotal Size   `key:"memory_total"`
	DiskTotal   Size   `key:"disk_total"`
	Dir         string `key:"dir"` // empty: the system's
}

// Limits bound what a client may take.
type Limits struct {
	HeaderTimeout time.Duration `key:"header_timeout"`
	HeaderBytes   Size          `key:"header_bytes"`
	Connections   int           `key:"connections"`
	TunnelIdle    time.Duration `key:"tunnel_idle"`
}

// Store is where records are kept.
type Store struct {
	Kind       string `key:"kind"`       // memory, sqlite, redis
	Path       string `key:"path"`       // sqlite: a directory
	Durability string `key:"durability"` // sqlite: full, process
	URL        Secret `key:"url"`        // redis: may hold a password
	Key        Secret `key:"key"`        // sqlite, redis: seals what is kept, see Keys
}

// Keys are those of Key; nil: there are none. Parse has checked them.
func (s *Store) Keys() *seal.Keys {
	k, _ := seal.Parse(string(s.Key))
	return k
}

// Place says for people where a durable store is, without a password.
func (s *Store) Place() string {
	if s.Kind != "redis" {
		return s.Path
	}
	u, err := url.Parse(string(s.URL))
	if err != nil {
		return "redis"
	}
	return "redis at " + u.Host + u.Path
}

// History is how long past calls are kept, by a durable store.
type History struct {
	Keep  time.Duration `key:"keep"`
	Calls int           `key:"calls"` // at most, the newest
}

// MostLetters is how many dead letters are kept: no more than a quarter of all
// records, so that there is always room for calls.
func (c *Config) MostLetters() int {
	return min(c.DeadLetters.Max, max(c.Idempotency.Entries/4, 1))
}

// DeadLetters is how long calls that were given up are kept for a person.
type DeadLetters struct {
	Keep time.Duration `key:"keep"`
	Max  int           `key:"max"` // the oldest beyond it go
}

// Admin guards the admin listener.
type Admin struct {
	Token  Secret       `key:"token"` // shorthand for one admin of that name
	Tokens []AdminToken `key:"tokens"`
}

// AdminToken lets somebody in. Its name signs what is done with it.
type AdminToken struct {
	Name  string `key:"name"`
	Role  string `key:"role"` // viewer, operator, admin
	Token Secret `key:"token"`
}

// Accounts are all tokens, the shorthand among them.
func (a *Admin) Accounts() []AdminToken {
	if a.Token == "" {
		return a.Tokens
	}
	return append([]AdminToken{{Name: "admin", Role: "admin", Token: a.Token}}, a.Tokens...)
}

// Tracing is where spans are sent by OTLP.
type Tracing struct {
	Endpoint string            `key:"endpoint"` // base URL; empty: none is, unless the environment names one
	Protocol string            `key:"protocol"` // http, grpc
	Sample   float64           `key:"sample"`   // share of the traces that begin here
	Headers  map[string]Secret `key:"headers"`  // of each request to the collector
}

// Log says what is logged and how.
type Log struct {
	Level   string `key:"level"`    // debug, info, warn, error
	Format  string `key:"format"`   // auto, text, json
	File    string `key:"file"`     // empty: standard error
	MaxSize Size   `key:"max_size"` // of the file, then a new one begins
	Keep    int    `key:"keep"`     // full files that stay
}

// Defaults is what a route has that says nothing.
func (r *Route) Defaults() { r.StripPrefix = true }

// Location is the zone of hour ranges.
func (c *Config) Location() *time.Location { return c.zone }
