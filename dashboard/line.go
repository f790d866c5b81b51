package dashboard

import (
	"html/template"
	"net/url"
	"time"
)

type lineView struct {
	Calls     []call
	After     string // of the next piece
	Total     int    // that wait, as the light has it; -1: unknown
	Parked    bool   // the list is of parked calls
	Histogram template.HTML
	Key       []legend
	Later     int
	Undated   int
}

const linePage = 100

func fillLine(v *visit) (any, error) {
	q := v.r.URL.Query()
	out := lineView{Parked: q.Get("state") == "parked"}
	state := "waiting"
	if out.Parked {
		state = "parked"
	}
	h, err := v.call("GET", "/api/v1/calls?"+query([]any{"state", state, "limit", linePage, "after", q.Get("after")}), nil, &out.Calls)
	if err != nil {
		return nil, err
	}
	out.After = afterOf(h.Get("Link"))
	var g struct {
		Start   time.Time        `json:"start"`
		Step    int              `json:"step_s"`
		Causes  map[string][]int `json:"by_cause"`
		Later   int              `json:"later"`
		Undated int              `json:"undated"`
	}
	if err := v.get("/api/v1/calls/waiting/histogram?minutes=10&step=10s", &g); err != nil {
		return nil, err
	}
	out.Later, out.Undated = g.Later, g.Undated
	if list := byName(g.Causes, v.words.cause); len(list) > 0 {
		out.Key = legends(list)
		out.Histogram = stacked(900, 150, v.words.say("line.histogram"), list, func(i int) string {
			return g.Start.Add(time.Duration(i*g.Step) * time.Second).In(v.now.Location()).Format("15:04:05")
		})
	}
	return out, nil
}

// afterOf is where a list goes on by its Link (RFC 8288); empty: it does not.
func afterOf(link string) string {
	if len(link) < 2 || link[0] != '<' {
		return ""
	}
	for i := range link {
		if link[i] == '>' {
			u, err := url.Parse(link[1:i])
			if err != nil {
				return ""
			}
			return u.Query().Get("after")
		}
	}
	return ""
}
