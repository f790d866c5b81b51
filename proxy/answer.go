package proxy

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"time"

	"retryproxy/classify"
	"retryproxy/inbound"
	"retryproxy/internal/spool"
	"retryproxy/message"
)

const (
	holdFor     = time.Second     // longest wait for the held part of an answer
	discardFor  = 5 * time.Second // longest time spent on an answer that will be retried
	discardSize = 1 << 20
	blockedFor  = time.Second // a client that takes nothing for so long frees the slot
)

// deadlined is a body whose reads can be given a time without breaking it.
type deadlined interface{ SetReadDeadline(time.Time) error }

// hold reads the first part of an answer before its header goes out, while a
// retry is still possible, so that a truncated small answer is an outcome and
// not a broken download. Where none is, small answers and JSON are held all the
// same: the client is better served by a clear 502, and JSON may say failure.
func (x *exchange) hold(t *tried) {
	r := t.Response
	limit, most := x.set.Body.Hold, holdFor
	if x.reads() && (isText(r.Fields) || r.Length < 0) {
		limit, most = x.set.Body.Inspect, x.policy.PerTryTimeout // its verdict stands in it
	}
	switch {
	case !x.holds(r):
		return
	case r.Length == 0:
		t.whole = true
		return
	}
	d, timed := r.Body.(deadlined)
	if !timed && !x.fitsHold(r) && !x.reads() {
		return
	}
	if timed {
		t.failed = d.SetReadDeadline(x.within(most))
	}
	t.read(limit)
	if timed && t.failed == nil {
		t.failed = d.SetReadDeadline(time.Time{})
	}
}

// within is the end of a time from now, the call's deadline at the latest.
func (x *exchange) within(d time.Duration) time.Time {
	end := time.Now().Add(d)
	if x.end.Before(end) {
		return x.end
	}
	return end
}

// holds says whether an answer is one to be held.
func (x *exchange) holds(r *message.Response) bool {
	switch {
	case r.Status < 200 || r.Upgrade != nil || eventStream(r.Fields):
		return false
	case x.reads():
		return true
	case x.set.Body.Hold <= 0:
		return false
	case r.Length == 0 || x.safe != "" && x.left() > 0 || mayTell(r.Status):
		return true
	}
	return r.Status <= 299 && (x.fitsHold(r) || isJSON(r.Fields))
}

// reads says that what an answer says decides about the call, so that all of it is needed.
func (x *exchange) reads() bool { return x.preset != nil || x.asksOnly }

// mayTell are the statuses whose answer may itself say that the request had been
// sent on.
func mayTell(status int) bool { return status == 503 || status == 408 }

func (x *exchange) fitsHold(r *message.Response) bool {
	return r.Length >= 0 && r.Length <= x.set.Body.Hold
}

