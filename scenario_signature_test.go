package main

import (
	"crypto/md5"
	"encoding/hex"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// signs is a preset whose signatures are taken for ten seconds, eight of them by us.
const signs = mine + `
token: [form:token]
volatile: [sign, timestamp, token]
sign:
  {family: sorted_wrap, digest: md5, case: upper, secret: client_secret, signature: [form:sign], window: 10s, time: {at: [form:timestamp], unit: s}, token: [form:token]}
rules:
  - {name: slow, code: [1], is: throttled, wait: [{base: 5s}]}
  - {name: sign, code: [7], is: signature_refused}
`

const secret = "s3cret"

// signedForm is a form as a bot signs it.
func signedForm(order string, at time.Time, secret string) string {
	v := url.Values{"order": {order}, "token": {"t"}, "timestamp": {strconv.FormatInt(at.Unix(), 10)}}
	v.Set("sign", signatureOf(v, secret))
	return v.Encode()
}

// signatureOf is of the form, and of the operation in the query.
func signatureOf(v url.Values, secret string) string {
	v = maps.Clone(v)
	v.Set("op", "order")
	var names []string
	for name := range v {
		if name != "sign" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	text := secret
	for _, name := range names {
		text += name + v.Get(name)
	}
	sum := md5.Sum([]byte(text + secret))
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

// signedPatch is the configuration of these tests.
func signedPatch(t *testing.T, mode string, more ...string) []string {
	p := ownPreset(t, signs)
	return append(append([]string{"deadline: 6s", "deadline: 60s, replay: " + mode}, strings.ReplaceAll(p[0], "6s", "60s"), strings.ReplaceAll(p[1], "6s", "60s")), append(p[2:], more...)...)
}

// withSecret gives the proxy what signs.
func withSecret(secret string) []string {
	return []string{"retry_limits:", "credentials: [{preset: mine, shop: s1, values: {client_secret: " + secret + "}}]\nretry_limits:"}
}

// sendSigned sends an order that its bot signs now.
func (r *rig) sendSigned(order string) reply {
	return r.post("http://u1.test/?op=order", signedForm(order, time.Now(), secret), form, keyed, "X-Shop-Id: s1")
}

var (
	slowDown = answer(200, `{"code":1,"text":"slow down"}`, js)
	taken    = answer(200, `{"code":0}`, js)
)

// A retry whose signature would be too old is not sent.
func TestSignatureWindow(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", slowDown)
		got := r.sendSigned("1")
		r.want(got, 200, u, 2) // at 0 s and 5 s, not at 10 s
		r.wantHeader(got, "X-Retry-Reason", "signature_expired")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "X-Retry-Action", "")
		r.wantBody(got, `{"code":1,"text":"slow down"}`)
	}, signedPatch(t, "window")...)
}

// The first attempt is the bot's own business: its clock may be wrong.
func TestFirstAttemptIsSentWhateverItsDate(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", answer(200, `{"code":7}`, js))
		got := r.post("http://u1.test/?op=order", signedForm("1", time.Now().Add(-time.Hour), secret), form)
		r.want(got, 200, u, 1)
		r.wantHeader(got, "X-Retry-Reason", "signature_expired")
		r.wantHeader(got, "X-Retry-Executed", "no")
	}, signedPatch(t, "window")...)
}

// The bot is asked to sign again, and the call goes on with its history.
func TestSignatureHandedBack(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", slowDown, slowDown, taken)
		got := r.sendSigned("1")
		r.want(got, 503, u, 2)
		r.wantHeader(got, "X-Retry-Reason", "signature_expired")
		r.wantHeader(got, "X-Retry-Action", "resign")
		r.wantHeader(got, "X-Retry-Executed", "no")
		r.wantHeader(got, "X-Retry-Advice", "repeat")
		r.wantAfter(got, 5, 6)
		time.Sleep(5 * time.Second)
		again := r.sendSigned("1")
		r.want(again, 200, u, 3)
		r.wantHeader(again, "X-Retry-Count", "2")
		replayed := r.sendSigned("1")
		r.want(replayed, 200, u, 3)
		r.wantHeader(replayed, "Idempotency-Replayed", "true")
		r.want(r.sendSigned("2"), 422, u, 3) // that is another order
	}, signedPatch(t, "handback")...)
}

