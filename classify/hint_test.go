package classify

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"retryproxy/message"
)

func TestHints(t *testing.T) {
	path := func(unit Unit) Hint { return Hint{Path: at(t, "$.wait"), Unit: unit} }
	header := Hint{Header: "Retry-After"}
	cost := Hint{Cost: &Cost{Need: at(t, "$.need"), Have: at(t, "$.have"), Rate: at(t, "$.rate")}}
	for _, tt := range []struct {
		name, value string // of $.wait, as it stands there; of the header where the hint is one
		hint        Hint
		want        time.Duration
	}{
		{"seconds", "3", path(Seconds), 3 * time.Second},
		{"seconds as text", `" 2.5 "`, path(Seconds), 2500 * time.Millisecond},
		{"milliseconds", "1500", path(Milliseconds), 1500 * time.Millisecond},
		{"epoch", fmt.Sprint(noon.Unix() + 90), path(EpochSeconds), 90 * time.Second},
		{"epoch in the past", fmt.Sprint(noon.Unix() - 1), path(EpochSeconds), 0},
		{"epoch in milliseconds", fmt.Sprint(noon.UnixMilli() + 1500), path(EpochMilliseconds), 1500 * time.Millisecond},
		{"epoch in another unit than it says", fmt.Sprint(noon.UnixMilli()), path(EpochSeconds), longestWait},
		{"negative", "-3", path(Seconds), 0},
		{"nought", "0", path(Seconds), 0},
		{"null", "null", path(Seconds), 0},
		{"an object", "{}", path(Seconds), 0},
		{"words", `"soon"`, path(Seconds), 0},
		{"not a number", `"NaN"`, path(Seconds), 0},
		{"without end", `"Infinity"`, path(Seconds), 0},
		{"too large for a float", "1e999", path(Seconds), 0},
		{"too large for a duration", "1e300", path(Seconds), longestWait},
		{"too large for a date", "1e300", path(EpochSeconds), longestWait},
		{"over 31 days", fmt.Sprint(32 * 24 * 3600), path(Seconds), longestWait},

		{"header", "7", header, 7 * time.Second},
		{"header with a fraction", "2.0", header, 2 * time.Second},
		{"header with a date", "Tue, 01 Dec 2026 12:00:30 GMT", header, 30 * time.Second},
		{"header with a date that is over", "Tue, 01 Dec 2026 11:59:59 GMT", header, 0},
		{"header with a date in a year", "Wed, 01 Dec 2027 12:00:00 GMT", header, longestWait},
		{"header with words", "tomorrow", header, 0},
		{"no header", "7", Hint{Header: "X-None"}, 0},

		{"message", "", Hint{Message: regexp.MustCompile(`for (\d+) more`)}, 3 * time.Second},
		{"message in milliseconds", "", Hint{Message: regexp.MustCompile(`for (\d+) more`), Unit: Milliseconds}, 3 * time.Millisecond},
		{"another message", "", Hint{Message: regexp.MustCompile(`after (\d+)`)}, 0},
		{"group that is not there", "", Hint{Message: regexp.MustCompile(`ban(\d+)?`)}, 0},
		{"base", "", Hint{Base: time.Minute}, time.Minute},
		{"base over 31 days", "", Hint{Base: 2 * longestWait}, longestWait},

		{"cost", `0,"need":252,"have":52.0,"rate":50.0`, cost, 4 * time.Second},
		{"cost that can be paid", `0,"need":5,"have":5,"rate":1`, cost, 0},
		{"cost without a rate", `0,"need":5,"have":1`, cost, 0},
		{"cost that never comes", `0,"need":5,"have":1,"rate":0`, cost, 0},
		{"cost that shrinks", `0,"need":5,"have":1,"rate":-1`, cost, 0},
		{"cost in words", `0,"need":"NaN","have":"Inf","rate":1`, cost, 0},
		{"cost beyond all", `0,"need":1e308,"have":-1e308,"rate":1e-300`, cost, longestWait},
	} {
		a := Answer{Status: 200, Doc: `{"wait":1}`, Fields: message.Fields{{Name: "Retry-After", Value: tt.value}}}
		if tt.value != "" && tt.hint.Header == "" {
			a.Doc = `{"wait":` + tt.value + `}`
		}
		r := Rule{Wait: []Hint{tt.hint}}
		if got := r.wait(&a, &Said{Message: "This ban will last for 3 more seconds"}, noon); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	first := Rule{Wait: []Hint{header, path(Seconds), {Base: time.Minute}}}
	if got := first.wait(&Answer{Doc: `{"wait":2}`}, &Said{}, noon); got != 2*time.Second {
		t.Errorf("the first hint with a time gives %s", got)
	}
	if got := first.wait(&Answer{}, &Said{}, noon); got != time.Minute {
		t.Errorf("of an answer that cannot be read the wait is %s", got)
	}
}

// A date counts from the clock of who sends it.
func TestHintDateByTheirClock(t *testing.T) {
	r := Rule{Wait: []Hint{{Header: "Retry-After"}}}
	a := Answer{Fields: message.Fields{{Name: "Date", Value: "Tue, 01 Dec 2026 11:00:00 GMT"}, {Name: "Retry-After", Value: "Tue, 01 Dec 2026 11:00:05 GMT"}}}
	if got := r.wait(&a, &Said{}, noon); got != 5*time.Second {
		t.Errorf("the wait is %s, want 5s", got)
	}
}

// A time of day is the next one there, also where it is another day there.
func TestDaily(t *testing.T) {
	east, west := time.FixedZone("+08:00", 8*3600), time.FixedZone("-05:00", -5*3600)
	date := func(day, hour, minute int, zone *time.Location) time.Time {
		return time.Date(2026, 12, day, hour, minute, 0, 0, zone)
	}
	for _, tt := range []struct {
		after     time.Duration
		zone      *time.Location
		now, want time.Time
	}{
		{0, east, date(1, 12, 0, time.UTC), date(2, 0, 0, east)},
		{0, east, date(1, 15, 59, time.UTC), date(2, 0, 0, east)},
		{0, east, date(1, 16, 0, time.UTC), date(3, 0, 0, east)},
		{0, west, date(1, 4, 0, time.UTC), date(1, 0, 0, west)},
		{0, time.UTC, date(31, 23, 59, time.UTC), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)},
		{23*time.Hour + 30*time.Minute, east, date(1, 23, 29, east), date(1, 23, 30, east)},
		{23*time.Hour + 30*time.Minute, east, date(1, 23, 30, east), date(2, 23, 30, east)},
	} {
		d := Daily{After: tt.after, Zone: tt.zone}
		if got := d.next(tt.now); !got.Equal(tt.want) {
			t.Errorf("%s after %s: %s, want %s", tt.after, tt.now, got, tt.want)
		}
		r := Rule{Wait: []Hint{{Daily: &d}}}
		if got := r.wait(&Answer{}, &Said{}, tt.now); got != tt.want.Sub(tt.now) || got <= 0 || got > 24*time.Hour {
			t.Errorf("at %s the wait is %s", tt.now, got)
		}
	}
}
