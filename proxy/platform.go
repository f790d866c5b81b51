package proxy

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"retryproxy/classify"
	"retryproxy/document"
	"retryproxy/idempotency"
	"retryproxy/inspect"
	"retryproxy/message"
	"retryproxy/newcode"
	"retryproxy/policy"
	"retryproxy/presets"
)

// recognise finds the call's preset and reads what that knows of the request: its
// operation may choose another policy, its order give it a key.
func (x *exchange) recognise() *refusal {
	if !x.learn(x.body.start(int(x.set.Body.Inspect))) {
		return nil
	}
	if x.attrs.Operation != "" {
		x.policy = x.set.Policies.Match(&x.attrs, x.call.Received)
	}
	x.deriveKey()
	r := x.chooseVariant()
	x.describe() // it is another policy, maybe
	return r
}

// recogniseAgain does so for a call that goes on, which has its policy and its key.
func (x *exchange) recogniseAgain() {
	x.routePreset = x.set.presetAt(&x.hops[0])
	x.learn(x.body.start(int(x.set.Body.Inspect)))
}

// presetAt is the preset of the route that has this upstream; empty: none has one.
func (s *Settings) presetAt(h *hop) string {
	for i := range s.Routes {
		for _, o := range s.Routes[i].Upstreams {
			if s.Routes[i].Preset != "" && strings.EqualFold(o.Authority, h.authority) {
				return s.Routes[i].Preset
			}
		}
	}
	return ""
}

// learn finds the preset and what it knows; false: there is none. content is the start
// of the body as it came.
func (x *exchange) learn(content []byte) bool {
	if x.mode == "connect" || len(x.hops) == 0 {
		return false
	}
	if x.preset = x.choosePreset(); x.preset == nil {
		return false
	}
	r := &x.call.Request
	if r.Fields.Has("Content-Encoding") {
		content = inspect.Plain(r.Fields, content, int(x.set.Body.Inspect))
	}
	x.known = x.preset.Facts(&document.Request{Method: r.Method, Target: x.hops[0].path, Fields: r.Fields, Body: content})
	x.attrs.Operation = x.known.Operation
	x.readSignature(content)
	return true
}

// choosePreset is the one that the route names, else the policy, else that of the host.
func (x *exchange) choosePreset() *presets.Preset {
	switch name := orElse(x.routePreset, x.policy.Preset); name {
	case presets.None:
		return nil
	case "":
		return x.set.Presets.For(x.hops[0].target.Host, x.attrs.Path)
	default:
		return x.set.Presets.Named(name)
	}
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// deriveKey names a call without a key by its order, where the policy wants that. It
// never goes upstream, so it makes no repeat of ours safe.
func (x *exchange) deriveKey() {
	if !x.policy.BusinessKey || x.key != "" || x.known.BusinessKey == "" || x.body.stream != nil || x.upgrade() != "" {
		return
	}
	key := "order:" + x.preset.Name + ":" + x.known.Operation + ":" + x.known.BusinessKey
	if _, _, err := idempotency.ParseKey([]string{key}); err != nil {
		h := sha256.Sum256([]byte(key))
		key = "order:" + hex.EncodeToString(h[:])
	}
	x.key, x.derived = key, true
}

// forwardsTo says whether one of our headers goes to a host: where there is a preset it
// says so, unless the operator named them.
func (x *exchange) forwardsTo(host, what string) bool {
	if x.preset != nil && !x.policy.ForwardHeadersSet {
		return slices.Contains(x.preset.Forward, what)
	}
	return x.policy.ForwardsTo(host, what)
}

// sendsVia is the same for Via.
func (x *exchange) sendsVia(host string) bool {
	if x.preset != nil && !x.policy.ForwardHeadersSet {
		return slices.Contains(x.preset.Forward, presets.HeaderVia)
	}
	return x.policy.SendsVia(host)
}

// sendsTrace says whether a host gets the place of the attempt in a distributed trace: one
// with a preset is a platform.
func (x *exchange) sendsTrace(host string) bool {
	if x.preset != nil {
		return x.policy.ForwardHeadersSet && x.policy.Forwards(policy.HeaderTrace)
	}
	return x.policy.SendsTrace(host)
}

// keyHonoured says whether the key makes a repeat to a host safe: it goes there, and
// the host may use it. A platform does only where its preset says so.
func (x *exchange) keyHonoured(host string) bool {
	switch {
	case x.derived || !x.forwardsTo(host, policy.HeaderKey):
		return false
	case x.policy.Safe == "key":
		return true
	case x.preset != nil:
		return slices.Contains(x.preset.Forward, policy.HeaderKey)
	}
	return !policy.KeyIgnored(host)
}

// hear reads what the platform says in a complete answer.
func (x *exchange) hear(t *tried) classify.Said {
	r := t.Response
	if x.preset == nil || t.failed != nil || r.Status < 200 || r.Upgrade != nil || x.contentless(r.Status) || eventStream(r.Fields) {
		return classify.Said{}
	}
	return x.preset.Hear(&x.known, &presets.Response{
		Status: r.Status, Fields: r.Fields, Head: t.head, Whole: t.whole,
	}, int(x.set.Body.Inspect), time.Now())
}

// worded is what a platform said, for people.
func worded(s *classify.Said) string {
	if s.Kind == classify.Unsaid || s.Kind == classify.Done {
		return ""
	}
	var parts []string
	if s.Code != "" || s.Sub != "" {
		parts = append(parts, strings.TrimSuffix("code "+s.Code+" "+s.Sub, " "))
	}
	if s.Message != "" {
		parts = append(parts, s.Message)
	}
	if s.Rule != "" {
		parts = append(parts, "rule "+s.Rule)
	}
	return strings.Join(parts, "; ")
}

// noteNew tells of a code that no rule knows, once.
func (x *exchange) noteNew(s *classify.Said) {
	if h := x.p.Hooks.NewCode; h != nil {
		h(&newcode.Answer{
			Platform: x.preset.Name, Operation: x.known.Operation, Code: s.Code, Sub: s.Sub, Message: s.Message,
			Host: x.hops[x.hop].host, Shop: x.labels.Shop, CallID: x.id, At: time.Now(),
		})
	}
	if x.p.hosts.first("code " + x.preset.Name + " " + s.Code + " " + s.Sub) {
		x.p.Log.Warn("the platform says something that its preset does not know: a write is in doubt",
			"preset", x.preset.Name, "operation", x.known.Operation, "code", s.Code, "sub_code", s.Sub, "message", s.Message, "call_id", x.id)
	}
}

// renewed gives each header that a platform wants to be another one in every request a
// new value, where the client sent one.
func (x *exchange) renewed(f message.Fields) message.Fields {
	if x.preset == nil || len(x.preset.Renew) == 0 || !x.retrying() {
		return f
	}
	f = f.Clone(0)
	for i := range f {
		if contains(x.preset.Renew, f[i].Name) {
			f[i].Value = newUUID()
		}
	}
	return f
}

// newUUID is a random one (RFC 9562 section 5.4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// volatile are the parts of the request that change with each sending. In tenant "-" the
// token is none of them: it alone keeps strangers apart.
func (x *exchange) volatile(tenant string) []string {
	switch {
	case x.preset == nil:
		return nil
	case tenant == idempotency.NoTenant:
		return x.preset.VolatileLessToken
	}
	return x.preset.Volatile
}

// unfinished says that the platform took the call, and has not said yet what came of it.
func (x *exchange) unfinished() bool {
	return x.past.Last().Verdict.Kind == classify.Processing
}
