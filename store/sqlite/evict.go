package sqlite

import (
	"time"

	"retryproxy/idempotency"
	"retryproxy/store/codec"
)

// victim is a row that goes, or its answer.
type victim struct {
	row
	expires string
	updated string
}

const (
	victims    = "SELECT id, tenant, state, past, coalesce(answer, 0), bytes, coalesce(expires, ''), updated FROM records INDEXED BY records_life WHERE "
	oldestPast = victims + "past = 1 ORDER BY expires LIMIT ?"
	oldest     = victims + "past = 0 AND expires IS NOT NULL AND (state NOT IN ('in_doubt', 'dead') OR expires <= ?) ORDER BY expires LIMIT ?"
	ofPast     = victims + "past = 1 AND tenant = ? ORDER BY expires LIMIT ?"
	ofTenant   = victims + "past = 0 AND expires IS NOT NULL AND (state NOT IN ('in_doubt', 'dead') OR expires <= ?) AND tenant = ? ORDER BY expires LIMIT ?"
	expired    = victims + "past = 0 AND expires <= ? AND state <> 'in_doubt' ORDER BY expires LIMIT ?" // one in doubt becomes a letter first
	gone       = victims + "past = 1 AND expires <= ? ORDER BY expires LIMIT ?"

	oldestAnswers = `SELECT r.id, r.tenant, r.state, r.past, a.id, r.bytes, coalesce(r.expires, ''), r.updated
  FROM (SELECT id, record FROM answers ORDER BY id LIMIT ?) a JOIN records r ON r.id = a.record`
	dropRecord  = "DELETE FROM records WHERE id = ?"
	stripRecord = "UPDATE records SET past = 1, expires = ?, answer = NULL, bytes = 0, version = version + 1 WHERE id = ?"
	stripAnswer = "UPDATE records SET answer = NULL, bytes = 0, version = version + 1 WHERE id = ? AND answer = ?"
)

func (w *writer) victims(query string, args ...any) ([]victim, error) {
	st, err := w.prepared(query)
	if err != nil {
		return nil, w.fail(err)
	}
	rows, err := st.QueryContext(unending, args...)
	if err != nil {
		return nil, w.fail(err)
	}
	defer rows.Close()
	var out []victim
	for rows.Next() {
		var v victim
		var state string
		if err := rows.Scan(&v.id, &v.rec.Tenant, &state, &v.past, &v.answer, &v.bytes, &v.expires, &v.updated); err != nil {
			return nil, w.fail(err)
		}
		if v.rec.State, err = codec.State(state); err != nil {
			return nil, w.fail(err)
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		return nil, w.fail(err)
	}
	return out, nil
}

// remove deletes a row with all that belongs to it.
func (w *writer) remove(v *victim) error {
	if err := w.forgetAnswer(&v.row); err != nil {
		return err
	}
	w.tally.add(&v.row, -1)
	return w.exec(dropRecord, v.id) // its request goes with it
}

// early counts what goes before its time.
func (w *writer) early(v *victim, now time.Time) {
	if !v.past && v.expires > timeText(now) {
		w.tally.note(entry{early: 1})
	}
}

// roomFor says that one more row of the tenant fits.
func (w *writer) roomFor(tenant string) bool {
	limit := w.store.bounds().Entries
	return limit == 0 || w.tally.tenants != nil && w.tally.rows < limit && w.tally.tenants[tenant] < max(1, limit/2)
}

// makeRoom sees to it that one more row of the tenant fits. It fails with
// ErrFull when nothing may go.
func (w *writer) makeRoom(tenant string, now time.Time) error {
	limit := w.store.bounds().Entries
	if limit == 0 {
		return nil
	}
	if w.tally.tenants == nil { // the bound came with Configure
		if err := w.tally.countTenants(unending, w.conn); err != nil {
			return w.fail(err)
		}
	}
	if share := max(1, limit/2); w.tally.tenants[tenant] >= share {
		if err := w.evict(w.tally.tenants[tenant]-share, share, now, tenant); err != nil {
			return err
		}
	}
	if w.tally.rows >= limit {
		return w.evict(w.tally.rows-limit, limit, now)
	}
	return nil
}

// evict makes room: at least for one, and for a few at once in a large store,
// as looking for them takes long; of one tenant when it is named.
func (w *writer) evict(over, limit int, now time.Time, tenant ...any) error {
	n := min(over, mostSwept) + 1 + min(limit/64, mostAhead/2) // the database has to be where the log is for it
	found, err := w.victims(map[bool]string{false: oldestPast, true: ofPast}[len(tenant) > 0], append(tenant, n)...)
	if err != nil {
		return err
	}
	if len(found) <= over {
		more, err := w.victims(map[bool]string{false: oldest, true: ofTenant}[len(tenant) > 0],
			append(append([]any{timeText(now)}, tenant...), n-len(found))...)
		if err != nil {
			return err
		}
		found = append(found, more...)
	}
	if len(found) == 0 {
		return idempotency.ErrFull
	}
	for i := range found {
		w.early(&found[i], now)
		if err := w.remove(&found[i]); err != nil {
			return err
		}
	}
	return nil
}

// shrink takes the oldest answers away until the rest fits; markers stay.
func (w *writer) shrink(now time.Time) error {
	limit := w.store.bounds().Bytes
	for limit > 0 && w.tally.bytes > limit {
		found, err := w.victims(oldestAnswers, 16)
		if err != nil || len(found) == 0 {
			return err
		}
		for i := range found {
			if w.tally.bytes <= limit {
				break
			}
			w.early(&found[i], now)
			if err := w.strip(&found[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// strip takes the answer of a record.
func (w *writer) strip(v *victim) error {
	if err := w.exec(dropAnswer, v.answer); err != nil {
		return err
	}
	w.tally.note(entry{bytes: -v.bytes})
	return w.exec(stripAnswer, v.id, v.answer)
}
