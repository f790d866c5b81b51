package cli

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"
)

// breakersView is what the admin API shows of hosts, shops and egress proxies.
type breakersView struct {
	Hosts  []gateView
	Shops  []shopTrip
	Egress []exitView
}

type gateView struct {
	Host, State, Reason string

	Until     time.Time
	InFlight  int `json:"in_flight"`
	Limit     int
	Capacity  int
	Waiting   int
	Late      int   `json:"waiting_backlog"`
	LongestMS int64 `json:"waiting_longest_ms"`
	Planned   int
	Outage    *struct {
		Since   time.Time
		Reach   string
		Waiting int
		Most    int       `json:"waiting_most"`
		GaveUp  int       `json:"gave_up"`
		Release time.Time `json:"expected_release"`
	}
}

type shopTrip struct {
	Shop, Host, Reason string

	Row          int `json:"identical_failures"`
	Since, Until time.Time
}

type exitView struct {
	Name, State, Reason string
	Since, Until        time.Time
}

// Breakers shows what a running proxy cuts off and who waits for it, or closes a breaker.
func Breakers(args []string, env Env) int {
	f := newFlags("breakers", env)
	r := f.remote()
	raw := f.Bool("json", false, "print the JSON of the admin API")
	rest, code, ok := f.parse(args, 0, 2)
	switch {
	case !ok:
		return code
	case len(rest) > 0 && rest[0] != "reset", len(rest) == 1:
		return env.wrong("breakers: want nothing, or reset and a host:port, SHOP@host:port or egress:NAME")
	}
	c, err := r.client(env)
	if err == nil {
		err = c.breakers(env, rest, *raw)
	}
	if err != nil {
		return env.failed(err)
	}
	return OK
}

func (c *client) breakers(env Env, order []string, raw bool) error {
	method, path := "GET", "/api/v1/breakers"
	if len(order) == 2 {
		method, path = "POST", path+"/"+url.PathEscape(order[1])+"/reset"
	}
	if raw {
		return c.printRaw(env.Stdout, method, path)
	}
	var v breakersView
	if err := c.order(method, path, nil, &v); err != nil {
		return err
	}
	return v.print(plain{env.Stdout}, time.Now())
}

// print writes what is cut off, then all hosts.
func (v *breakersView) print(out io.Writer, now time.Time) error {
	cut := v.outages(now)
	for i := range v.Shops {
		s := &v.Shops[i]
		cut = append(cut, fmt.Sprintf("SHOP %s at %s alone, since %s: %d calls in a row failed by %s; the next retry goes%s",
			s.Shop, s.Host, moment("", &s.Since, now), s.Row, s.Reason, dueAt(s.Until, now)))
	}
	for _, e := range v.Egress {
		if e.State != "closed" {
			cut = append(cut, fmt.Sprintf("EGRESS %s, since %s%s; the next probe goes%s", e.Name, moment("", &e.Since, now), bracket(e.Reason), dueAt(e.Until, now)))
		}
	}
	if len(cut) == 0 {
		cut = []string{"nobody is cut off"}
	}
	fmt.Fprintln(out, strings.Join(cut, "\n"))
	if len(v.Hosts) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nHOST\tSTATE\tIN FLIGHT\tALLOWED\tLIMIT\tFRESH\tBACKLOG\tLONGEST\tLATER")
	for i := range v.Hosts {
		h := &v.Hosts[i]
		longest := "-"
		if h.Waiting > 0 {
			longest = span(h.LongestMS)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%d\n", h.Host, h.State, h.InFlight, h.Capacity, h.Limit, h.Waiting-h.Late, h.Late, longest, h.Planned)
	}
	return w.Flush()
}

// outages tells of the hosts that are cut off or on their way back.
func (v *breakersView) outages(now time.Time) (out []string) {
	for i := range v.Hosts {
		h := &v.Hosts[i]
		o := h.Outage
		if o == nil {
			continue
		}
		text := fmt.Sprintf("OUTAGE %s, since %s (%s): %s", h.Host, moment("", &o.Since, now), now.Sub(o.Since).Round(time.Second), whose(o.Reach))
		text += fmt.Sprintf("; %d in line, %d at most, %d gave up", o.Waiting, o.Most, o.GaveUp)
		switch h.State {
		case "open":
			text += "; the next probe goes" + dueAt(h.Until, now)
		case "half_open":
			text += "; a probe is on its way, or goes with the next call"
		default:
			text += "; the host answers again"
		}
		if o.Waiting > 0 && !o.Release.IsZero() {
			text += ", and if all goes well everybody has been let go" + dueAt(o.Release, now)
		}
		out = append(out, text)
	}
	return out
}

// whose says whose calls fail in an outage.
func whose(reach string) string {
	switch reach {
	case "several_shops":
		return "calls of several shops fail"
	case "one_shop":
		return "calls of one shop fail, others make none"
	case "unlabelled":
		return "calls without a shop fail"
	}
	return "calls fail"
}

// dueAt says when something happens, with a blank before it.
func dueAt(t, now time.Time) string {
	if !t.After(now) {
		return " with the next call"
	}
	return " at " + moment("", &t, now)
}
