package config

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"retryproxy/internal/seal"
)

// checker collects what is out of bounds.
type checker struct {
	source   source
	keep     time.Duration // of dead letters
	problems []Problem
}

func (c *checker) fail(path, format string, args ...any) {
	c.problems = append(c.problems, Problem{Line: c.source.line(path), Path: path, Rule: fmt.Sprintf(format, args...)})
}

// above fails unless d > 0.
func (c *checker) above(path string, d time.Duration) {
	if d <= 0 {
		c.fail(path, "%s must be above 0", durationText(d))
	}
}

// between fails unless low <= n <= high.
func between[T cmp.Ordered](c *checker, path string, n, low, high T) {
	if n < low || n > high {
		c.fail(path, "%v must be from %v to %v", n, low, high)
	}
}

// oneOf fails unless value is one of the words.
func (c *checker) oneOf(path, value string, words ...string) {
	if !slices.Contains(words, value) {
		c.fail(path, "%q must be one of %s", shorten(value), strings.Join(words, ", "))
	}
}

// unique fails where a value of a list was there before; key names its place.
func (c *checker) unique(seen map[string]string, value, path string) {
	if first, again := seen[value]; again {
		c.fail(path, "%q is already used by %s", shorten(value), first)
		return
	}
	seen[value] = path
}

// most is the bound of counts: far more than makes sense, far less than overflows.
const most = 1_000_000_000

// check returns every value that is out of bounds.
func (c *Config) check() []Problem {
	k := &checker{source: c.source, keep: c.DeadLetters.Keep}
	if !isInstance(c.Instance) {
		k.fail("instance", "%q must be a letter followed by letters, digits or any of !#$%%&'*+-.^_`|~, at most 64", shorten(c.Instance))
	}
	k.listen(c)
	k.clients(&c.Clients)
	k.destinations(&c.Destinations)
	k.headers(&c.Headers)
	for name, shop := range c.Shops {
		k.label(join("shops", name), name)
		k.optionalLabel(join("shops", name)+".tier", shop.Tier)
	}
	k.hostPatterns("upgrade_to_https", c.UpgradeToHTTPS)
	k.tls(&c.TLS)
	k.intercept(&c.Intercept)
	k.egress(c)
	k.routes(c.Routes)
	k.policies(c.RetryPolicies)
	k.timezone(c)
	k.retries(&c.Retries)
	k.limits(c)
	k.breakers(&c.Breakers)
	k.store(&c.Store)
	k.idempotency(&c.Idempotency)
	k.deadLetters(&c.DeadLetters)
	between(k, "history.calls", c.History.Calls, 1, most)
	k.alerts(c)
	k.tracing(&c.Tracing)
	k.admin(&c.Admin)
	k.oneOf("body.over", c.Body.Over, "stream", "reject")
	k.log(&c.Log)
	return k.problems
}

func (c *checker) log(l *Log) {
	c.oneOf("log.level", l.Level, "debug", "info", "warn", "error")
	c.oneOf("log.format", l.Format, "auto", "text", "json")
	between(c, "log.max_size", l.MaxSize, 1<<20, 1<<40)
	between(c, "log.keep", l.Keep, 0, 1000)
}

// Bounds of a lane's share: with none of the slots its calls would starve.
const leastShare, mostShare = 0.01, 0.99

func (c *checker) limits(conf *Config) {
	l := &conf.RetryLimits
	c.limit("retry_limits.global", l.Global)
	c.limit("retry_limits.task_type", l.TaskType)
	c.limit("retry_limits.shop", l.Shop)
	between(c, "slots.max_in_flight", conf.Slots.MaxInFlight, 1, most)
	between(c, "slots.max_waiting", conf.Slots.MaxWaiting, 0, most)
	between(c, "slots.retry_share", conf.Slots.RetryShare, leastShare, mostShare)
	between(c, "slots.backlog_share", conf.Slots.BacklogShare, leastShare, mostShare)
	c.above("limits.header_timeout", conf.Limits.HeaderTimeout)
	between(c, "limits.header_bytes", conf.Limits.HeaderBytes, 1<<10, 16<<20)
	between(c, "limits.connections", conf.Limits.Connections, 1, most)
	c.above("limits.tunnel_idle", conf.Limits.TunnelIdle)
}

func (c *checker) limit(path string, l Limit) {
	if l.Off {
		return
	}
	between(c, path+".share", l.Share, 0, 1)
	if l.Rate > 0 || l.Share > 0 {
		between(c, path+".burst", l.Burst, 1, most)
	}
}

