package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"retryproxy/idempotency"
	"retryproxy/internal/seal"
	"retryproxy/store/codec"
)

// closer seals the columns of a record, where there is a key.
type closer struct{ codec.Sealer }

func (s *Store) closer(id idempotency.ID) closer {
	return closer{codec.Sealer{Keys: s.bounds().Keys, ID: id}}
}

// key is the column that names the key.
func (c closer) key() any { return textOrNull(c.KeyID()) }

func (c closer) text(column, value string) any {
	if c.Keys == nil {
		return value
	}
	return c.Seal(column, []byte(value))
}

// opener opens the columns of a record.
type opener struct{ codec.Opener }

func (s *Store) opener(id idempotency.ID) *opener {
	return &opener{codec.Opener{Keys: s.bounds().Keys, ID: id}}
}

func (o *opener) text(column string, value *string) { *value = string(o.Open(column, []byte(*value))) }

func (o *opener) bytes(column string, value *[]byte) { *value = o.Open(column, *value) }

// openAnswer opens the answer of a row; false: it does not open.
func (s *Store) openAnswer(id idempotency.ID, t *texts) bool {
	o := s.opener(id)
	o.text("answers.fields", &t.fields)
	o.bytes("answers.body", &t.body)
	if o.Err != nil {
		s.unreadable("an answer", id, o.Err)
	}
	return o.Err == nil
}

// unreadable tells the operator that somebody changed the file.
func (s *Store) unreadable(what string, id idempotency.ID, err error) {
	s.bounds().Log(what+" cannot be read", "file", s.path, "key_hash", idempotency.KeyHash(id.Key), "error", err)
}

// acceptKeys refuses keys that do not open what is there, and notes the one that
// seals from now on.
func (s *Store) acceptKeys(ctx context.Context, db *sql.DB) error {
	notes, err := keyNotes(ctx, db)
	if err != nil {
		return err
	}
	keys := s.bounds().Keys
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		if err := s.acceptKey(ctx, db, keys, name, notes[name]); err != nil {
			return err
		}
	}
	if keys == nil {
		return nil
	}
	name, proof := keys.Note()
	_, err = db.ExecContext(ctx, "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", name, proof)
	return err
}

// keyNotes are the notes of keys by their names.
func keyNotes(ctx context.Context, db *sql.DB) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, "SELECT name, value FROM meta WHERE name LIKE ?", seal.NotePrefix+"%")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	notes := map[string]string{}
	for rows.Next() {
		var name, proof string
		if err := rows.Scan(&name, &proof); err != nil {
			return nil, err
		}
		notes[name] = proof
	}
	return notes, rows.Err()
}

// acceptKey looks at one key that the file was sealed by. It may be missing once
// nothing needs it any more.
func (s *Store) acceptKey(ctx context.Context, db *sql.DB, keys *seal.Keys, name, proof string) error {
	id := strings.TrimPrefix(name, seal.NotePrefix)
	held, err := keys.Holds(name, proof)
	switch {
	case err != nil:
		return fmt.Errorf("the key %q in store.key is not the one of that id by which this file was sealed", id)
	case held:
		return nil
	}
	var rows int
	const count = "SELECT (SELECT count(*) FROM requests WHERE sealed = ?1) + (SELECT count(*) FROM answers WHERE sealed = ?1)"
	if err := db.QueryRowContext(ctx, count, id).Scan(&rows); err != nil {
		return err
	}
	if rows > 0 {
		return fmt.Errorf("%d requests and answers in it are sealed by the key %q, which store.key does not hold: add it there, behind the key that is to seal", rows, id)
	}
	_, err = db.ExecContext(ctx, "DELETE FROM meta WHERE name = ?", name)
	return err
}
