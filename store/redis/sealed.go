package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"retryproxy/idempotency"
	"retryproxy/internal/seal"
	"retryproxy/store/codec"
)

func (s *Store) closer(id idempotency.ID) codec.Sealer {
	return codec.Sealer{Keys: s.bounds().Keys, ID: id}
}

// opener opens the values of a record, where they are sealed.
type opener struct {
	codec.Opener
	sealed bool
}

func (s *Store) opener(id idempotency.ID, by string) *opener {
	return &opener{codec.Opener{Keys: s.bounds().Keys, ID: id}, by != ""}
}

func (o *opener) open(field, value string) string {
	if !o.sealed {
		return value
	}
	return string(o.Open(field, []byte(value)))
}

// unreadable tells the operator that a key is missing, or that somebody changed
// what is kept.
func (s *Store) unreadable(what string, id idempotency.ID, err error) {
	s.bounds().Log(what+" cannot be read", "addr", s.db.Options().Addr, "key_hash", idempotency.KeyHash(id.Key), "error", err)
}

// acceptKeys refuses keys that do not open what is there, and notes the one that
// seals from now on.
func (s *Store) acceptKeys(ctx context.Context) error {
	at, keys := s.prefix+"count", s.bounds().Keys
	notes, err := s.db.HGetAll(ctx, at).Result()
	if err != nil {
		return s.explained(err)
	}
	maps.DeleteFunc(notes, func(name, _ string) bool { return !strings.HasPrefix(name, seal.NotePrefix) })
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		if err := s.acceptKey(ctx, keys, name, notes[name]); err != nil {
			return err
		}
	}
	if keys == nil {
		return nil
	}
	name, proof := keys.Note()
	if err := s.db.HSetNX(ctx, at, name, proof).Err(); err != nil {
		return s.explained(err)
	}
	return nil
}

// acceptKey looks at one key that values were sealed by. It may be missing once
// nothing needs it any more.
func (s *Store) acceptKey(ctx context.Context, keys *seal.Keys, name, proof string) error {
	id := strings.TrimPrefix(name, seal.NotePrefix)
	held, err := keys.Holds(name, proof)
	switch {
	case err != nil:
		return fmt.Errorf("the key %q in store.key is not the one of that id by which these records were sealed", id)
	case held:
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
