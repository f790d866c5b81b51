package doctor

import (
	"net/netip"
	"time"

	"retryproxy/classify"
	"retryproxy/upstream"
)

// Facts are all that Examine judges by.
type Facts struct {
	Now     time.Time
	Shell   Shell
	Setup   Setup
	Running Running
	Probes  []Probe
	Offline bool // upstreams were not asked
	Exits   []Exit
	Trust   Trust
	Seen    *View // nil: the running proxy did not tell
}

// Shell is the environment that doctor was started in, meant to be the bot's.
type Shell struct {
	OS      string // runtime.GOOS
	Vars    map[string]string
	Node    string            // what node --version says; empty: not there
	Java    bool              // java is there
	Bundles map[string]Bundle // by variable: the certificate file it names
}

// Bundle is a file of certificates.
type Bundle struct {
	File  string
	Fault string // why it cannot be read; empty: it can
	Count int    // certificates in it
	Ours  bool   // our CA is among them
}

// Setup is the configuration, as far as it matters here.
type Setup struct {
	File      string   // empty: the built-in one, or that of the running proxy
	Told      bool     // it is that of the running proxy
	Faults    []string // why serve would refuse it
	Unset     []string // variables that it names and this shell lacks; the running proxy has them
	Retries   Switch   // as configured
	Hosts     []string // listen.hosts
	Ports     []int    // destinations.connect_ports
	Warnings  []string
	Listen    []string // addresses of the proxy, host:port; the first is the main one
	Proxy     string   // where to call the proxy, host:port
	Names     []string // further names under which the proxy is called
	Local     []netip.Addr
	Users     bool // credentials are needed
	Upstreams []Upstream
	Intercept []string // patterns
	Upgrade   []string // patterns
	Allowed   []string // destinations.allow
	Clients   []string // clients.allow
	Store     string   // kind
	Kept      string   // directory that the running proxy got by -data; empty: none, or the file names it as well
	Deny      bool     // egress_default
	BareShops []string // of the table, without an egress of their own
	BodyDir   string
}

// Upstream is a configured host.
type Upstream struct {
	URL    string // scheme://host[:port]
	From   string // the key that names it
	Route  bool   // clients call us instead of it
	Exempt bool   // private addresses are fine
	// Shipped: only the built-in default names it, so perhaps nobody calls it.
	Shipped bool
}

// Switch says where retries are on, off or only observed.
type Switch struct {
	Default string  `json:"default"`
	Scopes  []Scope `json:"scopes"` // the first that matches wins over Default
}

// Scope is an exception.
type Scope struct {
	Match map[string]any `json:"match"` // empty: all calls
	Value string         `json:"value"`
	Until time.Time      `json:"until"` // zero: for good
}

// Running is what is known of the proxy that runs.
type Running struct {
	Admin       string // address that was asked; empty: there is none
	AdminFault  string // why there was no answer; empty: there was one
	Token       bool   // the fault is a missing or wrong token
	ProxyFault  string // why the proxy port cannot be reached
	NotReady    string // what /readyz says when it takes no calls
	Version     string // empty: unknown
	OwnVersion  string
	Reload      bool     // the last reload failed
	Hidden      []string // egress rules whose credentials it does not tell
	Retries     *Switch  // in force; nil: unknown
	Drift       []string // keys in which its configuration differs
	Unexamined  bool     // it has another configuration than the one examined
	Misspelt    int64    // user names whose labels could not be read
	SpoolFree   uint64   // bytes free for bodies; 0: unknown
	Records     int64    // idempotency records; 0: none or unknown
	Passed      []Passed // clients whose tunnels are no longer opened
	Fingerprint string   // of the CA in use
	Cut         Cut
}

// Cut is what the running proxy cuts off at present.
type Cut struct {
	Hosts []struct {
		Host   string
		Outage *struct {
			Since   time.Time
			Reach   string
			Waiting int
		}
	}
	Shops []struct {
		Shop, Host, Reason string
		Since              time.Time
	}
}

// Passed is a client that refuses our CA for a host.
type Passed struct {
	Client string    `json:"client"`
	Host   string    `json:"host"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

// Target is an upstream to ask.
type Target struct {
	URL     string // scheme://host[:port]
	Exit    string // egress rule to go through; empty: direct
	Through upstream.Exit
	Exempt  bool // private addresses are fine
	Shipped bool // only the built-in default names it
	// Listen: asked was only whether the egress proxy takes a connection.
	Listen bool
}

// Answer is what came of asking a Target.
type Answer struct {
	Phase  classify.Phase
	Fault  classify.Fault // FaultNone: there was an answer
	Detail string
	Status int
	Date   time.Time // its Date field; zero: none
	At     time.Time // when it came, by our clock
	Took   time.Duration
}

// Probe is a Target with its Answer.
type Probe struct {
	Target
	From string // the key that names it
	Answer
	Cert *Cert // of an upstream whose certificate does not hold; nil: unknown
}

// Cert is the certificate that an upstream shows.
type Cert struct {
	Fault   string // expired, not_yet, wrong_name, unknown_root; empty: none found
	Issuer  string
	Names   []string
	Expires time.Time
	Begins  time.Time
}

// Exit is an egress proxy.
type Exit struct {
	Name  string // of the rule
	Proxy string // scheme://host:port without credentials, of a pool the first
}

// Trust is our CA.
type Trust struct {
	File, Key string // empty: unknown
	Fault     string // why it cannot be read
	Missing   bool   // it does not exist yet
	KeyMode   uint32 // permissions of the key; 0: unknown
	Expires   time.Time
	System    bool   // the system trusts it
	Public    string // file with the public authorities; empty: unknown
	Print     string
}
