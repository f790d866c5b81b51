package config

import (
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limit is a token bucket: a rate such as 300/m, `off`, 0, or {rate, burst, share}.
type Limit struct {
	Off   bool
	Rate  float64 // tokens per second; 0 allows nothing
	Burst int     // tokens at once
	Share float64 // refill at this share of the fresh calls where that is more

	text string // the rate as written
}

// limitMap is the long form; Rate is never empty once a Limit was read.
type limitMap struct {
	Rate  rateText `key:"rate"`
	Burst int      `key:"burst"`
	Share float64  `key:"share"`
}

// rateText is a rate as written, checked.
type rateText string

const errRate = wantError("want a rate such as 10/s, 300/m or 5/h, or off, or 0")

// perSecond are the units of rates.
var perSecond = map[string]float64{"s": 1, "m": 60, "h": 3600}

// parseRate reads a rate; burst is its number, at least 1 unless the rate is 0.
func parseRate(text string) (Limit, error) {
	switch text {
	case "off":
		return Limit{Off: true, text: text}, nil
	case "0":
		return Limit{text: text}, nil
	}
	number, unit, _ := strings.Cut(text, "/")
	n, err := parseNumber(number)
	if err != nil || perSecond[unit] == 0 || n > 1e9 {
		return Limit{}, errRate
	}
	return Limit{Rate: n / perSecond[unit], Burst: int(math.Ceil(n)), text: text}, nil
}

// mustRate is parseRate for the defaults.
func mustRate(text string, share float64) Limit {
	l, err := parseRate(text)
	if err != nil {
		panic("bug: default rate " + text)
	}
	l.Share = share
	return l
}

// decode reads both forms. A plain rate has share 0; in the long form what is
// left out stays, except that a new rate brings its own burst, and that rate 0
// allows nothing unless a share is written beside it.
func (l *Limit) decode(d *decoder, n *yaml.Node, path string) {
	if n.Kind != yaml.MappingNode {
		var text rateText
		if d.scalar(n, path, valueOf(&text)) {
			*l, _ = parseRate(string(text))
		}
		return
	}
	m := limitMap{rateText(l.text), l.Burst, l.Share}
	faults := len(d.problems)
	d.object(n, path, valueOf(&m))
	if len(d.problems) > faults {
		return
	}
	own, _ := parseRate(string(m.Rate))
	if d.given(path + ".burst") {
		own.Burst = m.Burst
	} else if !d.given(path + ".rate") {
		own.Burst = l.Burst
	}
	if own.Rate > 0 || d.given(path+".share") {
		own.Share = m.Share
	}
	*l = own
}

// Text is the limit in words, as "5/m, 2 at once".
func (l *Limit) Text() string {
	if l.Off {
		return "off"
	}
	out := l.text + ", " + strconv.Itoa(l.Burst) + " at once"
	if l.Share > 0 {
		out += ", or " + strconv.FormatFloat(l.Share*100, 'g', 3, 64) + " % of the fresh calls where that is more"
	}
	return out
}

// encode writes the long form, or `off`.
func (l *Limit) encode() *yaml.Node {
	if l.Off {
		return text("off")
	}
	return encode(valueOf(&limitMap{rateText(l.text), l.Burst, l.Share}))
}
