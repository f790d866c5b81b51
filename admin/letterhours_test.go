package admin

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"retryproxy/deadletter"
	"retryproxy/idempotency"
)

// madeAt is a letter that was given up then, and changed later.
func madeAt(reason string, at, changed time.Time) idempotency.Record {
	return idempotency.Record{
		State: idempotency.StateDead, Reason: reason, Updated: changed,
		Runs: []idempotency.Run{{Started: at.Add(-time.Minute), Ended: at}},
	}
}

func TestLetterHours(t *testing.T) {
	now := time.Now()
	begins := now.Truncate(time.Hour)
	letters := []idempotency.Record{
		madeAt("manual_review", begins.Add(-time.Hour), now),
		madeAt("manual_review", begins.Add(-time.Nanosecond), now),
		madeAt("manual_review", begins, now),
		madeAt("attempts_exhausted", now, now),
		madeAt("attempts_exhausted", begins.Add(-2*time.Hour), now),
		madeAt("attempts_exhausted", begins.Add(-2*time.Hour-1), now), // made before, and changed since
		madeAt("attempts_exhausted", now.Add(2*time.Hour), now),       // by a replica whose clock is ahead
	}
	d := newFake().deps()
	var asked deadletter.Filter
	d.Letters.Each = func(_ context.Context, f deadletter.Filter, do func(*idempotency.Record) error) error {
		asked = f
		for i := range letters {
			if err := do(&letters[i]); err != nil {
				return err
			}
		}
		return nil
	}
	status, _, body := exchange(t, New(d), "GET", "/api/v1/deadletters/hours?hours=3", "")
	var got letterHours
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	start := begins.Add(-2 * time.Hour)
	if !got.Start.Equal(start) || got.Step != 3600 || !asked.Since.Equal(start) {
		t.Errorf("from %s in steps of %d s, asked since %s, want from %s", got.Start, got.Step, asked.Since, start)
	}
	if diff := cmp.Diff(map[string][]int{"manual_review": {0, 2, 1}, "attempts_exhausted": {1, 0, 2}}, got.Reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	for path, want := range map[string]string{"hours?hours=0": "1 to 720", "hours?hours=721": "1 to 720", "hours?hours=x": `not \"x\"`} {
		if status, _, body := exchange(t, New(d), "GET", "/api/v1/deadletters/"+path, ""); status != 400 || !strings.Contains(body, want) {
			t.Errorf("%s = %d %s, want 400 and %s", path, status, body, want)
		}
	}
	d.Letters.Each = func(context.Context, deadletter.Filter, func(*idempotency.Record) error) error {
		return deadletter.ErrNotKept
	}
	if status, _, body := exchange(t, New(d), "GET", "/api/v1/deadletters/hours", ""); status != 409 || !strings.Contains(body, "not_kept") {
		t.Errorf("without a durable store = %d %s, want 409 not_kept", status, body)
	}
}
