package sqlite

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"retryproxy/attempt"
	"retryproxy/journal"
)

// Bounds of a block.
const (
	fewCalls  = 256     // a block of fewer is put together with others
	mostCalls = 2048    // in one that was put together
	mostTexts = 1 << 20 // bytes of texts after which none is added
)

// block is some calls of the history, as a row of call_blocks has them.
type block struct {
	id          int64 // number of its last call: calls are numbered as they are noted
	calls       int
	first, last int64  // when the first and the last of them ended, in ns since 1970
	marks       []byte // of each call what appendMark says
	texts       []byte // JSON: a list of them
	hashes      int    // in marks
	room        []byte // for those of a call
}

// emptied is the block without calls, its room kept.
func (b *block) emptied() *block {
	*b = block{marks: b.marks[:0], texts: b.texts[:0], room: b.room}
	return b
}

func (b *block) full() bool { return b.calls >= mostCalls || len(b.texts) >= mostTexts }

// few says that it is to be put together with others.
func (b *block) few() bool { return b.calls < fewCalls && len(b.texts) < mostTexts }

// mark is what is known of a call without reading its text.
type mark struct {
	number int64
	ended  int64  // in ns since 1970
	size   int    // of its text
	hashes []byte // 8 bytes each: what it can be found by
}

var errMarks = errors.New("the marks of a block are damaged")

// nextMark takes the first mark.
func nextMark(marks []byte) (m mark, rest []byte, err error) {
	var in [4]int64
	for i := range in {
		n, size := binary.Varint(marks)
		if size <= 0 {
			return m, nil, errMarks
		}
		in[i], marks = n, marks[size:]
	}
	if in[2] < 0 || in[3] < 0 || in[3] > int64(len(marks)/8) {
		return m, nil, errMarks
	}
	return mark{in[0], in[1], int(in[2]), marks[:8*in[3]]}, marks[8*in[3]:], nil
}

func appendMark(out []byte, m *mark) []byte {
	out = binary.AppendVarint(binary.AppendVarint(out, m.number), m.ended)
	out = binary.AppendVarint(binary.AppendVarint(out, int64(m.size)), int64(len(m.hashes)/8))
	return append(out, m.hashes...)
}

// has says whether a call can be found by all of what is wanted, in one of its
// hashes each.
func (m *mark) has(wanted [][]uint64) bool {
	for _, any := range wanted {
		if !slices.ContainsFunc(any, m.hash) {
			return false
		}
	}
	return true
}

func (m *mark) hash(h uint64) bool {
	for at := 0; at < len(m.hashes); at += 8 {
		if binary.LittleEndian.Uint64(m.hashes[at:]) == h {
			return true
		}
	}
	return false
}

// note adds a call that ended.
func (b *block) note(number int64, c *attempt.Summary) {
	b.room = appendHashes(b.room[:0], c)
	m := mark{number: number, ended: nanos(c.Ended), hashes: b.room}
	at := b.begin()
	b.texts = appendCall(b.texts, c)
	b.texts = b.texts[:len(b.texts)-1] // its comma
	m.size = len(b.texts) - at
	b.end(&m)
}

// take adds a call of another block.
func (b *block) take(m *mark, text string) {
	b.begin()
	b.texts = append(b.texts, text...)
	b.end(m)
}

// begin gives where the text of the next call begins.
func (b *block) begin() int {
	if b.calls == 0 {
		b.texts = append(b.texts[:0], '[')
	} else {
		b.texts[len(b.texts)-1] = ','
	}
	return len(b.texts)
}

// end counts the call whose text was added.
func (b *block) end(m *mark) {
	b.texts = append(b.texts, ']')
	b.marks = appendMark(b.marks, m)
	b.hashes += len(m.hashes) / 8
	if b.calls == 0 {
		b.first, b.last = m.ended, m.ended
	}
	b.calls++
	b.id, b.first, b.last = max(b.id, m.number), min(b.first, m.ended), max(b.last, m.ended)
}

// columns are those of insertBlock.
func (b *block) columns() []any {
	few := 0
	if b.few() {
		few = 1
	}
	return []any{b.id, b.calls, stamp(b.first), stamp(b.last), few, []byte(b.filter()), b.marks, b.texts}
}

// filter has all hashes of the block. Its marks are its own.
func (b *block) filter() filter {
	f := makeFilter(b.hashes)
	for marks := b.marks; len(marks) > 0; {
		m, rest, err := nextMark(marks)
		if err != nil {
			panic("bug: " + err.Error())
		}
		for at := 0; at < len(m.hashes); at += 8 {
			f.add(binary.LittleEndian.Uint64(m.hashes[at:]))
		}
		marks = rest
	}
	return f.folded()
}

// eachCall gives the calls of a block and their texts, as they were noted.
func eachCall(marks []byte, texts string, do func(m *mark, text string)) error {
	for at := 1; len(marks) > 0; {
		m, rest, err := nextMark(marks)
		if err != nil || at+m.size >= len(texts) {
			return errMarks
		}
		do(&m, texts[at:at+m.size])
		at, marks = at+m.size+1, rest // a comma or ]
	}
	return nil
}

// What calls are found by beside their terms. The numbers are in files.
type field uint64

const (
	byID field = iota + 1
	byKey
	byShop
	byTask
	byHost
	byResult
	byReason
)

// hash is what a call with this value can be found by: FNV-1a of the field and the
// value. It may be that of another value by chance; the text of the call tells.
func (f field) hash(value string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := (offset ^ uint64(f)) * prime
	for i := range len(value) {
		h = (h ^ uint64(value[i])) * prime
	}
	return h
}

// appendHashes gives what a call can be found by.
func appendHashes(out []byte, c *attempt.Summary) []byte {
	add := func(f field, value string) {
		if value != "" {
			out = binary.LittleEndian.AppendUint64(out, f.hash(value))
		}
	}
	add(byID, c.ID)
	add(byKey, c.KeyHash)
	add(byShop, c.Labels.Shop)
	add(byTask, c.Labels.TaskType)
	add(byHost, c.Host)
	if port := strings.LastIndexByte(c.Host, ':'); port > 0 {
		add(byHost, c.Host[:port])
	}
	add(byResult, c.Result)
	add(byReason, c.Reason)
	for i := range c.Attempts {
		if reason := c.Attempts[i].Verdict.Reason; i == 0 || reason != c.Attempts[i-1].Verdict.Reason {
			add(byReason, reason)
		}
	}
	for _, term := range c.Terms {
		out = binary.LittleEndian.AppendUint64(out, term)
	}
	return out
}

// hashesOf are the hashes that calls have which a query wants, one of each list.
func hashesOf(q *journal.Query) [][]uint64 {
	out := slices.Clone(q.Words)
	for _, x := range [...]struct {
		f     field
		value string
	}{{byID, q.CallID}, {byKey, q.KeyHash}, {byShop, q.Shop}, {byTask, q.TaskType}, {byHost, q.Host}, {byResult, q.Result}, {byReason, q.Reason}} {
		if x.value != "" {
			out = append(out, []uint64{x.f.hash(x.value)})
		}
	}
	return out
}

// nanos is a time in ns since 1970, within what has room.
func nanos(t time.Time) int64 {
	const most = math.MaxInt64 / 1_000_000_000
	switch s := t.Unix(); {
	case s <= -most:
		return math.MinInt64
	case s >= most:
		return math.MaxInt64
	}
	return t.UnixNano()
}

// stamp is a time as a column, of what nanos gave.
func stamp(ns int64) string { return timeText(time.Unix(0, ns)) }
