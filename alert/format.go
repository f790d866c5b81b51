package alert

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Sender is who says it.
type Sender struct {
	Instance string         // our name
	Machine  string         // it runs on; empty: unknown
	Zone     *time.Location // of the times in texts
}

// name holds the word retryproxy, for bots that want a keyword.
func (s *Sender) name() string {
	if s.Machine == "" {
		return s.Instance + " (retryproxy)"
	}
	return s.Instance + " (retryproxy on " + s.Machine + ")"
}

// envelope is one request to a target.
type envelope struct {
	body   []byte
	query  url.Values        // added to that of the URL
	header map[string]string // besides Content-Type
}

// format is how one service wants to be told.
type format struct {
	text int // longest text in bytes
	most int // messages of one request
	// render writes one message as text; join puts several together.
	render func(m *Message, from Sender) string
	join   string
	// wrap makes a request of a text, signed at now when there is a secret.
	wrap func(text, secret string, now time.Time) envelope
	// judge reads the answer to a 2xx; nil: the status says it all.
	judge func(body []byte) error
}

// formats are the services by their name in the configuration. Limits are those
// of the services: WeCom 4096 bytes of markdown, DingTalk and Feishu 20 kB a
// request, Slack 4000 characters as it recommends.
var formats = map[string]format{
	"wecom":    {text: 4096, most: 20, render: inLines(wide, coloured, "%s **%s**", "\n>%s: %s"), join: "\n\n", wrap: weComBody, judge: codeIn("errcode", "errmsg", -1, 45009, 45033)},
	"dingtalk": {text: 16000, most: 20, render: inLines(wide, titles, "#### %s %s\n", "\n- %s: %s"), join: "\n\n---\n\n", wrap: dingTalkBody, judge: codeIn("errcode", "errmsg", -1, 130101, 410100)},
	"feishu":   {text: 16000, most: 20, render: plainText(feishuSafe), join: "\n\n", wrap: feishuBody, judge: feishuAnswer},
	"slack":    {text: 4000, most: 20, render: plainText(slackSafe), join: "\n\n", wrap: slackBody},
	"json":     {most: 20},
}

// titles are what a headline begins with.
var titles = map[State]string{Firing: "FIRING", Still: "STILL FIRING", Recovered: "RECOVERED", Alive: "ALIVE", Test: "TEST"}

// longestValue bounds one fact, so that a message always fits.
const longestValue = 200

// clean makes one short line of a value that a client or an upstream chose.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError, unicode.Is(unicode.Cf, r):
			return -1 // also what turns the direction of writing
		case unicode.IsControl(r), unicode.IsSpace(r):
			return ' '
		}
		return r
	}, s)
	return cut(strings.TrimSpace(s), longestValue)
}

// fact is a value as a service may be told it.
func fact(value string, safe *strings.Replacer) string {
	return cut(safe.Replace(clean(value)), longestValue)
}

const cutMark = "…"

// cut shortens a text to at most n bytes, between two characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n -= len(cutMark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:max(n, 0)] + cutMark
}

// wide replaces what a chat program takes for markup or for a mention.
var wide = strings.NewReplacer("<", "＜", ">", "＞", "`", "'", "[", "［", "]", "］", "*", "＊", "~", "～", "|", "｜")

// coloured are the titles in WeCom's markdown.
var coloured = map[State]string{
	Firing: colour("warning", Firing), Still: colour("warning", Still), Recovered: colour("info", Recovered),
	Alive: colour("comment", Alive), Test: colour("comment", Test),
}

func colour(name string, s State) string {
	return fmt.Sprintf("<font color=\"%s\">%s</font>", name, titles[s])
}

var (
	asIs       = strings.NewReplacer()
	feishuSafe = strings.NewReplacer("<", "＜", ">", "＞")
	slackSafe  = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
)

// inLines writes a headline, of title and value, then each fact, of key and value.
func inLines(safe *strings.Replacer, titles map[State]string, headline, line string) func(*Message, Sender) string {
	return func(m *Message, from Sender) string {
		var out strings.Builder
		for i, l := range m.lines(from) {
			value := fact(l.value, safe)
			if i == 0 {
				fmt.Fprintf(&out, headline, titles[m.State], value)
				continue
			}
			fmt.Fprintf(&out, line, l.key, value)
		}
		return out.String()
	}
}

// plainText writes lines without markup.
func plainText(safe *strings.Replacer) func(*Message, Sender) string {
	return inLines(safe, titles, "[%s] %s", "\n%s: %s")
}

func weComBody(text, _ string, _ time.Time) envelope {
	return envelope{body: encode(map[string]any{"msgtype": "markdown", "markdown": map[string]string{"content": text}})}
}

// dingTalkBody signs in the query: base64(HMAC-SHA256(secret, "timestamp\nsecret")).
func dingTalkBody(text, secret string, now time.Time) envelope {
	e := envelope{body: encode(map[string]any{"msgtype": "markdown", "markdown": map[string]string{"title": "retryproxy", "text": text}})}
	if secret != "" {
		at := strconv.FormatInt(now.UnixMilli(), 10)
		e.query = url.Values{"timestamp": {at}, "sign": {sign(secret, at+"\n"+secret)}}
	}
	return e
}

// feishuBody signs in the body, with the text as the key of an empty message.
func feishuBody(text, secret string, now time.Time) envelope {
	body := map[string]any{"msg_type": "text", "content": map[string]string{"text": text}}
	if secret != "" {
		at := strconv.FormatInt(now.Unix(), 10)
		body["timestamp"], body["sign"] = at, sign(at+"\n"+secret, "")
	}
	return envelope{body: encode(body)}
}

