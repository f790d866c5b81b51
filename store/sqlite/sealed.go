package sqlite

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"retryproxy/idempotency"
	"retryproxy/internal/seal"
)

// errSealed is what a column that does not open gives.
var errSealed = errors.New("it is sealed and does not open")

// place is what a sealed column is bound to: its name and the record it is of.
func place(column string, id idempotency.ID) []byte {
	return []byte(column + "\x00" + id.Tenant + "\x00" + id.Key)
}

// closer seals the columns of a record, where there is a key.
type closer struct {
	keys *seal.Keys
	id   idempotency.ID
}

func (s *Store) closer(id idempotency.ID) closer { return closer{s.bounds().Keys, id} }

// key is the column that names the key.
func (c closer) key() any {
	if c.keys == nil {
		return nil
	}
	return c.keys.ID()
}

func (c closer) text(column, value string) any {
	if c.keys == nil {
		return value
	}
	return c.keys.Seal([]byte(value), place(column, c.id))
}

func (c closer) bytes(column string, value []byte) any {
	if c.keys == nil {
		return value
	}
	return c.keys.Seal(value, place(column, c.id))
}

// opener opens the columns of a record; err is what went wrong first.
type opener struct {
	keys *seal.Keys
	id   idempotency.ID
	err  error
}

func (s *Store) opener(id idempotency.ID) *opener { return &opener{keys: s.bounds().Keys, id: id} }

func (o *opener) text(column string, value *string) {
	b := []byte(*value)
	o.bytes(column, &b)
	*value = string(b)
}

func (o *opener) bytes(column string, value *[]byte) {
	if o.err != nil {
		return
	}
	if o.keys == nil {
		o.err = fmt.Errorf("%w: there is no key", errSealed)
		return
	}
	plain, err := o.keys.Open(*value, place(column, o.id))
	if err != nil {
		o.err = fmt.Errorf("%w: %s: %w", errSealed, column, err)
		return
	}
	*value = plain
}

// openAnswer opens the answer of a row; false: it does not open.
func (s *Store) openAnswer(id idempotency.ID, t *texts) bool {
	o := s.opener(id)
	o.text("answers.fields", &t.fields)
	o.bytes("answers.body", &t.body)
	if o.err != nil {
		s.unreadable("an answer", id, o.err)
	}
	return o.err == nil
}

// unreadable tells the operator that somebody changed the file.
func (s *Store) unreadable(what string, id idempotency.ID, err error) {
	s.bounds().Log(what+" cannot be read", "file", s.path, "key_hash", idempotency.KeyHash(id.Key), "error", err)
}

// Each key that a file was sealed by is noted in meta, with something that only
// this key opens.
const (
	keyNote  = "sealed:" // and the id
	keyProof = "retryproxy"
)

// acceptKeys refuses keys that do not open what is there, and notes the one that
// seals from now on.
func (s *Store) acceptKeys(ctx context.Context, db *sql.DB) error {
	notes, err := keyNotes(ctx, db)
	if err != nil {
		return err
	}
	keys := s.bounds().Keys
	for _, id := range slices.Sorted(maps.Keys(notes)) {
		if err := s.acceptKey(ctx, db, keys, id, notes[id]); err != nil {
			return err
		}
	}
	if keys == nil || notes[keys.ID()] != "" {
		return nil
	}
	proof := base64.StdEncoding.EncodeToString(keys.Seal([]byte(keyProof), []byte(keyNote+keys.ID())))
	_, err = db.ExecContext(ctx, "INSERT INTO meta (name, value) VALUES (?, ?)", keyNote+keys.ID(), proof)
	return err
}

// keyNotes are the proofs by the ids of their keys.
func keyNotes(ctx context.Context, db *sql.DB) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, "SELECT name, value FROM meta WHERE name LIKE ?", keyNote+"%")
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
		notes[strings.TrimPrefix(name, keyNote)] = proof
	}
	return notes, rows.Err()
}

// acceptKey looks at one key that the file was sealed by. It may be missing once
// nothing needs it any more.
func (s *Store) acceptKey(ctx context.Context, db *sql.DB, keys *seal.Keys, id, proof string) error {
	if keys != nil && slices.Contains(keys.IDs(), id) {
		sealed, err := base64.StdEncoding.DecodeString(proof)
		if err == nil {
			_, err = keys.Open(sealed, []byte(keyNote+id))
		}
		if err != nil {
			return fmt.Errorf("the key %q in store.key is not the one of that id by which this file was sealed", id)
		}
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
	_, err := db.ExecContext(ctx, "DELETE FROM meta WHERE name = ?", keyNote+id)
	return err
}
