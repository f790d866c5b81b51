package simulate

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"
)

// Measures of the chart, in its own units.
const (
	chartWidth  = 1000
	plotLeft    = 70
	plotRight   = 970
	plotTop     = 50 // below a run's title and key
	plotHeight  = 180
	stripHeight = 70 // of the second plot: calls waiting
	runHeight   = 360
	mostPoints  = 450 // seconds are joined until a line has no more
)

// series is one line of a plot.
type series struct {
	name, colour string
	of           func(s *Second) float64
	sums         bool // a number per second, to be averaged; else the highest of a gauge
}

var rates = []series{
	{"offered", "#6b7280", func(s *Second) float64 { return float64(s.Offered) }, true},
	{"upstream", "#dc2626", func(s *Second) float64 { return float64(s.Upstream) }, true},
	{"the platform can take", "#111827", func(s *Second) float64 { return s.Capacity }, false},
	{"succeeded", "#16a34a", func(s *Second) float64 { return float64(s.Answered) }, true},
}

var gauges = []series{
	{"waiting in the proxy", "#2563eb", func(s *Second) float64 { return float64(s.Waiting) }, false},
	{"at the platform", "#dc2626", func(s *Second) float64 { return float64(s.InFlight) }, false},
	{"its slots", "#111827", func(s *Second) float64 { return float64(s.Slots) }, false},
}

// chart draws the runs one below the other, by the same scales.
type chart struct {
	out     *bufio.Writer
	length  int // seconds
	step    int // seconds in a point
	outages []Phase
}

// WriteSVG draws the runs over time: requests per second, and what waits.
func (r *Report) WriteSVG(to io.Writer) error {
	c := &chart{out: bufio.NewWriter(to)}
	for i := range r.Runs {
		c.length = max(c.length, len(r.Runs[i].Seconds))
	}
	c.step = max(1, (c.length+mostPoints-1)/mostPoints)
	for _, p := range r.scenario.Phases {
		if p.Outage {
			c.outages = append(c.outages, p)
		}
	}
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#111827">`+"\n", chartWidth, 40+runHeight*len(r.Runs))
	c.printf(`<rect width="100%%" height="100%%" fill="#ffffff"/>` + "\n")
	c.text(plotLeft, 24, "start", 16, r.Scenario)
	top, most := c.highest(r, rates), c.highest(r, gauges)
	for i := range r.Runs {
		c.run(&r.Runs[i], 40+runHeight*i, top, most)
	}
	c.printf("</svg>\n")
	return c.out.Flush()
}

func (c *chart) printf(format string, args ...any) { fmt.Fprintf(c.out, format, args...) }

func (c *chart) text(x, y float64, anchor string, size int, text string) {
	c.printf(`<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d">%s</text>`+"\n", x, y, anchor, size, html.EscapeString(text))
}

// highest is the largest value of any run, so that their scales are the same.
func (c *chart) highest(r *Report, all []series) (most float64) {
	for i := range r.Runs {
		for _, s := range all {
			for _, v := range c.points(r.Runs[i].Seconds, &s) {
				most = max(most, v)
			}
		}
	}
	return niceAbove(most)
}

// niceAbove is the next number of 1, 2 or 5 times a power of ten.
func niceAbove(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 5, 10} {
		if n*power >= v {
			return n * power
		}
	}
	return v
}

// points are the values of a line.
func (c *chart) points(seconds []Second, s *series) []float64 {
	var all []float64
	for n := 0; n < len(seconds); n += c.step {
		some := seconds[n:min(n+c.step, len(seconds))]
		v := 0.0
		for i := range some {
			if x := s.of(&some[i]); s.sums {
				v += x / float64(len(some))
			} else {
				v = max(v, x)
			}
		}
		all = append(all, v)
	}
	return all
}

// run draws one run below y: its name, rates, and gauges.
func (c *chart) run(r *Result, y int, top, most float64) {
	title := fmt.Sprintf("%s: %s final success, %.2f requests per call", r.Name, percent(r.Total.Success), r.Total.Amplification)
	c.text(plotLeft, float64(y+20), "start", 14, title)
	plot := y + plotTop
	c.plot(r.Seconds, rates, plot, plotHeight, top, "per second")
	c.plot(r.Seconds, gauges, plot+plotHeight+35, stripHeight, most, "number")
	step := c.tick()
	for at := time.Duration(0); at <= time.Duration(c.length)*time.Second; at += step {
		c.text(c.x(at), float64(plot+plotHeight+35+stripHeight+15), "middle", 11, clockText(at))
	}
}

// tick is the distance of the times that are named.
func (c *chart) tick() time.Duration {
	for _, seconds := range []int{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600} {
		if c.length/seconds <= 12 {
			return time.Duration(seconds) * time.Second
		}
	}
	return 24 * time.Hour
}

// clockText is a time as h:mm:ss or m:ss.
func clockText(at time.Duration) string {
	s := int(at / time.Second)
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// x is where a time is.
func (c *chart) x(at time.Duration) float64 {
	return plotLeft + (plotRight-plotLeft)*min(at.Seconds()/float64(max(c.length, 1)), 1)
}

// plot draws lines in a frame, with a key above it and the outages shaded.
func (c *chart) plot(seconds []Second, lines []series, y, height int, top float64, unit string) {
	bottom := float64(y + height)
	for i := range c.outages {
		from, to := c.x(c.outages[i].From), c.x(c.outages[i].To)
		c.printf(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#fde68a" opacity="0.6"/>`+"\n", from, y, to-from, height)
	}
	c.printf(`<path d="M%d %d V%.0f H%d" fill="none" stroke="#9ca3af"/>`+"\n", plotLeft, y, bottom, plotRight)
	for _, part := range []float64{0.5, 1} {
		at := bottom - part*float64(height)
		c.printf(`<path d="M%d %.1f H%d" stroke="#e5e7eb"/>`+"\n", plotLeft, at, plotRight)
		c.text(plotLeft-6, at+4, "end", 11, fmt.Sprintf("%g", top*part))
	}
	c.text(plotLeft-6, bottom+4, "end", 11, "0")
	left := float64(plotLeft)
	for i := range lines {
		c.printf(`<path d="M%.0f %d h16" stroke="%s" stroke-width="2"/>`+"\n", left, y-10, lines[i].colour)
		c.text(left+20, float64(y-6), "start", 11, lines[i].name)
		left += 36 + 6*float64(len(lines[i].name))
		c.line(c.points(seconds, &lines[i]), lines[i].colour, bottom, float64(height)/top)
	}
	c.text(plotRight, float64(y-6), "end", 11, unit)
}

// line draws one line.
func (c *chart) line(points []float64, colour string, bottom, scale float64) {
	var d strings.Builder
	for i, v := range points {
		at := time.Duration(i*c.step) * time.Second
		fmt.Fprintf(&d, "%.1f,%.1f ", c.x(at), bottom-v*scale)
	}
	c.printf(`<polyline points="%s" fill="none" stroke="%s" stroke-width="1.3"/>`+"\n", strings.TrimSpace(d.String()), colour)
}
