package deadletter

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"retryproxy/attempt"
)

// Formats of an export.
const (
	JSONL = "jsonl" // one View a line
	CSV   = "csv"   // for people: one line a letter, without attempts and answers
)

// Exporter writes letters one by one. Close ends it.
type Exporter struct {
	write func(*View) error
	end   func() error
}

// NewExporter writes in a format. Errors: ErrInput.
func NewExporter(format string, w io.Writer) (*Exporter, error) {
	switch format {
	case JSONL:
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return &Exporter{func(v *View) error { return e.Encode(v) }, func() error { return nil }}, nil
	case CSV:
		c := csv.NewWriter(w)
		e := &Exporter{func(v *View) error { return c.Write(row(v)) }, func() error { c.Flush(); return c.Error() }}
		return e, c.Write(columns)
	}
	return nil, wrong("format", "want %s or %s, not %q", JSONL, CSV, format)
}

// Write writes a letter.
func (e *Exporter) Write(v *View) error { return e.write(v) }

// Close writes what was held back.
func (e *Exporter) Close() error { return e.end() }

// columns are those of the CSV. New ones come last.
var columns = []string{
	"id", "state", "since", "reason", "executed", "todo", "method", "host", "path", "shop", "shop_tier", "task_type", "policy", "tenant",
	"key_hash", "attempts", "last_status", "last_reason", "last_upstream_request_id", "next_at", "expires", "last_note_by", "last_note", "advice", "key",
	"request_url", "request_body",
}

func row(v *View) []string {
	var last attempt.FullView
	if n := len(v.Attempts); n > 0 {
		last = v.Attempts[n-1]
	}
	var note NoteView
	if n := len(v.Notes); n > 0 {
		note = v.Notes[n-1]
	}
	cells := []string{
		v.ID, v.State, dateText(&v.Since), v.Reason, v.Executed, v.Todo, v.Method, v.Host, v.Path, v.Labels.Shop, v.Labels.ShopTier, v.Labels.TaskType, v.Policy, v.Tenant,
		v.KeyHash, strconv.Itoa(v.Made), strconv.Itoa(v.Status), last.Reason, last.UpstreamID, dateText(v.NextAt), dateText(v.Expires), note.By, note.Text, v.Advice, v.Key,
	}
	cells = append(cells, requestCells(v.Request)...)
	for i := range cells {
		cells[i] = Inert(cells[i])
	}
	return cells
}

// longestCell is how much of a body a cell holds, in bytes.
const longestCell = 4 << 10

// requestCells are address and body of a request that was revealed.
func requestCells(r *RequestView) []string {
	switch {
	case r == nil:
		return []string{"", ""}
	case r.Body == nil:
		return []string{r.URL, ""}
	}
	body := r.Body.Text
	if r.Body.Base64 != "" {
		body = "base64:" + r.Body.Base64
	}
	if len(body) > longestCell {
		body = strings.ToValidUTF8(body[:longestCell], "") + "…"
	}
	return []string{r.URL, body}
}

// Inert keeps a spreadsheet from taking a cell for a formula, and a terminal from
// being steered: clients and upstreams chose some of the texts.
func Inert(cell string) string {
	formula := cell != "-" && strings.IndexAny(cell, "=+-@\t\r\n") == 0
	cell = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, cell)
	if formula {
		return "'" + cell
	}
	return cell
}

func dateText(at *time.Time) string {
	if at == nil || at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}
