// Package sandbox answers one question: what would the platforms do with these orders, and what did they really do?
//
// It plays PDD, TEMU and two suppliers of virtual goods: their signatures, clock
// windows, limits, order states and duplicate rules, in the words of their documents
// as far as these could be found. A script injects faults; the books say what really
// happened, whatever clients were told. Time is that of package time, so that tests
// in a synctest bubble are exact.
package sandbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Options are what all platforms have in common.
type Options struct {
	Addr   string                                  // to listen on; empty: a free port of the loopback
	Listen func(addr string) (net.Listener, error) // nil: TCP
	Books  *Books                                  // may be shared; nil: its own
	Script Script                                  // nil: no faults
	App    string                                  // client_id, app_key, appId or userid; empty: demo-app
	Secret string                                  // empty: demo-secret
	Window time.Duration                           // how far a timestamp may be off; 0: the platform's own
	Rate   float64                                 // requests a second and shop (TEMU: and app; suppliers: in all); 0: the platform's own
	Burst  int                                     // of these at once; 0: as many as in a second
	Quotas map[string]int                          // requests a day (UTC+8) and shop, by operation
	Fault  time.Duration                           // how long Down, Hang, Token and Maintenance usually last; 0: 5 s
	Skew   time.Duration                           // how far its clock is ahead of ours
}

// platform is one dialect. It is called under a lock.
type platform interface {
	name() string
	read(c *call)                      // operation, order and shop, as far as they can be told
	answer(c *call) reply              // checks, does, and says what became of it
	refuse(c *call, k Kind) reply      // how it says no
	renew(shop string) (string, error) // a new token
}

// call is one request as a platform sees it.
type call struct {
	now    time.Time
	r      *http.Request
	body   []byte
	number int // of the platform
	params params
	bad    error     // why there are no params
	until  time.Time // Token and Maintenance last
	// What read found out.
	operation, order, shop string
	effects                []Effect
}

// reply is an answer. Its code is for the books.
type reply struct {
	status      int
	contentType string
	body        []byte
	code        string
}

// Server is one platform that listens, until Close.
type Server struct {
	Options
	platform platform
	door     *door
	http     http.Server
	running  sync.WaitGroup

	mu     sync.Mutex // of the platform's state, and:
	total  int
	points map[string]int // requests so far, by operation and order
}

const (
	maxBody     = 1 << 20
	mostDrained = 64 << 20
	mostPoints  = 1_000_000 // above, requests are numbered with all others
)

var errTooLarge = errors.New("sandbox: the body is too large")

func start(o Options, of func(Options) platform) (*Server, error) {
	o.Addr, o.App, o.Secret = cmp.Or(o.Addr, "127.0.0.1:0"), cmp.Or(o.App, "demo-app"), cmp.Or(o.Secret, "demo-secret")
	o.Fault = cmp.Or(o.Fault, 5*time.Second)
	if o.Listen == nil {
		o.Listen = func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
	}
	if o.Books == nil {
		o.Books = NewBooks()
	}
	if o.Script == nil {
		o.Script = func(Point) Fault { return Fault{} }
	}
	s := &Server{Options: o, platform: of(o), points: map[string]int{}}
	var err error
	if s.door, err = openDoor(o.Addr, o.Listen); err != nil {
		return nil, fmt.Errorf("sandbox: start %s: %w", s.platform.name(), err)
	}
	s.door.admit = s.admit
	s.http = http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	s.running.Go(func() { _ = s.http.Serve(s.door) }) // until Close
	return s, nil
}

// Address is where it listens, as host:port.
func (s *Server) Address() string { return s.door.addr.String() }

// Name is the platform's name in the books.
func (s *Server) Name() string { return s.platform.name() }

// Close ends the platform with all its connections.
func (s *Server) Close() error {
	err := errors.Join(s.door.Close(), s.http.Close())
	s.running.Wait()
	return err
}

// Renew gives a shop a new token; all older ones are refused from now on.
func (s *Server) Renew(shop string) (token string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.platform.renew(shop)
}

// now is the platform's time.
func (s *Server) now() time.Time { return time.Now().Add(s.Skew) }

// admit asks the script about a connection.
func (s *Server) admit(number int) bool {
	f := s.Script(Point{Platform: s.Name(), Phase: Connecting, Number: number})
	switch f.Kind {
	case Down:
		s.door.shut(cmp.Or(f.For, s.Fault))
	case Reset:
	default:
		return true
	}
	s.Books.enter(Entry{At: s.now(), Platform: s.Name(), Operation: "connection", Number: number, Fault: f.String(), Effects: []Effect{}, Answer: "reset"}, nil)
	return false
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/books":
		s.serveBooks(w, r)
		return
	case "/token":
		s.serveToken(w, r)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err == nil { // answered when all has come, so that no answer is lost in a reset
		_, err = io.Copy(io.Discard, io.LimitReader(r.Body, mostDrained))
	}
	if err != nil {
		panic(http.ErrAbortHandler) // not all came: nothing is known of it
	}
	c := &call{now: s.now(), r: r, body: body, params: params{}, effects: []Effect{}}
	if len(body) > maxBody {
		c.bad = errTooLarge
	}
	f, answer := s.decide(c)
	s.enter(c, f, answer)
	play{w, r, s, answer}.perform(f)
}

// decide does what is to be done, and says what the client is to be told.
func (s *Server) decide(c *call) (Fault, reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total++
	c.number = s.total
	s.platform.read(c)
	f := s.Script(Point{Platform: s.Name(), Operation: c.operation, Order: c.order, Phase: Requesting, Number: s.numberLocked(c)})
	f.For = cmp.Or(f.For, s.Fault)
	switch {
	case s.door.isShut():
		return Fault{Kind: Reset}, reply{}
	case f.Kind == None:
		return f, s.platform.answer(c)
	}
	c.until = c.now.Add(f.For)
	answer := s.platform.refuse(c, SystemError) // to be cut, or to come late
	if f.Executed {
		answer = s.platform.answer(c)
	}
	if f.worded() {
		answer = s.platform.refuse(c, f.Kind)
	}
	return f, answer
}

// numberLocked is how many requests there were with this operation and order.
func (s *Server) numberLocked(c *call) int {
	key := c.operation + "\n" + c.order
	if _, there := s.points[key]; !there && len(s.points) >= mostPoints {
		return c.number
	}
	s.points[key]++
	return s.points[key]
}

// ordinary are the header fields that any HTTP client sends.
var ordinary = []string{"Accept", "Accept-Encoding", "Connection", "Content-Length", "Content-Type", "User-Agent"}

func (s *Server) enter(c *call, f Fault, answer reply) {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(c.r.Header)), func(name string) bool { return slices.Contains(ordinary, name) })
	s.Books.enter(Entry{
		At: c.now, Platform: s.Name(), Operation: c.operation, Order: c.order, Shop: c.shop,
		Number: c.number, Fault: f.String(), Effects: c.effects, Answer: f.told(answer),
	}, names)
}

func (s *Server) serveBooks(w http.ResponseWriter, r *http.Request) {
	var out any
	switch order, all := r.URL.Query().Get("order"), r.URL.Query().Has("all"); {
	case order != "":
		out = s.Books.Order(order, s.now())
	case all:
		out = s.Books.Read(s.now())
	default:
		out = s.Books.Read(s.now()).Of(s.Name())
	}
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(out)
}

func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "POST /token?shop=s1 gives the shop a new token", http.StatusMethodNotAllowed)
		return
	}
	token, err := s.Renew(r.URL.Query().Get("shop"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	fmt.Fprintln(w, token)
}
