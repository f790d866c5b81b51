package dashboard

import (
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// letter is a call that was given up, as the API shows it.
type letter struct {
	ID       string     `json:"id"`
	State    string     `json:"state"`
	Since    time.Time  `json:"since"`
	Reason   string     `json:"reason"`
	Executed string     `json:"executed"`
	Todo     string     `json:"todo"`
	Advice   string     `json:"advice"`
	Labels   labels     `json:"labels"`
	Policy   string     `json:"policy"`
	KeyHash  string     `json:"key_hash"`
	Keyless  bool       `json:"keyless"`
	Method   string     `json:"method"`
	Host     string     `json:"host"`
	Path     string     `json:"path"`
	NextAt   *time.Time `json:"next_at"`
	Expires  *time.Time `json:"expires"`
	Made     int        `json:"attempts_made"`
	Status   int        `json:"last_status"`
	Notes    []note     `json:"notes"`
	Runs     []struct {
		CallID   string `json:"call_id"`
		ClientID string `json:"client_request_id"`
	} `json:"runs"`
	Refused string `json:"refused"` // in a preview: why it would not run
}

// Light is whether a repeat is safe: ok, warn or bad.
func (l letter) Light() string {
	switch {
	case l.Todo == "check":
		return "bad"
	case (l.Todo == "requeue" || l.Todo == "later") && l.Executed == "no" && !l.Keyless:
		return "ok"
	}
	return "warn"
}

// Unsafe says whether a person has to take it upon themself to run it again.
func (l letter) Unsafe() bool { return l.Executed != "no" || l.Keyless }

// Trace is what the trace of the order is found by.
func (l letter) Trace() string {
	if n := len(l.Runs); n > 0 {
		return l.Runs[n-1].CallID
	}
	return l.ID
}

// letters is a piece of their list.
type letters struct {
	Letters []letter `json:"letters"`
	Next    string   `json:"next"`
}

// shop is what is known of a shop.
type shop struct {
	Shop      string   `json:"shop"`
	Tiers     []string `json:"tiers"`
	TaskTypes []string `json:"task_types"`
	Hosts     []string `json:"hosts"`
	Calls     int      `json:"calls"`
	Failed    int      `json:"failed"`
	Retries   int      `json:"retries"`
	Waiting   int      `json:"waiting"`
	Bucket    *struct {
		Off    bool      `json:"off"`
		Rate   float64   `json:"per_second"`
		Burst  int       `json:"burst"`
		Tokens float64   `json:"tokens"`
		NextAt time.Time `json:"next_at"`
	} `json:"bucket"`
	Breakers []trip  `json:"breakers"`
	Pauses   []pause `json:"pauses"`
}

// trip is the breaker of a shop that needs a person.
type trip struct {
	Shop   string    `json:"shop"`
	Host   string    `json:"host"`
	Reason string    `json:"reason"`
	Row    int       `json:"identical_failures"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
}

// pause is what a platform stopped.
type pause struct {
	Platform  string    `json:"platform"`
	Operation string    `json:"operation"`
	Reason    string    `json:"reason"`
	Since     time.Time `json:"since"`
	Until     time.Time `json:"until"`
	Code      string    `json:"code"`
	Message   string    `json:"message"`
	Host      string    `json:"host"`
	Away      int       `json:"turned_away"`
}

// newCode is a code of a platform that no rule knows.
type newCode struct {
	Platform  string    `json:"platform"`
	Operation string    `json:"operation"`
	Code      string    `json:"code"`
	SubCode   string    `json:"sub_code"`
	Message   string    `json:"message"`
	Host      string    `json:"host"`
	Shop      string    `json:"shop"`
	CallID    string    `json:"call_id"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Count     int       `json:"count"`
}

// bulk is how the requeue of many stands.
type bulk struct {
	State    string            `json:"state"`
	Why      string            `json:"why"`
	Filter   map[string]string `json:"filter"`
	By       string            `json:"by"`
	Rate     string            `json:"rate"`
	Canary   int               `json:"canary"`
	Started  time.Time         `json:"started"`
	Ended    time.Time         `json:"ended"`
	Requeued int               `json:"requeued"`
	Done     int               `json:"done"`
	Failed   int               `json:"failed"`
	Refused  int               `json:"refused"`
	Later    int               `json:"later"`
	Last     string            `json:"last"`
}

// preview is what a requeue of many would do.
type preview struct {
	Letters  int `json:"letters"`
	Would    int `json:"would_requeue"`
	Refused  int `json:"would_refuse"`
	Refusals []struct {
		Why     string `json:"why"`
		Letters int    `json:"letters"`
	} `json:"refusals"`
	More  bool     `json:"more"`
	First []letter `json:"first"`
}

// personView is the page of what needs a person.
type personView struct {
	Filter  map[string]string // of the letters shown
	Doubts  []letter          // those that may have been executed; where none are asked for
	Letters []letter          // the others
	Next    string
	Fault   *problem // of the letters
	Hours   template.HTML
	Key     []legend

	Shops []shop // that a platform or a breaker stopped
	Hosts []hostView
	Exits []exitView
	Codes []newCode

	Bulk    bulk
	Running bool       // the bulk is seen on top: it runs, or did just now
	Asked   url.Values // the form of the bulk that was previewed
	Preview *preview
	Refused *problem // why there is no preview
}

// letterKeys are the conditions of the list.
var letterKeys = []string{"reason", "host", "shop", "task_type", "executed", "text", "key_hash"}

const (
	letterPage  = 50
	firstDoubts = 10
	lateBulk    = 10 * time.Minute // how long it is said how a bulk ended
)

func fillPerson(v *visit) (any, error) {
	q := v.r.URL.Query()
	out := personView{Filter: map[string]string{}, Asked: q}
	live := v.r.Header.Get("X-Live") != "" // what is kept fresh has neither hours nor preview
	v.fillLetters(&out, q)
	if !live {
		v.fillHours(&out)
	}
	var shops []shop
	if err := v.get("/api/v1/shops", &shops); err != nil {
		return nil, err
	}
	out.Shops = slices.DeleteFunc(shops, func(s shop) bool { return len(s.Pauses)+len(s.Breakers) == 0 })
	var b breakers
	if err := v.get("/api/v1/breakers", &b); err != nil {
		return nil, err
	}
	out.Hosts = slices.DeleteFunc(b.Hosts, func(h hostView) bool { return h.State == "closed" })
	out.Exits = slices.DeleteFunc(b.Egress, func(e exitView) bool { return e.State == "closed" })
	var codes struct{ Codes []newCode }
	if err := v.get("/api/v1/newcodes", &codes); err == nil {
		out.Codes = codes.Codes
	}
	if err := v.get("/api/v1/deadletters/bulk", &out.Bulk); err != nil {
		out.Bulk.State = "none" // where no letters are kept there is none
	}
	out.Running = out.Bulk.State == "running" || v.now.Sub(out.Bulk.Ended) < lateBulk
	if q.Get("dry") != "" && !live {
		out.Preview = &preview{}
		order := bulkOf(q, signed{By: "-"}, true)
		order.At, order.Rate, order.Canary, order.By = "", "", 0, ""
		if _, err := v.send("POST", "/api/v1/deadletters/requeue", order, out.Preview); err != nil {
			out.Preview, out.Refused = nil, faultOf(err)
		}
	}
	return out, nil
}

// fillLetters gets the letters that are asked for, or the one that is named.
func (v *visit) fillLetters(out *personView, q url.Values) {
	if id := q.Get("id"); id != "" {
		var one letter
		err := v.get("/api/v1/deadletters/"+url.PathEscape(id), &one)
		out.Filter["id"] = id
		if out.Fault = faultOf(err); err == nil {
			out.Letters = []letter{one}
		}
		return
	}
	pairs := []any{"limit", letterPage, "after", q.Get("after")}
	for _, key := range letterKeys {
		if value := strings.TrimSpace(q.Get(key)); value != "" && q.Get("dry") == "" {
			out.Filter[key] = value
			pairs = append(pairs, key, value)
		}
	}
	var list letters
	err := v.get("/api/v1/deadletters?"+query(pairs), &list)
	out.Letters, out.Next, out.Fault = list.Letters, list.Next, faultOf(err)
	var doubts letters
	if len(out.Filter) > 0 || q.Get("after") != "" || v.get("/api/v1/deadletters?executed=maybe&limit="+strconv.Itoa(firstDoubts), &doubts) != nil {
		return
	}
	out.Doubts = doubts.Letters
	out.Letters = slices.DeleteFunc(out.Letters, func(l letter) bool {
		return slices.ContainsFunc(out.Doubts, func(d letter) bool { return d.ID == l.ID })
	})
}

// fillHours draws letters by hour and reason.
func (v *visit) fillHours(out *personView) {
	var h struct {
		Start   time.Time        `json:"start"`
		Step    int              `json:"step_s"`
		Reasons map[string][]int `json:"reasons"`
	}
	if v.get("/api/v1/deadletters/hours?hours=48", &h) != nil || len(h.Reasons) == 0 {
		return
	}
	list := byName(h.Reasons, v.words.reason)
	step := time.Duration(h.Step) * time.Second
	out.Key = legends(list)
	out.Hours = stacked(900, 150, v.words.say("person.hours"), list, func(i int) string {
		return h.Start.Add(time.Duration(i) * step).In(v.now.Location()).Format("01-02 15:04")
	})
}

// byName are figures by name as series, those with most first; what is beyond the colours
// shares the last one.
func byName(all map[string][]int, say func(string) string) (out []series) {
	for name, values := range all {
		out = append(out, series{say(name), 0, values})
	}
	sum := func(s series) (n int) {
		for _, v := range s.Values {
			n += v
		}
		return n
	}
	slices.SortFunc(out, func(a, b series) int {
		if d := sum(b) - sum(a); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	for i := range out {
		out[i].Colour = min(i+1, 8)
	}
	return out
}
