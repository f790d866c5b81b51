package doctor

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"retryproxy/attempt"
	"retryproxy/classify"
)

// Bounds of what is remembered.
const (
	mostHosts   = 256
	mostClients = 1024
	mostReasons = 64
	mostFlaws   = 256
	mostWays    = 4096
	mostShown   = 50 // hosts, clients and failures of a View
	longestText = 160
)

// soon is how fast a client that retries by itself comes back.
const soon = 5 * time.Second

// Observer counts what finished calls tell. It takes its time from them, keeps
// no key and no shop, and is safe for concurrent use.
type Observer struct {
	seed maphash.Seed

	mu      sync.Mutex
	total   totals
	hosts   *simplelru.LRU[string, *HostView]
	clients *simplelru.LRU[string, *caller]
	reasons *simplelru.LRU[string, *int64]
	flaws   *simplelru.LRU[flawKey, *flaw]
	reload  string        // why the last reload was refused
	ways    [mostWays]way // by hash; a collision forgets the older one
}

// totals are counted over all calls.
type totals struct {
	since, until                  time.Time
	calls, tunnels, noShop, noTsk int64
}

// way is the last call of a client to one method, host and path.
type way struct {
	hash     uint64
	ended    int64 // Unix nanoseconds
	failed   bool  // as the client saw it
	doubtful bool  // the upstream may have acted
}

// NewObserver returns an Observer that has seen nothing.
func NewObserver() *Observer {
	o := &Observer{seed: maphash.MakeSeed()}
	o.hosts, _ = simplelru.NewLRU[string, *HostView](mostHosts, nil) // fails on sizes below 1 only
	o.clients, _ = simplelru.NewLRU[string, *caller](mostClients, nil)
	o.reasons, _ = simplelru.NewLRU[string, *int64](mostReasons, nil)
	o.flaws, _ = simplelru.NewLRU[flawKey, *flaw](mostFlaws, nil)
	return o
}

