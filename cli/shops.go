package cli

import (
	"fmt"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"retryproxy/deadletter"
)

// shopView is what the admin API shows of a shop.
type shopView struct {
	Shop     string
	Calls    int
	Failed   int
	Waiting  int
	Retries  int
	Breakers []shopTrip
	Pauses   []pauseView
}

type pauseView struct {
	Platform, Operation, Reason, Code, Message string

	Since, Until time.Time
	TurnedAway   int `json:"turned_away"`
}

// Shops shows the shops of a running proxy and what platforms stopped of them, or lets one
// go on.
func Shops(args []string, env Env) int {
	f := newFlags("shops", env)
	r := f.remote()
	raw := f.Bool("json", false, "print the JSON of the admin API")
	platform := f.String("platform", "", "resume: only what the preset of this `name` stopped")
	who := f.signed()
	rest, code, ok := f.parse(args, 0, 2)
	switch {
	case !ok:
		return code
	case len(rest) > 0 && rest[0] != "resume", len(rest) == 1:
		return env.wrong("shops: want nothing, or resume and a shop (- for calls without one)")
	}
	if len(rest) == 2 {
		if err := unsigned(who); err != nil {
			return env.failed(err)
		}
	}
	c, err := r.client(env)
	switch {
	case err != nil:
	case len(rest) == 2:
		err = c.resumeShop(env, rest[1], *platform, who)
	case *raw:
		err = c.printRaw(env.Stdout, "GET", shopsPath)
	default:
		err = c.showShops(env)
	}
	if err != nil {
		return env.failed(err)
	}
	return OK
}

const shopsPath = "/api/v1/shops"

func (c *client) resumeShop(env Env, shop, platform string, who *deadletter.Signed) error {
	order := struct {
		Platform string `json:"platform"`
		deadletter.Signed
	}{platform, *who}
	var v struct{ Resumed []pauseView }
	if err := c.order("POST", shopsPath+"/"+url.PathEscape(shop)+"/resume", order, &v); err != nil {
		return err
	}
	out := plain{env.Stdout}
	for i := range v.Resumed {
		fmt.Fprintf(out, "shop %s goes on at %s: %s\n", shop, v.Resumed[i].Platform, v.Resumed[i].why())
	}
	return nil
}

func (c *client) showShops(env Env) error {
	var list []shopView
	if err := c.get(shopsPath, &list); err != nil {
		return err
	}
	out := plain{env.Stdout}
	if len(list) == 0 {
		fmt.Fprintln(out, "no call named a shop yet")
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SHOP\tCALLS\tFAILED\tWAITING\tRETRIES\tSTATE")
	for i := range list {
		s := &list[i]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\n", s.Shop, s.Calls, s.Failed, s.Waiting, s.Retries, s.state())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	stopped := false
	for i := range list {
		for j := range list[i].Pauses {
			p := &list[i].Pauses[j]
			stopped = true
			fmt.Fprintf(out, "\n%s at %s: %s\n", list[i].Shop, p.Platform, p.why())
		}
	}
	if stopped {
		fmt.Fprintln(out, "\nretryproxy shops resume SHOP -by NAME -note WHY lets one go on")
	}
	return nil
}

// state is how it stands with a shop, in a word.
func (s *shopView) state() string {
	var parts []string
	for i := range s.Pauses {
		parts = append(parts, s.Pauses[i].Reason)
	}
	for i := range s.Breakers {
		parts = append(parts, "breaker "+s.Breakers[i].Host)
	}
	if len(parts) == 0 {
		return "ok"
	}
	return strings.Join(parts, ", ")
}

// why says what a platform stopped, since when, until when, and what it said.
func (p *pauseView) why() string {
	text := p.Reason
	if p.Operation != "" {
		text += " of " + p.Operation
	}
	text += " since " + p.Since.Local().Format(time.DateTime)
	if p.Until.IsZero() {
		text += ", until a person resumes it"
		if p.Reason == "auth_expired" {
			text += " or a call with another token is served"
		}
	} else {
		text += ", until " + p.Until.Local().Format(time.DateTime)
	}
	text += fmt.Sprintf("; %d calls turned away", p.TurnedAway)
	if p.Message != "" {
		text += "; the platform said: " + p.Message
	}
	return text
}
