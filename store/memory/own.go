package memory

import (
	"bytes"
	"strings"

	"retryproxy/attempt"
	"retryproxy/idempotency"
)

// What a client or an upstream sent is kept in copies of exactly its size: a
// name cut out of a large read buffer would keep all of that buffer alive, and
// the bounds of the store would mean nothing.

// ownClaim is c with strings of its own.
func ownClaim(c idempotency.Claim) idempotency.Claim {
	pack(&c.Tenant, &c.Key, &c.Owner, &c.Policy, &c.Method, &c.Host, &c.Path,
		&c.Labels.Shop, &c.Labels.ShopTier, &c.Labels.TaskType)
	return c
}

// ownAttempts gives the last n attempts texts of their own. Nearly always their
// host is the record's.
func ownAttempts(h attempt.History, n int, host string) {
	for i := max(0, len(h)-n); i < len(h); i++ {
		a := &h[i]
		if a.Host == host {
			a.Host = host
		} else {
			a.Host = strings.Clone(a.Host)
		}
		a.Detail, a.UpstreamID = strings.Clone(a.Detail), strings.Clone(a.UpstreamID)
	}
}

// ownAnswer is a copy of a, or a marker when it is too large to be kept.
func (s *Store) ownAnswer(a *idempotency.Answer) *idempotency.Answer {
	if c := s.bounds(); !a.Kept || len(a.Body) > c.MaxResponse || a.Size() > c.Bytes {
		return marker(a)
	}
	own := *a
	own.Fields = a.Fields.Clone(0)
	own.Body = bytes.Clone(a.Body)
	texts := append(make([]*string, 0, 64), &own.Reason)
	for i := range own.Fields {
		texts = append(texts, &own.Fields[i].Name, &own.Fields[i].Value)
	}
	pack(texts...)
	return &own
}

// marker is what is left of an answer that is not kept.
func marker(a *idempotency.Answer) *idempotency.Answer {
	return &idempotency.Answer{Status: a.Status, Reason: strings.Clone(a.Reason), Stored: a.Stored}
}

// pack copies all texts into one allocation.
func pack(texts ...*string) {
	n := 0
	for _, t := range texts {
		n += len(*t)
	}
	var b strings.Builder
	b.Grow(n)
	for _, t := range texts {
		b.WriteString(*t)
	}
	all := b.String()
	for _, t := range texts {
		*t, all = all[:len(*t)], all[len(*t):]
	}
}
