package classify

import (
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"retryproxy/document"
	"retryproxy/internal/glob"
	"retryproxy/message"
)

// Book is how answers of a platform are read: where its verdict stands, what counts as
// a success, and what its codes mean. It is never changed once it is built.
type Book struct {
	Code, Sub, Message, RequestID []document.Path
	Success                       []Condition // all must hold; none: the status decides
	Rules                         []Rule      // the first that matches wins
}

// Rule says what an answer means that has all of this; what is empty matches every answer.
type Rule struct {
	Name      string
	Status    *StatusSet
	Code, Sub []string // globs
	Message   *regexp.Regexp
	Body      *regexp.Regexp // of the decoded text
	Operation []string       // globs
	Calls     string         // read, write
	Where     []Condition
	Is        Kind
	Scope     string
	// Everywhere: another supplier would say the same.
	Everywhere bool
	Wait       []Hint // the first that gives a time counts
}

// Condition is one on what stands at a place of an answer.
type Condition struct {
	Path    document.Path
	Header  string   // instead of Path
	Is      []string // one of the values is one of these
	Not     []string // no value is one of these
	Only    []string // every value, if there is any, is one of these
	Absent  bool
	Present bool
	Matches *regexp.Regexp // one of the values
}

// Answer is a complete answer as a Book reads it.
type Answer struct {
	Status    int
	Fields    message.Fields
	Operation string // of the call; empty: unknown
	Write     bool   // the call is not known to be a read
	Doc       string // the content as JSON; empty: it is none
	Text      string // the content decoded; empty: it is binary or cannot be decoded
	Fault     string // why Doc is nil
}

// Faults of an Answer that are none of its platform. They are those of inspect.
const (
	faultBinary = "binary"
	faultCut    = "cut"
)

// longestNote bounds what is kept of a platform's words, in bytes.
const longestNote = 200

// Read says what the answer means at now.
func (b *Book) Read(a *Answer, now time.Time) Said {
	s := Said{
		Code: b.first(a, b.Code), Sub: b.first(a, b.Sub), RequestID: b.first(a, b.RequestID),
		Message: b.message(a), Write: a.Write,
	}
	if r := b.rule(a, &s); r != nil {
		s.Kind, s.Rule, s.Scope, s.Everywhere = r.Is, r.Name, r.Scope, r.Everywhere
		s.Wait = r.wait(a, &s, now)
	} else {
		s.Kind = b.unruled(a)
	}
	s.Message = shortened(s.Message) // only now: what a pattern looks for is often at the end
	return s
}

// rule is the first that matches; nil: none does.
func (b *Book) rule(a *Answer, s *Said) *Rule {
	for i := range b.Rules {
		if b.Rules[i].matches(a, s) {
			return &b.Rules[i]
		}
	}
	return nil
}

// unruled is what an answer means that no rule is about.
func (b *Book) unruled(a *Answer) Kind {
	switch {
	case a.Status < 200 || a.Status > 299 || len(b.Success) == 0:
		return Unsaid
	case a.Doc == "" && !a.Write && (a.Fault == faultBinary || a.Fault == faultCut):
		return Unsaid // a download, or a list that is too long to be looked at
	case a.Doc == "":
		return Unreadable
	}
	for i := range b.Success {
		if !b.Success[i].holds(a) {
			return NewCode
		}
	}
	return Done
}

// first is the first value that stands at one of the paths; empty: none.
func (b *Book) first(a *Answer, paths []document.Path) string {
	if a.Doc == "" {
		return ""
	}
	for i := range paths {
		if v, ok := paths[i].First(a.Doc); ok && v.Text != "" {
			return shortened(v.Text)
		}
	}
	return ""
}

// message is all that the platform says in words, each thing once.
func (b *Book) message(a *Answer) string {
	text := ""
	if a.Doc == "" {
		return text
	}
	for i := range b.Message {
		switch v, ok := b.Message[i].First(a.Doc); {
		case !ok || v.Text == "" || v.Text == text:
		case text == "":
			text = v.Text
		default:
			text += " " + v.Text
		}
	}
	return text
}

// shortened bounds a text without cutting a character.
func shortened(text string) string {
	if len(text) <= longestNote {
		return text
	}
	end := longestNote
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

func (r *Rule) matches(a *Answer, s *Said) bool {
	return (r.Status == nil || r.Status.Has(a.Status)) &&
		(len(r.Code) == 0 || s.Code != "" && glob.Any(r.Code, s.Code)) &&
		(len(r.Sub) == 0 || s.Sub != "" && glob.Any(r.Sub, s.Sub)) &&
		(r.Calls == "" || (r.Calls == "write") == a.Write) &&
		(len(r.Operation) == 0 || a.Operation != "" && glob.Any(r.Operation, a.Operation)) &&
		(r.Message == nil || r.Message.MatchString(s.Message)) &&
		r.finds(a)
}

// finds looks at the content, which takes longest.
func (r *Rule) finds(a *Answer) bool {
	for i := range r.Where {
		if !r.Where[i].holds(a) {
			return false
		}
	}
	return r.Body == nil || a.Text != "" && r.Body.MatchString(a.Text)
}

// holds says whether the condition is met. What cannot be read has nothing anywhere.
func (c *Condition) holds(a *Answer) bool {
	found, is, not := false, len(c.Is) == 0 && c.Matches == nil, false
	look := func(text string) bool {
		found = true
		is = is || contains(c.Is, text) || c.Matches != nil && c.Matches.MatchString(text)
		not = not || contains(c.Not, text) || len(c.Only) > 0 && !contains(c.Only, text)
		return true
	}
	if c.Header != "" {
		for _, v := range a.Fields.Values(c.Header) {
			look(strings.TrimSpace(v))
		}
	} else if a.Doc != "" {
		c.Path.Each(a.Doc, func(v document.Value) bool { return look(v.Text) })
	}
	return is && !not && !(c.Absent && found) && !(c.Present && !found)
}

func contains(list []string, text string) bool {
	for _, s := range list {
		if s == text {
			return true
		}
	}
	return false
}
