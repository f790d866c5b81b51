package admin

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"retryproxy/attempt"
)

// limitView is one bucket of retry tokens.
type limitView struct {
	Dimension string    `json:"dimension"`     // global, task_type, shop
	Key       string    `json:"key,omitempty"` // the task type or shop; empty: global
	Off       bool      `json:"off,omitempty"` // no limit
	PerSecond float64   `json:"per_second"`    // refilled now, share of fresh calls included
	Burst     int       `json:"burst"`
	Tokens    float64   `json:"tokens"`             // there now
	Waiting   int       `json:"waiting"`            // retries that wait for a token
	Planned   int       `json:"planned"`            // retries that wait for their own date
	NextAt    time.Time `json:"next_at,omitzero"`   // when the next token is there
	ClearsAt  time.Time `json:"clears_at,omitzero"` // when all that wait now have theirs, as far as this limit goes
}

func (s *server) limits() []limitView {
	buckets := s.Limits()
	out := make([]limitView, len(buckets))
	for i, b := range buckets {
		if b.Off {
			b.Rate, b.Tokens, b.Burst = 0, 0, 0
		}
		out[i] = limitView{b.Dimension, b.Name, b.Off, b.Rate, b.Burst, b.Tokens, b.Waiting, b.Planned, b.NextAt, b.ClearsAt}
	}
	return out
}

func (s *server) showLimits(w http.ResponseWriter, _ *http.Request) { show(w, s.limits()) }

// shopView is what is known of a shop from the calls that are remembered, its
// bucket and its breakers.
type shopView struct {
	Shop      string     `json:"shop"`
	Tiers     []string   `json:"tiers"`
	TaskTypes []string   `json:"task_types"`
	Hosts     []string   `json:"hosts"`
	Calls     int        `json:"calls"`
	Failed    int        `json:"failed"`
	Waiting   int        `json:"waiting"`
	Retries   int        `json:"retries"`
	Bucket    *limitView `json:"bucket"` // null: none yet
	Breakers  []shopTrip `json:"breakers"`
	// Pauses are what platforms stopped of it. The shop - is calls without one, and what is
	// about all.
	Pauses []pauseView `json:"pauses"`
}

// showShops shows every shop that any part knows of, by name.
func (s *server) showShops(w http.ResponseWriter, _ *http.Request) {
	shops := map[string]*shopView{}
	for _, c := range s.Calls() {
		if c.Labels.Shop != "" {
			shopOf(shops, c.Labels.Shop).add(c)
		}
	}
	for _, l := range s.limits() {
		if l.Dimension == "shop" {
			shopOf(shops, l.Key).Bucket = &l
		}
	}
	for _, b := range s.trips() {
		v := shopOf(shops, b.Shop)
		v.Breakers = append(v.Breakers, b)
	}
	s.addPauses(shops)
	list := make([]*shopView, 0, len(shops))
	for _, v := range shops {
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b *shopView) int { return cmp.Compare(a.Shop, b.Shop) })
	show(w, list)
}

func shopOf(shops map[string]*shopView, name string) *shopView {
	v := shops[name]
	if v == nil {
		v = &shopView{Shop: name, Tiers: []string{}, TaskTypes: []string{}, Hosts: []string{}, Breakers: []shopTrip{}, Pauses: []pauseView{}}
		shops[name] = v
	}
	return v
}

// add counts a call of the shop.
func (v *shopView) add(c *attempt.Summary) {
	v.Calls++
	v.Retries += max(len(c.Attempts)-1, 0)
	if c.Result == "failed" {
		v.Failed++
	}
	if c.State == stateWaiting {
		v.Waiting++
	}
	note(&v.Tiers, c.Labels.ShopTier)
	note(&v.TaskTypes, c.Labels.TaskType)
	note(&v.Hosts, c.Host)
}

// note keeps a sorted list of the values that were seen.
func note(list *[]string, value string) {
	if i, found := slices.BinarySearch(*list, value); !found && value != "" {
		*list = slices.Insert(*list, i, value)
	}
}
