package limiter

import (
	"math"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// evictTries is how many of the entries unused for longest are looked at when
// one has to go.
const evictTries = 8

// worth says what forgetting an entry would lose.
type worth uint8

const (
	inUse     worth = iota // must stay
	idle                   // loses some history
	worthless              // loses nothing
)

// book is a table bounded to max entries: the one unused for longest goes
// first, those in use stay even beyond max.
type book[V any] struct {
	entries *simplelru.LRU[string, V]
	max     int
	worth   func(V) worth
}

func newBook[V any](size int, w func(V) worth) book[V] {
	entries, err := simplelru.NewLRU[string, V](math.MaxInt, nil) // evicts by our rule, not its own
	if err != nil {
		panic("bug: " + err.Error()) // only a size below 1 fails
	}
	return book[V]{entries, size, w}
}

// get finds an entry and marks it as used.
func (k *book[V]) get(name string) (V, bool) { return k.entries.Get(name) }

// look finds an entry without marking it.
func (k *book[V]) look(name string) (V, bool) { return k.entries.Peek(name) }

// add makes room if needed and adds an entry.
func (k *book[V]) add(name string, v V) {
	if k.entries.Len() >= k.max && !k.evict(worthless) {
		k.evict(idle)
	}
	k.entries.Add(name, v)
}

// all returns every entry.
func (k *book[V]) all() []V { return k.entries.Values() }

// evict drops the oldest entry that is worth no more than that. Entries passed
// over count as used, so the next look begins with others.
func (k *book[V]) evict(atMost worth) bool {
	for range evictTries {
		name, v, ok := k.entries.GetOldest()
		if !ok {
			return false
		}
		if k.worth(v) >= atMost {
			return k.entries.Remove(name)
		}
		k.entries.Get(name)
	}
	return false
}
