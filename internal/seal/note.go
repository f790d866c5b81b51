package seal

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
)

// A store notes each key that its pieces were sealed by, with something that only
// this key opens, so that a wrong or a missing one is found at the start.
const (
	NotePrefix = "sealed:" // begins the name of a note, the id of the key follows
	proof      = "retryproxy"
)

// ErrOtherKey is returned for a note that was made by another key of the same id.
var ErrOtherKey = errors.New("seal: another key has this id")

// Note is what is to be kept of the key that seals: a name and a value.
func (k *Keys) Note() (name, value string) {
	name = NotePrefix + k.ID()
	return name, base64.StdEncoding.EncodeToString(k.Seal([]byte(proof), []byte(name)))
}

// Holds says whether the key that a note is of is among the keys; nil holds none.
// Errors: ErrOtherKey.
func (k *Keys) Holds(name, value string) (bool, error) {
	if k == nil || !slices.Contains(k.IDs(), strings.TrimPrefix(name, NotePrefix)) {
		return false, nil
	}
	sealed, err := base64.StdEncoding.DecodeString(value)
	if err == nil {
		_, err = k.Open(sealed, []byte(name))
	}
	if err != nil {
		return false, ErrOtherKey
	}
	return true, nil
}
