package signer

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// referenceDate shows whether a layout keeps date and time.
var referenceDate = time.Date(2021, time.November, 12, 23, 34, 56, 0, time.UTC)

// units are the ways in which a date may be written.
func (t *Time) units() []string { return append([]string{t.Unit}, t.Also...) }

// read gives the date in text, and the unit in which it is written.
func (t *Time) read(text string) (date time.Time, unit string, ok bool) {
	zone, err := parseZone(t.Zone)
	if err != nil {
		return time.Time{}, "", false
	}
	for _, unit := range t.units() {
		if date, ok := readDate(unit, zone, text); ok {
			return date, unit, true
		}
	}
	return time.Time{}, "", false
}

// readDate reads a date of one unit. What would be written in another way than
// text is not of that unit: Go takes fractions that a layout does not have.
func readDate(unit string, zone *time.Location, text string) (time.Time, bool) {
	var date time.Time
	switch {
	case unit == "s" || unit == "ms":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return time.Time{}, false
		}
		date = time.Unix(n, 0)
		if unit == "ms" {
			date = time.UnixMilli(n)
		}
		// Seconds read as milliseconds are a date in 1970, the other way round
		// one that is too late to be written.
		if year := date.UTC().Year(); year < 2000 || year > 2200 {
			return time.Time{}, false
		}
	default:
		layout, bare := layoutOf(unit)
		parsed := text
		if bare && len(text) > 3 {
			parsed = text[:len(text)-3] + "." + text[len(text)-3:]
		}
		var err error
		if date, err = time.ParseInLocation(layout, parsed, zone); err != nil {
			return time.Time{}, false
		}
		if unit == "" || date.UTC().Year() < 2000 {
			return time.Time{}, false
		}
	}
	return date, writeDate(unit, date, date.Location()) == text
}

// writeDate writes a date in a unit.
func writeDate(unit string, date time.Time, zone *time.Location) string {
	switch unit {
	case "s":
		return strconv.FormatInt(date.Unix(), 10)
	case "ms":
		return strconv.FormatInt(date.UnixMilli(), 10)
	}
	layout, bare := layoutOf(unit)
	text := date.In(zone).Format(layout)
	if bare {
		text = text[:len(text)-4] + text[len(text)-3:]
	}
	return text
}

// layoutOf gives Go's layout for a unit. Go cannot write milliseconds without a
// dot before them, so for a unit with a bare SSS at its end the dot is put in.
func layoutOf(unit string) (layout string, bare bool) {
	seconds, bare := strings.CutSuffix(unit, "SSS")
	if bare {
		return seconds + ".000", true
	}
	return unit, false
}

// parseZone reads an offset such as +08:00; empty is UTC.
func parseZone(text string) (*time.Location, error) {
	if text == "" {
		return time.UTC, nil
	}
	t, err := time.Parse("-07:00", text)
	if err != nil {
		return nil, errors.New("want an offset such as +08:00")
	}
	_, seconds := t.Zone()
	return time.FixedZone(text, seconds), nil
}
