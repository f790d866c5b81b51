package sqlite

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"retryproxy/attempt"
	"retryproxy/journal"
	"retryproxy/store/codec"
)

// A call of the history is a list in JSON, without names: there are many of them,
// and the view calls has the names. Places in it are in files and in the view; what is
// new comes behind. Times are in ns: of the call's start since 1970, of all others
// since its start.

// tuple is such a list in the making.
type tuple []byte

func (t tuple) number(n int64) tuple { return append(strconv.AppendInt(t, n, 10), ',') }

// token is a text that needs no escape.
func (t tuple) token(s string) tuple { return append(append(append(t, '"'), s...), '"', ',') }

// text is one that may not be UTF-8: then it stands in base64, as codec.Text has it.
func (t tuple) text(s string) tuple {
	if utf8.ValidString(s) {
		return append(appendString(t, s), ',')
	}
	return append(base64.StdEncoding.AppendEncode(append(t, `["`...), []byte(s)), `"],`...)
}

// time is one relative to another; the zero time is null.
func (t tuple) time(at, since time.Time) tuple {
	switch {
	case at.IsZero():
		return append(t, "null,"...)
	case since.IsZero():
		return t.number(nanos(at))
	}
	return t.number(nanos(at) - nanos(since)) // by the clock, as marks have it
}

func (t tuple) begin() tuple { return append(t, '[') }

// end ends a list. Another one that it is a part of goes on behind it.
func (t tuple) end() tuple {
	if t[len(t)-1] == ',' {
		t = t[:len(t)-1]
	}
	return append(t, ']', ',')
}

// appendCall appends a call, and a comma.
func appendCall(out []byte, c *attempt.Summary) []byte {
	t := tuple(out).begin().text(c.ID).text(c.Record.Tenant).text(c.Record.Key).token(c.KeyHash).
		time(c.Started, time.Time{}).time(c.Ended, c.Started).number(int64(c.Duration)).number(int64(c.Overhead)).
		token(c.Result).text(c.Reason).text(journal.Clip(c.Detail)).number(int64(c.Status)).token(c.Executed.String()).token(c.Mode).text(c.Policy).
		text(c.Labels.Shop).text(c.Labels.ShopTier).text(c.Labels.TaskType).text(c.User).text(c.Client).text(c.Method).token(c.Scheme).text(c.Host).
		text(journal.Clip(c.Path)).text(journal.Clip(c.ClientID)).text(journal.Clip(c.Trace)).number(c.Bytes).number(int64(c.Previous)).token(c.Origin)
	t = t.begin()
	for i := range c.Attempts {
		t = t.attempt(&c.Attempts[i], c.Started)
	}
	t = t.end().begin()
	for _, w := range c.Waits {
		t = t.begin().token(w.Cause).number(int64(w.For)).end()
	}
	return t.end().end()
}

// What flags of an attempt say.
const (
	flagHostFault = 1 << iota
	flagAlive
	flagEgressFault
	flagReused
)

func (t tuple) attempt(a *attempt.Attempt, since time.Time) tuple {
	v := &a.Verdict
	flags := int64(0)
	for _, f := range [...]struct {
		on   bool
		flag int64
	}{{v.HostFault, flagHostFault}, {v.Alive, flagAlive}, {v.EgressFault, flagEgressFault}, {a.Reused, flagReused}} {
		if f.on {
			flags |= f.flag
		}
	}
	t = t.begin().number(int64(a.N)).number(int64(a.Count)).time(a.Started, since).number(int64(a.Duration)).text(a.Host).number(int64(a.Status)).
		token(v.Class.String()).text(v.Reason).token(string(v.Basis)).token(v.Executed.String()).text(a.Detail).number(int64(a.Delay)).token(a.Cause).
		number(int64(v.RetryAfter)).number(flags).text(a.Egress).text(a.UpstreamID)
	if a.Supplier != "" { // few have one, and calls of before have no place for it
		t = t.text(a.Supplier)
	}
	return t.end()
}

// parseTuple reads a list into as many places.
func parseTuple(text []byte, places ...any) error { return parseShort(text, len(places), places...) }

// parseShort reads a list into places, of which the last ones may be missing.
func parseShort(text []byte, least int, places ...any) error {
	read := places // json reads into what they point to
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	if len(read) < least {
		return fmt.Errorf("a list of %d, want %d", len(read), least)
	}
	return nil
}

// parseCall is the way back from appendCall.
func parseCall(text []byte) (*attempt.Summary, error) {
	var c codec.Call
	var started, ended *int64
	var attempts []attemptTuple
	var waits []waitTuple
	err := parseTuple(text, &c.ID, &c.Tenant, &c.Key, &c.KeyHash, &started, &ended, &c.Duration, &c.Overhead, &c.Result, &c.Reason, &c.Detail, &c.Status, &c.Executed, &c.Mode, &c.Policy,
		&c.Shop, &c.ShopTier, &c.TaskType, &c.User, &c.Client, &c.Method, &c.Scheme, &c.Host, &c.Path, &c.ClientID, &c.Trace, &c.Bytes, &c.Previous, &c.Origin, &attempts, &waits)
	if err != nil {
		return nil, err
	}
	var from int64
	if started != nil {
		from = *started
		c.Started = time.Unix(0, from).UTC()
	}
	c.Ended = sinceOf(ended, from)
	for i := range attempts {
		attempts[i].Started = sinceOf(attempts[i].since, from)
		c.Attempts = append(c.Attempts, attempts[i].Attempt)
	}
	for _, w := range waits {
		c.Waits = append(c.Waits, codec.Wait(w))
	}
	return c.Summary()
}

// sinceOf is the way back from tuple.time.
func sinceOf(ns *int64, from int64) time.Time {
	if ns == nil {
		return time.Time{}
	}
	return time.Unix(0, from+*ns).UTC()
}

// attemptTuple reads an attempt.
type attemptTuple struct {
	codec.Attempt
	since *int64
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *attemptTuple) UnmarshalJSON(text []byte) error {
	var flags int
	err := parseShort(text, 17, &a.N, &a.Count, &a.since, &a.Duration, &a.Host, &a.Status, &a.Class, &a.Reason, &a.Basis, &a.Executed, &a.Detail, &a.Delay, &a.Cause,
		&a.RetryAfter, &flags, &a.Egress, &a.UpstreamID, &a.Supplier)
	a.HostFault, a.Alive, a.EgressFault, a.Reused = flags&flagHostFault != 0, flags&flagAlive != 0, flags&flagEgressFault != 0, flags&flagReused != 0
	return err
}

// waitTuple reads a wait.
type waitTuple codec.Wait

// UnmarshalJSON implements json.Unmarshaler.
func (w *waitTuple) UnmarshalJSON(text []byte) error { return parseTuple(text, &w.Cause, &w.For) }
