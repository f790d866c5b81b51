package backoff

import (
	"math"
	"testing"
	"time"
)

var now = time.Date(2026, 10, 21, 7, 28, 0, 0, time.UTC)

func TestRetryAfter(t *testing.T) {
	tests := []struct {
		name, value, date string
		want              time.Duration
		ok                bool
	}{
		{"seconds", "120", "", 120 * s, true},
		{"zero", "0", "", 0, true},
		{"leading zeros", "0003", "", 3 * s, true},
		{"surrounding space", " 7\t", "", 7 * s, true},
		{"longer than a duration", "99999999999999999999", "", math.MaxInt64, true},
		{"just longer than a duration", "9223372037", "", math.MaxInt64, true},
		{"longest duration", "9223372036", "", 9223372036 * s, true},
		{"IMF-fixdate", "Wed, 21 Oct 2026 07:28:30 GMT", "", 30 * s, true},
		{"RFC 850", "Wednesday, 21-Oct-26 07:28:30 GMT", "", 30 * s, true},
		{"asctime", "Wed Oct 21 07:28:30 2026", "", 30 * s, true},
		{"asctime, day of one digit", "Sun Nov  1 07:28:00 2026", "", 11 * 24 * time.Hour, true},
		{"this very second", "Wed, 21 Oct 2026 07:28:00 GMT", "", 0, true},
		{"RFC 850 less than 50 years ahead", "Sunday, 21-Oct-75 07:28:00 GMT", "", time.Date(2075, 10, 21, 7, 28, 0, 0, time.UTC).Sub(now), true},
		{"RFC 850 of last century", "Thursday, 21-Oct-99 07:28:00 GMT", "", 0, false},
		{"against the answer's Date", "Wed, 21 Oct 2015 07:28:09 GMT", "Wed, 21 Oct 2015 07:28:00 GMT", 9 * s, true},
		{"bad Date is ignored", "Wed, 21 Oct 2026 07:28:09 GMT", "yesterday", 9 * s, true},
		{"seconds need no Date", "9", "Wed, 21 Oct 2015 07:28:00 GMT", 9 * s, true},

		{"empty", "", "", 0, false},
		{"RA-03 negative", "-5", "", 0, false},
		{"signed", "+5", "", 0, false},
		{"fraction", "1.5", "", 0, false},
		{"exponent", "1e3", "", 0, false},
		{"unit", "5s", "", 0, false},
		{"two values", "5, 6", "", 0, false},
		{"other digits", "٥", "", 0, false},
		{"RA-06 past", "Wed, 21 Oct 2015 07:28:00 GMT", "", 0, false},
		{"before the answer's Date", "Wed, 21 Oct 2026 07:28:30 GMT", "Wed, 21 Oct 2026 07:29:00 GMT", 0, false},
		{"another zone", "Wed, 21 Oct 2026 07:28:30 CET", "", 0, false},
		{"RFC 3339", "2026-10-21T07:28:30Z", "", 0, false},
		{"fraction of a second", "Wed, 21 Oct 2026 07:28:30.5 GMT", "", 0, false},
		{"hour of one digit", "Wed, 21 Oct 2026 7:28:30 GMT", "", 0, false},
		{"asctime with a fraction", "Wed Nov 1 7:28:30.5 2026", "", 0, false},
		{"no such day", "Wed, 31 Feb 2026 07:28:30 GMT", "", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := RetryAfter(tt.value, tt.date, now)
			if got != tt.want || ok != tt.ok {
				t.Errorf("RetryAfter(%q, %q) = %v, %v, want %v, %v", tt.value, tt.date, got, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestCase_RA_01_seconds_not_milliseconds(t *testing.T) {
	if got, ok := RetryAfter("2", "", now); got != 2*s || !ok {
		t.Errorf("RetryAfter(2) = %v, %v, want 2s, true", got, ok)
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"120", "-5", "1.5", fixDate, rfc850Date, ascDate, "Wed, 21 Oct 2026 07:28:00 GMT"} {
		f.Add(seed, "Wed, 21 Oct 2026 07:28:00 GMT")
		f.Add(seed, "")
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		if got, ok := RetryAfter(value, date, now); got < 0 || !ok && got != 0 {
			t.Errorf("RetryAfter(%q, %q) = %v, %v", value, date, got, ok)
		}
	})
}
