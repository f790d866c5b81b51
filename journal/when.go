package journal

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

var errWhen = errors.New("want a time such as 2026-03-04T15:04:05+08:00, a date such as 2026-03-04, or how long ago, such as 3d or 90m")

// ParseWhen reads a time: RFC 3339, a date with or without a time in the zone of
// now, or how long before now.
func ParseWhen(text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, errWhen
}
