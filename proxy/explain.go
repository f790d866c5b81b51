package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"retryproxy/access"
	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/inbound"
	"retryproxy/message"
	"retryproxy/patience"
	"retryproxy/policy"
)

// ErrQuestion is wrapped by the error of a question that is no request.
var ErrQuestion = errors.New("explain")

// ExplainRequest is a call that is asked about but not made.
type ExplainRequest struct {
	Method string
	URL    string // absolute, or a path for a route, or host:port for CONNECT
	Fields message.Fields
	Body   []byte
	Client netip.Addr // zero: loopback
	// Durable: the store is, so that keyed calls go on without their client.
	Durable bool
	Rates   map[string]string // of the token buckets by dimension, to be shown; may be nil
	// Patience says after how long the clients of a task type hang up; nil: unknown.
	Patience func(taskType string) patience.View
}

// Explanation says what would become of a call, and why. Times are in
// milliseconds. After a refusal only what was settled before it is set.
type Explanation struct {
	Method  string   `json:"method"`
	URL     string   `json:"url"`
	Mode    string   `json:"mode,omitempty"` // forward, connect, intercept, reverse, local
	Refused *Refused `json:"refused,omitempty"`
	Notes   []string `json:"notes,omitempty"`

	Hops   []Hop   `json:"hops,omitempty"` // where attempts go, the first first
	User   string  `json:"user,omitempty"`
	Tenant string  `json:"tenant,omitempty"` // whose keys it shares
	Labels []Label `json:"labels,omitempty"`

	Preset      string        `json:"preset,omitempty"`    // what is known of the platform
	Operation   string        `json:"operation,omitempty"` // as the preset finds it
	Nature      string        `json:"call,omitempty"`      // a read, a write, a write that may be repeated
	Policy      string        `json:"policy,omitempty"`
	PolicyWhy   string        `json:"policy_why,omitempty"`
	PassedOver  []PassedOver  `json:"passed_over,omitempty"` // policies before it that are for other calls
	VariantWhy  string        `json:"variant_why,omitempty"` // why it is this variant of the policy; empty: that has none
	Keyed       bool          `json:"keyed"`
	KeyHonoured bool          `json:"key_honoured"` // a repeat is safe because of the key
	KeyWhy      string        `json:"key_why,omitempty"`
	Lasting     bool          `json:"lasting"`        // it goes on without its client, and after a restart
	Safe        string        `json:"safe,omitempty"` // why repeating is safe whatever happened; empty: it is not
	SafeWhy     string        `json:"safe_why,omitempty"`
	Switch      string        `json:"switch,omitempty"`
	DeadlineMS  int64         `json:"deadline_ms,omitempty"`
	Patience    *Patience     `json:"patience,omitempty"` // absent: no client has hung up
	ConnectMS   int64         `json:"connect_timeout_ms,omitempty"`
	PerTryMS    int64         `json:"per_try_timeout_ms,omitempty"`
	Retries     int           `json:"retries"` // that may be made
	RetriesWhy  string        `json:"retries_why,omitempty"`
	Buckets     []Bucket      `json:"buckets,omitempty"` // a retry needs a token of each
	Delays      []Delay       `json:"delays,omitempty"`
	FastFirst   bool          `json:"fast_first_retry,omitempty"` // after 5 to 25 ms while the host answers others
	Headers     []HeaderLine  `json:"headers,omitempty"`          // of the first attempt
	RetryHeader *HeaderLine   `json:"retry_header,omitempty"`     // what the first retry adds
	Outcomes    []WouldLeadTo `json:"outcomes,omitempty"`
}

