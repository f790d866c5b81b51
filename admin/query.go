package admin

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"retryproxy/idempotency"
	"retryproxy/journal"
)

// States of a call that are looked for here.
const (
	stateWaiting = "waiting"
	stateDone    = "done"
)

// query reads which calls are asked for. The error names what is wrong.
func (s *server) query(r *http.Request) (journal.Query, error) {
	v := r.URL.Query()
	q := journal.Query{
		CallID: v.Get("id"), KeyHash: keyHash(v.Get("key"), v.Get("key_hash")), Shop: v.Get("shop"), Host: strings.ToLower(v.Get("host")),
		TaskType: v.Get("task_type"), State: v.Get("state"), Result: v.Get("result"), Reason: v.Get("reason"), After: v.Get("after"),
	}
	if !slices.Contains([]string{"", "running", "waiting", "parked", "done"}, q.State) {
		return q, fmt.Errorf("state: want running, waiting, parked or done, not %q", q.State)
	}
	if text := v.Get("text"); text != "" {
		if s.Words == nil {
			return q, errors.New("text: calls are searched for what they said only where the store is durable (-data DIR)")
		}
		if q.Words = s.Words(text); len(q.Words) == 0 {
			return q, errors.New("text: want a word of at least 4 letters, digits, - or _, whole, such as an order number")
		}
	}
	for name, to := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		if err := when(v.Get(name), s.now(), to); err != nil {
			return q, fmt.Errorf("%s: %w", name, err)
		}
	}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil || n == 0 {
			return q, errors.New("limit: want a number above 0")
		}
		q.Limit = int(n)
	}
	return q, nil
}

// when reads a time that may be left out.
func when(text string, now time.Time, to *time.Time) (err error) {
	if text != "" {
		*to, err = journal.ParseWhen(text, now)
	}
	return err
}

// now is the time in the zone that people here live by.
func (s *server) now() time.Time {
	if s.Zone == nil {
		return time.Now()
	}
	return time.Now().In(s.Zone())
}

// keyHash is the hash of a key, which may be given as one. What looks like a hash
// is taken for it.
func keyHash(key, hash string) string {
	switch {
	case hash != "":
		return strings.ToLower(hash)
	case key == "" || isHash(key):
		return key
	}
	return idempotency.KeyHash(key)
}

func isHash(text string) bool {
	return len(text) == 16 && strings.Trim(text, "0123456789abcdef") == ""
}

// cutPort splits host:port; an IPv6 address keeps its brackets.
func cutPort(hostport string) (host, port string, ok bool) {
	i := strings.LastIndexByte(hostport, ':')
	if i < 0 || i < strings.LastIndexByte(hostport, ']') {
		return hostport, "", false
	}
	return hostport[:i], hostport[i+1:], true
}