// Reloaded notes what a reload of the configuration came to; nil: it is in force.
func (o *Observer) Reloaded(err error) {
	text := ""
	if err != nil {
		text = strings.Join(strings.Split(strings.TrimSpace(err.Error()), "\n"), "; ")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reload = text
}

// Call counts a finished call. It keeps nothing of s, and leaves out what the
// proxy itself was asked.
func (o *Observer) Call(s *attempt.Summary) {
	if s.Mode == "local" {
		return
	}
	from := addressOnly(s.Client)
	hash := o.hash(s, from)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total.span(s)
	if s.Result == "failed" || s.Result == "rejected" {
		*counterLocked(o.reasons, s.Reason)++
	}
	o.flawLocked(s, from)
	if s.Result == "rejected" && len(s.Attempts) == 0 {
		return // of such calls only the reason is of use
	}
	if s.Mode == "connect" || s.Method == "CONNECT" {
		if opaque(s) {
			o.hostLocked(s).Tunnels++
			o.total.tunnels++
			o.clientOfLocked(from).tunnel(s)
		}
		return // what an opened one holds comes as calls of their own
	}
	o.callLocked(o.hostLocked(s), s)
	o.total.label(s)
	o.clientLocked(s, from, hash)
}

// span widens the time that was seen.
func (t *totals) span(s *attempt.Summary) {
	if t.since.IsZero() || s.Started.Before(t.since) {
		t.since = s.Started
	}
	if end := s.Started.Add(s.Duration); end.After(t.until) {
		t.until = end
	}
}

func (t *totals) label(s *attempt.Summary) {
	t.calls++
	if s.Labels.Shop == "" {
		t.noShop++
	}
	if s.Labels.TaskType == "" {
		t.noTsk++
	}
}

// addressOnly cuts off the port, which changes with each connection.
func addressOnly(client string) string {
	i := strings.LastIndexByte(client, ':')
	if i > 0 && (client[i-1] == ']' || strings.IndexByte(client, ':') == i) {
		return client[:i]
	}
	return client
}

// hash stands for client, method, host and path together.
func (o *Observer) hash(s *attempt.Summary, client string) uint64 {
	var h maphash.Hash
	h.SetSeed(o.seed)
	for _, part := range [...]string{client, s.Method, s.Host, s.Path} {
		_, _ = h.WriteString(part)
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

// opaque says whether a tunnel came about into which we cannot look. An opened
// one was not dialled; one for plain http was, but carried nothing.
func opaque(s *attempt.Summary) bool {
	return len(s.Attempts) > 0 && s.Status == 200 && (s.Bytes > 0 || strings.HasSuffix(s.Host, ":443"))
}

// hostLocked is what is counted of the call's host.
func (o *Observer) hostLocked(s *attempt.Summary) *HostView {
	v, ok := o.hosts.Get(bounded(s.Host))
	if !ok {
		v = &HostView{Host: short(s.Host)}
		o.hosts.Add(v.Host, v)
	}
	return v
}

// callLocked counts a call with its host.
func (o *Observer) callLocked(v *HostView, s *attempt.Summary) {
	v.Calls++
	for i := range s.Attempts {
		if s.Attempts[i].Verdict.Reason == "suspect" {
			v.Suspect++
			break
		}
	}
}

// clientLocked counts the call with its client, and whether it is a repeat of
// the client's own.
func (o *Observer) clientLocked(s *attempt.Summary, from string, hash uint64) {
	v := o.clientOfLocked(from)
	v.cover(s)
	v.Calls++
	w := &o.ways[hash%mostWays]
	failed, unsafe := sawFailure(s), s.KeyHash == "" && (s.Method == "POST" || s.Method == "PATCH")
	if gap := s.Started.UnixNano() - w.ended; w.hash == hash && gap >= 0 && gap <= int64(soon) {
		v.follow(s, w, unsafe)
	}
	if failed {
		v.Failures++
	}
	if s.KeyHash == "" && clientCount(s) > 0 {
		v.Counting++
	}
	if unsafe && s.Reason == "manual_review" {
		v.Reviews++
	}
	*w = way{hash, s.Started.Add(s.Duration).UnixNano(), failed, s.Executed != classify.ExecutedNo}
}

// clientOf is what is counted of a client address.
func (o *Observer) clientOfLocked(from string) *caller {
	v, ok := o.clients.Get(bounded(from))
	if !ok {
		v = &caller{ClientView: ClientView{Client: short(from)}}
		o.clients.Add(v.Client, v)
	}
	return v
}

// follow counts a call that came soon after one just like it.
func (c *ClientView) follow(s *attempt.Summary, w *way, unsafe bool) {
	switch {
	case !w.failed:
		c.AfterSuccess++
		return
	case unsafe && w.doubtful:
		c.Doubled++
	}
	c.AfterFailure++
	if c.Example == "" {
		c.Example = short(s.Method + " " + s.Host + s.Path)
	}
}

// sawFailure says whether the client took its answer for a passing failure.
func sawFailure(s *attempt.Summary) bool {
	return s.Result == "failed" && (s.Status >= 500 || s.Status == 429 || s.Status == 408)
}

// clientCount is how often the client says that it had retried.
func clientCount(s *attempt.Summary) int {
	if len(s.Attempts) == 0 {
		return 0
	}
	return s.Attempts[0].Count - (s.Attempts[0].N - 1)
}

func counterLocked(l *simplelru.LRU[string, *int64], name string) *int64 {
	n, ok := l.Get(bounded(name))
	if !ok {
		n = new(int64)
		l.Add(short(name), n)
	}
	return n
}

// short is a bounded copy, so that no buffer of a request stays alive.
func short(s string) string { return strings.Clone(bounded(s)) }

func bounded(s string) string { return s[:min(len(s), longestText)] }

// View is what an Observer has seen, for GET /api/v1/observed.
type View struct {
	Since   time.Time        `json:"since,omitzero"`
	Until   time.Time        `json:"until,omitzero"`
	Calls   int64            `json:"calls"`   // but tunnels
	Tunnels int64            `json:"tunnels"` // opaque
	NoShop  int64            `json:"no_shop"` // of Calls: without a shop
	NoTask  int64            `json:"no_task"` // of Calls: without a task type
	Hosts   []HostView       `json:"hosts"`   // most tunnels first
	Clients []ClientView     `json:"clients"` // most repeats of their own first
	Reasons map[string]int64 `json:"reasons"` // why calls failed or were refused
	// Failures are the same by cause and host, the most frequent first.
	Failures []FailureView `json:"failures"`
	// Refused are clients that ended TLS in a tunnel that is opened.
	Refused []FailureView `json:"refused"`
	Reload  string        `json:"reload,omitempty"` // why the last reload was refused
}

// HostView counts the calls to a host.
type HostView struct {
	Host    string `json:"host"` // host:port
	Calls   int64  `json:"calls"`
	Tunnels int64  `json:"tunnels"`
	Suspect int64  `json:"suspect"` // calls with a 2xx whose content says failure
}

// ClientView counts the calls of a client address.
type ClientView struct {
	Client       string `json:"client"`
	Calls        int64  `json:"calls"`
	Failures     int64  `json:"failures"`      // as the client saw them
	AfterFailure int64  `json:"after_failure"` // calls within seconds of such a failure of the same method, host and path
	AfterSuccess int64  `json:"after_success"` // the same after a success: what is normal for this client
	Doubled      int64  `json:"doubled"`       // of AfterFailure: keyless POST or PATCH where the upstream may have acted
	Counting     int64  `json:"counting"`      // X-Retry-Count above 0 and no key
	Reviews      int64  `json:"reviews"`       // keyless POST or PATCH that was not repeated: outcome unknown
	Example      string `json:"example,omitempty"`
}

// View is a copy of what was seen so far.
func (o *Observer) View() View {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := &o.total
	v := View{
		Since: t.since, Until: t.until, Calls: t.calls, Tunnels: t.tunnels, NoShop: t.noShop, NoTask: t.noTsk, Reload: o.reload,
		Hosts: []HostView{}, Clients: []ClientView{}, Reasons: map[string]int64{}, Failures: []FailureView{}, Refused: []FailureView{},
	}
	for _, h := range o.hosts.Values() {
		v.Hosts = append(v.Hosts, *h)
	}
	for _, c := range o.clients.Values() {
		if c.Calls > 0 {
			v.Clients = append(v.Clients, c.ClientView)
		}
	}
	for _, reason := range o.reasons.Keys() {
		n, _ := o.reasons.Peek(reason)
		v.Reasons[reason] = *n
	}
	for _, f := range o.flaws.Values() {
		v.addFlaw(f.view())
	}
	v.order()
	return v
}

// order puts what matters most first and leaves out the rest.
func (v *View) order() {
	slices.SortFunc(v.Hosts, func(a, b HostView) int {
		return cmp.Or(cmp.Compare(b.Tunnels, a.Tunnels), cmp.Compare(b.Suspect, a.Suspect),
			cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Host, b.Host))
	})
	slices.SortFunc(v.Clients, func(a, b ClientView) int {
		return cmp.Or(cmp.Compare(b.own(), a.own()), cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Client, b.Client))
	})
	for _, list := range [...]*[]FailureView{&v.Failures, &v.Refused} {
		slices.SortFunc(*list, func(a, b FailureView) int {
			return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Client, b.Client))
		})
		*list = (*list)[:min(len(*list), mostShown)]
	}
	v.Hosts = v.Hosts[:min(len(v.Hosts), mostShown)]
	v.Clients = v.Clients[:min(len(v.Clients), mostShown)]
}

// own are the signs that the client retries by itself or should have had a key.
func (c *ClientView) own() int64 { return c.AfterFailure + c.Counting + c.Doubled + c.Reviews }
