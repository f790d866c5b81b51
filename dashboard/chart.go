package dashboard

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// picture is an SVG that is being drawn. Colours are classes, so that both themes fit.
type picture struct {
	text strings.Builder
	w, h float64
}

// draw begins a picture; what says what it shows, to those who cannot see it.
func draw(w, h float64, what string) *picture {
	p := &picture{w: w, h: h}
	fmt.Fprintf(&p.text, `<svg viewBox="0 0 %s %s" width="%s" height="%s" role="img" aria-label="%s">`, num(w), num(h), num(w), num(h), html.EscapeString(what))
	return p
}

// num is a coordinate, no longer than needed.
func num(x float64) string {
	return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
}

// rect adds a box; tip is said when it is pointed at.
func (p *picture) rect(x, y, w, h float64, class, tip string) {
	fmt.Fprintf(&p.text, `<rect x="%s" y="%s" width="%s" height="%s" class="%s"`, num(x), num(y), num(max(w, .1)), num(max(h, .1)), class)
	p.tip("rect", tip)
}

// tip ends an element.
func (p *picture) tip(element, tip string) {
	if tip == "" {
		p.text.WriteString("/>")
		return
	}
	fmt.Fprintf(&p.text, "><title>%s</title></%s>", html.EscapeString(tip), element)
}

func (p *picture) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(&p.text, `<line x1="%s" y1="%s" x2="%s" y2="%s" class="%s"/>`, num(x1), num(y1), num(x2), num(y2), class)
}

// write adds a text; anchor is start, middle or end.
func (p *picture) write(x, y float64, anchor, class, text string) {
	fmt.Fprintf(&p.text, `<text x="%s" y="%s" text-anchor="%s" class="%s">%s</text>`, num(x), num(y), anchor, class, html.EscapeString(text))
}

// curve joins points; those that are NaN leave a gap.
func (p *picture) curve(xs, ys []float64, class, tip string) {
	var d strings.Builder
	pen := "M"
	for i := range xs {
		if math.IsNaN(ys[i]) {
			pen = "M"
			continue
		}
		fmt.Fprintf(&d, "%s%s %s", pen, num(xs[i]), num(ys[i]))
		pen = "L"
	}
	fmt.Fprintf(&p.text, `<path d="%s" class="line %s"`, d.String(), class)
	p.tip("path", tip)
}

// done is the picture as HTML.
func (p *picture) done() template.HTML {
	return template.HTML(p.text.String() + "</svg>") //nolint:gosec // made here, and every text in it is escaped
}

// series are figures over time with one colour.
type series struct {
	Name   string
	Colour int // 1 to 8
	Values []int
}

// legend are the names of series beside their colours.
type legend struct {
	Name   string
	Colour int
	Sum    int
}

func legends(list []series) (out []legend) {
	for _, s := range list {
		l := legend{s.Name, s.Colour, 0}
		for _, v := range s.Values {
			l.Sum += v
		}
		out = append(out, l)
	}
	return out
}

// Sizes of diagrams over time.
const (
	plotLeft   = 40.0
	plotBottom = 16.0
	plotTop    = 6.0
)

// stacked are bars over time, the series on top of each other. label names the place i.
func stacked(w, h float64, what string, list []series, label func(i int) string) template.HTML {
	p := draw(w, h, what)
	n, top := 0, 0
	for _, s := range list {
		n = max(n, len(s.Values))
	}
	sums := make([]int, n)
	for _, s := range list {
		for i, v := range s.Values {
			sums[i] += v
			top = max(top, sums[i])
		}
	}
	scale, plot := p.axis(top), w-plotLeft
	step := plot / float64(max(n, 1))
	at := make([]float64, n)
	for _, s := range list {
		for i, v := range s.Values {
			if v > 0 {
				high := float64(v) * scale
				at[i] += high
				p.rect(plotLeft+float64(i)*step+.5, h-plotBottom-at[i], max(step-1, 1), high, "f"+strconv.Itoa(s.Colour), label(i)+" · "+s.Name+": "+strconv.Itoa(v))
			}
		}
	}
	p.labels(n, step, label)
	return p.done()
}

// axis draws the lower line and the highest value, and gives pixels per unit.
func (p *picture) axis(top int) (scale float64) {
	room := p.h - plotBottom - plotTop
	p.line(plotLeft, p.h-plotBottom, p.w, p.h-plotBottom, "axis")
	if top == 0 {
		return 0
	}
	p.line(plotLeft, plotTop, p.w, plotTop, "axis")
	p.write(plotLeft-4, plotTop+9, "end", "faint", short(top))
	p.write(plotLeft-4, p.h-plotBottom, "end", "faint", "0")
	return room / float64(top)
}

// labels names the first, the middle and the last place below the axis.
func (p *picture) labels(n int, step float64, label func(i int) string) {
	if n == 0 {
		return
	}
	y := p.h - 3
	p.write(plotLeft, y, "start", "faint", label(0))
	p.write(plotLeft+step*float64(n)/2, y, "middle", "faint", label(n/2))
	p.write(p.w, y, "end", "faint", label(n-1))
}

// short is a number in few letters.
func short(n int) string {
	switch {
	case n >= 1_000_000:
		return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + "M"
	case n >= 10_000:
		return strconv.Itoa(n/1000) + "k"
	}
	return strconv.Itoa(n)
}
