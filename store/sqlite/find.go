package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"retryproxy/journal"
)

const (
	listBlocks = "SELECT id, last, x'' FROM call_blocks INDEXED BY call_blocks_time WHERE last >= ? AND first <= ? ORDER BY last DESC"
	listFilter = "SELECT id, last, filter FROM call_blocks INDEXED BY call_blocks_time WHERE last >= ? AND first <= ? ORDER BY last DESC"
	readMarks  = "SELECT marks FROM call_blocks WHERE id = ?"
	readTexts  = "SELECT texts FROM call_blocks WHERE id = ?"
)

// Find implements journal.Journal. It goes through the blocks, the newest first: of
// most of them the filter says that they have nothing, of the others the marks say
// which texts are worth reading.
func (s *Store) Find(ctx context.Context, q journal.Query) (found []journal.Entry, more bool, err error) {
	if q.State != "" && q.State != "done" {
		return nil, false, nil
	}
	f, err := findingFor(&q)
	if err != nil {
		return nil, false, err
	}
	tx, err := s.finder.BeginTx(ctx, nil) // blocks are put together meanwhile
	if err != nil {
		return nil, false, findError(err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := f.search(ctx, s, tx); err != nil {
		return nil, false, findError(err)
	}
	for i := range f.found {
		if len(found) == q.Most() {
			return found, true, nil
		}
		c, err := parseCall([]byte(f.found[i].text))
		if err != nil {
			s.spoilt(f.found[i].block, err)
			continue
		}
		if f.exact.Wants(c, c.Ended) {
			found = append(found, journal.Entry{Summary: c, Place: f.found[i].place.text()})
		}
	}
	return found, false, nil
}

func findError(err error) error { return fmt.Errorf("%w: %w", journal.ErrUnavailable, err) }

// callPlace is where a call stands in the history.
type callPlace struct{ ended, number int64 }

// text is the place as Query.After has it.
func (p callPlace) text() string { return fmt.Sprintf("%d.%d", p.ended, p.number) }

func parseCallPlace(text string) (p callPlace, err error) {
	at, id, ok := strings.Cut(text, ".")
	ns, err1 := strconv.ParseInt(at, 10, 64)
	n, err2 := strconv.ParseInt(id, 10, 64)
	if err := errors.Join(err1, err2); !ok || err != nil {
		return p, fmt.Errorf("%w: %q", journal.ErrCursor, text)
	}
	return callPlace{ns, n}, nil
}

// order puts the newest call first.
func (p callPlace) order(other callPlace) int {
	return cmp.Or(cmp.Compare(other.ended, p.ended), cmp.Compare(other.number, p.number))
}

// finding is a search under way.
type finding struct {
	wanted [][]uint64    // hashes, see hashesOf
	exact  journal.Query // what is looked at in the text, as hashes can be the same by chance
	since  int64         // ns since 1970, as in marks
	behind callPlace     // the first place that is too new
	most   int
	found  []foundCall // the newest of those seen, in their order
}

type foundCall struct {
	place    callPlace
	block    int64
	at, size int // of its text in those of its block
	text     string
}

func findingFor(q *journal.Query) (*finding, error) {
	f := &finding{wanted: hashesOf(q), exact: *q, since: nanos(q.Since), behind: callPlace{math.MaxInt64, math.MaxInt64}, most: q.Most() + 1}
	f.exact.Words = nil // nothing but their hashes is kept
	if !q.Until.IsZero() {
		f.behind = callPlace{max(nanos(q.Until), math.MinInt64+1) - 1, math.MaxInt64} // no call has this number
	}
	if q.After == "" {
		return f, nil
	}
	p, err := parseCallPlace(q.After)
	if err == nil && p.order(f.behind) > 0 {
		f.behind = p
	}
	return f, err
}

// search goes through the blocks until nothing newer can come.
func (f *finding) search(ctx context.Context, s *Store, tx *sql.Tx) error {
	query := listBlocks
	if len(f.wanted) > 0 {
		query = listFilter
	}
	rows, err := tx.QueryContext(ctx, query, stamp(f.since), stamp(f.behind.ended))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var last string
		var filter filter
		if err := rows.Scan(&id, &last, (*sql.RawBytes)(&filter)); err != nil {
			return err
		}
		if len(f.found) == f.most && stamp(f.found[f.most-1].place.ended) > last {
			return nil
		}
		if !filter.mayHave(f.wanted) {
			continue
		}
		if err := f.look(ctx, s, tx, id); err != nil {
			return err
		}
	}
	return rows.Err()
}

// look takes what is wanted of a block. What cannot be read is not there.
func (f *finding) look(ctx context.Context, s *Store, tx *sql.Tx, id int64) error {
	var marks []byte
	if err := tx.QueryRowContext(ctx, readMarks, id).Scan(&marks); err != nil {
		return err
	}
	new, err := f.matches(id, marks)
	if len(new) > 0 {
		var texts string
		if err := tx.QueryRowContext(ctx, readTexts, id).Scan(&texts); err != nil {
			return err
		}
		err = errors.Join(err, f.keep(new, texts))
	}
	if err != nil {
		s.spoilt(id, err)
	}
	return nil
}

// matches are the calls of a block that are wanted, as far as can be told without
// their texts.
func (f *finding) matches(id int64, marks []byte) (out []foundCall, err error) {
	for at := 1; len(marks) > 0; {
		var m mark
		if m, marks, err = nextMark(marks); err != nil {
			return out, err
		}
		p := callPlace{m.ended, m.number}
		if m.ended >= f.since && f.behind.order(p) < 0 && f.hasRoom(p) && m.has(f.wanted) {
			out = append(out, foundCall{place: p, block: id, at: at, size: m.size})
		}
		at += m.size + 1 // a comma or ]
	}
	return out, nil
}

// hasRoom says that a call is among the newest so far.
func (f *finding) hasRoom(p callPlace) bool {
	return len(f.found) < f.most || p.order(f.found[f.most-1].place) < 0
}

// keep puts calls of a block among those that were found.
func (f *finding) keep(new []foundCall, texts string) error {
	for i := range new {
		c := &new[i]
		if c.at+c.size >= len(texts) {
			return errMarks
		}
		c.text = strings.Clone(texts[c.at : c.at+c.size]) // the rest of the block is not kept
		f.found = append(f.found, *c)
	}
	slices.SortFunc(f.found, func(a, b foundCall) int { return a.place.order(b.place) })
	f.found = f.found[:min(len(f.found), f.most)]
	return nil
}
