// Package journal answers one question: what happened to order X?
//
// It holds every call that ended, keyed or not, longer than the record of its
// key lives: who, where, each attempt, what the client got, and terms by which
// the call is found. The Journal keeps them; what needs no store (terms, what a
// query wants, batches) is beside it.
package journal

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"retryproxy/attempt"
)

// Query says which calls are wanted; an empty field wants all.
type Query struct {
	CallID   string
	KeyHash  string // as attempt.Summary has it
	Shop     string
	Host     string // host:port in lower case, or a host on any port
	TaskType string
	State    string // running, waiting, parked, done; a Journal holds done only
	Result   string // success, recovered, replay, failed, rejected, cancelled
	Reason   string // of the end, or of any attempt
	// Words are what a text is made of, all of them wanted, each as its possible
	// hashes: see Salts.Words.
	Words [][]uint64

	Since, Until time.Time // by the end of the call, or now for one that has none: from, and before
	Limit        int       // at most so many; 0: DefaultLimit
	After        string    // goes on behind the Entry with this Place
}

// Entry is a call that a Journal found.
type Entry struct {
	*attempt.Summary        // without its terms
	Place            string // in the list
}

// Bounds of Query.Limit.
const (
	DefaultLimit = 100
	MostLimit    = 10_000
)

// Errors of a Journal.
var (
	ErrUnavailable = errors.New("journal: it is unavailable")
	ErrCursor      = errors.New("journal: that is no place to go on from")
)

// MostText bounds what clients and upstreams can put into one text of a call that
// a Journal keeps (detail, path, request ids), in bytes.
const MostText = 4096

// Clip cuts a text to MostText, at the end of a character.
func Clip(text string) string {
	if len(text) <= MostText {
		return text
	}
	end := MostText
	for end > MostText-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// Journal keeps calls that ended. All methods are safe for concurrent use.
type Journal interface {
	// Note keeps calls, all or none, with texts as Clip cuts them. It does not change
	// them, and keeps no part of them in memory. Errors: ErrUnavailable.
	Note(ctx context.Context, calls []*attempt.Summary) error
	// Find gives calls by the time they ended, the newest first, those that ended
	// at once by the time they were noted, and says whether there are more than the
	// limit. Errors: ErrUnavailable, ErrCursor.
	Find(ctx context.Context, q Query) (found []Entry, more bool, err error)
}

// Wants says whether a call is among those that q wants. now is its end while it
// has none. After and Limit are not looked at.
func (q *Query) Wants(s *attempt.Summary, now time.Time) bool {
	if !s.Ended.IsZero() {
		now = s.Ended
	}
	return is(q.CallID, s.ID) && is(q.KeyHash, s.KeyHash) && is(q.State, s.State) && is(q.Result, s.Result) &&
		is(q.Shop, s.Labels.Shop) && is(q.TaskType, s.Labels.TaskType) && q.host(s.Host) && q.reason(s) &&
		!now.Before(q.Since) && (q.Until.IsZero() || now.Before(q.Until)) && q.said(s.Terms)
}

func is(want, value string) bool { return want == "" || want == value }

// host compares with and without the port.
func (q *Query) host(value string) bool {
	return is(q.Host, value) || strings.HasPrefix(value, q.Host) && strings.LastIndexByte(value, ':') == len(q.Host)
}

// reason looks at the end of the call and at its attempts.
func (q *Query) reason(s *attempt.Summary) bool {
	return is(q.Reason, s.Reason) || slices.ContainsFunc(s.Attempts, func(a attempt.Attempt) bool { return a.Verdict.Reason == q.Reason })
}

// said says whether all words are among the terms.
func (q *Query) said(terms []uint64) bool {
	for _, word := range q.Words {
		if !slices.ContainsFunc(word, func(h uint64) bool { return slices.Contains(terms, h) }) {
			return false
		}
	}
	return true
}

// Most is Limit within its bounds.
func (q *Query) Most() int {
	if q.Limit <= 0 {
		return DefaultLimit
	}
	return min(q.Limit, MostLimit)
}