// We sign again with the shop's secret: date, signature and nothing else are new.
func TestSignedAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		u := r.upstream("u1.test:80", slowDown, slowDown, taken)
		began := time.Now()
		r.want(r.sendSigned("a b&c"), 200, u, 3)
		first, last := string(u.seen()[1].Body), string(u.seen()[2].Body)
		if first != string(u.seen()[0].Body) {
			t.Error("a signature that holds was made anew")
		}
		v, err := url.ParseQuery(last)
		if err != nil || v.Get("order") != "a b&c" || v.Get("token") != "t" || v.Get("sign") != signatureOf(v, secret) {
			t.Errorf("the retry sends %s", last)
		}
		if at, _ := strconv.ParseInt(v.Get("timestamp"), 10, 64); at < began.Add(10*time.Second).Unix() {
			t.Errorf("the retry is dated %d, ten seconds after %d", at, began.Unix())
		}
	}, signedPatch(t, "resign", withSecret(secret)...)...)
}

// What the platform refuses for its signature is signed anew, once.
func TestRefusedSignatureIsMadeAnew(t *testing.T) {
	for _, c := range []struct {
		last step
		sent int
		stop string
	}{{taken, 2, ""}, {answer(200, `{"code":7}`, js), 2, "signature_expired"}} {
		bubble(t, func(r *rig) {
			u := r.upstream("u1.test:80", answer(200, `{"code":7}`, js), c.last)
			got := r.sendSigned("1")
			r.want(got, 200, u, c.sent)
			r.wantHeader(got, "X-Retry-Reason", c.stop)
		}, signedPatch(t, "resign", withSecret(secret)...)...)
	}
}

// A secret that does not give the bot's own signature signs nothing, and nor does that of
// another shop.
func TestWrongSecretSignsNothing(t *testing.T) {
	for name, patch := range map[string][]string{"wrong": withSecret("other"), "none": nil} {
		bubble(t, func(r *rig) {
			u := r.upstream("u1.test:80", slowDown)
			got := r.sendSigned("1")
			r.want(got, 503, u, 2)
			r.wantHeader(got, "X-Retry-Action", "resign")
			if n := len(r.logged("a request cannot be signed again: its bot is asked to")); n != 1 {
				t.Errorf("%s: %d log lines say so, want 1", name, n)
			}
			if strings.Contains(r.log.String(), secret) || strings.Contains(r.log.String(), "other\"") {
				t.Errorf("%s: the log has a secret", name)
			}
		}, signedPatch(t, "resign", patch...)...)
	}
}

// A clock that is ahead of the platform's does not make signatures old.
func TestSkewOfThePlatformsClock(t *testing.T) {
	bubble(t, func(r *rig) {
		behind := func(s *scripted, c net.Conn, q *request) bool {
			return answer(200, `{"code":1}`, js, "Date: "+time.Now().Add(-4*time.Second).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"))(s, c, q)
		}
		u := r.upstream("u1.test:80", behind)
		r.want(r.sendSigned("1"), 200, u, 3) // at 0, 5 and 10 s, which is 6 s there
	}, signedPatch(t, "window")...)
}

// A letter that is run again an hour later is signed again, where we can; else it is not
// sent, and stays a letter.
func TestRequeueSignsAgain(t *testing.T) {
	for mode, c := range map[string]struct {
		patch         []string
		sent, letters int
	}{"resign": {withSecret(secret), 3, 0}, "window": {nil, 2, 1}, "handback": {nil, 2, 1}} {
		t.Run(mode, func(t *testing.T) {
			lasting(t, func(r *rig, _ func()) {
				u := r.upstream("u1.test:80", slowDown, slowDown, taken)
				r.post("http://u1.test/?op=order", signedForm("1", time.Now(), secret), form, keyed, "X-Shop-Id: s1", "X-Request-Timeout: 6")
				time.Sleep(30 * time.Minute)
				var order struct{ CallID string }
				r.admin("POST", lettersAPI+"/"+r.letter().ID+"/requeue", `{"by":"ann","note":"it is back"}`, &order)
				rest(10 * time.Second)
				if n := u.count(); n != c.sent {
					t.Errorf("%d requests, want %d", n, c.sent)
				}
				if left := r.letters(); len(left) != c.letters || c.letters > 0 && left[0].Reason != "signature_expired" {
					t.Errorf("letters are left: %+v, want %d", left, c.letters)
				}
			}, signedPatch(t, mode, c.patch...)...)
		})
	}
}