func slackBody(text, _ string, _ time.Time) envelope {
	return envelope{body: encode(map[string]any{"text": text, "mrkdwn": false})}
}

func sign(key, text string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// encode writes < and > as they are: every service counts bytes.
func encode(v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("bug: " + err.Error()) // maps and structs of text always encode
	}
	return bytes.TrimSpace(out.Bytes())
}

// document is the generic JSON.
type document struct {
	Version  int     `json:"version"`
	Instance string  `json:"instance"`
	Machine  string  `json:"machine,omitempty"`
	SentAt   string  `json:"sent_at"`
	Lost     int     `json:"lost,omitempty"` // older messages that were dropped
	Alerts   []entry `json:"alerts"`
}

// entry is a Message in JSON.
type entry struct {
	ID     string   `json:"id"` // the same for all messages about one group
	Rule   string   `json:"rule"`
	On     string   `json:"on"`
	State  State    `json:"state"`
	Labels Labels   `json:"labels"`
	Shops  []string `json:"shops,omitempty"`
	What   string   `json:"what"` // in a sentence
	Text   string   `json:"text"` // all of it, in lines
	Since  string   `json:"since,omitempty"`
	At     string   `json:"at"`
	Count  int      `json:"count"`
	Total  int      `json:"total,omitempty"`
	Detail string   `json:"detail,omitempty"`
	Call   string   `json:"call_id,omitempty"`
	Do     []string `json:"do,omitempty"`
}

// generic is the JSON of messages.
func generic(batch []Message, lost int, from Sender, now time.Time) []byte {
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.In(from.Zone).Format(time.RFC3339)
	}
	doc := document{Version: 1, Instance: from.Instance, Machine: from.Machine, SentAt: at(now), Lost: lost}
	for i := range batch {
		m := &batch[i]
		e := entry{
			ID: m.id(), Rule: m.Rule, On: m.On, State: m.State, Labels: m.Group.cleaned(), What: clean(m.sentence()), Text: plainText(asIs)(m, from),
			Since: at(m.Since), At: at(m.At), Count: m.Count, Total: m.Total, Detail: clean(m.Detail), Call: m.Call,
		}
		for _, shop := range m.Shops {
			e.Shops = append(e.Shops, clean(shop))
		}
		for _, do := range m.Do {
			e.Do = append(e.Do, clean(do))
		}
		doc.Alerts = append(doc.Alerts, e)
	}
	return encode(doc)
}

func (l Labels) cleaned() Labels {
	return Labels{l.Scope, clean(l.Host), clean(l.Reason), clean(l.TaskType), clean(l.Shop), l.Others}
}

// id names the group of a message among all rules.
func (m *Message) id() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{m.Rule, m.Group.Scope, m.Group.Host, m.Group.Reason, m.Group.TaskType, m.Group.Shop}, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// jsonBody is the generic JSON, signed as Standard Webhooks says when there is a
// secret. A repeat has the same id, so that a receiver can tell.
func jsonBody(body []byte, id, secret string, now time.Time) envelope {
	e := envelope{body: body, header: map[string]string{"Webhook-Id": id}}
	if secret != "" {
		at := strconv.FormatInt(now.Unix(), 10)
		key := secret
		if raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_")); err == nil && strings.HasPrefix(secret, "whsec_") {
			key = string(raw)
		}
		e.header["Webhook-Timestamp"] = at
		e.header["Webhook-Signature"] = "v1," + sign(key, id+"."+at+"."+string(body))
	}
	return e
}

// texts joins as many messages as fit, at least one, and says how many that are.
func (f *format) texts(queue []Message, lost int, from Sender) (text string, n int) {
	limit := f.text
	note := ""
	if lost > 0 {
		note = fmt.Sprintf("%s(%d older messages were dropped: too many at once)", f.join, lost)
		limit -= len(note)
	}
	for n < min(len(queue), f.most) {
		next := f.render(&queue[n], from)
		if n > 0 {
			next = f.join + next
		}
		if n > 0 && len(text)+len(next) > limit {
			break
		}
		text += next
		n++
	}
	return cut(text, limit) + note, n
}

// answerError is a service's own no. Busy says that a later try may succeed.
type answerError struct {
	text string
	busy bool
}

func (e *answerError) Error() string { return e.text }

// codeIn judges answers such as {"errcode":0,"errmsg":"ok"}. The codes that mean
// too fast, or busy, are worth another try.
func codeIn(code, text string, busy ...int) func([]byte) error {
	return func(body []byte) error {
		var fields map[string]json.RawMessage
		var n int
		if json.Unmarshal(body, &fields) != nil || json.Unmarshal(fields[code], &n) != nil {
			return &answerError{fmt.Sprintf("the answer has no %s: %s", code, clean(string(body))), true}
		}
		if n == 0 {
			return nil
		}
		var said string
		_ = json.Unmarshal(fields[text], &said) // without one the code has to do
		e := &answerError{text: fmt.Sprintf("%s %d: %s", code, n, cmp.Or(clean(said), "no reason given"))}
		for _, b := range busy {
			e.busy = e.busy || n == b
		}
		return e
	}
}

// feishuAnswer judges {"code":0,…}; older bots say {"StatusCode":0,…}.
func feishuAnswer(body []byte) error {
	if bytes.Contains(body, []byte(`"StatusCode"`)) && !bytes.Contains(body, []byte(`"code"`)) {
		return codeIn("StatusCode", "StatusMessage")(body)
	}
	return codeIn("code", "msg", 9499, 11232)(body)
}
