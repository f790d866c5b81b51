package cli

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"retryproxy/internal/seal"
)

// NewStoreKey prints a new key for store.key. Its id is the date and a few
// letters: which of two keys is the newer one can be seen.
func NewStoreKey(args []string, env Env) int {
	f := newFlags("store new-key", env)
	id := f.String("id", "", "`name` of the key among others (default: the date and a few letters)")
	if _, code, ok := f.parse(args, 0, 0); !ok {
		return code
	}
	if *id == "" {
		*id = fmt.Sprintf("%s-%04x", time.Now().Format(time.DateOnly), rand.N(1<<16))
	}
	key, err := seal.New(*id)
	if err != nil {
		return env.failed(&usageError{err})
	}
	fmt.Fprintln(env.Stdout, key)
	return OK
}

// Reseal seals all of a store by the first key, so that the others may go.
func Reseal(args []string, env Env) int {
	f := newFlags("store reseal", env)
	file := f.String("config", "", "configuration `file` that has store.key")
	dir := f.String("data", "", "`directory` of the store (default: the configuration's store.path)")
	if _, code, ok := f.parse(args, 0, 0); !ok {
		return code
	}
	c, err := env.load(*file)
	if err != nil {
		return env.failed(err)
	}
	if *dir == "" {
		*dir = c.Store.Path
	}
	keys := c.Store.Keys()
	switch {
	case *dir == "" && c.Store.Kind == "redis":
		return env.failed(&usageError{errors.New("what Redis keeps is not sealed anew: leave the old key behind the new one in store.key until no record needs it (idempotency.ttl, dead_letters.keep); serve says which one is missing")})
	case *dir == "":
		return env.failed(&usageError{errors.New("which store? name its directory with -data, or a configuration with store.path")})
	case keys == nil:
		return env.failed(&usageError{errors.New("the configuration has no store.key to seal by (-config)")})
	}
	rows, err := env.Reseal(c, *dir)
	if err != nil {
		return env.failed(err)
	}
	fmt.Fprintf(env.Stdout, "%d requests and answers in %s were sealed anew; all are sealed by the key %q now, and store.key needs no other\n", rows, *dir, keys.ID())
	return OK
}
