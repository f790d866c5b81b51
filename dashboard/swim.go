package dashboard

import (
	"html/template"
	"math"
	"strconv"
	"time"
)

// span is a part of a call's life that has its own place in the picture.
type span struct {
	from, to time.Time
	x, w     float64
	try      *try   // nil: a wait
	cause    string // of a wait
}

// Sizes of the picture of a call.
const (
	swimWidth = 960.0
	swimLeft  = 76.0
	laneHigh  = 26.0
	least     = 16.0 // so that what took milliseconds beside hours is seen
)

// spans are waits and attempts in turn, with their place on an axis that gives long times
// less room: a part is as wide as the square root of what it lasted.
func spans(c *call, now time.Time) []span {
	var list []span
	at := c.Started
	for i := range c.Attempts {
		t := &c.Attempts[i]
		if t.Started.After(at) && (t.Delay > 0 || i > 0) {
			list = append(list, span{from: at, to: t.Started, cause: t.Cause})
		}
		at = t.Started.Add(time.Duration(t.Duration) * time.Millisecond)
		list = append(list, span{from: t.Started, to: at, try: t})
	}
	if c.State == "waiting" || c.State == "parked" {
		to := c.NextAt
		if to.Before(now) {
			to = now
		}
		list = append(list, span{from: at, to: to, cause: c.Cause})
	}
	total := 0.0
	for i := range list {
		list[i].w = math.Sqrt(max(list[i].to.Sub(list[i].from).Seconds(), 0))
		total += list[i].w
	}
	room, x := swimWidth-swimLeft-least*float64(len(list)), swimLeft
	for i := range list {
		s := &list[i]
		s.x = x
		if s.w = least; total > 0 {
			s.w += max(room, 0) * math.Sqrt(max(s.to.Sub(s.from).Seconds(), 0)) / total
		}
		x += s.w
	}
	return list
}

// swimLanes draws client, waits and attempts below each other over time.
func (v *visit) swimLanes(c *call) template.HTML {
	list := spans(c, v.now)
	if len(list) == 0 {
		return ""
	}
	w := v.words
	lanes := []string{w.say("lane.client"), w.say("lane.waits"), w.say("lane.attempts")}
	p := draw(swimWidth, 4*laneHigh+18, w.say("lane.what", len(c.Attempts), c.ID))
	for i, name := range lanes {
		y := float64(i)*laneHigh + 4
		p.write(0, y+15, "start", "faint", name)
		p.line(swimLeft, y+laneHigh-2, swimWidth, y+laneHigh-2, "axis")
	}
	end := list[len(list)-1]
	if c.Origin == "" {
		p.rect(swimLeft, 6, end.x+end.w-swimLeft, laneHigh-8, "held", w.say("lane.held", w.lasts(end.to.Sub(c.Started))))
	}
	for i := range list {
		v.drawSpan(p, &list[i])
	}
	v.marks(p, list)
	return p.done()
}

// drawSpan draws one wait or attempt with what it was.
func (v *visit) drawSpan(p *picture, s *span) {
	w := v.words
	took := w.lasts(s.to.Sub(s.from))
	if s.try == nil {
		p.rect(s.x, laneHigh+6, s.w, laneHigh-8, "wait", w.cause(s.cause)+", "+took)
		if s.w > 70 {
			p.write(s.x+s.w/2, laneHigh+20, "middle", "", fitting(w.cause(s.cause), s.w))
		}
		return
	}
	y := 2*laneHigh + 6
	class := classColour[s.try.Class]
	p.rect(s.x, y, s.w, laneHigh-8, "f"+strconv.Itoa(class), w.say("lane.try", s.try.N, w.reason(s.try.Reason), took, w.say("executed."+s.try.Executed)))
	label := strconv.Itoa(s.try.N)
	if long := label + ": " + strconv.Itoa(s.try.Status); s.try.Status > 0 && fitting(long, s.w+8) == long {
		label = long
	}
	p.write(s.x+1, y+laneHigh+6, "start", "", fitting(label, s.w+8))
	// The mark says how far it came: sent and answered, sent and not answered, not sent.
	phase := "○"
	switch {
	case s.try.Status > 0:
		phase = "●"
	case s.try.Executed != "no":
		phase = "◐"
	}
	p.write(s.x+s.w/2, y+laneHigh/2+1, "middle", "on", phase)
}

// classColour is the colour of an attempt by its class.
var classColour = map[string]int{"success": 3, "transient": 2, "permanent": 4, "unknown": 5}

// marks writes the times below.
func (v *visit) marks(p *picture, list []span) {
	y := 4*laneHigh + 12
	free := 0.0
	for i := range list {
		if s := &list[i]; s.x >= free {
			p.write(s.x, y, "start", "faint", s.from.In(v.now.Location()).Format("15:04:05"))
			free = s.x + 64
		}
	}
}

// fitting cuts a text to a width.
func fitting(text string, w float64) string {
	most := int(w / 7)
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:max(most-1, 0)]) + "…"
}
