package admin

import (
	"net/http"
	"time"

	"retryproxy/breaker"
	"retryproxy/limiter"
	"retryproxy/pause"
	"retryproxy/trend"
)

// Standing is what the overview shows beside what other routes have.
type Standing struct {
	Instance, Version string
	Started           time.Time
	Waiting           map[string]int // by cause; parked calls as "parked"
	// Lost are calls and letters that a bound dropped without anybody having decided
	// it, since the start; LostAt is when that happened last.
	Lost            int
	LostAt          time.Time
	Letters, Doubts int       // dead letters, and those of which nobody knows whether they were executed
	Newest          time.Time // when the latest of them was made; zero: there is none
	NewCodes        int       // answers that no preset knows, and nobody has looked at
	Store           StoreStanding
	ConfigFault     string // why the last reload was refused; empty: it is in force
	Warnings        int    // of the configuration in force
	Draining        bool
	Last            trend.Sum // of the last 10 minutes
}

// StoreStanding is how the record store does.
type StoreStanding struct {
	Kind    string `json:"kind"`
	Durable bool   `json:"durable"`
	Healthy bool   `json:"healthy"`
	Detail  string `json:"detail"` // what it could not do last; empty: it does all
}

// Levels of the overview.
const (
	levelOK   = "ok"
	levelWarn = "warn" // it works, but somebody should look by day
	levelBad  = "bad"  // calls fail or wait now, or something was lost
)

// parkedCause stands for parked calls among those that wait.
const parkedCause = "parked"

// overview is what is to be known at a glance.
type overview struct {
	At           time.Time      `json:"at"`
	Instance     string         `json:"instance"`
	Version      string         `json:"version"`
	Uptime       int            `json:"uptime_s"`
	Level        string         `json:"level"`
	Down         []downHost     `json:"hosts_down"`
	Ramping      []rampingHost  `json:"ramping"`
	Waiting      int            `json:"waiting"`          // without the parked ones
	ByCause      map[string]int `json:"waiting_by_cause"` // likewise
	Parked       int            `json:"parked"`
	Lost         int            `json:"lost"`
	LostAt       time.Time      `json:"last_lost,omitzero"`
	Doubts       int            `json:"doubts"`
	Letters      int            `json:"letters"` // without the doubts
	Newest       time.Time      `json:"newest_letter,omitzero"`
	ShopsPaused  int            `json:"shops_paused"`
	ShopsTripped int            `json:"shops_tripped"`
	NewCodes     int            `json:"new_codes"`
	Retries      string         `json:"retries"` // on, off, observe, mixed
	Store        StoreStanding  `json:"store"`
	ConfigFault  string         `json:"config_fault"`
	Warnings     int            `json:"warnings"`
	Draining     bool           `json:"draining"`
	Last         trend.Sum      `json:"last_10m"`
}

// downHost is a host that is cut off.
type downHost struct {
	Host    string    `json:"host"`
	State   string    `json:"state"`                     // open, half_open
	Since   time.Time `json:"since"`                     // when it was cut off first
	Reach   string    `json:"reach"`                     // whose calls failed: several_shops, one_shop, unlabelled
	Waiting int       `json:"waiting"`                   // in line, or for their own date
	Most    int       `json:"waiting_most"`              // in line at a time, so far
	GaveUp  int       `json:"gave_up"`                   // calls that ended without a success meanwhile
	Probe   time.Time `json:"next_probe,omitzero"`       // absent: one is under way
	Release time.Time `json:"expected_release,omitzero"` // when all have started, if that probe succeeds
	// Unused: nobody has called it since long after the probe was due.
	Unused bool `json:"unused,omitempty"`
}

// rampingHost is a host that answers again, and is not given all of its calls yet.
type rampingHost struct {
	Host     string `json:"host"`
	Capacity int    `json:"capacity"`
	Limit    int    `json:"limit"`
	Waiting  int    `json:"waiting"`
}

func (s *server) showOverview(w http.ResponseWriter, _ *http.Request) {
	show(w, s.overview(time.Now()))
}

func (s *server) overview(now time.Time) *overview {
	st := s.Standing()
	v := &overview{
		At: now, Instance: st.Instance, Version: st.Version, Uptime: int(now.Sub(st.Started) / time.Second),
		ByCause: map[string]int{}, Parked: st.Waiting[parkedCause], Lost: st.Lost, LostAt: st.LostAt,
		Doubts: st.Doubts, Letters: st.Letters, Newest: st.Newest, NewCodes: st.NewCodes,
		ShopsPaused: pausedShops(s.Pauses()), ShopsTripped: trippedShops(s.Shops()), Retries: s.Retries().word(now),
		Store: st.Store, ConfigFault: st.ConfigFault, Warnings: st.Warnings, Draining: st.Draining, Last: st.Last,
	}
	for cause, n := range st.Waiting {
		if cause != parkedCause && n > 0 {
			v.Waiting += n
			v.ByCause[cause] = n
		}
	}
	v.Down, v.Ramping = outages(s.Gates(), now)
	v.Level = v.level()
	return v
}

// unusedAfter is how long a probe may be due before a host counts as one that nobody
// calls any more: such a host stays cut off for ever.
const unusedAfter = 10 * time.Minute

// outages are the hosts that are cut off, and those on their way back.
func outages(gates []limiter.HostView, now time.Time) (down []downHost, ramping []rampingHost) {
	down, ramping = []downHost{}, []rampingHost{}
	for i := range gates {
		g := &gates[i]
		o := g.Outage
		switch {
		case g.Breaker.State != breaker.Closed:
			d := downHost{Host: g.Host, State: g.Breaker.State.String(), Since: g.Breaker.Since, Waiting: g.Waiting + g.Planned, Probe: g.Breaker.Until}
			if o != nil {
				d.Since, d.Reach, d.Most, d.GaveUp, d.Release = o.Since, o.Reach, o.Most, o.GaveUp, o.Release
			}
			d.Unused = d.Waiting == 0 && !d.Probe.IsZero() && now.Sub(d.Probe) > unusedAfter
			down = append(down, d)
		case o != nil:
			ramping = append(ramping, rampingHost{g.Host, g.Capacity, g.Limit, g.Waiting})
		}
	}
	return down, ramping
}

// level is the colour of the traffic light. Letters and doubts wait for a person as long
// as it takes, so they are no alarm by themselves.
func (v *overview) level() string {
	used := 0
	for i := range v.Down {
		if !v.Down[i].Unused {
			used++
		}
	}
	switch {
	case used > 0, !v.Store.Healthy, !v.LostAt.IsZero() && v.At.Sub(v.LostAt) < time.Hour:
		return levelBad
	case len(v.Ramping) > 0, v.Lost > 0, v.Doubts > 0, v.Letters > 0, v.ShopsPaused > 0, v.ShopsTripped > 0,
		v.NewCodes > 0, v.Retries != "on", v.ConfigFault != "", v.Draining:
		return levelWarn
	}
	return levelOK
}

// word says the switch in one word.
func (s Switch) word(now time.Time) string {
	for _, scope := range s.inForce(now) {
		if scope.Value != s.Default {
			return "mixed"
		}
	}
	return s.Default
}

// pausedShops counts the shops of which a platform stopped anything; - is one of them.
func pausedShops(list []pause.Pause) int {
	shops := map[string]bool{}
	for i := range list {
		shops[list[i].Shop] = true
	}
	return len(shops)
}

func trippedShops(list []breaker.ShopStatus) int {
	shops := map[string]bool{}
	for i := range list {
		shops[list[i].Shop] = true
	}
	return len(shops)
}