// read fills head up to limit, or to the end, or until time is up.
func (t *tried) read(limit int64) {
	size := min(limit, 4096)
	if t.Response.Length >= 0 {
		size = min(limit, t.Response.Length)
	}
	buf := make([]byte, 0, size+1)
	for int64(len(buf)) <= limit {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := t.Response.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		t.head = buf
		if err == nil {
			continue
		}
		t.whole = err == io.EOF
		if !t.whole && !isTimeout(err) {
			t.failed = err
		}
		return
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

func eventStream(f message.Fields) bool {
	return hasPrefixFold(f.Get("Content-Type"), "text/event-stream")
}

func isJSON(f message.Fields) bool {
	ct, _, _ := strings.Cut(f.Get("Content-Type"), ";")
	return strings.Contains(strings.ToLower(ct), "json")
}

// isText says whether the content may be one that says what became of the call.
func isText(f message.Fields) bool {
	kind, _, _ := strings.Cut(strings.ToLower(f.Get("Content-Type")), ";")
	return kind == "" || textual(kind)
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// kept is a complete upstream answer that waits in case no better one comes.
type kept struct {
	response message.Response
	body     *spool.Buffer
	attempt  int // index into the history
}

// keep reads the answer of an attempt that will be retried, so that its
// connection can serve again and the answer can be given in the end. One that
// is too large or too slow is dropped with its connection.
func (x *exchange) keep(t *tried) {
	r := t.Response
	if r == nil {
		return
	}
	defer r.Body.Close()
	if t.failed != nil {
		return
	}
	if d, ok := r.Body.(deadlined); ok && d.SetReadDeadline(x.within(discardFor)) != nil {
		return
	}
	declared := r.Length
	if x.call.Request.Method == "HEAD" {
		declared = 0
	}
	buf, err := x.p.Answers.Fill(io.MultiReader(bytes.NewReader(t.head), r.Body), declared, discardSize)
	if err != nil {
		if buf != nil {
			buf.Close()
		}
		return
	}
	x.dropKept()
	x.kept = &kept{response: *r, body: buf, attempt: len(x.past) - 1}
	x.kept.response.Fields = r.Fields.Clone(0)
}

func (x *exchange) dropKept() {
	if x.kept != nil {
		x.kept.body.Close()
		x.kept = nil
	}
}

// usable says whether the kept answer may be given: no later attempt may have
// been executed.
func (x *exchange) usable() bool {
	return x.kept != nil && x.past[x.kept.attempt+1:].Executed() == classify.ExecutedNo
}

// conclude gives the client its one answer and settles the record.
func (x *exchange) conclude(t *tried, d Decision) {
	x.outcome.decision = d
	x.tell(d)
	if taken, answered := x.asksLater(t, d); answered {
		return
	} else if taken {
		t = nil
	}
	if t != nil && t.failed != nil {
		_ = t.Response.Body.Close()
	}
	switch {
	case d.Do == Park:
		x.park(d)
	case x.leavesIt(t, d):
		x.leaveIt()
	case t != nil && t.conn != nil:
		x.splice(t.conn)
	case x.handsBack(d.Reason) && (t == nil || t.verdict.Kind != classify.SignatureRefused):
		if t != nil && t.Response != nil && t.failed == nil {
			_ = t.Response.Body.Close()
		}
		x.release()
		x.answerOwn(x.failure(d))
	case t != nil && t.Response != nil && t.failed == nil:
		x.pass(t)
	case x.usable():
		x.passKept()
	default:
		p := x.failure(d)
		x.named(p.reason)
		x.answerOwn(p)
	}
}

// named makes the reason that the client is told the one of log and metrics: a
// destination is judged as late as it is dialled, yet that is a refusal.
func (x *exchange) named(reason string) {
	x.outcome.decision.Reason = reason
	switch reason {
	case "destination_denied", "loop", "bad_request":
		x.outcome.result = "rejected"
		x.denied(reason)
	}
}

// tell reports a stop that an operator may want to know of.
func (x *exchange) tell(d Decision) {
	if d.Reason == "retry_limited" && x.p.Hooks.RetryDenied != nil {
		x.p.Hooks.RetryDenied(d.Dimension)
	}
	if d.Would {
		x.p.Log.Info("retries are only observed here: this call would have been retried",
			"call_id", x.id, "host", x.hops[x.hop].host, "at", d.At, "reason", x.past.Last().Verdict.Reason)
	}
}

// pass streams the upstream's answer through.
func (x *exchange) pass(t *tried) {
	r := t.Response
	if r.Upgrade != nil {
		x.upgradeTo(r)
		return
	}
	stream := eventStream(r.Fields)
	if stream {
		x.release()
	}
	marked := stream || r.Length > x.set.MaxResponse
	if marked {
		x.settleMarker(r)
	}
	rest := &relay{first: t.head, head: t.head, body: r.Body, whole: t.whole, left: r.Length, exchange: x}
	if (x.key != "" || x.mayBury()) && !marked {
		rest.capture = make([]byte, 0, min(max(r.Length, 512), x.set.MaxResponse))
		rest.limit = x.set.MaxResponse
	}
	out := x.final(r)
	out.Body, rest.out = stayOpen{rest}, out
	if r.Length == 0 || x.contentless(r.Status) {
		rest.end()
	}
	if rest.limit > 0 && x.flight != nil && x.flight.Waiters() > 0 && !rest.ended {
		rest.readAhead()
	}
	err := x.write(out, x.bodyIdle(stream))
	x.written(t, out, rest, err)
	rest.Close()
}

// written settles what the end of the writing means: the client left, or the
// answer broke off.
func (x *exchange) written(t *tried, out *message.Response, rest *relay, err error) {
	left := errors.Is(err, inbound.ErrClient)
	if left && x.key != "" {
		err = rest.drain() // the attempt runs to its end and is recorded
	}
	broke := err != nil && !errors.Is(err, inbound.ErrClient)
	if broke {
		x.broke(t, err)
	}
	x.settle(out, rest, err == nil)
	if left && !broke && !x.lasting {
		x.outcome.result = "cancelled"
	}
}

// broke corrects the verdict of an answer that broke off after its first byte
// had gone out: it may have been executed, and no retry can follow.
func (x *exchange) broke(t *tried, err error) {
	x.outcome.cut = true
	t.failed = err
	v := x.judge(t)
	x.mu.Lock()
	last := &x.past[len(x.past)-1]
	last.Verdict, last.Detail = v, err.Error()
	x.mu.Unlock()
	x.outcome.decision = stop("manual_review")
	if v.Class == classify.Transient {
		x.outcome.decision = stop("attempts_exhausted")
	}
}

// contentless says whether the answer has no content whatever its length says.
func (x *exchange) contentless(status int) bool {
	return x.call.Request.Method == "HEAD" || status == 204 || status == 304
}

// bodyIdle is how long a body may stand still; event streams may for ever.
func (x *exchange) bodyIdle(stream bool) time.Duration {
	if stream {
		return 0
	}
	return x.policy.BodyIdleTimeout
}

// passKept gives the newest complete answer of an earlier attempt.
func (x *exchange) passKept() {
	r := x.kept.response
	body, err := x.kept.body.Open()
	if err != nil {
		x.answerOwn(x.failure(x.outcome.decision))
		return
	}
	if r.Length < 0 {
		r.Length = x.kept.body.Len()
	}
	out := x.final(&r)
	rest := &relay{body: body, left: x.kept.body.Len(), exchange: x}
	if x.key != "" {
		rest.limit = x.set.MaxResponse
	}
	out.Body, rest.out = stayOpen{rest}, out
	if rest.left == 0 {
		rest.end()
	}
	err = x.write(out, x.policy.BodyIdleTimeout)
	if errors.Is(err, inbound.ErrClient) && x.key != "" {
		err = rest.drain() // others may wait for it
	}
	x.settle(out, rest, err == nil)
	_ = rest.Close()
}

// write is the one place where an answer of an attempt goes to the client.
func (x *exchange) write(out *message.Response, idle time.Duration) error {
	if x.p.drained.Load() {
		x.call.KeepAlive = false // every answer says that there will be no next one
	}
	began := time.Now()
	n, err := x.call.Answer(out, idle)
	x.outcome.bytes, x.outcome.status = n, out.Status
	x.away += time.Since(began)
	return err
}

// stayOpen is a body that outlives the writing of the answer: the rest may have
// to be read for the record.
type stayOpen struct{ *relay }

// Close does nothing; the relay is closed by its owner.
func (stayOpen) Close() error { return nil }

// relay is the body of an answer on its way to the client: the held part, then
// the rest. It keeps a copy for the key and frees the slot when the body ended
// or the client blocks.
type relay struct {
	first    []byte // the held part, kept for a look at it
	head     []byte // of it, what is not yet read
	body     io.ReadCloser
	whole    bool
	left     int64 // bytes to come; negative: unknown
	exchange *exchange
	out      *message.Response // whose body it is
	capture  []byte
	limit    int64
	over     bool // the body is larger than limit
	ended    bool
	blocked  *time.Timer
}

// Read gives the held part first.
func (r *relay) Read(p []byte) (int, error) {
	if r.blocked != nil {
		r.blocked.Stop()
	}
	n, err := r.read(p)
	r.copy(p[:n])
	if r.left >= 0 {
		r.left -= int64(n)
	}
	switch {
	case err == io.EOF || r.left == 0:
		r.end()
	case err == nil && !r.whole:
		r.arm()
	}
	return n, err
}

// end is the end of the body. The record is settled before the last bytes go
// out: a client that has its answer may use the key again.
func (r *relay) end() {
	r.ended = true
	r.exchange.release()
	r.exchange.settle(r.out, r, true)
}

func (r *relay) read(p []byte) (int, error) {
	if len(r.head) > 0 {
		n := copy(p, r.head)
		r.head = r.head[n:]
		if len(r.head) == 0 && r.whole {
			return n, io.EOF
		}
		return n, nil
	}
	if r.whole {
		return 0, io.EOF
	}
	return r.body.Read(p)
}

// Buffered is how much Read gives without waiting.
func (r *relay) Buffered() int {
	if len(r.head) > 0 {
		return len(r.head)
	}
	if b, ok := r.body.(interface{ Buffered() int }); ok && !r.whole {
		return b.Buffered()
	}
	return 0
}

// arm frees the slot when the client has not asked for more in time.
func (r *relay) arm() {
	if r.blocked == nil {
		r.blocked = time.AfterFunc(blockedFor, r.exchange.release)
		return
	}
	r.blocked.Reset(blockedFor)
}

// copy keeps what the record may need, up to limit.
func (r *relay) copy(p []byte) {
	switch {
	case r.limit == 0 || r.over:
	case int64(len(r.capture)+len(p)) > r.limit:
		r.over, r.capture = true, nil
		r.exchange.settleMarker(r.out) // what cannot be kept ends with its client
	default:
		r.capture = append(r.capture, p...)
	}
}

// start is the first part of the body, as far as it was kept.
func (r *relay) start() []byte {
	if len(r.first) > 0 {
		return r.first
	}
	return r.capture
}

// drain reads what the client no longer takes, for the record, and not for ever:
// of an answer without an end a marker is left.
func (r *relay) drain() error {
	var piece [4096]byte
	end := time.Now().Add(r.exchange.policy.Deadline)
	for !r.ended && r.limit > 0 && !r.over {
		if time.Now().After(end) {
			r.exchange.settleMarker(r.out)
			return nil
		}
		if _, err := r.Read(piece[:]); err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

// readAhead takes the whole answer before the client gets any of it: others wait
// for it, and this client may be slow. What is over the limit stays as it is.
func (r *relay) readAhead() {
	var all []byte
	piece := make([]byte, 16<<10)
	for int64(len(all)) <= r.limit {
		n, err := r.read(piece)
		all = append(all, piece[:n]...)
		if r.whole = err == io.EOF; r.whole || err != nil {
			break
		}
	}
	r.head = all
	if r.whole && int64(len(all)) <= r.limit {
		r.capture, r.limit = all, 0
		r.end()
	}
}

// Close ends the body; safe to call again.
func (r *relay) Close() error {
	if r.blocked != nil {
		r.blocked.Stop()
	}
	r.exchange.release()
	return r.body.Close()
}
