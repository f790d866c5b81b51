package attempt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/classify"
)

func TestCase_BO_12_ParseCount(t *testing.T) {
	tests := []struct {
		name   string
		values []string
		n      int
		ok     bool
	}{
		{"zero", []string{"0"}, 0, true},
		{"largest", []string{"1000"}, 1000, true},
		{"leading zeros", []string{"003"}, 3, true},
		{"over the largest", []string{"1001"}, 0, false},
		{"huge", []string{"99999999999999999999"}, 0, false},
		{"negative", []string{"-1"}, 0, false},
		{"signed", []string{"+1"}, 0, false},
		{"text", []string{"abc"}, 0, false},
		{"list", []string{"1, 1"}, 0, false},
		{"two lines", []string{"1", "1"}, 0, false},
		{"empty", []string{""}, 0, false},
		{"absent", nil, 0, false},
		{"other digits", []string{"٣"}, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if n, ok := ParseCount(tt.values); n != tt.n || ok != tt.ok {
				t.Errorf("ParseCount(%q) = %d, %v, want %d, %v", tt.values, n, ok, tt.n, tt.ok)
			}
		})
	}
}

func FuzzParseCount(f *testing.F) {
	f.Add("0")
	f.Add("1001")
	f.Fuzz(func(t *testing.T, value string) {
		if n, ok := ParseCount([]string{value}); n < 0 || n > mostCount || !ok && n != 0 {
			t.Errorf("ParseCount(%q) = %d, %v", value, n, ok)
		}
	})
}

var started = time.Date(2026, 10, 21, 7, 28, 0, 0, time.UTC)

func history() History {
	return History{
		{
			N: 1, Started: started, Duration: 1500 * time.Millisecond, Status: 503, Detail: `say "no"`,
			Verdict: classify.Verdict{Class: classify.Transient, Reason: "status_503"},
		},
		{
			N: 2, Started: started.Add(3 * time.Second), Delay: time.Second,
			Verdict: classify.Verdict{Class: classify.Unknown, Reason: "header_timeout", Executed: classify.ExecutedMaybe},
		},
	}
}

func TestViews(t *testing.T) {
	got, err := json.Marshal(history().Views())
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"n":1,"started":"2026-10-21T07:28:00Z","duration_ms":1500,"class":"transient","reason":"status_503","status":503,"detail":"say \"no\"","delay_ms":0},` +
		`{"n":2,"started":"2026-10-21T07:28:03Z","duration_ms":0,"class":"unknown","reason":"header_timeout","status":0,"detail":"","delay_ms":1000}]`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("Views() (-want +got):\n%s", diff)
	}
	if got, _ := json.Marshal(History(nil).Views()); string(got) != "[]" {
		t.Errorf("Views() of nothing = %s, want []", got)
	}
}

func TestNothingShowsTheRecordOfACall(t *testing.T) {
	s := &Summary{Record: RecordID{Tenant: "shop=17", Key: "hush"}}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("call", "call", s, "record", s.Record)
	slog.New(slog.NewTextHandler(&log, nil)).Info("call", "call", *s, "record", s.Record)
	for _, shown := range []string{string(text), log.String(), fmt.Sprintf("%v %+v %#v %s", s, s, *s, s.Record)} {
		if strings.Contains(shown, "hush") || !strings.Contains(shown, "<record>") && !strings.Contains(shown, "\\u003crecord\\u003e") {
			t.Errorf("shown: %s", shown)
		}
	}
}

func TestHistory(t *testing.T) {
	if last := history().Last(); last.N != 2 {
		t.Errorf("Last() = %d, want 2", last.N)
	}
	if last := (History{}).Last(); last.N != 0 {
		t.Errorf("Last() of nothing = %+v, want the zero value", last)
	}
	if got := history().Executed(); got != classify.ExecutedMaybe {
		t.Errorf("Executed() = %v, want the worst, maybe", got)
	}
}
