package sqlite

import (
	"context"
	"fmt"
	"time"

	"retryproxy/attempt"
	"retryproxy/journal"
)

// The history of calls. It is written by the same writer, in transactions of its
// own between those of records: what happens to it is no business of theirs. A row
// holds a block of calls: a row for each, with indexes to find it by, costs ten times
// as much.

var _ journal.Journal = (*Store)(nil)

const (
	insertBlock = "INSERT INTO call_blocks (id, calls, first, last, few, filter, marks, texts) VALUES (?,?,?,?,?,?,?,CAST(? AS TEXT))"
	dropBlock   = "DELETE FROM call_blocks WHERE id = ?"
	readBlock   = "SELECT marks, texts FROM call_blocks WHERE id = ?"
	newestBlock = "SELECT coalesce(max(id), 0) FROM call_blocks"

	countCalls    = "SELECT coalesce(sum(calls), 0) FROM call_blocks INDEXED BY call_blocks_time"
	oldBlocks     = "SELECT id, calls FROM call_blocks INDEXED BY call_blocks_time WHERE last < ? ORDER BY last LIMIT ?"
	firstBlocks   = "SELECT id, calls FROM call_blocks ORDER BY id LIMIT ?"
	straddling    = "SELECT id, calls FROM call_blocks INDEXED BY call_blocks_time WHERE last >= ? AND first < ? LIMIT 1"
	countFewCalls = "SELECT coalesce(sum(calls), 0) FROM call_blocks INDEXED BY call_blocks_few WHERE few = 1"
	fewBlocks     = "SELECT id, calls FROM call_blocks INDEXED BY call_blocks_few WHERE few = 1 ORDER BY id LIMIT ?"
)

// mostDropped is how many blocks a sweep takes out in one transaction.
const mostDropped = 8

// Note implements journal.Journal.
func (s *Store) Note(ctx context.Context, calls []*attempt.Summary) error {
	if len(calls) == 0 {
		return nil
	}
	blocks := s.blocksOf(calls)
	err := s.send(ctx, s.notes, func(w *writer) error { return w.insertBlocks(blocks, len(calls)) })
	for _, b := range blocks {
		s.blocks.Put(b)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", journal.ErrUnavailable, err)
	}
	return nil
}

// blocksOf makes blocks of calls.
func (s *Store) blocksOf(calls []*attempt.Summary) (out []*block) {
	number := s.noted.Add(int64(len(calls))) - int64(len(calls))
	var b *block
	for _, c := range calls {
		if b == nil || b.full() {
			b = s.blocks.Get().(*block).emptied()
			out = append(out, b)
		}
		number++
		b.note(number, c)
	}
	return out
}

// insertBlocks adds blocks with as many calls. Those that have to go for them go in
// the same transaction: then each page is written once, not twice.
func (w *writer) insertBlocks(blocks []*block, calls int) error {
	if most := w.store.bounds().Calls; most > 0 {
		w.dropSurplus(w.tally.calls + calls - most)
	}
	for _, b := range blocks {
		if err := w.insertBlock(b); err != nil {
			return err
		}
	}
	return nil
}

// insertBlock adds a row.
func (w *writer) insertBlock(b *block) error {
	w.tally.calls += b.calls
	return w.exec(insertBlock, b.columns()...)
}

// forgetCalls deletes some of the calls that are too old or too many, and says
// whether there are more. What fails ends the transaction.
func (w *writer) forgetCalls(now time.Time) (more bool) {
	bounds := w.store.bounds()
	until := now.Add(-bounds.Keep)
	n := w.dropBlocks(w.blocks(oldBlocks, timeText(until), mostDropped))
	// A block that lies on both sides is not written anew for every call of it.
	late := until.Add(-min(bounds.Keep/16, time.Hour))
	for _, b := range w.blocks(straddling, timeText(until), timeText(late)) {
		n += mostDropped
		w.cutBlock(b, func(_ int, m *mark) bool { return m.ended >= until.UnixNano() })
	}
	if bounds.Calls > 0 && n < mostDropped {
		n += w.forgetSurplus(bounds.Calls)
	}
	return n >= mostDropped
}

