package sqlite

import (
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/message"
)

func TestHistoryComesBack(t *testing.T) {
	full := attempt.Attempt{
		N: 7, Count: 8, Started: start.Add(9), Duration: 10, Host: "u1.test:443", Status: 503, Detail: "say \"no\" <&> \x01 é",
		Delay: 11, Cause: "backoff", Egress: "proxy-a", Reused: true, UpstreamID: `a\b`, Supplier: "supplier-b",
		Verdict: classify.Verdict{
			Class: classify.Unknown, Reason: "status_503", Basis: classify.BasisKey, Executed: classify.ExecutedMaybe,
			HostFault: true, Alive: true, EgressFault: true, RetryAfter: 12,
		},
	}
	for _, h := range []attempt.History{nil, {full}, {{}, full, {}}} {
		got, err := parseHistory(historyText(h))
		if diff := cmp.Diff(h, got); diff != "" || err != nil {
			t.Errorf("history %v (-want +got):\n%s", err, diff)
		}
	}
	runs := []idempotency.Run{{CallID: "a", Started: start, First: 1}, {CallID: "b", Started: start, Ended: start.Add(1), First: 3, Reason: `"x"`, Supplier: idempotency.Supplier{Name: "b", OrderNo: `"1"`}, Trace: "00-1-2-01"}}
	got, err := parseRuns(runsText(runs))
	if diff := cmp.Diff(runs, got); diff != "" || err != nil {
		t.Errorf("runs %v (-want +got):\n%s", err, diff)
	}
}

func TestCallsComeBack(t *testing.T) {
	full := attempt.Attempt{
		N: 7, Count: 8, Started: start.Add(-9), Duration: 10, Host: "\xff:443", Status: 503, Detail: "say \"no\" <&> \x01 é",
		Delay: 11, Cause: "backoff", Egress: "proxy-a", Reused: true, UpstreamID: `a\b`, Supplier: "supplier-b",
		Verdict: classify.Verdict{
			Class: classify.Unknown, Reason: "status_503", Basis: classify.BasisKey, Executed: classify.ExecutedMaybe,
			HostFault: true, EgressFault: true, RetryAfter: 12,
		},
	}
	alive := attempt.Attempt{Verdict: classify.Verdict{Alive: true}}
	for _, c := range []attempt.Summary{
		{},
		{Started: start},
		{Ended: start},
		{Started: start, Ended: start.Add(-time.Hour)}, // the clock was set back
		{Started: start, Ended: start, Attempts: attempt.History{full, {}, alive}, Waits: []attempt.Wait{{Cause: "tokens", For: 1}, {}}},
		{Ended: start, Attempts: attempt.History{full}},
	} {
		c.State = "done"
		text := appendCall([]byte("x"), &c)
		got, err := parseCall(text[1 : len(text)-1])
		if diff := cmp.Diff(&c, got); diff != "" || err != nil {
			t.Errorf("%s is %v (-want +got):\n%s", text, err, diff)
		}
	}
}

// A later version may put more into a list.
func TestListsMayBeLonger(t *testing.T) {
	text := appendCall(nil, &attempt.Summary{ID: "a"})
	if c, err := parseCall([]byte(string(text[:len(text)-2]) + `,{"more":[1]}]`)); err != nil || c.ID != "a" {
		t.Errorf("parseCall = %v, %v", c, err)
	}
	for _, bad := range []string{"", "[]", `["a"]`, "{}", "null", "7"} {
		if c, err := parseCall([]byte(bad)); err == nil {
			t.Errorf("parseCall(%s) = %v, want an error", bad, c)
		}
	}
}

func TestFieldsText(t *testing.T) {
	tests := []struct {
		name   string
		fields message.Fields
		want   string
	}{
		{"none", nil, `[]`},
		{"plain", message.Fields{{Name: "Accept", Value: "*/*"}, {Name: "A", Value: ""}}, `[["Accept","*/*"],["A",""]]`},
		{"quotes", message.Fields{{Name: "ETag", Value: `"a\b"`}}, `[["ETag","\"a\\b\""]]`},
		{"not UTF-8", message.Fields{{Name: "X", Value: "\xff"}}, `[["X","\ufffd","WA==","/w=="]]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := fieldsText(tt.fields); got != tt.want {
				t.Errorf("fieldsText(%v) = %s, want %s", tt.fields, got, tt.want)
			}
		})
	}
}

func FuzzFields(f *testing.F) {
	f.Add("Accept", "*/*", "X", "\xff\x00")
	f.Add("\xfe", `"\`, "<", "\u2028é")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		want := message.Fields{{Name: name1, Value: value1}, {Name: name2, Value: value2}}
		text := fieldsText(want)
		got, err := parseFields(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil || !utf8.ValidString(text) {
			t.Errorf("%s came back with %v (-want +got):\n%s", text, err, diff)
		}
	})
}

func FuzzParseFields(f *testing.F) {
	f.Add(`[["a","b"],["c","d","YQ==","YQ=="]]`)
	f.Add(`[["a"]]`)
	f.Fuzz(func(t *testing.T, text string) {
		fields, err := parseFields(text)
		if err != nil {
			return
		}
		again, err := parseFields(fieldsText(fields))
		if diff := cmp.Diff(fields, again); err != nil || len(fields) > 0 && diff != "" {
			t.Errorf("%s came back with %v (-want +got):\n%s", text, err, diff)
		}
	})
}

// Times sort as text as they do as times.
func TestTimesSortAsText(t *testing.T) {
	last := ""
	for _, d := range []time.Duration{0, 1, 999, time.Millisecond, time.Second - 1, time.Second, time.Hour, 1000 * time.Hour} {
		text := timeText(start.Add(d).In(time.FixedZone("", 8*3600)))
		if back, err := parseTime(text); err != nil || !back.Equal(start.Add(d)) || text <= last {
			t.Errorf("%s after %s is %v, %v", text, last, back, err)
		}
		last = text
	}
}
