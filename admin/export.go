package admin

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"retryproxy/attempt"
	"retryproxy/deadletter"
	"retryproxy/journal"
)

// mostExported bounds an export of calls, and exportFor how long a client may take
// for a page of it, or a letter.
const (
	mostExported = 1_000_000
	exportFor    = 30 * time.Second
)

// exported are the columns of an export.
var exported = []string{
	"started", "ended", "call_id", "state", "result", "reason", "status", "executed", "attempts", "previous_attempts", "method", "scheme", "host", "path",
	"shop", "shop_tier", "task_type", "user", "client", "policy", "mode", "key_hash", "client_request_id", "traceparent",
	"upstream_request_ids", "duration_ms", "bytes", "story", "detail",
}

// exportCalls gives all calls that are asked for as CSV (RFC 4180), page by page.
func (s *server) exportCalls(w http.ResponseWriter, r *http.Request, q journal.Query) {
	left := mostExported
	if q.Limit > 0 {
		left = min(q.Limit, mostExported)
	}
	out := csv.NewWriter(w)
	for first := true; ; first = false {
		q.Limit = min(left, journal.MostLimit)
		calls, next, err := s.Find(r.Context(), q)
		switch {
		case err != nil && first:
			notFoundBy(w, err)
			return
		case err != nil:
			panic(http.ErrAbortHandler) // whoever reads must not take it for the whole
		case first:
			w.Header().Set("Content-Type", "text/csv; charset=utf-8; header=present")
			w.Header().Set("Content-Disposition", `attachment; filename="calls.csv"`)
			_ = out.Write(exported) // a client that left is no fault of ours
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(exportFor)) // a recorder in tests has none
		for _, c := range calls {
			_ = out.Write(s.row(c))
		}
		out.Flush()
		left -= len(calls)
		if next == "" || left == 0 || out.Error() != nil {
			return
		}
		q.After = next
	}
}

// row is a call as a line of an export.
func (s *server) row(c *attempt.Summary) []string {
	var ids, story []string
	for i := range c.Attempts {
		a := &c.Attempts[i]
		if a.UpstreamID != "" {
			ids = append(ids, a.UpstreamID)
		}
		story = append(story, fmt.Sprintf("%d %s %s", a.N, s.stamp(a.Started), a.Verdict.Reason))
	}
	row := []string{
		s.stamp(c.Started), s.stamp(c.Ended), c.ID, c.State, c.Result, c.Reason, strconv.Itoa(c.Status), c.Executed.String(),
		strconv.Itoa(len(c.Attempts)), strconv.Itoa(c.Previous), c.Method, c.Scheme, c.Host, c.Path,
		c.Labels.Shop, c.Labels.ShopTier, c.Labels.TaskType, c.User, c.Client, c.Policy, c.Mode, c.KeyHash, c.ClientID, c.Trace,
		strings.Join(ids, " "), strconv.FormatInt(c.Duration.Milliseconds(), 10), strconv.FormatInt(c.Bytes, 10), strings.Join(story, "; "), c.Detail,
	}
	for i := range row {
		row[i] = deadletter.Inert(row[i])
	}
	return row
}

// stamp is a time with its zone, as spreadsheets and people read it.
func (s *server) stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if s.Zone != nil {
		t = t.In(s.Zone())
	}
	return t.Format("2006-01-02T15:04:05.000Z07:00")
}
