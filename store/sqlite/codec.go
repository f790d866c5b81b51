package sqlite

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"retryproxy/attempt"
	"retryproxy/idempotency"
	"retryproxy/message"
	"retryproxy/store/codec"
)

// layout is how times look in the file: UTC, of fixed width, so that their
// order as text is their order.
const layout = "2006-01-02T15:04:05.000000000Z"

func timeText(t time.Time) string { return string(appendTime(nil, t)) }

// appendTime is quicker than AppendFormat with the layout, which it knows nothing of.
func appendTime(out []byte, t time.Time) []byte {
	out = t.UTC().AppendFormat(out, time.RFC3339)
	out[len(out)-1] = '.' // the Z
	ns := uint(t.Nanosecond())
	for unit := uint(100_000_000); unit > 0; unit /= 10 {
		out = append(out, '0'+byte(ns/unit%10))
	}
	return append(out, 'Z')
}

// timeOrNull is a time as a column; the zero time is NULL.
func timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return timeText(t)
}

// parseTime reads a column; NULL came as the empty text.
func parseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	return time.Parse(layout, s)
}

// Writing is on the way of every call and done by hand, in the names of codec;
// reading is rare.

func runsText(runs []idempotency.Run) string {
	out := make(object, 0, 128*len(runs)+2)
	for i := range runs {
		r := &runs[i]
		out = append(out, ",{"...).text("call_id", r.CallID).text("client_id", r.ClientID).text("kind", string(r.Kind)).time("started", r.Started).time("ended", r.Ended).
			number("first", int64(r.First)).text("reason", r.Reason).text("supplier", r.Supplier.Name).text("order_no", r.Supplier.OrderNo).text("trace", r.Trace).end()
	}
	return out.list()
}

func parseRuns(text string) ([]idempotency.Run, error) {
	in, err := parseList[codec.Run](text)
	return codec.Runs(in), err
}

func notesText(notes []idempotency.Note) string {
	if len(notes) == 0 {
		return "[]"
	}
	out := make(object, 0, 128*len(notes)+2)
	for i := range notes {
		n := &notes[i]
		out = append(out, ",{"...).time("at", n.At).text("by", n.By).text("did", n.Did).text("text", n.Text).end()
	}
	return out.list()
}

func parseNotes(text string) ([]idempotency.Note, error) {
	in, err := parseList[codec.Note](text)
	return codec.Notes(in), err
}

// parseList reads a list in JSON.
func parseList[T any](text string) (in []T, err error) {
	if text == "[]" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(text), &in)
	return in, err
}

// termsBlob has 8 bytes for each term; NULL: there are none.
func termsBlob(terms []uint64) any {
	if len(terms) == 0 {
		return nil
	}
	out := make([]byte, 0, 8*len(terms))
	for _, t := range terms {
		out = binary.BigEndian.AppendUint64(out, t)
	}
	return out
}

func parseTerms(b []byte) []uint64 {
	var out []uint64
	for ; len(b) >= 8; b = b[8:] {
		out = append(out, binary.BigEndian.Uint64(b))
	}
	return out
}

// textOrNull is a text as a column; the empty one is NULL.
func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func historyText(h attempt.History) string {
	out := make(object, 0, 384*len(h)+2)
	for i := range h {
		a, v := &h[i], &h[i].Verdict
		out = append(out, ",{"...).number("n", int64(a.N)).number("count", int64(a.Count)).time("started", a.Started).
			number("duration_ns", int64(a.Duration)).text("host", a.Host).number("status", int64(a.Status)).
			text("class", v.Class.String()).text("reason", v.Reason).text("basis", string(v.Basis)).text("executed", v.Executed.String()).
			text("detail", a.Detail).number("delay_ns", int64(a.Delay)).text("cause", a.Cause).number("retry_after_ns", int64(v.RetryAfter)).
			flag("host_fault", v.HostFault).flag("alive", v.Alive).flag("egress_fault", v.EgressFault).
			text("egress", a.Egress).flag("reused", a.Reused).text("upstream_id", a.UpstreamID).text("supplier", a.Supplier).end()
	}
	return out.list()
}

// object is JSON in the making: a list of objects. Members that are zero are
// left out.
type object []byte

func (o object) name(name string) object {
	if o[len(o)-1] != '{' {
		o = append(o, ',')
	}
	return append(append(append(o, '"'), name...), `":`...)
}

func (o object) text(name, value string) object {
	if value == "" {
		return o
	}
	return appendString(o.name(name), value)
}

func (o object) number(name string, n int64) object {
	if n == 0 {
		return o
	}
	return strconv.AppendInt(o.name(name), n, 10)
}

func (o object) flag(name string, on bool) object {
	if !on {
		return o
	}
	return append(o.name(name), "true"...)
}

func (o object) time(name string, t time.Time) object {
	if t.IsZero() {
		return o
	}
	return append(appendTime(append(o.name(name), '"'), t), '"')
}

func (o object) end() object { return append(o, '}') }

// list ends what began with a comma.
func (o object) list() string {
	if len(o) == 0 {
		return "[]"
	}
	o[0] = '['
	return string(append(o, ']'))
}

func parseHistory(text string) (attempt.History, error) {
	in, err := parseList[codec.Attempt](text)
	if err != nil {
		return nil, err
	}
	return codec.History(in)
}

// fieldsText is a list of lines, [name, value] each. One that is not UTF-8 has
// its bytes in base64 behind what a person can read.
func fieldsText(f message.Fields) string {
	out := make(object, 0, 48*len(f))
	for i := range f {
		out = append(appendString(append(out, ",["...), f[i].Name), ',')
		out = appendString(out, f[i].Value)
		if !utf8.ValidString(f[i].Name) || !utf8.ValidString(f[i].Value) {
			out = fmt.Appendf(out, `,"%s","%s"`, base64.StdEncoding.EncodeToString([]byte(f[i].Name)), base64.StdEncoding.EncodeToString([]byte(f[i].Value)))
		}
		out = append(out, ']')
	}
	return out.list()
}

// appendString appends a JSON string. Nearly all need no escape.
func appendString[T ~[]byte](out T, s string) T {
	var all byte
	for i := range len(s) {
		if all |= s[i]; s[i] < ' ' || s[i] == '"' || s[i] == '\\' {
			return appendEscaped(out, s)
		}
	}
	if all >= utf8.RuneSelf && !utf8.ValidString(s) {
		return appendEscaped(out, s)
	}
	return append(append(append(out, '"'), s...), '"')
}

func appendEscaped[T ~[]byte](out T, s string) T {
	text, err := json.Marshal(s)
	if err != nil {
		panic("bug: a text that is no JSON: " + err.Error())
	}
	return append(out, text...)
}

func parseFields(text string) (message.Fields, error) {
	if text == "[]" || text == "" {
		return nil, nil
	}
	var in [][]string
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return nil, err
	}
	out := make(message.Fields, len(in))
	for i, line := range in {
		switch len(line) {
		case 2:
			out[i] = message.Field{Name: line[0], Value: line[1]}
		case 4:
			name, err1 := base64.StdEncoding.DecodeString(line[2])
			value, err2 := base64.StdEncoding.DecodeString(line[3])
			if err1 != nil || err2 != nil {
				return nil, fmt.Errorf("field %q is no base64", line[0])
			}
			out[i] = message.Field{Name: string(name), Value: string(value)}
		default:
			return nil, fmt.Errorf("a field of %d parts", len(line))
		}
	}
	return out, nil
}
