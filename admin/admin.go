// Package admin answers one question: what may an operator see and do?
//
// It shows what other parts know and hands orders on to them. It decides
// nothing: every part of Deps comes from main as a func or a value.
package admin

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"retryproxy/attempt"
	"retryproxy/audit"
	"retryproxy/breaker"
	"retryproxy/idempotency"
	"retryproxy/journal"
	"retryproxy/limiter"
	"retryproxy/patience"
	"retryproxy/pause"
)

// Deps are what the listener shows and hands on. All but those that say so are
// required.
type Deps struct {
	Calls func() []*attempt.Summary // in progress and recent
	// Find finds calls as journal.Look does, in the history as well where there is
	// one. Words gives what a text consists of as journal.Query wants it; nil: no
	// call is found by a text.
	Find  func(ctx context.Context, q journal.Query) (calls []*attempt.Summary, next string, err error)
	Words func(text string) [][]uint64
	// Records are the records that keys of this hash have now; nil: nobody knows.
	Records func(ctx context.Context, keyHash string) ([]idempotency.Record, error)
	// Request is what is kept of the request of a record; nil: nothing. May be nil.
	Request func(ctx context.Context, id idempotency.ID) (*idempotency.Request, error)
	Zone    func() *time.Location // of dates; nil: of this machine

	Gates func() []limiter.HostView
	Shops func() []breaker.ShopStatus
	Exits func() []breaker.ExitStatus
	// ResetExit closes the breaker of an egress proxy; false: none was open.
	ResetExit func(name string) bool
	Limits    func() []limiter.BucketView
	// Reset closes a breaker; shop is empty for the host's own. False: there is
	// nothing under that name.
	Reset func(shop, host string) bool

	Config func() []byte // the effective configuration as YAML, secrets hidden
	Reload func() error  // reads the file again; an error leaves the old rules in force

	Retries    func() Switch
	SetRetries func(Switch) error // the error says what is wrong with it

	Explain func(Question) (any, error) // an error: the question makes no sense
	Verdict func(Answer) (any, error)   // an error: there is no such platform
	// Observed is what finished calls told about clients and hosts, as JSON shows
	// it; nil: nobody counts.
	Observed func() any
	Coverage func() any // the same by client, with advice; nil: likewise

	// Report says how policies and their variants do, of one policy or, empty, of
	// all; false: there is none of that name. ResetReport begins it anew.
	Report      func(policy string) (any, bool)
	ResetReport func(policy string) bool

	Patience func() []patience.View // after how long clients hang up, by task type

	Line    Line
	Letters Letters
	Pauses  func() []pause.Pause                                        // what platforms stopped
	Resume  func(shop, platform, by, note string) (ended []pause.Pause) // platform empty: all

	CA        func() []byte       // what clients have to trust, as PEM; nil, or nothing: no tunnels are opened
	Intercept func() Interception // may be nil: none
	// ResetPins ends the pass-throughs of a client to a host, empty: of all, and
	// says how many there were. nil: there are none.
	ResetPins func(client, host string) int

	Alerts func() any // rules, what is firing and deliveries, as JSON shows it; nil: nothing is told
	// TestAlerts sends a test to the targets of a rule, empty: to all, and says what
	// each answered. It fails where there is no such rule. May be nil.
	TestAlerts func(ctx context.Context, rule string) (any, error)

	Standing func() Standing // what the overview shows beside the above
	Trend    Trend
	Problems func() Problems // with the configuration
	NewCodes NewCodes
	// Waits are the planned delays of a policy, or of a variant as policy/variant.
	Waits func(policy string) Waits

	Metrics prometheus.Gatherer
	Ready   func() (ok bool, why string)

	// Page answers what is neither the API nor one of the paths of machines: the page for
	// people. nil: / lists what there is.
	Page http.Handler

	// Accounts are those who may ask what is under /api, by token or session. nil or
	// none: everybody may do everything.
	Accounts func() []Account
	Audit    *audit.Log                  // what was done; nil: it is kept in memory
	Hosts    func(authority string) bool // may a request name this Host: a loopback or configured one
}

