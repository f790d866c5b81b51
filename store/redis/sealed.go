package redis

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"retryproxy/idempotency"
	"retryproxy/internal/seal"
)

// errSealed is what a value that does not open gives.
var errSealed = errors.New("it is sealed and does not open")

// place is what a sealed value is bound to: its name and the record it is of.
func place(field string, id idempotency.ID) []byte {
	return []byte(field + "\x00" + id.Tenant + "\x00" + id.Key)
}

// closer seals the values of a record, where there is a key.
type closer struct {
	keys *seal.Keys
	id   idempotency.ID
}

func (s *Store) closer(id idempotency.ID) closer { return closer{s.bounds().Keys, id} }

// key is the value that names the key.
func (c closer) key() string {
	if c.keys == nil {
		return ""
	}
	return c.keys.ID()
}

func (c closer) seal(field string, value []byte) []byte {
	if c.keys == nil {
		return value
	}
	return c.keys.Seal(value, place(field, c.id))
}

// opener opens the values of a record, where they are sealed; err is what went
// wrong first.
type opener struct {
	keys   *seal.Keys
	id     idempotency.ID
	sealed bool
	err    error
}

func (s *Store) opener(id idempotency.ID, by string) *opener {
	return &opener{keys: s.bounds().Keys, id: id, sealed: by != ""}
}

func (o *opener) open(field, value string) string {
	if !o.sealed || o.err != nil {
		return value
	}
	if o.keys == nil {
		o.err = fmt.Errorf("%w: there is no key", errSealed)
		return ""
	}
	plain, err := o.keys.Open([]byte(value), place(field, o.id))
	if err != nil {
		o.err = fmt.Errorf("%w: %s: %w", errSealed, field, err)
	}
	return string(plain)
}

// unreadable tells the operator that a key is missing, or that somebody changed
// what is kept.
func (s *Store) unreadable(what string, id idempotency.ID, err error) {
	s.bounds().Log(what+" cannot be read", "addr", s.db.Options().Addr, "key_hash", idempotency.KeyHash(id.Key), "error", err)
}

// Each key that values were sealed by is noted, with something that only this key
// opens.
const (
	keyNote  = "sealed:" // and the id
	keyProof = "retryproxy"
)

// acceptKeys refuses keys that do not open what is there, and notes the one that
// seals from now on.
func (s *Store) acceptKeys(ctx context.Context) error {
	at, keys := s.prefix+"count", s.bounds().Keys
	notes, err := s.db.HGetAll(ctx, at).Result()
	if err != nil {
		return s.explained(err)
	}
	maps.DeleteFunc(notes, func(name, _ string) bool { return !strings.HasPrefix(name, keyNote) })
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		if err := s.acceptKey(ctx, keys, name, notes[name]); err != nil {
			return err
		}
	}
	if keys == nil {
		return nil
	}
	name := keyNote + keys.ID()
	proof := base64.StdEncoding.EncodeToString(keys.Seal([]byte(keyProof), []byte(name)))
	if err := s.db.HSetNX(ctx, at, name, proof).Err(); err != nil {
		return s.explained(err)
	}
	return nil
}

// acceptKey looks at one key that values were sealed by. It may be missing once
// nothing needs it any more.
func (s *Store) acceptKey(ctx context.Context, keys *seal.Keys, name, proof string) error {
	id := strings.TrimPrefix(name, keyNote)
	if keys != nil && slices.Contains(keys.IDs(), id) {
		sealed, err := base64.StdEncoding.DecodeString(proof)
		if err == nil {
			_, err = keys.Open(sealed, []byte(name))
		}
		if err != nil {
			return fmt.Errorf("the key %q in store.key is not the one of that id by which these records were sealed", id)
		}
		return nil
	}
	n, err := s.sealedBy(ctx, id)
	switch {
	case err != nil:
		return err
	case n > 0:
		return fmt.Errorf("%d requests and answers are sealed by the key %q, which store.key does not hold: add it there, behind the key that is to seal", n, id)
	}
	if err := s.db.HDel(ctx, s.prefix+"count", name).Err(); err != nil {
		return s.explained(err)
	}
	return nil
}

// sealedBy counts what a key has sealed. It looks at every record.
func (s *Store) sealedBy(ctx context.Context, id string) (n int, err error) {
	for _, state := range idempotency.States() {
		for cursor := uint64(0); ; {
			page, next, err := s.db.ZScan(ctx, s.prefix+"state:"+state.String(), cursor, "", pageSize).Result()
			if err != nil {
				return n, s.explained(err)
			}
			some, err := s.sealedAmong(ctx, page, id)
			if n += some; err != nil {
				return n, err
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return n, nil
}

// sealedAmong counts among some records; page has names and scores in turn.
func (s *Store) sealedAmong(ctx context.Context, page []string, id string) (n int, err error) {
	cmds, err := s.db.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for i := 0; i < len(page); i += 2 {
			p.HGet(ctx, s.prefix+"req:"+page[i], "sealed")
			p.HGet(ctx, s.prefix+"ans:"+page[i], "sealed")
		}
		return nil
	})
	if err != nil && !errors.Is(err, goredis.Nil) {
		return 0, s.explained(err)
	}
	for _, cmd := range cmds {
		if by, ok := cmd.(*goredis.StringCmd); ok && by.Val() == id {
			n++
		}
	}
	return n, nil
}