// Refused is an answer of our own that ends the call at the door.
type Refused struct {
	Status int    `json:"status"`
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// Hop is one place that attempts go to.
type Hop struct {
	URL  string `json:"url"`
	Host string `json:"host"` // names gate and breaker
	Why  string `json:"why,omitempty"`
	// Egress are the proxies it may leave through, the first first; none: directly.
	Egress []string `json:"egress,omitempty"`
}

// Label is one label of the call and what it came from.
type Label struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`
}

// Patience is how long clients of the task type wait until they hang up.
type Patience struct {
	Calls      int   `json:"calls"` // that ended
	Left       int   `json:"left"`  // of them: whose client left without an answer
	Waited     int   `json:"waited"`
	WaitedLeft int   `json:"waited_left"`
	P50MS      int64 `json:"p50_ms"` // from the request until they left
	P90MS      int64 `json:"p90_ms"`
}

// PassedOver is a policy that is not for the call, and the key that says so.
type PassedOver struct {
	Policy string `json:"policy"`
	Why    string `json:"why"`
}

// Bucket is a bucket of retry tokens.
type Bucket struct {
	Dimension string `json:"dimension"`     // global, task_type, shop
	Key       string `json:"key,omitempty"` // the task type or shop
	Rate      string `json:"rate,omitempty"`
}

// Delay is the wait before a retry.
type Delay struct {
	Retry     int   `json:"retry"`
	NominalMS int64 `json:"nominal_ms"` // without jitter
	MinMS     int64 `json:"min_ms"`
	MaxMS     int64 `json:"max_ms"`
}

// HeaderLine is a header field; credentials are hidden.
type HeaderLine struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Explain says what would become of a call by these settings at now. It runs
// the very steps that a call goes through, so that the two cannot differ. The
// error wraps ErrQuestion.
func Explain(set *Settings, sw *Switch, req ExplainRequest, now time.Time) (Explanation, error) {
	e := Explanation{Method: req.Method, URL: set.Hide.Target(req.URL)}
	if path, ok := set.askedDirectly(&req); ok {
		req.URL = path
		e.Notes = append(e.Notes, "the URL is one of our own: this is a request to us, not one through us")
	}
	text, err := req.text()
	if err != nil {
		return e, err
	}
	client, server := net.Pipe()
	defer client.Close()
	go func() { _, _ = client.Write(text) }() // ends with the pipe
	front := inbound.Server{Handler: func(call *inbound.Call) {
		call.Received = now
		p := &Proxy{durable: req.Durable, name: set.Instance + "-<process>", via: "1.1 " + set.Instance + "-<process>"}
		x := &exchange{p: p, set: set, call: call, id: newID(), started: now, begun: now, sum: &attempt.Summary{}}
		x.explain(&e, sw, &req)
		_ = client.Close()
	}}
	front.ServeInside(server, &inbound.Listener{}, netip.AddrPortFrom(req.client(), 0), nil)
	return e, nil
}

func (r *ExplainRequest) client() netip.Addr {
	if r.Client.IsValid() {
		return r.Client
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// text is the request's head as a client would send it; of the content only the
// length matters.
func (r *ExplainRequest) text() ([]byte, error) {
	if r.Method == "" || r.URL == "" || strings.ContainsFunc(r.Method+r.URL, func(c rune) bool { return c <= ' ' }) {
		return nil, fmt.Errorf("%w: want a method and a URL, a path or, for CONNECT, host:port", ErrQuestion)
	}
	out := r.Method + " " + r.URL + " HTTP/1.1\r\n"
	if !r.Fields.Has("Host") {
		out += "Host: " + r.host() + "\r\n"
	}
	for _, f := range r.Fields {
		if strings.ContainsAny(f.Name+f.Value, "\r\n") {
			return nil, fmt.Errorf("%w: a header holds a line break", ErrQuestion)
		}
		if !strings.EqualFold(f.Name, "Content-Length") && !strings.EqualFold(f.Name, "Transfer-Encoding") {
			out += f.Name + ": " + f.Value + "\r\n"
		}
	}
	if len(r.Body) > 0 {
		out += "Content-Length: " + strconv.Itoa(len(r.Body)) + "\r\n"
	}
	return []byte(out + "\r\n"), nil
}

// askedDirectly says that the request is one to our own listener: its Host, which
// is not the one of its URL, is that of a route or the URL is ours. A client sends
// it the path alone, since no proxy is in between.
func (s *Settings) askedDirectly(r *ExplainRequest) (path string, ok bool) {
	rest, absolute := strings.CutPrefix(r.URL, "http://")
	host := r.Fields.Get("Host")
	if !absolute || host == "" {
		return "", false
	}
	authority := r.host()
	path, plain := strings.CutPrefix(rest, authority) // no user in it
	name, port, err := splitAuthority("http", authority)
	if err != nil || !plain || strings.EqualFold(host, authority) {
		return "", false
	}
	if path == "" || path[0] != '/' {
		path = "/" + path
	}
	if name == "localhost" {
		name = "127.0.0.1"
	}
	addr, err := netip.ParseAddr(name)
	if err != nil {
		return "", false
	}
	rt := s.routeFor(host, path, false)
	ours := errors.Is(s.Guard.Check(netip.AddrPortFrom(addr, port), true), access.ErrLoop)
	return path, ours || addr.Unmap().IsLoopback() && rt != nil && rt.Host != ""
}

// host is the Host a client would send along.
func (r *ExplainRequest) host() string {
	if r.Method == "CONNECT" {
		return r.URL
	}
	_, rest, absolute := strings.Cut(r.URL, "://")
	if !absolute {
		return "localhost"
	}
	authority, _, _ := strings.Cut(rest, "/")
	authority, _, _ = strings.Cut(authority, "?")
	return authority[strings.LastIndexByte(authority, '@')+1:]
}

// explain goes through the door and writes down what it finds.
func (x *exchange) explain(e *Explanation, sw *Switch, req *ExplainRequest) {
	now := x.started
	r := x.enter()
	if r != nil && r.reason == "auth_required" {
		e.refused(x, r) // what follows does not depend on who calls
		r = x.understand()
	}
	if r == nil && (x.mode == "local" || x.asksUs()) {
		e.Mode, e.Notes = x.mode, append(e.Notes, "this is about the proxy itself: it is answered here")
		return
	}
	e.way(x)
	if r == nil {
		r = x.literalDenied()
	}
	if r == nil && x.call.Length > x.set.Body.Limit {
		r = x.overLimit(nil)
	}
	if r != nil {
		e.refused(x, r)
		return
	}
	if x.learn(req.Body) && x.attrs.Operation != "" {
		x.policy = x.set.Policies.Match(&x.attrs, now)
	}
	x.prepare()
	x.lasting = x.lasts()
	x.readPatience()
	if x.preset != nil {
		e.Preset, e.Operation, e.Nature = x.preset.Name, x.known.Operation, x.known.Nature.String()
	}
	e.rules(x)
	e.key(x)
	e.holds(x)
	e.limits(x, sw, req.Rates)
	e.clients(x, req.Patience)
	if x.listed() {
		e.Retries, e.RetriesWhy = 0, "nothing is dialled for the tunnel itself"
		return
	}
	e.waits(x)
	e.sent(x)
	e.Outcomes = x.outcomes(e.Switch)
}

// literalDenied judges a destination that is an address, as dialling it would.
// What a name resolves to is known only then.
func (x *exchange) literalDenied() *refusal {
	t := &x.hops[0].target
	addr, err := netip.ParseAddr(t.Host)
	if err != nil {
		return nil
	}
	if err := x.set.Guard.Check(netip.AddrPortFrom(addr, t.Port), t.Exempt); err != nil {
		return x.deniedBy(err)
	}
	return nil
}

func (e *Explanation) refused(x *exchange, r *refusal) {
	if e.Refused == nil {
		e.Refused = &Refused{x.refusalStatus(r), r.reason, r.detail}
	}
	if r.reason == "loop" {
		e.Notes = append(e.Notes, "to ask about a route, give its path alone")
	}
}

// way says where the call goes and whose it is.
func (e *Explanation) way(x *exchange) {
	e.Mode, e.User = x.mode, x.user.Name
	for i := range x.hops {
		e.Hops = append(e.Hops, x.explainHop(&x.hops[i]))
	}
	if x.policy == nil {
		return
	}
	for _, name := range x.policy.Failover {
		if p := x.set.Presets.Named(name); p != nil && p.Submit != nil {
			e.Hops = append(e.Hops, Hop{URL: p.Submit.Request.URL.String(), Host: p.Submit.Request.URL.Host(), Why: "supplier " + name + ", after a definite failure (failover)"})
		}
	}
	e.Tenant = x.tenant()
	for _, l := range [...]Label{{"shop", x.labels.Shop, ""}, {"shop_tier", x.labels.ShopTier, ""}, {"task_type", x.labels.TaskType, ""}} {
		if l.Value != "" {
			l.From = x.source(l.Name)
			e.Labels = append(e.Labels, l)
		}
	}
}

func (x *exchange) explainHop(h *hop) Hop {
	out := Hop{URL: x.set.Hide.Target(h.target.Scheme + "://" + h.host + h.path), Host: h.host}
	switch {
	case x.mode == "reverse":
		out.Why = "a route"
	case x.listed():
		out.URL, out.Why = h.host, "a tunnel that is opened (intercept.hosts)"
	case x.mode == "connect":
		out.URL, out.Why = h.host, "an opaque tunnel"
	case h.target.Scheme != x.call.Request.Scheme && h.target.Scheme == "https":
		out.Why = "upgrade_to_https"
	}
	for _, exit := range h.exits {
		out.Egress = append(out.Egress, exit.Name())
	}
	return out
}

// source says where a label came from, by precedence.
func (x *exchange) source(name string) string {
	of := func(l attempt.Labels) string {
		return map[string]string{"shop": l.Shop, "shop_tier": l.ShopTier, "task_type": l.TaskType}[name]
	}
	header := map[string]string{"shop": x.set.Headers.Shop, "shop_tier": x.set.Headers.ShopTier, "task_type": x.set.Headers.Task}[name]
	switch {
	case of(x.user.Labels) != "":
		return "clients.users." + x.user.Name
	case of(x.call.Listener.Labels) != "":
		return "the listener"
	case of(x.userLabels) != "":
		return "the proxy user name"
	case of(x.sentLabels()) != "":
		return "header " + header
	}
	return "the shops table"
}

// rules says which policy holds and how long the call may take.
func (e *Explanation) rules(x *exchange) {
	p, matched := x.policy, x.policy
	if p.Of != nil {
		matched, e.VariantWhy = p.Of, x.variantWhy()
	}
	e.Policy, e.PolicyWhy = p.Name, matchText(&matched.Match)
	for _, q := range x.set.Policies.Policies() {
		if q == matched {
			break
		}
		e.PassedOver = append(e.PassedOver, PassedOver{q.Name, x.mismatch(&q.Match)})
	}
	e.DeadlineMS, e.ConnectMS, e.PerTryMS = x.end.Sub(x.started).Milliseconds(), p.ConnectTimeout.Milliseconds(), p.PerTryTimeout.Milliseconds()
	e.Retries = max(x.left(), 0)
	if x.count > 0 {
		e.RetriesWhy = fmt.Sprintf("max_retries %d, and the client itself retried %d times", p.MaxRetries, x.count)
	}
	e.Safe, e.SafeWhy = string(x.safe), x.safeWhy()
	if x.listed() {
		e.Notes = append(e.Notes, "each request inside is a call of its own with all retries: ask about its https URL. A client that refuses our certificates gets an opaque tunnel after three tries")
	} else if x.mode == "connect" {
		e.Notes = append(e.Notes, "a tunnel is opaque: only the connection is retried. For all retries call http:// with upgrade_to_https, use a route, or list the host under intercept")
	} else if https := x.call.Form == inbound.Absolute && x.call.Request.Scheme == "https"; https && x.set.Intercept != nil && x.set.Intercept.Hosts.Match(x.hops[0].host) {
		e.Notes = append(e.Notes, "through HTTPS_PROXY it comes in a tunnel, which is opened (intercept.hosts), and all this comes out the same; the client must trust our CA")
	} else if https {
		e.Notes = append(e.Notes, "most clients open a tunnel for an https URL; explain -X CONNECT host:443 is about that")
	}
	if x.body.stream != nil {
		e.Notes = append(e.Notes, "the body is over body.limit: it is streamed once and cannot be repeated")
	}
}

// variantWhy says how the call came to its variant, and what others there are.
func (x *exchange) variantWhy() string {
	shares := make([]string, len(x.policy.Of.Variants))
	for i, v := range x.policy.Of.Variants {
		shares[i] = fmt.Sprintf("%s %.3g %%", strings.TrimPrefix(v.Name, v.Of.Name+"/"), 100*float64(v.Weight)/float64(v.Of.Weights()))
	}
	why := "by tenant and key: every call with them gets it"
	if !x.keyed() {
		why = "by chance, since the call has no key: the next one may get another"
	}
	return why + " (of all calls " + strings.Join(shares, ", ") + ")"
}

// matchText writes a match as the configuration does.
func matchText(m *policy.Match) string {
	var parts []string
	for _, k := range matchKeys(m) {
		if len(k.patterns) > 0 {
			parts = append(parts, k.name+" "+strings.Join(k.patterns, "|"))
		}
	}
	for i, h := range m.Hours {
		parts = append(parts, [...]string{"hour_range ", "or "}[min(i, 1)]+fmt.Sprintf("%d-%d", h.From, h.To))
	}
	if parts == nil {
		return "for every call"
	}
	return "for " + strings.Join(parts, ", ")
}

// matchKey is one key of a match.
type matchKey struct {
	name     string
	patterns []string
	alone    policy.Match // the match with nothing but this key
}

func matchKeys(m *policy.Match) []matchKey {
	return []matchKey{
		{"task_type", m.TaskType, policy.Match{TaskType: m.TaskType}},
		{"shop", m.Shop, policy.Match{Shop: m.Shop}},
		{"shop_tier", m.ShopTier, policy.Match{ShopTier: m.ShopTier}},
		{"host", m.Host, policy.Match{Host: m.Host}},
		{"path", m.Path, policy.Match{Path: m.Path}},
		{"method", m.Method, policy.Match{Method: m.Method}},
		{"operation", m.Operation, policy.Match{Operation: m.Operation}},
	}
}

// mismatch names the first key of a policy that is not for the call. What all
// other keys allow, the hour forbids.
func (x *exchange) mismatch(m *policy.Match) string {
	for _, k := range matchKeys(m) {
		only, err := policy.NewMatcher(k.alone, nil)
		if err == nil && !only.Match(&x.attrs, x.started) {
			return k.name + " is not " + strings.Join(k.patterns, "|")
		}
	}
	return "it is not the hour"
}

func (x *exchange) safeWhy() string {
	switch x.safe {
	case classify.BasisMethod:
		return x.call.Request.Method + " is one of safe_methods"
	case classify.BasisKey:
		return "the key goes upstream, which is expected to act once per key"
	case classify.BasisRule:
		if x.policy.Safe != "always" {
			return "the preset " + x.preset.Name + " knows that it is " + x.known.Nature.String()
		}
		return "the policy says safe: always"
	}
	if x.policy.OnUnknown == "retry" {
		return "on_unknown: retry repeats all the same"
	}
	return "whatever may have been executed stops with manual_review"
}

// key says what the idempotency key is worth.
func (e *Explanation) key(x *exchange) {
	host := x.hops[0].target.Host
	e.Keyed, e.KeyHonoured = x.key != "", x.honoured
	switch {
	case !e.Keyed:
		e.KeyWhy = "none was sent (" + strings.Join(x.set.Headers.Keys, ", ") + ")"
	case e.KeyHonoured:
		e.KeyWhy = "it goes upstream, and a repeat of this call here is answered from its record"
	case !x.sends.key && (x.preset != nil || policy.Platform(host)):
		e.KeyWhy = host + " is a known platform, which gets none of our headers; a repeat of this call here is still answered from its record"
	case !x.sends.key:
		e.KeyWhy = "it does not go upstream (forward_headers); a repeat of this call here is still answered from its record"
	default:
		e.KeyWhy = host + " is known to ignore keys (safe: key says otherwise); a repeat of this call here is still answered from its record"
	}
}

// holds says when the client is let go while its call goes on.
func (e *Explanation) holds(x *exchange) {
	p := x.policy
	_, _, wanted := parsePrefer(x.call.Request.Fields.Values("Prefer")).hold(p.ClientHold)
	e.Lasting = x.lasting
	note := ""
	switch {
	case x.mode == "connect":
	case x.holdsClient():
		why := "client_hold"
		if x.patience.applied != "" {
			why = "Prefer: " + x.patience.applied
		}
		note = fmt.Sprintf("the client is held for %s (%s): then it gets %d parked with a receipt, and the call goes on", x.patience.until.Sub(x.begun), why, p.OnPark)
	case x.lasting:
		note = fmt.Sprintf("the call goes on when its client leaves; where it can only wait, for a retry token, a closed breaker or our next start, it is parked and the client gets %d parked with a receipt", p.OnPark)
	case !wanted && p.RetryAfterOverCap != "park":
	case x.key == "":
		note = "without a key the call is not parked, and its client is held to the end"
	case !x.p.durable:
		note = "without a durable store (serve -data DIR) the call is not parked, and its client is held to the end"
	default:
		note = "an upgrade is not parked: it ends with its client"
	}
	if note != "" {
		e.Notes = append(e.Notes, note)
	}
}

// limits says what a retry needs besides time.
func (e *Explanation) limits(x *exchange, sw *Switch, rates map[string]string) {
	e.Switch = sw.Value(&x.attrs, x.started)
	for _, b := range [...]Bucket{{"global", "", ""}, {"task_type", x.labels.TaskType, ""}, {"shop", x.labels.Shop, ""}} {
		if b.Dimension == "global" || b.Key != "" {
			b.Rate = rates[b.Dimension]
			e.Buckets = append(e.Buckets, b)
		}
	}
}

// clients says after how long those of this kind were seen to hang up.
func (e *Explanation) clients(x *exchange, patienceOf func(taskType string) patience.View) {
	if patienceOf == nil {
		return
	}
	if v := patienceOf(x.labels.TaskType); v.Left > 0 {
		e.Patience = &Patience{v.Calls, v.Left, v.Waited, v.WaitedLeft, v.P50.Milliseconds(), v.P90.Milliseconds()}
	}
}

// waits plans the delays of all retries that may be made.
func (e *Explanation) waits(x *exchange) {
	b := x.policy.Backoff
	e.FastFirst = x.policy.FirstRetry == "fast"
	for n := 1; n <= e.Retries; n++ {
		low, high := b.Delay(n, 0), b.Delay(n, 1)
		if b.Jitter == "stable" && x.key != "" {
			f := Facts{Policy: x.policy, ID: x.jitterID()}
			low = b.Delay(n, f.dice(n))
			high = low
		}
		e.Delays = append(e.Delays, Delay{n, b.Nominal(n).Milliseconds(), low.Milliseconds(), high.Milliseconds()})
	}
}

// sent lists the header of the first attempt, and what the first retry adds.
func (e *Explanation) sent(x *exchange) {
	if x.mode == "connect" {
		return
	}
	for _, f := range x.counted(x.number()) {
		switch strings.ToLower(f.Name) {
		case "authorization", "cookie":
			f.Value = "<secret>"
		}
		e.Headers = append(e.Headers, HeaderLine(f))
	}
	if x.sends.count && e.Retries > 0 {
		e.RetryHeader = &HeaderLine{x.set.Headers.RetryCount, strconv.Itoa(x.number() + 1)}
	}
}
