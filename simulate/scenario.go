package simulate

import (
	"time"

	"retryproxy/config"
)

// Scenario is a scripted platform, the bots that call it, and the ways in which
// they are compared. Its tags name the keys of the file.
type Scenario struct {
	Name     string        `key:"name"`
	About    string        `key:"about"`    // for people
	Duration time.Duration `key:"duration"` // bots begin calls for so long; what was begun is seen through
	Seed     int           `key:"seed"`
	Start    time.Time     `key:"start"` // virtual date of the beginning, which hour_range goes by; zero: ten in the morning where the configuration is
	Platform Platform      `key:"platform"`
	Phases   []Phase       `key:"phases"` // in order, without overlap; between them it is as under platform
	Bots     []Bots        `key:"bots"`
	Runs     []Run         `key:"runs"`

	file string // it came from
}

// Platform is what a platform does, all the time or in a phase.
type Platform struct {
	Host    string `key:"host"`     // host:port, for the match of policies
	Slots   int    `key:"slots"`    // requests in work at once; 0: no bound
	Queue   int    `key:"queue"`    // requests that may wait for a slot
	Full    int    `key:"full"`     // status for one that finds the queue full, at once
	Service Spread `key:"service"`  // how long a request holds its slot, to the end also when its caller has left
	Latency Spread `key:"latency"`  // of the answer on its way; holds no slot
	Failure []Fail `key:"failures"` // tried in order with one throw of the dice
}

// Fail is how a share of the requests fails.
type Fail struct {
	Share      float64       `key:"share"`       // of the requests, 0 to 1
	Shops      []string      `key:"shops"`       // only theirs; none: everybody's
	Status     int           `key:"status"`      // the answer
	Fault      string        `key:"fault"`       // instead of an answer: refused, reset, hang
	After      time.Duration `key:"after"`       // holds the slot so long instead of the usual; hang: the connection then closes
	RetryAfter time.Duration `key:"retry_after"` // of the answer; whole seconds
}

// The faults that a scenario can name.
const (
	faultRefused = "refused" // the connection is
	faultReset   = "reset"   // after the request was read
	faultHang    = "hang"    // no answer ever comes
)

// Phase is a time in which the platform is different. What it leaves out stays as
// under platform; failures replace those there.
type Phase struct {
	Name    string        `key:"name"`
	From    time.Duration `key:"from"`
	To      time.Duration `key:"to"`
	Outage  bool          `key:"outage"` // recovery is measured from its end
	Slots   int           `key:"slots"`
	Service Spread        `key:"service"`
	Latency Spread        `key:"latency"`
	Failure []Fail        `key:"failures"`
}

// Bots are a group that does the same.
type Bots struct {
	Name     string        `key:"name"`
	Bots     int           `key:"bots"`
	Every    time.Duration `key:"every"`    // from call to call of one bot; 0: each makes one call
	Loop     string        `key:"loop"`     // open: it does not wait for answers; closed: every counts from the answer
	Arrivals string        `key:"arrivals"` // even, random, or together
	From     time.Duration `key:"from"`     // calls begin from then on,
	To       time.Duration `key:"to"`       // and before that; 0: the end
	TaskType string        `key:"task_type"`
	ShopTier string        `key:"shop_tier"`
	Shop     string        `key:"shop"`  // of all bots of the group; empty: none
	Shops    int           `key:"shops"` // in turn: the bots of the group belong to s1, s2, …; 0: they have no such shop
	Method   string        `key:"method"`
	Path     string        `key:"path"`
	Keyed    bool          `key:"keyed"`       // each call has an idempotency key
	Patience time.Duration `key:"patience"`    // then the bot hangs up: the call has failed
	Timeout  time.Duration `key:"timeout"`     // of one attempt by peer naive, where the run has none
	Tells    bool          `key:"tells_proxy"` // it sends its patience as X-Request-Timeout
}

// Run is one way of calling the platform: a configuration of the proxy, or a peer
// without smart retry.
type Run struct {
	Name       string        `key:"name"`
	Peer       string        `key:"peer"`        // direct, naive; empty: retryproxy
	Retries    int           `key:"retries"`     // naive: at most, whatever failed
	Timeout    time.Duration `key:"timeout"`     // naive: of one attempt
	Delay      time.Duration `key:"delay"`       // naive: before a retry
	Config     config.Inside `key:"config"`      // over the built-in one
	ConfigFile string        `key:"config_file"` // a path, relative to the scenario
}

// The peers.
const (
	peerDirect = "direct" // one request, no retry
	peerNaive  = "naive"  // a fixed number of tries, whatever the platform says
)

// loops and arrivals of bots.
const (
	loopOpen   = "open"
	loopClosed = "closed"

	arriveEven     = "even"     // the bots of the group at equal distances
	arriveRandom   = "random"   // each call at a random distance from the one before
	arriveTogether = "together" // all at once
)