// forgetSurplus deletes some of the calls beyond the newest, and says how many blocks.
func (w *writer) forgetSurplus(most int) int {
	dropped, surplus, first := w.dropSurplus(w.tally.calls - most)
	if first.calls > 0 && surplus >= min(first.calls/4, most/100) {
		w.cutBlock(first, func(i int, _ *mark) bool { return i >= surplus })
	}
	return dropped
}

// dropSurplus deletes the first blocks whose calls are too many. It says how many
// blocks, how many calls are still too many, and which block these are in.
func (w *writer) dropSurplus(surplus int) (dropped, left int, first blockRow) {
	if surplus <= 0 {
		return 0, 0, blockRow{}
	}
	blocks := w.blocks(firstBlocks, mostDropped)
	for len(blocks) > dropped && blocks[dropped].calls <= surplus {
		surplus -= blocks[dropped].calls
		dropped++
	}
	w.dropBlocks(blocks[:dropped])
	if len(blocks) > dropped && surplus > 0 {
		first = blocks[dropped]
	}
	return dropped, surplus, first
}

// mergeCalls puts blocks of few calls together once they have enough, and says
// whether it did.
func (w *writer) mergeCalls() bool {
	if w.number(countFewCalls) < fewCalls {
		return false
	}
	var into block
	few := w.blocks(fewBlocks, fewCalls)
	for i := range few {
		if into.full() {
			few = few[:i]
			break
		}
		w.copyBlock(&into, few[i].id, func(int, *mark) bool { return true })
	}
	w.dropBlocks(few)
	return w.broken == nil && into.calls > 0 && w.insertBlock(&into) == nil
}

// cutBlock keeps some calls of a block.
func (w *writer) cutBlock(b blockRow, keep func(i int, m *mark) bool) {
	var into block
	w.copyBlock(&into, b.id, keep)
	w.dropBlocks([]blockRow{b})
	if w.broken == nil && into.calls > 0 {
		_ = w.insertBlock(&into) // an error ends the transaction
	}
}

// copyBlock copies some calls of a block. What of it cannot be read is lost.
func (w *writer) copyBlock(into *block, id int64, keep func(i int, m *mark) bool) {
	st, err := w.prepared(readBlock)
	var marks []byte
	var texts string
	if err == nil {
		err = st.QueryRowContext(unending, id).Scan(&marks, &texts)
	}
	if err != nil {
		_ = w.fail(err)
		return
	}
	i := 0
	err = eachCall(marks, texts, func(m *mark, text string) {
		if keep(i, m) {
			into.take(m, text)
		}
		i++
	})
	if err != nil {
		w.store.spoilt(id, err)
	}
}

// spoilt tells the operator that somebody changed the file.
func (s *Store) spoilt(block int64, err error) {
	s.bounds().Log("calls of the history cannot be read", "file", s.path, "block", block, "error", err)
}

// blockRow is a block as retention sees it.
type blockRow struct {
	id    int64
	calls int
}

// blocks gives the blocks of a query.
func (w *writer) blocks(query string, args ...any) (out []blockRow) {
	st, err := w.prepared(query)
	if err != nil {
		_ = w.fail(err)
		return nil
	}
	rows, err := st.QueryContext(unending, args...)
	if err != nil {
		_ = w.fail(err)
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var b blockRow
		if err := rows.Scan(&b.id, &b.calls); err != nil {
			_ = w.fail(err)
			return nil
		}
		out = append(out, b)
	}
	_ = w.fail(rows.Err())
	return out
}

// number is the result of a query of one.
func (w *writer) number(query string) (n int) {
	st, err := w.prepared(query)
	if err == nil {
		err = st.QueryRowContext(unending).Scan(&n)
	}
	_ = w.fail(err)
	return n
}

// dropBlocks deletes blocks, and says how many.
func (w *writer) dropBlocks(blocks []blockRow) int {
	for _, b := range blocks {
		if w.exec(dropBlock, b.id) != nil {
			break
		}
		w.tally.calls -= b.calls
	}
	return len(blocks)
}
