package dashboard

import (
	"strings"
	"time"
)

// overview is how everything stands (GET /api/v1/overview).
type overview struct {
	At      time.Time      `json:"at"`
	Version string         `json:"version"`
	Level   string         `json:"level"` // ok, warn, bad
	Down    []hostDown     `json:"hosts_down"`
	Ramping []hostRamping  `json:"ramping"`
	Waiting int            `json:"waiting"`
	Causes  map[string]int `json:"waiting_by_cause"`
	Parked  int            `json:"parked"`
	Lost    int            `json:"lost"`
	Doubts  int            `json:"doubts"`
	Letters int            `json:"letters"`
	Paused  int            `json:"shops_paused"`
	Tripped int            `json:"shops_tripped"`
	Codes   int            `json:"new_codes"`
	Retries string         `json:"retries"` // on, off, observe, mixed
	Store   struct {
		Kind    string `json:"kind"`
		Durable bool   `json:"durable"`
		Healthy bool   `json:"healthy"`
		Detail  string `json:"detail"`
	} `json:"store"`
	Fault    string `json:"config_fault"`
	Warnings int    `json:"warnings"`
	Draining bool   `json:"draining"`
	Last     struct {
		Calls     int `json:"calls"`
		Succeeded int `json:"succeeded"`
		Recovered int `json:"recovered"`
		Failed    int `json:"failed"`
	} `json:"last_10m"`
}

type hostDown struct {
	Host    string    `json:"host"`
	State   string    `json:"state"` // open, half_open
	Since   time.Time `json:"since"`
	Reach   string    `json:"reach"`
	Waiting int       `json:"waiting"`
	Most    int       `json:"waiting_most"`
	GaveUp  int       `json:"gave_up"`
	Probe   time.Time `json:"next_probe"`
	Release time.Time `json:"expected_release"`
}

type hostRamping struct {
	Host     string `json:"host"`
	Capacity int    `json:"capacity"`
	Limit    int    `json:"limit"`
	Waiting  int    `json:"waiting"`
}

// sentence is what the light says.
type sentence struct {
	Level string // ok, warn, bad; unknown where nobody knows
	Text  string
}

// status asks how everything stands; nil: that cannot be known now.
func (v *visit) status() (*overview, sentence) {
	var o overview
	if err := v.get("/api/v1/overview", &o); err != nil {
		return nil, sentence{"unknown", v.words.say("light.unknown", err.Error())}
	}
	return &o, sentence{o.Level, v.words.light(&o, v.now)}
}

// light says in one sentence how everything stands, the gravest first.
func (w words) light(o *overview, now time.Time) string {
	var parts []string
	add := func(when bool, key string, values ...any) {
		if when {
			parts = append(parts, w.say(key, values...))
		}
	}
	add(o.Draining, "light.draining")
	add(!o.Store.Healthy, "light.store", o.Store.Detail)
	for i := range o.Down {
		if i == 2 {
			add(true, "light.more", len(o.Down)-2)
			break
		}
		add(true, "light.down", hostName(o.Down[i].Host), w.lasts(now.Sub(o.Down[i].Since)))
	}
	for _, r := range o.Ramping {
		add(len(o.Down) == 0, "light.ramping", hostName(r.Host), r.Capacity, r.Limit)
	}
	add(o.Waiting > 0 || len(o.Down) > 0, "light.waiting", o.Waiting)
	add(o.Parked > 0, "light.parked", o.Parked)
	add(o.Doubts > 0, "light.doubts", o.Doubts)
	add(o.Letters > o.Doubts, "light.letters", o.Letters-o.Doubts)
	add(o.Paused+o.Tripped > 0, "light.shops", o.Paused+o.Tripped)
	add(o.Codes > 0, "light.codes", o.Codes)
	add(o.Retries != "on", "light.retries_"+o.Retries)
	add(o.Fault != "", "light.config")
	if len(parts) == 0 && o.Lost == 0 {
		if o.Last.Calls == 0 {
			return w.say("light.idle")
		}
		return w.say("light.ok", number(o.Last.Calls), percent(o.Last.Succeeded, o.Last.Calls))
	}
	add(true, "light.lost", o.Lost)
	return strings.Join(parts, w.pick(", ", "，")) + w.pick(".", "。")
}
