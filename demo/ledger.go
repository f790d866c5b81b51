package demo

import (
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
)

// remembered bounds what the ledger keeps per id and per key.
const remembered = 1000

// ledger is what the upstream remembers. Its owner locks.
type ledger struct {
	requests  int // request lines that reached us
	effects   int // things really done
	downUntil time.Time
	failed    *lru.LRU[string, int]   // failures so far, by id
	orders    *lru.LRU[string, order] // by idempotency key
	recent    []seen                  // newest last, at most shown
}

// order is one effect: what the caller pays for.
type order struct {
	ID  string `json:"order_id"`
	Key string `json:"key,omitempty"`
}

// seen is one request as it reached the upstream.
type seen struct {
	At    string `json:"at"`
	Line  string `json:"request"`
	Key   string `json:"key,omitempty"`
	Retry string `json:"x_retry_count,omitempty"`
}

// shown is how many recent requests /effects lists.
const shown = 50

func newLedger() ledger {
	failed, _ := lru.NewLRU[string, int](remembered, nil) // fails for a size below 1 only
	orders, _ := lru.NewLRU[string, order](remembered, nil)
	return ledger{failed: failed, orders: orders}
}

// arrive books a request line.
func (l *ledger) arrive(s seen) {
	l.requests++
	if len(l.recent) == shown {
		l.recent = append(l.recent[:0], l.recent[1:]...)
	}
	l.recent = append(l.recent, s)
}

// act books an effect, or finds the one that the same key had: folded is then
// true and nothing is done again.
func (l *ledger) act(key string, fold bool) (o order, folded bool) {
	if key != "" && fold {
		if o, ok := l.orders.Get(key); ok {
			return o, true
		}
	}
	l.effects++
	o = order{ID: fmt.Sprintf("A-%04d", 1000+l.effects), Key: key}
	if key != "" {
		l.orders.Add(key, o)
	}
	return o, false
}

// fails says whether an id is to fail once more: times times in all.
func (l *ledger) fails(id string, times int) bool {
	n, _ := l.failed.Get(id)
	if n < times {
		l.failed.Add(id, n+1)
	}
	return n < times
}

// restart lets an id fail anew, so that the same command can be shown again.
func (l *ledger) restart(id string) { l.failed.Remove(id) }
