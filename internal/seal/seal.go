package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// A sealed piece is
//
//	00 's' 'e' version | length of id, id | salt | nonce, ciphertext, tag
//
// The key that encrypts is derived from the named one and the salt (HKDF-SHA256).
// A salt serves one process for mostSealed pieces: random nonces of 96 bits are
// good for 2^32 pieces under one key (NIST SP 800-38D section 8.3), which a busy
// proxy would reach within days. What stands before the nonce, and the place of
// the piece, are authenticated.
var magic = []byte{0, 's', 'e', 1}

const (
	saltSize   = 16
	mostSealed = 1 << 31
	mostOpened = 256 // salts whose keys are remembered
)

// ErrNotSealed is returned for what Seal never made: it may be what was kept
// before there was a key.
var ErrNotSealed = errors.New("seal: it is not sealed")

// ErrDamaged is returned for what was changed, belongs to another place, or was
// sealed by another key of the same id.
var ErrDamaged = errors.New("seal: it does not open: it was changed, moved, or sealed by another key of the same id")

// UnknownKeyError is returned for what a key that is not at hand has sealed.
type UnknownKeyError struct{ ID string }

// Error names the key.
func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("seal: it was sealed by the key %q", e.ID)
}

// sealing is the derived key in use.
type sealing struct {
	mu   sync.Mutex
	head []byte // of each piece, to the salt
	aead cipher.AEAD
	left int
}

// opening holds derived keys that were needed lately.
type opening struct {
	mu   sync.Mutex
	keys *simplelru.LRU[string, cipher.AEAD] // by id and salt
}

// Seal seals plain for a place; Open wants to be told the same one.
func (k *Keys) Seal(plain, place []byte) []byte {
	head, aead := k.current()
	out := make([]byte, len(head), len(head)+aead.Overhead()+len(plain))
	copy(out, head)
	return aead.Seal(out, nil, plain, slices.Concat(head, place))
}

// current gives the derived key in use, a new one when that has served its time.
func (k *Keys) current() (head []byte, aead cipher.AEAD) {
	s := &k.seal
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 {
		var salt [saltSize]byte
		rand.Read(salt[:]) // it never fails
		first := &k.list[0]
		s.head = slices.Concat(magic, []byte{byte(len(first.id))}, []byte(first.id), salt[:])
		s.aead, s.left = first.aead(salt[:]), mostSealed
	}
	s.left--
	return s.head, s.aead
}

// Open gives what Seal was given. Errors: ErrNotSealed, ErrDamaged, and
// UnknownKeyError.
func (k *Keys) Open(sealed, place []byte) ([]byte, error) {
	id, size, ok := header(sealed)
	if !ok {
		return nil, ErrNotSealed
	}
	one := k.find(id)
	if one == nil {
		return nil, &UnknownKeyError{id}
	}
	head, rest := sealed[:size], sealed[size:]
	plain, err := k.derived(one, head[size-saltSize:]).Open(nil, nil, rest, slices.Concat(head, place))
	if err != nil {
		return nil, ErrDamaged
	}
	return plain, nil
}

// KeyID names the key that a piece was sealed by; ok is false for what Seal never
// made.
func KeyID(sealed []byte) (id string, ok bool) {
	id, _, ok = header(sealed)
	return id, ok
}

// header reads what stands before the nonce, size bytes.
func header(sealed []byte) (id string, size int, ok bool) {
	rest, ok := bytes.CutPrefix(sealed, magic)
	if !ok || len(rest) == 0 {
		return "", 0, false
	}
	n := int(rest[0])
	size = len(magic) + 1 + n + saltSize
	if len(sealed) < size || !isID(string(rest[1:1+n])) {
		return "", 0, false
	}
	return string(rest[1 : 1+n]), size, true
}

// derived gives the key of a salt, from memory where it was needed lately.
func (k *Keys) derived(one *key, salt []byte) cipher.AEAD {
	name := one.id + ":" + string(salt)
	o := &k.open
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys == nil {
		o.keys, _ = simplelru.NewLRU[string, cipher.AEAD](mostOpened, nil) // fails without room only
	}
	aead, ok := o.keys.Get(name)
	if !ok {
		aead = one.aead(salt)
		o.keys.Add(name, aead)
	}
	return aead
}

// aead derives the key of a salt. It makes its own random nonces.
func (one *key) aead(salt []byte) cipher.AEAD {
	block, err := aes.NewCipher(derive(one.secret, salt, "seal", keySize))
	if err == nil {
		var aead cipher.AEAD
		if aead, err = cipher.NewGCMWithRandomNonce(block); err == nil {
			return aead
		}
	}
	panic("bug: a derived key that AES does not take: " + err.Error())
}
