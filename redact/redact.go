// Package redact answers one question: how is a message shown without its secrets?
//
// It goes by names: what stands under one of them is replaced, in JSON (also in JSON
// within a string), forms, queries, XML and headers, whole or cut off. What is sent or
// kept is never touched.
package redact

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Hidden stands where a secret would.
const Hidden = "***"

// common are names of secrets and of card data that are used everywhere.
var common = []string{
	"access_token", "accessToken", "refresh_token", "refreshToken", "id_token", "session_key",
	"app_secret", "appSecret", "client_secret", "clientSecret", "partner_key", "secret", "secret_key", "secretKey", "api_key", "apiKey",
	"sign", "signature", "password", "passwd", "pwd",
	"card_no", "cardNo", "card_pwd", "cardPwd", "card_password", "card_secret", "cardSecret", "cards", "voucher_no", "voucher_code", "卡号", "卡密", "密码",
}

// headers are those that hold credentials whatever the names are.
var headers = []string{"Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key"}

// Names are the names of what is secret. Nil knows none but those of headers.
type Names struct {
	names map[string]bool // lower case
	any   *regexp.Regexp  // one of them
}

// New knows the common names and more; case does not count.
func New(more []string) *Names {
	n := &Names{names: map[string]bool{}}
	var all []string
	for _, name := range slices.Concat(common, more) {
		name = strings.ToLower(strings.TrimSpace(name))
		if name != "" && !n.names[name] {
			n.names[name] = true
			all = append(all, regexp.QuoteMeta(name))
		}
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) }) // the longest that fits
	n.any = regexp.MustCompile("(?i)" + strings.Join(all, "|"))
	return n
}

// Header is the value of a field as it is shown.
func (n *Names) Header(name, value string) string {
	if value == "" || !n.has(name) && !slices.ContainsFunc(headers, func(h string) bool { return strings.EqualFold(h, name) }) {
		return value
	}
	return Hidden
}

func (n *Names) has(name string) bool { return n != nil && n.names[strings.ToLower(name)] }

// Target is a path and query, or a whole URL, as it is shown.
func (n *Names) Target(target string) string {
	path, query, ok := strings.Cut(target, "?")
	if !ok || n == nil {
		return target
	}
	return path + "?" + n.pairs(query)
}

// pairs hides values of a query or a form.
func (n *Names) pairs(text string) string {
	parts := strings.Split(text, "&")
	for i, p := range parts {
		name, value, _ := strings.Cut(p, "=")
		plain, err := url.QueryUnescape(name)
		switch {
		case err == nil && n.has(strings.TrimSpace(plain)):
			parts[i] = name + "=" + Hidden
		case strings.Contains(value, "%22"): // a parameter that holds JSON, as many platforms want it
			if inner, err := url.QueryUnescape(value); err == nil {
				if shown := n.Text(inner); shown != inner {
					parts[i] = name + "=" + url.QueryEscape(shown)
				}
			}
		}
	}
	return strings.Join(parts, "&")
}

// Text is content, or a text with content in it, as it is shown.
func (n *Names) Text(text string) string {
	if n == nil || n.any == nil {
		return text
	}
	if isForm(text) {
		return n.pairs(text)
	}
	var out strings.Builder
	done := 0
	for _, at := range n.any.FindAllStringIndex(text, -1) {
		if at[0] < done {
			continue
		}
		if from, to := secretAt(text, at[0], at[1]); from >= done && to > from {
			out.WriteString(text[done:from])
			out.WriteString(Hidden)
			done = to
		}
	}
	out.WriteString(text[done:])
	return out.String()
}

// isForm says whether a text is a form: pairs without the marks of other forms.
func isForm(text string) bool {
	return strings.Contains(text, "=") && !strings.ContainsAny(text, "{}<>\"\n ")
}

// secretAt finds the value that belongs to a name in text[i:j]; empty: it is no name.
func secretAt(text string, i, j int) (from, to int) {
	if i > 0 && text[i-1] == '<' {
		return inXML(text, j)
	}
	slashes := 0 // before its quotes: JSON in a string in JSON has them
	for k := i - 2; i > 0 && k >= 0 && text[k] == '\\'; k-- {
		slashes++
	}
	if i == 0 || text[i-1] != '"' {
		return 0, 0
	}
	quote := strings.Repeat(`\`, slashes) + `"`
	rest, ok := strings.CutPrefix(text[j:], quote)
	if !ok {
		return 0, 0
	}
	trimmed := strings.TrimLeft(rest, " \t\r\n")
	trimmed, ok = strings.CutPrefix(trimmed, ":")
	if !ok {
		return 0, 0
	}
	trimmed = strings.TrimLeft(trimmed, " \t\r\n")
	from = len(text) - len(trimmed)
	if inner, ok := strings.CutPrefix(trimmed, quote); ok {
		from += len(quote)
		return from, from + stringEnd(inner, slashes)
	}
	return from, from + valueEnd(trimmed)
}

// stringEnd is where a string ends whose quotes have so many backslashes before them; at
// the end of a text that was cut.
func stringEnd(text string, slashes int) int {
	run := 0
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			run++
		case text[i] == '"' && (run == slashes || slashes == 0 && run%2 == 0):
			return i - min(run, slashes)
		default:
			run = 0
		}
	}
	return len(text)
}

// valueEnd is where a number, a literal, an object or a list ends.
func valueEnd(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' && (i == 0 || text[i-1] != '\\'):
			i += 1 + stringEnd(text[i+1:], 0)
		case c == '{' || c == '[':
			depth++
		case (c == '}' || c == ']') && depth > 1:
			depth--
		case c == '}' || c == ']':
			return i + depth // with its own bracket, without that of what is around it
		case depth == 0 && (c == ',' || c == '\n'):
			return i
		}
	}
	return len(text)
}

// inXML is the text of an element whose name ends at j.
func inXML(text string, j int) (from, to int) {
	if j >= len(text) || !strings.ContainsRune("> \t\r\n", rune(text[j])) {
		return 0, 0
	}
	open := strings.IndexByte(text[j:], '>')
	if open < 0 || text[j+open-1] == '/' {
		return 0, 0
	}
	from = j + open + 1
	end := strings.Index(text[from:], "</")
	if end < 0 {
		return from, len(text)
	}
	return from, from + end
}