func (c *checker) breakers(b *Breakers) {
	h := &b.Host
	between(c, "breakers.host.consecutive_failures", h.ConsecutiveFailures, 1, most)
	if h.FailureRatio <= 0 || h.FailureRatio > 1 {
		c.fail("breakers.host.failure_ratio", "%v must be above 0 and at most 1", h.FailureRatio)
	}
	between(c, "breakers.host.min_calls", h.MinCalls, 1, most)
	c.above("breakers.host.window", h.Window)
	c.above("breakers.host.open", h.Open)
	if h.OpenMax < h.Open {
		c.fail("breakers.host.open_max", "%s is below open %s", durationText(h.OpenMax), durationText(h.Open))
	}
	between(c, "breakers.host.probes", h.Probes, 1, most)
	between(c, "breakers.shop.identical_failures", b.Shop.IdenticalFailures, 1, most)
	c.above("breakers.shop.probe_every", b.Shop.ProbeEvery)
}

func (c *checker) idempotency(i *Idempotency) {
	c.above("idempotency.ttl", i.TTL)
	between(c, "idempotency.entries", i.Entries, 1, most)
}

func (c *checker) deadLetters(d *DeadLetters) {
	if d.Keep < leastKeep {
		c.fail("dead_letters.keep", "%s is below %s", durationText(d.Keep), durationText(leastKeep))
	}
	between(c, "dead_letters.max", d.Max, 1, most)
}

// store checks where records are kept.
func (c *checker) store(s *Store) {
	c.oneOf("store.kind", s.Kind, "memory", "sqlite", "redis")
	c.oneOf("store.durability", s.Durability, "full", "process")
	if _, err := seal.Parse(string(s.Key)); err != nil {
		c.fail("store.key", "%v", err)
	}
	switch {
	case s.Kind == "sqlite" && s.Path == "":
		c.fail("store.path", "sqlite needs a directory for its file; -data gives one as well")
	case s.Kind != "sqlite" && s.Path != "":
		c.fail("store.path", "%s keeps nothing in %s; kind: sqlite does", shorten(s.Kind), shorten(s.Path))
	}
	switch {
	case s.Kind == "redis":
		c.redisURL("store.url", string(s.URL))
	case s.URL != "":
		c.fail("store.url", "%s asks no server; kind: redis does", shorten(s.Kind))
	}
}

// redisURL checks an address without ever showing it: it may hold a password.
func (c *checker) redisURL(path, text string) {
	const want = "want redis://[user:password@]host:port[/database], rediss://… or unix:///path"
	u, err := url.Parse(text)
	switch {
	case err != nil:
		c.fail(path, want)
	case u.Scheme == "unix" && u.Path != "":
	case u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "":
		c.fail(path, want)
	case strings.Trim(u.Path, "/0123456789") != "":
		c.fail(path, "after the host stands the number of a database or nothing")
	}
}

// tracing checks where spans are sent.
func (c *checker) tracing(t *Tracing) {
	c.oneOf("tracing.protocol", t.Protocol, "http", "grpc")
	between(c, "tracing.sample", t.Sample, 0, 1)
	for name, value := range t.Headers {
		switch {
		case !isToken(name):
			c.fail(join("tracing.headers", name), "%q is not the name of a header", shorten(name))
		case strings.ContainsAny(string(value), "\r\n\x00"):
			c.fail(join("tracing.headers", name), "must be one line") // and is a secret
		}
	}
	u, err := url.Parse(t.Endpoint)
	switch {
	case t.Endpoint == "":
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "":
		c.fail("tracing.endpoint", "want http://host:port or https://host:port of an OTLP collector; credentials go into tracing.headers")
	case t.Protocol == "grpc" && strings.Trim(u.Path, "/") != "":
		c.fail("tracing.endpoint", "grpc has no path: want http://host:port or https://host:port")
	}
}

func (c *checker) retries(r *Retries) {
	c.oneOf("retries.default", r.Default, "on", "off", "observe")
	for i := range r.Scopes {
		path := fmt.Sprintf("retries.scopes[%d]", i)
		c.oneOf(path+".value", r.Scopes[i].Value, "on", "off", "observe")
		c.match(path+".match", &r.Scopes[i].Match)
	}
}

// timezone also loads the zone.
func (c *checker) timezone(conf *Config) {
	zone, err := time.LoadLocation(conf.Timezone)
	if err != nil || conf.Timezone == "" {
		c.fail("timezone", "%q is not a known zone; want Local, UTC or a name such as Asia/Shanghai", shorten(conf.Timezone))
		return
	}
	conf.zone = zone
}
