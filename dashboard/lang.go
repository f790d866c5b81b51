package dashboard

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Languages of the page, the first where nothing is known.
const (
	english = "en"
	chinese = "zh"
)

var languages = []string{english, chinese}

// texts are all sentences of the page, in English and in Chinese.
var texts = join(textsBase, textsTrace, textsPerson, textsNow, textsShops, textsLine, textsPolicies, textsCoverage, textsAudit, textsReasons)

// two is a text in both languages.
type two struct{ en, zh string }

// join puts the texts of all pages together. The same key twice is a bug.
func join(parts ...map[string]two) map[string]two {
	out, n := map[string]two{}, 0
	for _, p := range parts {
		maps.Copy(out, p)
		n += len(p)
	}
	if len(out) != n {
		panic("bug: a text of the page is there twice")
	}
	return out
}

// words speaks one language.
type words struct{ lang string }

// language is the one that the viewer chose, or else asks for.
func language(r *http.Request) words {
	if c, err := r.Cookie("lang"); err == nil && (c.Value == english || c.Value == chinese) {
		return words{c.Value}
	}
	return words{accepted(r.Header.Get("Accept-Language"))}
}

// accepted is the one of our languages that a browser likes best (RFC 9110, section 12.5.4).
func accepted(header string) string {
	best, weight := english, 0.0
	for part := range strings.SplitSeq(header, ",") {
		tag, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		q := 1.0
		if text, ok := strings.CutPrefix(strings.TrimSpace(params), "q="); ok {
			q, _ = strconv.ParseFloat(text, 64) // what is no number weighs nothing
		}
		name, _, _ := strings.Cut(strings.ToLower(tag), "-")
		if (name == english || name == chinese) && q > weight {
			best, weight = name, q
		}
	}
	return best
}

// say is a text with its values: that for one thing, where the first value is 1 and there
// is such a text. One that does not exist shows its key.
func (w words) say(key string, values ...any) string {
	if len(values) > 0 && values[0] == 1 {
		if _, one := texts[key+".1"]; one {
			key += ".1"
		}
	}
	t, ok := texts[key]
	if !ok {
		return key
	}
	text := t.en
	if w.lang == chinese {
		text = t.zh
	}
	if len(values) == 0 {
		return text
	}
	return fmt.Sprintf(text, values...)
}

// known says whether there is a text.
func (w words) known(key string) bool {
	_, ok := texts[key]
	return ok
}

// reason is a token of the contract in words; an unknown one is itself.
func (w words) reason(token string) string {
	if text := w.say("reason." + token); text != "reason."+token {
		return text
	}
	if status, ok := strings.CutPrefix(token, "status_"); ok {
		return w.say("reason.status", status)
	}
	return token
}

// cause is that of a wait in words.
func (w words) cause(token string) string {
	if w.known("cause." + token) {
		return w.say("cause." + token)
	}
	return token
}

// units of a duration, the largest first.
var units = []struct {
	of     time.Duration
	en, zh string
}{{24 * time.Hour, "d", "天"}, {time.Hour, "h", "小时"}, {time.Minute, "min", "分"}, {time.Second, "s", "秒"}}

// lasts is a duration for people: its two largest units.
func (w words) lasts(d time.Duration) string {
	d = max(d, 0)
	if d < time.Second {
		return fmt.Sprintf("%d%s", d.Milliseconds(), w.pick(" ms", " 毫秒"))
	}
	if d < 10*time.Second {
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + w.pick(" s", " 秒")
	}
	d = d.Round(time.Second)
	var parts []string
	for _, u := range units {
		if n := d / u.of; n > 0 && len(parts) < 2 {
			parts = append(parts, fmt.Sprintf("%d %s", n, w.pick(u.en, u.zh)))
			d -= n * u.of
		} else if len(parts) > 0 {
			break
		}
	}
	return strings.Join(parts, " ")
}

func (w words) pick(en, zh string) string {
	if w.lang == chinese {
		return zh
	}
	return en
}
