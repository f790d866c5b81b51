package template

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// beijing is the zone of a layout that names none: that of the platforms.
var beijing = time.FixedZone("+08:00", 8*3600)

var (
	zoned   = regexp.MustCompile(`^(.*?) ?(Z|[+-]\d\d:\d\d)$`)
	letters = regexp.MustCompile(`[A-Za-z]+`)
)

// javaLayout translates the letters of a Java layout.
var javaLayout = map[string]string{
	"yyyy": "2006", "yy": "06", "MM": "01", "dd": "02", "HH": "15", "mm": "04", "ss": "05", "SSS": "000", "T": "T",
}

var errClock = errors.New("now takes unix, unix_ms, a layout such as yyyyMMddHHmmss or 2006-01-02 15:04:05, and after it a zone such as +08:00")

// clock reads what follows now: and gives what writes it.
func clock(s string) (func(time.Time) string, error) {
	switch s {
	case "unix":
		return func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }, nil
	case "unix_ms":
		return func(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }, nil
	}
	layout, zone := s, beijing
	if m := zoned.FindStringSubmatch(s); m != nil && !strings.HasSuffix(s, "Z07:00") && !strings.HasSuffix(s, "-07:00") {
		at, err := time.Parse("Z07:00", m[2])
		if err != nil {
			return nil, errClock
		}
		_, offset := at.Zone()
		layout, zone = m[1], time.FixedZone(m[2], offset)
	}
	if strings.Contains(layout, "yy") {
		var ok bool
		if layout, ok = fromJava(layout); !ok {
			return nil, errClock
		}
		return javaClock(layout, zone), nil
	}
	if !strings.Contains(layout, "2006") {
		return nil, errClock
	}
	return func(t time.Time) string { return t.In(zone).Format(layout) }, nil
}

// fromJava turns yyyyMMdd into 20060102; false: it holds letters that mean nothing here.
func fromJava(layout string) (string, bool) {
	ok := true
	out := letters.ReplaceAllStringFunc(layout, func(run string) string {
		var b strings.Builder
		for run != "" {
			n := len(run) - len(strings.TrimLeft(run, run[:1]))
			word, known := javaLayout[run[:n]]
			ok = ok && known
			b.WriteString(word)
			run = run[n:]
		}
		return b.String()
	})
	return out, ok && !strings.ContainsAny(letters.ReplaceAllString(layout, ""), "0123456789")
}

// javaClock writes a time. Go knows milliseconds behind a point or comma only, so
// that they are written with one and it is taken out again.
func javaClock(layout string, zone *time.Location) func(time.Time) string {
	before, after, millis := strings.Cut(layout, "000")
	return func(t time.Time) string {
		t = t.In(zone)
		if !millis {
			return t.Format(layout)
		}
		return t.Format(before) + t.Format(".000")[1:] + t.Format(after)
	}
}
