package dashboard

import (
	"cmp"
	"html/template"
	"slices"
	"time"
)

// hostTrend are the figures of a host by minute.
type hostTrend struct {
	Host      string `json:"host"`
	Calls     []int  `json:"calls"`
	Succeeded []int  `json:"succeeded"`
	Recovered []int  `json:"recovered"`
	Attempts  []int  `json:"attempts"`
}

// trend are those of all hosts (GET /api/v1/trend/hosts).
type trend struct {
	Start   time.Time        `json:"start"`
	Step    int              `json:"step_s"`
	Hosts   []hostTrend      `json:"hosts"`
	Waiting map[string][]int `json:"waiting"`
}

// at names the place i of a trend.
func (t *trend) at(i int, zone *time.Location) string {
	return t.Start.Add(time.Duration(i*t.Step) * time.Second).In(zone).Format("15:04")
}

// card is one host.
type card struct {
	hostView
	Light     string
	CallsSum  int // within the hour
	Succeeded int
	Saved     int
	Attempts  int
	Picture   template.HTML
}

// Amplification is how many requests a call came to.
func (c card) Amplification() float64 {
	if c.CallsSum == 0 {
		return 0
	}
	return float64(c.Attempts) / float64(c.CallsSum)
}

type nowView struct {
	Cards   []card
	Others  int // hosts that are not shown
	Waiting template.HTML
	Key     []legend
	Causes  map[string]int
}

const mostCards = 48

func fillNow(v *visit) (any, error) {
	var b breakers
	if err := v.get("/api/v1/breakers", &b); err != nil {
		return nil, err
	}
	var t trend
	if err := v.get("/api/v1/trend/hosts?minutes=60", &t); err != nil {
		return nil, err
	}
	out := nowView{Cards: v.cards(b.Hosts, &t)}
	if n := len(out.Cards); n > mostCards {
		out.Cards, out.Others = out.Cards[:mostCards], n-mostCards
	}
	for i := range out.Cards {
		out.Cards[i].Picture = v.hostPicture(&out.Cards[i], &t)
	}
	if list := byName(t.Waiting, v.words.cause); len(list) > 0 {
		for i := range list {
			out.Key = append(out.Key, legend{list[i].Name, list[i].Colour, slices.Max(append(list[i].Values, 0))})
		}
		out.Waiting = stacked(900, 150, v.words.say("now.waiting"), list, func(i int) string { return t.at(i, v.now.Location()) })
	}
	return out, nil
}

// cards are hosts with what is known of them, those in trouble first, then by calls.
func (v *visit) cards(hosts []hostView, t *trend) (out []card) {
	index := map[string]int{}
	for _, h := range hosts {
		index[h.Host] = len(out)
		out = append(out, card{hostView: h})
	}
	for _, h := range t.Hosts {
		i, ok := index[h.Host]
		if !ok {
			i = len(out)
			out = append(out, card{hostView: hostView{Host: h.Host, State: "closed"}})
		}
		c := &out[i]
		c.CallsSum, c.Succeeded, c.Saved, c.Attempts = sum(h.Calls), sum(h.Succeeded), sum(h.Recovered), sum(h.Attempts)
	}
	for i := range out {
		out[i].Light = out[i].light()
	}
	slices.SortFunc(out, func(a, b card) int {
		return cmp.Or(cmp.Compare(gravity[b.Light], gravity[a.Light]), cmp.Compare(b.CallsSum, a.CallsSum), cmp.Compare(a.Host, b.Host))
	})
	return out
}

var gravity = map[string]int{"ok": 0, "warn": 1, "bad": 2}

// light is how a host stands.
func (c *card) light() string {
	switch {
	case c.State == "open":
		return "bad"
	case c.State == "half_open", c.Outage != nil, c.Waiting > 0 && c.Capacity < c.Limit:
		return "warn"
	case c.CallsSum >= 20 && float64(c.Succeeded) < .9*float64(c.CallsSum):
		return "warn"
	}
	return "ok"
}

func sum(list []int) (n int) {
	for _, v := range list {
		n += v
	}
	return n
}

// hostPicture draws what became of the calls of a host by minute.
func (v *visit) hostPicture(c *card, t *trend) template.HTML {
	i := slices.IndexFunc(t.Hosts, func(h hostTrend) bool { return h.Host == c.Host })
	if i < 0 {
		return ""
	}
	h := &t.Hosts[i]
	first, failed := make([]int, len(h.Calls)), make([]int, len(h.Calls))
	for j := range h.Calls {
		first[j], failed[j] = max(h.Succeeded[j]-h.Recovered[j], 0), max(h.Calls[j]-h.Succeeded[j], 0)
	}
	return stacked(420, 90, v.words.say("now.picture", hostName(c.Host)), []series{
		{v.words.say("now.first"), 3, first}, {v.words.say("result.recovered"), 2, h.Recovered}, {v.words.say("result.failed"), 4, failed},
	}, func(j int) string { return t.at(j, v.now.Location()) })
}
