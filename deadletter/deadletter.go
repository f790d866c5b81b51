// Package deadletter answers one question: what is to become of a call that was given up?
//
// A letter is a record that is dead or in doubt. Here are the rules (what may run
// again, by whose wish, when by itself, when it goes for good), what people are
// shown of it and told to do, and which letters a filter means. Moving records is
// the business of proxy.
package deadletter

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"retryproxy/idempotency"
)

// Errors about letters. Those of the store come as they are.
var (
	ErrNotKept   = errors.New("dead letters are kept with a durable store only: start the proxy with -data DIR")
	ErrNotFound  = errors.New("there is no dead letter of this id")
	ErrClosed    = errors.New("this is no dead letter any more")
	ErrBusy      = errors.New("this call is on its way again")
	ErrNoRequest = errors.New("its request was not kept, so it cannot be sent again")
	ErrBulk      = errors.New("another bulk is on its way")
	ErrDraining  = errors.New("the proxy is shutting down")
	ErrNoRoom    = errors.New("this proxy is out of room for its body just now")
	// ErrRefused is wrapped with the rule that forbids it.
	ErrRefused = errors.New("refused")
	// ErrInput is wrapped with the field and what it should look like.
	ErrInput = errors.New("wrong input")
)

// refused is ErrRefused with the rule in words.
func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// wrong is ErrInput about a field.
func wrong(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrInput, field, fmt.Sprintf(format, args...))
}

// States are those of letters.
func States() []idempotency.State {
	return []idempotency.State{idempotency.StateDead, idempotency.StateInDoubt} // an index of sqlite goes by this order
}

// What a note says was done.
const (
	DidRequeue        = "requeued"
	DidRequeueUnknown = "requeued_executed_unknown" // though it may have been executed
	DidExecuted       = "executed"
	DidNotExecuted    = "not_executed"
	DidDrop           = "dropped"
	DidExpedite       = "expedited" // of a parked call: not to wait for its date
	DidCancel         = "cancelled" // of a call that waited: not to go on
)

// ReasonCancelled is that of calls whose wait an operator ended for good.
const ReasonCancelled = "cancelled_by_operator"

// Reasons of records whose letter was closed by other means than an answer.
const (
	ReasonResolved  = "resolved"
	ReasonDropped   = "dropped"
	ReasonRetention = "retention"
)

// Bounds of what people write.
const (
	longestName = 100 // bytes of who did it
	longestNote = 500 // bytes of why; a record keeps a little more
)

// Signed is who decides something, and why.
type Signed struct {
	By   string `json:"by"`
	Note string `json:"note"`
}

// Check wants both in readable text. Errors: ErrInput.
func (s *Signed) Check() error {
	if err := readable("by", s.By, longestName); err != nil {
		return err
	}
	return readable("note", s.Note, longestNote)
}

// As signs in the name of the one whose token it was; empty: there are none. What
// somebody calls themself beside that stays to be seen.
func (s *Signed) As(name string) {
	switch {
	case name == "" || s.By == name:
	case s.By == "":
		s.By = name
	default:
		s.By += " (" + name + ")"
	}
}

// CheckNamed is Check where the note may be left out.
func (s *Signed) CheckNamed() error {
	if err := readable("by", s.By, longestName); err != nil {
		return err
	}
	return s.CheckOptional()
}

// CheckOptional is Check where either may be left out.
func (s *Signed) CheckOptional() error {
	if s.By != "" {
		if err := readable("by", s.By, longestName); err != nil {
			return err
		}
	}
	if s.Note != "" {
		return readable("note", s.Note, longestNote)
	}
	return nil
}

// readable wants a text of one line.
func readable(field, text string, longest int) error {
	switch {
	case strings.TrimSpace(text) == "":
		return wrong(field, "is missing")
	case len(text) > longest:
		return wrong(field, "has %d bytes, at most %d", len(text), longest)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return wrong(field, "want text of one line")
	}
	return nil
}
