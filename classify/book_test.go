package classify

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"retryproxy/document"
	"retryproxy/message"
)

func at(t testing.TB, text string) document.Path {
	t.Helper()
	p, err := document.ParsePath(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func paths(t testing.TB, texts ...string) (list []document.Path) {
	t.Helper()
	for _, text := range texts {
		list = append(list, at(t, text))
	}
	return list
}

// errorBook reads answers such as {"error":{"code":1,"sub":"x","msg":"…","more":"…"},"id":"r"}.
func errorBook(t testing.TB, rules ...Rule) *Book {
	t.Helper()
	return &Book{
		Code: paths(t, "$.error.code", "$.code"), Sub: paths(t, "$.error.sub"),
		Message: paths(t, "$.error.msg", "$.error.more"), RequestID: paths(t, "$.id"),
		Success: []Condition{{Path: at(t, "$.error"), Absent: true}}, Rules: rules,
	}
}

func jsonAnswer(doc string) *Answer {
	return &Answer{Status: 200, Operation: "order.ship", Write: true, Doc: doc, Text: doc}
}

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func TestConditionHolds(t *testing.T) {
	const doc = `{"ok":true,"n":1.0,"z":null,"s":" a ","list":[{"x":"1"},{"x":"2"}],"deep":{"ok":false}}`
	for _, tt := range []struct {
		name string
		c    Condition
		want bool
	}{
		{"is", Condition{Path: at(t, "$.ok"), Is: []string{"false", "true"}}, true},
		{"is another", Condition{Path: at(t, "$.ok"), Is: []string{"false"}}, false},
		{"is, digits count", Condition{Path: at(t, "$.n"), Is: []string{"1"}}, false},
		{"is, trimmed", Condition{Path: at(t, "$.s"), Is: []string{"a"}}, true},
		{"null is empty", Condition{Path: at(t, "$.z"), Is: []string{""}}, true},
		{"what is not there is not empty", Condition{Path: at(t, "$.none"), Is: []string{""}}, false},
		{"one of the values is", Condition{Path: at(t, "$.list[*].x"), Is: []string{"2"}}, true},
		{"none of the values is not", Condition{Path: at(t, "$.list[*].x"), Not: []string{"3"}}, true},
		{"one of the values is not", Condition{Path: at(t, "$.list[*].x"), Not: []string{"2"}}, false},
		{"not, at any depth", Condition{Path: at(t, "$..ok"), Not: []string{"false"}}, false},
		{"what is not there is nothing", Condition{Path: at(t, "$.none"), Not: []string{"1"}}, true},
		{"is and not", Condition{Path: at(t, "$.list[*].x"), Is: []string{"1"}, Not: []string{"2"}}, false},
		{"absent", Condition{Path: at(t, "$.none"), Absent: true}, true},
		{"null is not absent", Condition{Path: at(t, "$.z"), Absent: true}, false},
		{"present", Condition{Path: at(t, "$.z"), Present: true}, true},
		{"not present", Condition{Path: at(t, "$.none"), Present: true}, false},
		{"matches", Condition{Path: at(t, "$.list[*].x"), Matches: regexp.MustCompile("^2$")}, true},
		{"does not match", Condition{Path: at(t, "$.list[*].x"), Matches: regexp.MustCompile("3")}, false},
		{"header", Condition{Header: "x-code", Is: []string{"7"}}, true},
		{"second value of a header", Condition{Header: "X-Code", Is: []string{"8"}}, true},
		{"header is not", Condition{Header: "X-Code", Not: []string{"8"}}, false},
		{"absent header", Condition{Header: "X-None", Absent: true}, true},
		{"present header", Condition{Header: "X-Code", Present: true}, true},
	} {
		a := jsonAnswer(doc)
		a.Fields = message.Fields{{Name: "X-Code", Value: " 7 "}, {Name: "X-Code", Value: "8"}}
		if got := tt.c.holds(a); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	unread := &Answer{Status: 200, Text: "<html>"}
	if (&Condition{Path: at(t, "$"), Present: true}).holds(unread) || !(&Condition{Path: at(t, "$.a"), Absent: true}).holds(unread) {
		t.Error("something stands in what cannot be read")
	}
}

// Each thing that a rule names has to be there.
func TestRuleMatches(t *testing.T) {
	const doc = `{"error":{"code":" 50001 ","sub":"isp.busy","msg":"Try","more":"again"},"list":[1]}`
	is := func(code int) *StatusSet {
		var set StatusSet
		set.Add(code)
		return &set
	}
	for _, tt := range []struct {
		name string
		rule Rule
		want bool
	}{
		{"status", Rule{Status: is(200)}, true},
		{"another status", Rule{Status: is(500)}, false},
		{"code", Rule{Code: []string{"1", "50001"}}, true},
		{"code by a pattern", Rule{Code: []string{"500*"}}, true},
		{"another code", Rule{Code: []string{"5000"}}, false},
		{"sub code", Rule{Sub: []string{"isp.*"}}, true},
		{"another sub code", Rule{Sub: []string{"isv.*"}}, false},
		{"message across its parts", Rule{Message: regexp.MustCompile("^Try again$")}, true},
		{"another message", Rule{Message: regexp.MustCompile("try")}, false},
		{"body", Rule{Body: regexp.MustCompile(`"list":\[1\]`)}, true},
		{"another body", Rule{Body: regexp.MustCompile("captcha")}, false},
		{"operation", Rule{Operation: []string{"goods.*", "order.*"}}, true},
		{"another operation", Rule{Operation: []string{"order"}}, false},
		{"writes", Rule{Calls: "write"}, true},
		{"reads", Rule{Calls: "read"}, false},
		{"where", Rule{Where: []Condition{{Path: at(t, "$.list[0]"), Is: []string{"1"}}}}, true},
		{"where, all of it", Rule{Where: []Condition{{Path: at(t, "$.list[0]"), Is: []string{"1"}}, {Path: at(t, "$.x"), Present: true}}}, false},
		{"code and another sub code", Rule{Code: []string{"50001"}, Sub: []string{"isv.*"}}, false},
		{"code and another message", Rule{Code: []string{"50001"}, Message: regexp.MustCompile("no")}, false},
	} {
		tt.rule.Name, tt.rule.Is = "it", Refused
		s := errorBook(t, tt.rule).Read(jsonAnswer(doc), noon)
		if got := s.Rule == "it" && s.Kind == Refused; got != tt.want {
			t.Errorf("%s: rule %q, %s", tt.name, s.Rule, s.Kind)
		}
	}
	for name, rule := range map[string]Rule{"code": {Code: []string{"*"}}, "sub code": {Sub: []string{"*"}}, "body": {Body: regexp.MustCompile("")}} {
		if rule.matches(&Answer{Status: 200}, &Said{}) {
			t.Errorf("there is no %s, and any matches", name)
		}
	}
	if rule := (Rule{Operation: []string{"*"}}); rule.matches(&Answer{}, &Said{}) {
		t.Error("an operation that is not known matches any")
	}
}

func TestBookRead(t *testing.T) {
	b := errorBook(t,
		Rule{Name: "first", Code: []string{"1"}, Is: Throttled, Wait: []Hint{{Header: "X-Wait"}, {Base: time.Minute}}},
		Rule{Name: "second", Code: []string{"1", "2"}, Is: QuotaExhausted, Scope: "shop", Everywhere: true},
		Rule{Name: "down", Status: &StatusSet{}, Is: Doubt},
		Rule{Name: "done", Where: []Condition{{Path: at(t, "$.again"), Is: []string{"yes"}}}, Is: AlreadyDone},
	)
	b.Rules[2].Status.Add(500)
	for _, tt := range []struct {
		name string
		a    Answer
		want Said
	}{
		{"the first that matches", Answer{Doc: `{"error":{"code":1,"msg":"m","more":"m"},"id":9}`}, Said{Kind: Throttled, Rule: "first", Code: "1", Message: "m", RequestID: "9", Wait: time.Minute}},
		{"what it says goes along", Answer{Doc: `{"error":{"code":2,"sub":"s"}}`}, Said{Kind: QuotaExhausted, Rule: "second", Code: "2", Sub: "s", Scope: "shop", Everywhere: true}},
		{"the second place of a code", Answer{Doc: `{"error":{"code":null},"code":2}`}, Said{Kind: QuotaExhausted, Rule: "second", Code: "2", Scope: "shop", Everywhere: true}},
		{"by status, unread", Answer{Status: 500, Fault: "not json", Text: "oops"}, Said{Kind: Doubt, Rule: "down"}},
		{"a rule before the success test", Answer{Doc: `{"error":{},"again":"yes"}`}, Said{Kind: AlreadyDone, Rule: "done"}},
		{"success", Answer{Doc: `{"id":"r"}`}, Said{Kind: Done, RequestID: "r"}},
		{"new code of a write", Answer{Write: true, Doc: `{"error":{"code":3}}`}, Said{Kind: NewCode, Code: "3", Write: true}},
		{"new code of a read", Answer{Doc: `{"error":{"code":3}}`}, Said{Kind: NewCode, Code: "3"}},
		{"no success without a code", Answer{Doc: `{"error":{}}`}, Said{Kind: NewCode}},
		{"another status", Answer{Status: 404, Doc: `{"error":{"code":3}}`}, Said{Code: "3"}},
		{"redirect", Answer{Status: 302, Fault: "empty"}, Said{}},
		{"page", Answer{Text: "<html>", Fault: "not json"}, Said{Kind: Unreadable}},
		{"unknown coding", Answer{Write: true, Fault: "coding"}, Said{Kind: Unreadable, Write: true}},
		{"empty", Answer{Write: true, Fault: "empty"}, Said{Kind: Unreadable, Write: true}},
		{"cut, of a write", Answer{Write: true, Fault: "cut"}, Said{Kind: Unreadable, Write: true}},
		{"cut, of a read", Answer{Fault: "cut"}, Said{}},
		{"binary, of a write", Answer{Write: true, Fault: "binary"}, Said{Kind: Unreadable, Write: true}},
		{"download", Answer{Fault: "binary"}, Said{}},
	} {
		if tt.a.Status == 0 {
			tt.a.Status = 200
		}
		if got := b.Read(&tt.a, noon); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	b.Success = nil
	if got := b.Read(&Answer{Status: 200, Text: "<html>", Fault: "not json"}, noon); got.Kind != Unsaid {
		t.Errorf("a book without a success test says %s", got.Kind)
	}
}

// What is kept of a message is short; what is looked for in it may stand at its end.
func TestLongMessage(t *testing.T) {
	b := errorBook(t, Rule{
		Name: "late", Message: regexp.MustCompile("秒后重试"), Is: Throttled,
		Wait: []Hint{{Message: regexp.MustCompile(`(\d+)秒后`)}},
	})
	s := b.Read(jsonAnswer(`{"error":{"code":"`+strings.Repeat("9", 300)+`","msg":"`+strings.Repeat("限流", 200)+`30秒后重试"}}`), noon)
	if s.Kind != Throttled || s.Wait != 30*time.Second {
		t.Errorf("what stands at the end is not seen: %s, wait %s", s.Kind, s.Wait)
	}
	if len(s.Message) > longestNote || len(s.Message) < longestNote-utf8.UTFMax || !utf8.ValidString(s.Message) || len(s.Code) != longestNote {
		t.Errorf("%d bytes of message %q and %d of code are kept", len(s.Message), s.Message, len(s.Code))
	}
}

func FuzzBookRead(f *testing.F) {
	f.Add(`{"error":{"code":1,"msg":"5 s"},"wait":-1}`, "1", "Tue, 01 Dec 2026 12:00:30 GMT", 200, true)
	f.Add(`{"a":[[1e999]],"wait":"Inf"}`, "*", "NaN", 503, false)
	f.Fuzz(func(t *testing.T, doc, code, header string, status int, write bool) {
		if !document.Valid(doc) {
			doc = ""
		}
		b := errorBook(t, Rule{Name: "r", Code: []string{code}, Is: Throttled, Wait: []Hint{
			{Header: "Retry-After"},
			{Path: at(t, "$..wait"), Unit: EpochMilliseconds},
			{Message: regexp.MustCompile(`(\d+) s`)},
			{Cost: &Cost{Need: at(t, "$.need"), Have: at(t, "$.have"), Rate: at(t, "$.rate")}},
		}})
		a := Answer{Status: status, Write: write, Doc: doc, Text: doc, Fields: message.Fields{{Name: "Retry-After", Value: header}}}
		s := b.Read(&a, noon)
		if s.Wait < 0 || s.Wait > longestWait || len(s.Message) > longestNote || s.Kind != Throttled && s.Wait != 0 {
			t.Errorf("Read(%s) = %+v", doc, s)
		}
		Judge(defaults(t, ""), &Outcome{Phase: PhaseDone, Status: status, Said: s})
	})
}
