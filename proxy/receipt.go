package proxy

import (
	"context"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"retryproxy/attempt"
	"retryproxy/classify"
	"retryproxy/idempotency"
	"retryproxy/message"
)

// receiptPath is where a receipt is asked for, at any host: a relative Location is
// then right in every mode. The id behind it has 128 random bits.
const receiptPath = "/.well-known/retryproxy/calls/"

// receiptDoc is how a durable call stands, for its client. Executed and advice are
// those of X-Retry-Executed and X-Retry-Advice while the call is not over: nobody
// is to buy elsewhere meanwhile.
type receiptDoc struct {
	ID        string           `json:"id"`
	Receipt   string           `json:"receipt"` // where to ask again
	CallID    string           `json:"call_id,omitempty"`
	State     string           `json:"state"`
	Reason    string           `json:"reason,omitempty"`
	NextAt    *time.Time       `json:"next_at"` // null: it waits for no date
	Deadline  *time.Time       `json:"deadline,omitempty"`
	Executed  string           `json:"executed"`
	Advice    string           `json:"advice,omitempty"` // done: nothing is left to do
	Method    string           `json:"method"`
	Host      string           `json:"host"`
	Path      string           `json:"path"`
	Created   time.Time        `json:"created"`
	Updated   time.Time        `json:"updated"`
	Attempted int              `json:"attempts_made"`
	Attempts  []attempt.View   `json:"attempts"`
	Answer    *receiptedAnswer `json:"answer,omitempty"`
}

// receiptedAnswer is the stored answer. Body is text where it is UTF-8, base64
// elsewhere; neither: it was not kept.
type receiptedAnswer struct {
	Status  int         `json:"status"`
	Reason  string      `json:"reason,omitempty"`
	Headers [][2]string `json:"headers"`
	Kept    bool        `json:"kept"`
	Body    *string     `json:"body,omitempty"`
	Base64  *string     `json:"body_base64,omitempty"`
}

func receiptView(rec *idempotency.Record, callID string) receiptDoc {
	d := receiptDoc{
		ID: rec.Receipt, Receipt: receiptPath + rec.Receipt, CallID: callID, State: rec.State.String(), Reason: rec.Reason, Executed: rec.Executed.String(),
		Advice: recordAdvice(rec), Method: rec.Method, Host: rec.Host, Path: rec.Path, Created: rec.Created, Updated: rec.Updated,
		Attempted: rec.Attempts, Attempts: rec.History.Views(), NextAt: dateOrNull(rec.NextAt),
	}
	if !rec.State.Ended() && rec.State != idempotency.StateParked { // while it is parked the clock stands
		d.Deadline = dateOrNull(rec.Deadline)
	}
	if !rec.State.Ended() {
		d.Executed = max(rec.Executed, classify.ExecutedMaybe).String()
	}
	if rec.State == idempotency.StateDone {
		d.Answer = answerView(rec.Answer)
	}
	return d
}

func dateOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func answerView(a *idempotency.Answer) *receiptedAnswer {
	out := &receiptedAnswer{Status: a.Status, Reason: a.Reason, Kept: a.Kept, Headers: make([][2]string, 0, len(a.Fields))}
	for _, f := range a.Fields {
		out.Headers = append(out.Headers, [2]string{f.Name, f.Value})
	}
	if !a.Kept {
		return out
	}
	if text := string(a.Body); utf8.ValidString(text) {
		out.Body = &text
	} else {
		text = base64.StdEncoding.EncodeToString(a.Body)
		out.Base64 = &text
	}
	return out
}

// recordAdvice tells the client what to do with how its call stands.
func recordAdvice(rec *idempotency.Record) string {
	switch rec.State {
	case idempotency.StateDone:
		return ""
	case idempotency.StateDead, idempotency.StateFailed:
		return advice(rec.Reason, rec.Executed)
	}
	return "check"
}

// parkedProblem is our own 503 for a call that goes on.
func parkedProblem(rec *idempotency.Record, callID string) problemDoc {
	detail := "the call goes on without you; ask again with the same key"
	if rec.Reason != "" && !rec.NextAt.IsZero() {
		detail = "the call waits (" + rec.Reason + ") and goes on at " + rec.NextAt.UTC().Format(time.RFC3339) + "; ask again with the same key"
	}
	return problemDoc{"urn:retryproxy:parked", titles["parked"], 503, detail, "parked", callID, false, "maybe", "check", rec.History.Views()}
}

// receiptAsked is the id of the receipt that the request asks for.
func (x *exchange) receiptAsked() (id string, asked bool) {
	path, _, _ := strings.Cut(x.call.Request.Target, "?")
	if _, ours := x.forUs(); ours {
		return strings.CutPrefix(path, "/calls/")
	}
	return strings.CutPrefix(path, receiptPath)
}

// answerReceipt tells how a durable call stands, to nobody but its own tenant.
func (x *exchange) answerReceipt(id string) {
	if r := x.labelled(); r != nil {
		x.refuse(r)
		return
	}
	if m := x.call.Request.Method; m != "GET" && m != "HEAD" {
		x.answerText(405, "text/plain; charset=utf-8", "GET only\n", message.Field{Name: "Allow", Value: "GET, HEAD"})
		return
	}
	rec, err := x.p.receipted(x.call.Context(), id, x.tenant())
	switch {
	case err != nil:
		x.refuse(refuse("store_unavailable", err.Error()))
		return
	case rec == nil:
		x.noReceipt()
		return
	}
	var more message.Fields
	if now := time.Now(); !rec.State.Ended() {
		more.Add("Retry-After", strconv.Itoa(wholeSeconds(askAgainIn(rec, now))))
	}
	more.Add("Cache-Control", "no-store")
	x.answerText(200, "application/json", string(encoded(receiptView(rec, ""))), more...)
}

// noReceipt tells strangers nothing, and those who ask under another name what to do.
func (x *exchange) noReceipt() {
	doc := struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
		Reason string `json:"reason"`
		CallID string `json:"call_id"`
	}{
		"urn:retryproxy:not_found", "There is no such receipt for you", 404,
		"a receipt is given to whoever made the call: ask with the same proxy user, at the same listener and with the same " +
			x.set.Headers.Shop + " as the call had; or its time is over (idempotency.ttl)",
		"not_found", x.id,
	}
	x.answerText(404, "application/problem+json", string(encoded(doc)))
}

// receipted finds the record that a receipt names; nil: there is none for the tenant.
func (p *Proxy) receipted(ctx context.Context, id, tenant string) (*idempotency.Record, error) {
	if len(id) != 32 {
		return nil, nil
	}
	found, _, err := p.Store.List(ctx, idempotency.Query{Receipt: id, Limit: 1})
	if err != nil || len(found) == 0 || found[0].Tenant != tenant {
		return nil, err
	}
	rec, err := p.Store.Get(ctx, found[0].ID, time.Now())
	if err != nil {
		return &found[0], nil // its time is over just now
	}
	return &rec, nil
}
