package dashboard

import (
	"strings"
	"testing"
	"time"
)

// longCall was refused at once, waited an hour, was cut off, and waits again.
func longCall(start time.Time) *call {
	return &call{
		ID: "c1", Started: start, State: "waiting", Cause: "backoff", NextAt: start.Add(2 * time.Hour),
		Attempts: []try{
			{N: 1, Started: start, Duration: 3, Class: "transient", Reason: "connect_refused", Executed: "no"},
			{N: 2, Started: start.Add(time.Hour), Duration: 3, Delay: 3_600_000, Cause: "retry_after", Class: "transient", Status: 503, Reason: "status_503", Executed: "no"},
			{N: 3, Started: start.Add(time.Hour + time.Second), Duration: 30_000, Delay: 997, Cause: "token", Class: "unknown", Reason: "response_timeout", Executed: "maybe"},
		},
	}
}

func TestSpans(t *testing.T) {
	start := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	list := spans(longCall(start), start.Add(90*time.Minute))
	var got []string
	end := swimLeft
	for i, s := range list {
		if s.x < end-0.01 || s.w < least {
			t.Errorf("part %d is at %.1f, %.1f wide; the one before ends at %.1f, and each is %.0f wide at least", i, s.x, s.w, end, least)
		}
		if end = s.x + s.w; s.try != nil {
			got = append(got, "try")
		} else {
			got = append(got, s.cause+" "+s.to.Sub(s.from).Round(time.Second).String())
		}
	}
	if want := "try, retry_after 1h0m0s, try, token 1s, try, backoff 59m29s"; strings.Join(got, ", ") != want {
		t.Errorf("the parts are %q, want %q", strings.Join(got, ", "), want)
	}
	if end < swimWidth-1 || end > swimWidth+1 {
		t.Errorf("the picture ends at %.1f, want %.0f", end, swimWidth)
	}
	over := longCall(start)
	over.NextAt = time.Time{} // undated: it waits until now
	if list = spans(over, start.Add(3*time.Hour)); list[len(list)-1].to != start.Add(3*time.Hour) {
		t.Errorf("a wait without a date ends at %v, want now", list[len(list)-1].to)
	}
}

func TestSwimLanes(t *testing.T) {
	start := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for lang, wait := range map[string]string{"en": "Retry-After", "zh": "Retry-After"} {
		v := &visit{now: start.Add(90 * time.Minute), words: words{lang}}
		text := string(v.swimLanes(longCall(start)))
		for _, want := range []string{wait, ">2</text>", "○", "◐", "●", `class="f2"`, `class="f5"`, "05:06:07", "<title>"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the picture lacks %s", lang, want)
			}
		}
	}
	if text := (&visit{now: start, words: words{"en"}}).swimLanes(&call{Started: start}); text != "" {
		t.Errorf("a call without waits and attempts has the picture %s", text)
	}
}
