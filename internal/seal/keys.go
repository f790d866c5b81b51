// Package seal answers one question: how are bytes kept so that whoever has the disk cannot read them?
//
// It seals with AES-256-GCM. What is sealed names the key that opens it, so keys
// can be changed while old pieces are still there, and is bound to its place, so
// that two pieces cannot be exchanged.
package seal

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// keySize is that of AES-256.
const keySize = 32

// longestID bounds the name of a key.
const longestID = 32

// Keys are the keys of an installation: the first one seals, all open. They are
// safe for concurrent use, and no method ever shows one.
type Keys struct {
	list []key
	seal sealing
	open opening
}

// key is one of them with its name.
type key struct {
	id     string
	secret []byte
}

// Parse reads keys as the operator writes them: id:base64 of 32 bytes, separated
// by commas or line breaks; a single one without an id has the id 1. Errors say
// which entry breaks which rule and never show any of it. An empty text gives nil.
func Parse(text string) (*Keys, error) {
	entries := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' || r == '\r' })
	k := &Keys{}
	for i, entry := range entries {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		one, err := parseKey(entry, len(entries) == 1)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		if k.find(one.id) != nil {
			return nil, fmt.Errorf("key %d: its id is that of an earlier one", i+1)
		}
		k.list = append(k.list, one)
	}
	switch {
	case len(k.list) > 0:
		return k, nil
	case strings.TrimSpace(text) != "":
		return nil, errors.New("there is no key in it")
	}
	return nil, nil
}

// parseKey reads id:base64. Only a single key may do without the id. The id is
// not told before it is known to be one: it may be the key itself.
func parseKey(entry string, single bool) (key, error) {
	id, text, named := strings.Cut(entry, ":")
	switch {
	case !named && !single:
		return key{}, errors.New("want id:base64, an id tells keys apart")
	case !named:
		id, text = "1", entry
	case !isID(id):
		return key{}, fmt.Errorf("its id must be 1 to %d letters, digits or any of ._-", longestID)
	}
	secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(secret) != keySize {
		return key{}, fmt.Errorf("want %d bytes in base64 (retryproxy store new-key makes them)", keySize)
	}
	return key{id, secret}, nil
}

func isID(id string) bool {
	bad := func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}
	return id != "" && len(id) <= longestID && strings.IndexFunc(id, bad) < 0
}

// New makes a key, in the form that Parse reads. It fails when id is none.
func New(id string) (string, error) {
	if !isID(id) {
		return "", fmt.Errorf("an id must be 1 to %d letters, digits or any of ._-", longestID)
	}
	var secret [keySize]byte
	rand.Read(secret[:]) // it never fails
	return id + ":" + base64.StdEncoding.EncodeToString(secret[:]), nil
}

// ID is the name of the key that seals.
func (k *Keys) ID() string { return k.list[0].id }

// IDs are the names of all keys, the one that seals first.
func (k *Keys) IDs() []string {
	out := make([]string, len(k.list))
	for i := range k.list {
		out[i] = k.list[i].id
	}
	return out
}

// Derive gives a secret of n bytes from each key, in their order, for another
// use than sealing; the same purpose gives the same secrets. nil keys give none.
func (k *Keys) Derive(purpose string, n int) [][]byte {
	if k == nil {
		return nil
	}
	out := make([][]byte, len(k.list))
	for i := range k.list {
		out[i] = derive(k.list[i].secret, nil, purpose, n)
	}
	return out
}

// derive is HKDF-SHA256 (RFC 5869).
func derive(secret, salt []byte, purpose string, n int) []byte {
	out, err := hkdf.Key(sha256.New, secret, salt, "retryproxy "+purpose, n)
	if err != nil {
		panic("bug: a derived secret that is too long: " + err.Error())
	}
	return out
}

// find gives a key by its id; nil: there is none.
func (k *Keys) find(id string) *key {
	for i := range k.list {
		if k.list[i].id == id {
			return &k.list[i]
		}
	}
	return nil
}
