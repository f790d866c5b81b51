package dashboard

import (
	"cmp"
	"html/template"
	"slices"
	"strconv"
	"time"

	"github.com/maruel/natural"
)

// shopTrend are the figures of a shop by minute.
type shopTrend struct {
	Shop   string `json:"shop"`
	Calls  []int  `json:"calls"`
	Failed []int  `json:"failed"`
}

type shopsView struct {
	Shops   []shop
	Stopped []shop
	Heat    template.HTML
	Rows    int // of the heat map
	Others  int // shops that the heat map leaves out
}

// mostRows is how many shops the heat map shows.
const mostRows = 200

func fillShops(v *visit) (any, error) {
	var out shopsView
	if err := v.get("/api/v1/shops", &out.Shops); err != nil {
		return nil, err
	}
	slices.SortStableFunc(out.Shops, func(a, b shop) int { return natural.Compare(a.Shop, b.Shop) })
	for _, s := range out.Shops {
		if len(s.Pauses)+len(s.Breakers) > 0 {
			out.Stopped = append(out.Stopped, s)
		}
	}
	var t struct {
		Start time.Time   `json:"start"`
		Step  int         `json:"step_s"`
		Shops []shopTrend `json:"shops"`
	}
	if err := v.get("/api/v1/trend/shops?minutes=60", &t); err != nil {
		return nil, err
	}
	if n := len(t.Shops); n > mostRows {
		slices.SortStableFunc(t.Shops, func(a, b shopTrend) int {
			return cmp.Or(cmp.Compare(sum(b.Failed), sum(a.Failed)), cmp.Compare(sum(b.Calls), sum(a.Calls)))
		})
		t.Shops, out.Others = t.Shops[:mostRows], n-mostRows
	}
	slices.SortFunc(t.Shops, func(a, b shopTrend) int { return cmp.Or(natural.Compare(a.Shop, b.Shop), cmp.Compare(a.Shop, b.Shop)) })
	if out.Rows = len(t.Shops); out.Rows > 0 {
		out.Heat = v.heatMap(t.Shops, t.Start, time.Duration(t.Step)*time.Second)
	}
	return out, nil
}

// Sizes of the heat map.
const (
	heatLeft = 110.0
	heatRow  = 16.0
	heatCell = 13.0
)

// heatMap shows shops by minutes: the darker, the larger the part that failed. A dark row
// is a shop's fault, a dark column an outage.
func (v *visit) heatMap(list []shopTrend, start time.Time, step time.Duration) template.HTML {
	columns := len(list[0].Calls)
	right := heatLeft + heatCell*float64(columns)
	p := draw(right+heatLeft, heatRow*float64(len(list)+1), v.words.say("shops.heat"))
	for row, s := range list {
		y := float64(row) * heatRow
		name := fitting(s.Shop, heatLeft)
		p.write(0, y+12, "start", "", name)
		p.write(right+6, y+12, "start", "", name) // where the newest minute is: a phone shows that end
		for i := range s.Calls {
			at := start.Add(time.Duration(i) * step).In(v.now.Location()).Format("15:04")
			tip := ""
			if s.Calls[i] > 0 {
				tip = v.words.say("shops.cell", s.Shop, at, s.Failed[i], s.Calls[i])
			}
			p.rect(heatLeft+float64(i)*heatCell, y+1, heatCell-1, heatRow-2, heatClass(s.Calls[i], s.Failed[i]), tip)
		}
	}
	y := heatRow*float64(len(list)) + 12
	for i := 0; i < columns; i += 10 {
		p.write(heatLeft+float64(i)*heatCell, y, "start", "faint", start.Add(time.Duration(i)*step).In(v.now.Location()).Format("15:04"))
	}
	return p.done()
}

// heatClass is the colour of a cell: nothing, or one of five by the part that failed.
func heatClass(calls, failed int) string {
	if calls == 0 {
		return "none"
	}
	level := 0
	for _, from := range []float64{.001, .1, .3, .7} {
		if float64(failed) >= from*float64(calls) && failed > 0 {
			level++
		}
	}
	return "h" + strconv.Itoa(level)
}
