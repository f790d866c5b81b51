package sandbox

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"
)

// Effect is something that a platform really did.
type Effect string

// The effects. Charged, Delivered and Refunded are those of suppliers.
const (
	Charged   Effect = "charged"   // an order was accepted and paid
	Delivered Effect = "delivered" // its goods went out
	Refunded  Effect = "refunded"  // it failed, the charge came back
	Notified  Effect = "notified"  // the shop's order was marked as delivered
	Closed    Effect = "closed"    // the shop's order was marked as failed: the buyer gets the money back
	Refused   Effect = "refused"   // a repetition of one of these was turned away
	Waybill   Effect = "waybill"   // a waybill number was allocated
	Stock     Effect = "stock"     // a stock was changed
)

// Event is one effect. Number is the order number that the platform was given.
type Event struct {
	At       time.Time `json:"at"`
	Effect   Effect    `json:"effect"`
	Platform string    `json:"platform"`
	Number   string    `json:"number"`
}

// Order is what really happened to one order, at all platforms that share the
// books. Numbers with a suffix -r2, -r3 and so on are further tries of one order.
type Order struct {
	Number    string  `json:"order"`
	Charged   int     `json:"charged"` // less what was refunded
	Delivered int     `json:"delivered"`
	Notified  int     `json:"notified"`
	Early     int     `json:"early"` // of these, while nothing was delivered
	Closed    int     `json:"closed"`
	Refused   int     `json:"refused"`
	Waybills  int     `json:"waybills"`
	Events    []Event `json:"events"`
}

// Entry is one request, or a connection that was reset.
type Entry struct {
	At        time.Time `json:"at"`
	Platform  string    `json:"platform"`
	Operation string    `json:"operation"`
	Order     string    `json:"order,omitempty"`
	Shop      string    `json:"shop,omitempty"`
	Number    int       `json:"number"`          // of the platform
	Fault     string    `json:"fault,omitempty"` // what was injected
	Effects   []Effect  `json:"effects"`         // what it really did
	Answer    string    `json:"answer"`          // what the client was told: status and code, reset, …
}

// Report is a reading of the books.
type Report struct {
	Platforms []Tally `json:"platforms"`
	Orders    []Order `json:"orders"` // by number
	Recent    []Entry `json:"recent"` // the newest last
}

// Tally counts what came to one platform.
type Tally struct {
	Platform string         `json:"platform"`
	Requests int            `json:"requests"`
	Answers  map[string]int `json:"answers"`
	Faults   map[string]int `json:"faults"`
	Effects  map[Effect]int `json:"effects"`
	Headers  map[string]int `json:"headers"` // requests that had this header field
}

const (
	mostEvents  = 1_000_000 // then nothing is accepted any more
	mostEntries = 10_000
	mostNames   = 500 // answers and header names of one platform
)

// Books are what several platforms write down together. They lie about nothing:
// a test compares what clients were told with them.
type Books struct {
	mu      sync.Mutex
	events  int
	orders  map[string][]Event
	tallies map[string]*Tally
	entries []Entry // a ring once it is full
	oldest  int
}

// NewBooks returns empty books.
func NewBooks() *Books {
	return &Books{orders: map[string][]Event{}, tallies: map[string]*Tally{}}
}

var further = regexp.MustCompile(`-r[0-9]+$`)

// base is the order that a number is a try of.
func base(number string) string { return further.ReplaceAllString(number, "") }

// full says that no more can be written down.
func (b *Books) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.events >= mostEvents
}

// happen writes down an effect; its time may lie ahead, and is read from then on.
func (b *Books) happen(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events++
	b.orders[base(e.Number)] = append(b.orders[base(e.Number)], e)
}

// enter writes down a request.
func (b *Books) enter(e Entry, headers []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tallies[e.Platform]
	if t == nil {
		t = &Tally{Platform: e.Platform, Answers: map[string]int{}, Faults: map[string]int{}, Effects: map[Effect]int{}, Headers: map[string]int{}}
		b.tallies[e.Platform] = t
	}
	t.Requests++
	count(t.Answers, e.Answer)
	if e.Fault != "" {
		count(t.Faults, e.Fault)
	}
	for _, h := range headers {
		count(t.Headers, h)
	}
	if len(b.entries) < mostEntries {
		b.entries = append(b.entries, e)
		return
	}
	b.entries[b.oldest] = e
	b.oldest = (b.oldest + 1) % mostEntries
}

func count(m map[string]int, name string) {
	if _, there := m[name]; there || len(m) < mostNames {
		m[name]++
	}
}

