package codec

import (
	"errors"
	"fmt"

	"retryproxy/idempotency"
	"retryproxy/internal/seal"
)

// ErrSealed is wrapped by the errors of values that do not open.
var ErrSealed = errors.New("it is sealed and does not open")

// place is what a sealed value is bound to: its name and the record it is of.
func place(field string, id idempotency.ID) []byte {
	return []byte(field + "\x00" + id.Tenant + "\x00" + id.Key)
}

// Sealer seals the values of a record.
type Sealer struct {
	Keys *seal.Keys // nil: values stay as they are
	ID   idempotency.ID
}

// KeyID names the key; empty: there is none.
func (s Sealer) KeyID() string {
	if s.Keys == nil {
		return ""
	}
	return s.Keys.ID()
}

// Seal seals the value of a field.
func (s Sealer) Seal(field string, value []byte) []byte {
	if s.Keys == nil {
		return value
	}
	return s.Keys.Seal(value, place(field, s.ID))
}

// Opener opens what Sealer sealed.
type Opener struct {
	Keys *seal.Keys // nil: nothing opens
	ID   idempotency.ID
	Err  error // what went wrong first, ErrSealed; from then on nothing is opened
}

// Open opens the value of a field. What it gives is worth nothing when there is an
// Err.
func (o *Opener) Open(field string, value []byte) []byte {
	switch {
	case o.Err != nil:
		return nil
	case o.Keys == nil:
		o.Err = fmt.Errorf("%w: there is no key", ErrSealed)
		return nil
	}
	plain, err := o.Keys.Open(value, place(field, o.ID))
	if err != nil {
		o.Err = fmt.Errorf("%w: %s: %w", ErrSealed, field, err)
	}
	return plain
}
