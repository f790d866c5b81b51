package proxy

import (
	"bytes"
	"crypto/rand"
	"io"
	"sync"
	"time"

	"retryproxy/backoff"
	"retryproxy/classify"
	"retryproxy/message"
	"retryproxy/signer"
)

// What becomes of a request whose signature would be too old.
const (
	replayWindow   = "window"   // it is not sent
	replayHandback = "handback" // the bot is asked to sign it again
	replayResign   = "resign"   // we sign it again
)

// hAction tells a bot what to do before it repeats a call.
const hAction = "X-Retry-Action"

// signature is what is known of the client's own signature.
type signature struct {
	scheme *signer.Scheme // nil: the request is not signed
	fresh  time.Time      // until when the platform takes it, by a clock like its own; zero: unknown
	ours   bool           // we can sign it
	asked  bool           // ours is known
	again  bool           // the platform refused it, and the next attempt is signed anew
	secret signer.Credentials
}

// readSignature finds the client's signature, and until when it holds.
func (x *exchange) readSignature(content []byte) {
	s := x.preset.Sign
	if s == nil || x.body.stream != nil || x.call.Request.Fields.Has("Content-Encoding") {
		return
	}
	r := x.signedRequest(x.call.Request.Fields, content)
	if _, ok := s.SignedAt(&r); !ok {
		return
	}
	x.signature.scheme = s
	x.signature.fresh, _ = s.FreshUntil(&r, 0)
}

func (x *exchange) signedRequest(fields message.Fields, body []byte) signer.Request {
	return signer.Request{Method: x.call.Request.Method, Target: x.hops[x.hop].path, Fields: fields, Body: body}
}

// replayMode is what becomes of the request when its signature is too old; empty: it has
// none. Where we were to sign it, and cannot, the bot has to.
func (x *exchange) replayMode() string {
	if x.signature.scheme == nil {
		return ""
	}
	mode := orElse(orElse(x.policy.Replay, x.preset.Replay), replayWindow)
	if mode == replayResign && !x.maySign() {
		return replayHandback
	}
	return mode
}

// maySign says whether we can sign the request: our secret has to give the very signature
// that the client sent.
func (x *exchange) maySign() bool {
	s := &x.signature
	if s.asked {
		return s.ours
	}
	s.asked = true
	s.secret = x.set.Credentials.Of(x.preset.Name, x.labels.Shop)
	body, err := x.body.whole()
	if err == nil {
		r := x.signedRequest(x.call.Request.Fields, body)
		err = s.scheme.Check(&r, s.secret)
	}
	s.ours = err == nil
	if err != nil && x.p.hosts.first("sign "+x.preset.Name+" "+x.known.Operation+" "+x.labels.Shop) {
		x.p.Log.Warn("a request cannot be signed again: its bot is asked to", "preset", x.preset.Name,
			"operation", x.known.Operation, "shop", x.labels.Shop, "call_id", x.id, "error", err.Error())
	}
	return s.ours
}

// freshUntil is until when the platform takes the client's signature, by our clock; zero:
// unknown, or we can make a new one.
func (x *exchange) freshUntil() time.Time {
	if x.signature.fresh.IsZero() || x.replayMode() == replayResign {
		return time.Time{}
	}
	return x.signature.fresh.Add(x.p.skews.of(x.preset.Name))
}

// signsAgain says that a refused signature is made anew, once.
func (x *exchange) signsAgain(v *classify.Verdict) bool {
	return v.Kind == classify.SignatureRefused && !x.signature.again && x.replayMode() == replayResign
}

// tooOld is the end of a call whose request the platform would refuse by now. The first
// attempt of a client that did not wait is always made: its clock may be wrong, and not
// wrong enough for the platform.
func (x *exchange) tooOld(now time.Time) (d Decision, yes bool) {
	if !x.retrying() && x.delay < time.Second && x.sum.Origin == "" {
		return d, false
	}
	fresh := x.freshUntil()
	return stopAt(reasonSignature, now.Add(time.Second), true), !fresh.IsZero() && now.After(fresh)
}

// handsBack says that the bot is asked to sign the call again: a repeat must be safe.
func (x *exchange) handsBack(reason string) bool {
	return reason == reasonSignature && x.replayMode() == replayHandback &&
		(x.executed() == classify.ExecutedNo || x.safe != "")
}

// sign signs the request of an attempt anew where that is ours to do and the client's own
// signature would not do.
func (x *exchange) sign(req *message.Request) {
	s := &x.signature
	if s.scheme == nil || !x.retrying() && x.sum.Origin == "" || x.replayMode() != replayResign {
		return
	}
	skew := x.p.skews.of(x.preset.Name)
	now := time.Now()
	if !s.again && len(s.scheme.Nonce.At) == 0 && !s.fresh.IsZero() && now.Before(s.fresh.Add(skew)) {
		return
	}
	body, err := x.body.whole()
	if err != nil {
		return
	}
	r := x.signedRequest(req.Fields, body)
	out, err := s.scheme.Resign(&r, s.secret, now.Add(-skew), func() string {
		var random [16]byte
		_, _ = rand.Read(random[:])
		return s.scheme.Nonce.Write(random)
	})
	if err != nil {
		x.p.Log.Error("a request could not be signed again and goes as it was", "call_id", x.id, "preset", x.preset.Name, "error", err.Error())
		return
	}
	req.Target, req.Fields = out.Target, out.Fields
	if len(out.Body) > 0 {
		req.Body = signedBody{out.Body, x.call}
	}
}

// signedBody is content that we wrote.
type signedBody struct {
	content []byte
	call    interface{ Trailers() message.Fields }
}

func (b signedBody) Len() int64 { return int64(len(b.content)) }
func (b signedBody) Open() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(b.content)), nil
}
func (b signedBody) Trailers() message.Fields { return b.call.Trailers() }

// skews are how far our clock is ahead of those of platforms, by preset.
type skews struct{ m sync.Map }

// leastSkew is less than what a date in whole seconds and the way here can tell.
const leastSkew = 3 * time.Second

func (s *skews) of(preset string) time.Duration {
	d, _ := s.m.Load(preset)
	skew, _ := d.(time.Duration)
	return skew
}

// note takes the Date of an answer.
func (s *skews) note(preset, date string, now time.Time) {
	there, ok := backoff.Date(date, now)
	if !ok {
		return
	}
	skew := now.Sub(there).Round(time.Second)
	if skew.Abs() < leastSkew || skew.Abs() > 24*time.Hour {
		skew = 0
	}
	if skew != s.of(preset) {
		s.m.Store(preset, skew)
	}
}

// parkedTooLong turns a wait that a signature does not outlive into an end that its bot
// hears of.
func parkedTooLong(d Decision, fresh time.Time) Decision {
	if d.Do != Park || fresh.IsZero() || !d.At.After(fresh) {
		return d
	}
	return Decision{Do: Stop, Reason: reasonSignature, At: d.At}
}

// reasonSignature is the stop reason of what is not sent, or refused, for its signature.
const reasonSignature = "signature_expired"