// index is the text of the root.
const index = `retryproxy admin

/livez /healthz               200 while the process runs
/readyz                       200 while it takes calls
/metrics                      Prometheus text
/ca.pem                       the certificate that clients have to trust

/                             the page for people
/api                          this list

/api/v1/overview              what is down, waits, was lost, or needs a person, at a glance
/api/v1/trend/hosts           calls, successes and attempts per minute and host, and what waited; ?minutes= up to 60
/api/v1/trend/shops           calls and failures per minute and shop; ?minutes=
/api/v1/newcodes              answers whose code no preset knows; DELETE ?platform=&code=&by= takes one off the list
/api/v1/calls                 calls in progress, then those that ended; ?key= key_hash= id= text= shop= host= task_type=
                              state= result= reason= since= until= (2026-03-04, 3d) limit= after= format=csv
/api/v1/calls/{id}            one call with all its attempts, and what is known under its key now; ?reveal=1 shows request and answer
/api/v1/calls/waiting/histogram    when those that wait go on, by cause; ?minutes= up to 60, step= such as 10s
/api/v1/calls/{id}/expedite   POST {"by","note"}; the call does not wait for its date any longer
/api/v1/calls/{id}/cancel     POST {"by","note"}; the call that waits ends without another attempt
/api/v1/deadletters           calls that were given up; ?reason= host= task_type= shop= state= executed= key= key_hash= text= since= until= limit= after=
/api/v1/deadletters/{id}      one of them; ?reveal=1 shows key, request and answer
/api/v1/deadletters/{id}/requeue   POST {"executed_unknown","at":"2h","by","note"}
/api/v1/deadletters/{id}/resolve   POST {"executed":true,"by","note"}
/api/v1/deadletters/{id}/drop      POST {"by","note"}
/api/v1/deadletters/hours     how many were made in each hour, by reason; ?hours= up to 720
/api/v1/deadletters/summary   how many by reason, host, …; conditions as above
/api/v1/deadletters/export    all of them; ?format=jsonl or csv, reveal=, conditions as above
/api/v1/deadletters/requeue   POST {"filter":{"host":"a.example"},"all","dry_run","rate":"5/s","canary":1,"at":"2h","by","note"}
/api/v1/deadletters/drop      POST {"filter","all","by","note"}
/api/v1/deadletters/bulk      the requeue of many; DELETE ends it
/api/v1/breakers              hosts and shops that are cut off
/api/v1/breakers/{scope}/reset   POST; scope is host:port, shop@host:port or egress:NAME (of a rule, or as /api/v1/breakers names it), URL-escaped
/api/v1/limits                retry tokens
/api/v1/policies              retry policies in force
/api/v1/report                how they and their variants do; ?policy=
/api/v1/report/reset          POST; counts anew, ?policy= of one policy
/api/v1/patience              after how long clients hang up, by task type
/api/v1/config                configuration in force; ?format=yaml
/api/v1/config/reload         POST
/api/v1/config/problems       warnings about it, and what the last reload came to
/api/v1/retries               the switch; PUT {"value":"off","match":{"host":"a.example"}} with ?for=30m
/api/v1/shops                 what is known of each shop
/api/v1/shops/{shop}/resume   POST {"platform","by","note"}; its calls go on that a platform stopped; - is for those without a shop
/api/v1/observed              what calls told about clients and hosts, for retryproxy doctor
/api/v1/coverage              the same by client: modes, tunnels, labels, own retries, and the lines that mend it
/api/v1/alerts                rules, what is firing, and how deliveries went
/api/v1/alerts/test           POST; a test message to each target, ?rule= to those of one rule
/api/v1/intercept             tunnels that are opened, and clients that refuse it
/api/v1/intercept/reset       POST; ends pass-throughs, all or ?client= host= of one
/api/v1/audit                 who did what, the newest first; ?limit= after=
/api/v1/session               who asks; POST {"token"} begins a session of a browser, DELETE ends it
/api/v1/explain               ?method=&url=&header=, or POST {"method","url","headers","body"}
/api/v1/verdict               POST {"platform","operation","method","status","headers","body"}: what such an answer means, by which rule
`

// server answers the requests of one listener.
type server struct {
	Deps
	sessions *sessions
	guesses  *guesses
	refusals *rate.Limiter // of entries in the audit log
}

func newServer(d Deps) *server {
	if d.Audit == nil {
		d.Audit, _ = audit.Open("", slog.New(slog.DiscardHandler)) // fails with a file only
	}
	return &server{d, newSessions(), newGuesses(), rate.NewLimiter(refillRefusals, mostRefusals)}
}

// New returns the handler of the admin listener.
func New(d Deps) http.Handler {
	s := newServer(d)
	r := chi.NewRouter()
	r.Use(middleware.GetHead, secured, s.checkHost, sameSite())
	r.NotFound(notFound)
	r.MethodNotAllowed(wrongMethod)
	r.Get("/api", text(index))
	if d.Page == nil {
		r.Get("/", text(index))
	} else {
		r.NotFound(d.Page.ServeHTTP)
	}
	r.Get("/ca.pem", s.showCA)
	s.health(r)
	r.Route("/api/v1", s.api)
	return r
}

// Health returns the handler of the health listener: live, ready and metrics
// only, for any Host and without a token.
func Health(d Deps) http.Handler {
	s := newServer(d)
	r := chi.NewRouter()
	r.Use(middleware.GetHead, secured)
	r.NotFound(notFound)
	r.MethodNotAllowed(wrongMethod)
	s.health(r)
	return r
}

// api is what needs a token or a session, where there are tokens.
func (s *server) api(r chi.Router) {
	r.NotFound(notFound)
	r.Use(s.checkActor)
	for _, o := range s.routes() {
		r.Method(o.method, o.path, s.guarded(o))
	}
}