// Order reads one order as it stands at that time. The zero value but for its
// number: nothing happened to it.
func (b *Books) Order(number string, now time.Time) Order {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.orderLocked(base(number), now)
}

func (b *Books) orderLocked(number string, now time.Time) Order {
	o := Order{Number: number, Events: []Event{}}
	for _, e := range b.orders[number] {
		if !e.At.After(now) {
			o.Events = append(o.Events, e)
		}
	}
	slices.SortStableFunc(o.Events, func(a, b Event) int { return a.At.Compare(b.At) })
	for _, e := range o.Events {
		o.count(e.Effect)
	}
	return o
}

func (o *Order) count(e Effect) {
	switch e {
	case Charged:
		o.Charged++
	case Refunded:
		o.Charged--
	case Delivered:
		o.Delivered++
	case Notified:
		o.Notified++
		if o.Delivered == 0 {
			o.Early++
		}
	case Closed:
		o.Closed++
	case Refused:
		o.Refused++
	case Waybill:
		o.Waybills++
	case Stock:
	}
}

// Read reads everything as it stands at that time.
func (b *Books) Read(now time.Time) Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := Report{Orders: []Order{}, Platforms: []Tally{}, Recent: slices.Concat(b.entries[b.oldest:], b.entries[:b.oldest])}
	effects := map[string]map[Effect]int{}
	for _, number := range slices.Sorted(maps.Keys(b.orders)) {
		o := b.orderLocked(number, now)
		r.Orders = append(r.Orders, o)
		for _, e := range o.Events {
			if effects[e.Platform] == nil {
				effects[e.Platform] = map[Effect]int{}
			}
			effects[e.Platform][e.Effect]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.tallies)) {
		t := *b.tallies[name]
		t.Answers, t.Faults, t.Headers = maps.Clone(t.Answers), maps.Clone(t.Faults), maps.Clone(t.Headers)
		t.Effects = effects[name]
		r.Platforms = append(r.Platforms, t)
	}
	return r
}

// Of is what the report has of one platform; its orders are those that it knows.
func (r Report) Of(platform string) Report {
	out := Report{Platforms: []Tally{}, Orders: []Order{}, Recent: []Entry{}}
	for _, t := range r.Platforms {
		if t.Platform == platform {
			out.Platforms = append(out.Platforms, t)
		}
	}
	for _, o := range r.Orders {
		if slices.ContainsFunc(o.Events, func(e Event) bool { return e.Platform == platform }) {
			out.Orders = append(out.Orders, o)
		}
	}
	for _, e := range r.Recent {
		if e.Platform == platform {
			out.Recent = append(out.Recent, e)
		}
	}
	return out
}

// Wrong are the orders that went wrong for good: delivered or paid twice, notified
// twice or before they were delivered, closed though they are paid, or given two
// waybills. It takes for granted that shop and suppliers use the same number, but
// for -r2.
func (r Report) Wrong() []Order {
	return slices.DeleteFunc(slices.Clone(r.Orders), func(o Order) bool {
		return o.Charged <= 1 && o.Delivered <= 1 && o.Notified <= 1 && o.Early == 0 && (o.Closed == 0 || o.Charged == 0) && o.Waybills <= 1
	})
}

// Summary tells people how it stands.
func (r Report) Summary(w io.Writer) {
	for _, t := range r.Platforms {
		fmt.Fprintf(w, "%s: %d requests\n", t.Platform, t.Requests)
		line(w, "answers", t.Answers)
		line(w, "faults", t.Faults)
		effects := map[string]int{}
		for e, n := range t.Effects {
			effects[string(e)] = n
		}
		line(w, "effects", effects)
	}
	once := 0
	for _, o := range r.Orders {
		if o.Delivered == 1 {
			once++
		}
	}
	wrong := r.Wrong()
	fmt.Fprintf(w, "orders: %d, delivered once %d, wrong %d\n", len(r.Orders), once, len(wrong))
	for _, o := range wrong {
		fmt.Fprintf(w, "  %s: charged %d, delivered %d, notified %d (early %d), closed %d, waybills %d\n", o.Number, o.Charged, o.Delivered, o.Notified, o.Early, o.Closed, o.Waybills)
	}
}

func line(w io.Writer, title string, counts map[string]int) {
	if len(counts) == 0 {
		return
	}
	fmt.Fprintf(w, "  %-8s", title)
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b))
	})
	for _, name := range names {
		fmt.Fprintf(w, " %s×%d", name, counts[name])
	}
	fmt.Fprintln(w)
}
