package sqlite

import (
	"hash/maphash"

	"retryproxy/idempotency"
)

// Nearly all keys are new, and finding that out in the database takes longer than
// all else about a claim. So the writer has a Bloom filter of the keys that are there.
// It is read bit by bit between changes: at the start, and when so many keys came
// since that it lets too many through.

const (
	leastKnown   = 1 << 16 // keys
	bitsEach     = 10      // of a filter that is full: of 80 new keys one is looked for
	knownBits    = 4
	learntAtOnce = 200

	selectKeys = "SELECT tenant, key FROM records WHERE (tenant, key) > (?, ?) ORDER BY tenant, key LIMIT ?"
)

// known is a filter of keys.
type known struct {
	seed  maphash.Seed
	bits  []uint64
	keys  int // that were added
	room  int // for so many
	after idempotency.ID
}

// newKnown has room for twice as many keys as there are.
func newKnown(keys int) *known {
	room := max(2*keys, leastKnown)
	return &known{seed: maphash.MakeSeed(), bits: make([]uint64, (room*bitsEach+63)/64), room: room}
}

// each calls a function with the words and bits of a key until it says false.
func (k *known) each(id idempotency.ID, do func(word, bit uint64) bool) bool {
	h := maphash.Comparable(k.seed, id)
	a, b := h>>32, h&0xffffffff|1
	for i := range uint64(knownBits) {
		n := (a + i*b) % uint64(64*len(k.bits))
		if !do(n/64, 1<<(n%64)) {
			return false
		}
	}
	return true
}

func (k *known) add(id idempotency.ID) {
	k.keys++
	k.each(id, func(word, bit uint64) bool {
		k.bits[word] |= bit
		return true
	})
}

// may says false of keys that were never added.
func (k *known) may(id idempotency.ID) bool {
	return k.each(id, func(word, bit uint64) bool { return k.bits[word]&bit != 0 })
}

// isNew says that no row has this key. It says so of nearly all keys of which it is
// true.
func (w *writer) isNew(id idempotency.ID) bool { return w.known != nil && !w.known.may(id) }

// know adds the key of a new row.
func (w *writer) know(id idempotency.ID) {
	if w.known != nil {
		if w.known.add(id); w.known.keys > w.known.room && w.learning == nil {
			w.learn()
		}
	}
	if w.learning != nil {
		w.learning.add(id)
	}
}

// learn begins a new filter.
func (w *writer) learn() {
	w.learning = newKnown(w.tally.rows)
	for id := range w.store.overlay.rows {
		w.learning.add(id)
	}
	for id := range w.stagedAs {
		w.learning.add(id)
	}
}

// learnt is ready while a filter is to be filled.
func (w *writer) learnt() <-chan struct{} {
	if w.learning != nil && !w.ill {
		return always
	}
	return nil
}

// learnSome adds some keys of the database to the new filter.
func (w *writer) learnSome() {
	k := w.learning
	n := 0
	err := w.rows(selectKeys, func(from scanner) error {
		var id idempotency.ID
		err := from.Scan(&id.Tenant, &id.Key)
		k.add(id)
		k.after = id
		n++
		return err
	}, k.after.Tenant, k.after.Key, learntAtOnce)
	switch {
	case err != nil:
		w.undo()
	case n < learntAtOnce:
		w.known, w.learning = k, nil
	}
}

// rows reads rows outside of a transaction.
func (w *writer) rows(query string, each func(scanner) error, args ...any) error {
	w.broken = nil
	if err := w.connected(); err != nil {
		return w.fail(err)
	}
	st, err := w.prepared(query)
	if err != nil {
		return w.fail(err)
	}
	rows, err := st.QueryContext(unending, args...)
	if err != nil {
		return w.fail(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return w.fail(err)
		}
	}
	return w.fail(rows.Err())
}
