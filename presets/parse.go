package presets

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"retryproxy/classify"
	"retryproxy/config"
	"retryproxy/document"
	"retryproxy/inspect"
	"retryproxy/policy"
	"retryproxy/signer"
)

// raw is a preset of which no more than its head was understood yet.
type raw struct {
	name    string // of the file
	data    []byte
	builtin bool
	preset  string
	extends string
	err     error // why the head cannot be read
}

func newRaw(name string, data []byte, builtin bool) raw {
	var head file
	err := config.Decode(name, data, &head).Err()
	return raw{name: name, data: data, builtin: builtin, preset: head.Preset, extends: head.Extends, err: err}
}

// family finds presets by name while a set is built, so that one may extend another.
type family struct {
	raws  map[string]raw
	busy  map[string]bool
	ready *Set // the built-in presets, which need not be built again; nil: they must
}

// unchanged tells whether a preset and all that it extends are those of the binary.
func (f *family) unchanged(name string) bool {
	for f.raws[name].builtin {
		if name = f.raws[name].extends; name == "" {
			return true
		}
	}
	return false
}

// read lays a preset over the one that it extends.
func (f *family) read(name string) (*file, *config.Reading, error) {
	if f.busy[name] {
		return nil, nil, fmt.Errorf("%s: extends: it extends itself", f.raws[name].name)
	}
	f.busy[name] = true
	defer delete(f.busy, name)
	r := f.raws[name]
	own := &file{Query: queryText{FirstAfter: time.Minute, Every: time.Minute, Max: 10, Grace: 5 * time.Minute, NotFoundAnswers: 2, Rate: "1/s"}}
	if r.extends == name {
		r.extends = beneath + name
	}
	if r.extends != "" {
		if _, ok := f.raws[r.extends]; !ok {
			return nil, nil, config.Problem{File: r.name, Path: "extends", Rule: fmt.Sprintf("there is no preset %q", strings.TrimPrefix(r.extends, beneath))}
		}
		base, _, err := f.read(r.extends)
		if err != nil {
			return nil, nil, err
		}
		*own = *base
		own.Fixtures, own.RulesBefore, own.Sources, own.Notes, own.Enabled = nil, nil, nil, nil, false
		own.Rules = slices.Clone(base.Rules)
	}
	reading := config.Decode(r.name, r.data, own)
	own.Rules = append(slices.Clone(own.RulesBefore), own.Rules...)
	return own, reading, reading.Err()
}

// compiler turns what a file says into a Preset, and collects what is wrong.
type compiler struct{ *config.Reading }

// compile checks a file and builds its preset. The error joins one config.Problem for
// each fault.
func compile(f *file, r *config.Reading, builtin bool) (*Preset, error) {
	c := compiler{r}
	p := &Preset{
		Name: f.Preset, Version: f.Version, Title: f.Title, Confidence: f.Confidence, Sources: f.Sources, Notes: f.Notes,
		Enabled: f.Enabled, Builtin: builtin, Hosts: f.Hosts, Paths: f.Paths, Forward: f.Forward, Renew: f.Renew,
		Operation: f.Operation, Token: f.Token, BusinessKey: f.BusinessKey, Volatile: f.Volatile, Secrets: f.Secrets,
		Reads: f.Reads, Scarce: f.Scarce, Rules: f.Rules, Fixtures: f.Fixtures, hosts: policy.NewHosts(f.Hosts),
		Answers: inspect.Options{Charset: f.Answer.Charset, Format: f.Answer.Format, Unpack: f.Answer.Unpack},
	}
	p.VolatileLessToken = slices.DeleteFunc(slices.Clone(p.Volatile), func(name string) bool {
		return slices.ContainsFunc(p.Token, func(at document.Place) bool {
			return strings.HasSuffix(at.String(), ":"+name) || strings.HasSuffix(at.String(), "."+name)
		})
	})
	for i, m := range p.Reads.Methods {
		p.Reads.Methods[i] = strings.ToUpper(m)
	}
	c.head(f)
	p.Sign, p.Replay = c.sign(f), f.Replay
	p.Submit = c.submit(f, p.Sign)
	p.Query = c.query(f, p.Sign)
	for i := range f.Idempotent {
		p.Idempotent = append(p.Idempotent, c.idempotent(&f.Idempotent[i], fmt.Sprintf("idempotent[%d]", i)))
	}
	for i := range f.Limits {
		p.Limits = append(p.Limits, c.limit(&f.Limits[i], fmt.Sprintf("limits[%d]", i)))
	}
	a := &f.Answer
	p.Book = classify.Book{Code: a.Code, Sub: a.Sub, Message: a.Message, RequestID: a.RequestID}
	for i := range a.Success {
		p.Book.Success = append(p.Book.Success, c.condition(&a.Success[i], fmt.Sprintf("answer.success[%d]", i)))
	}
	c.rules(f, p)
	for i := range f.Fixtures {
		c.fixture(&f.Fixtures[i], fmt.Sprintf("fixtures[%d]", i))
	}
	return p, c.Err()
}

// oneOf checks a word; empty is fine.
func (c compiler) oneOf(path, value string, words ...string) {
	if value != "" && !slices.Contains(words, value) {
		c.Fail(path, "want %s, not %q", strings.Join(words, ", "), value)
	}
}

var presetName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func (c compiler) head(f *file) {
	if !presetName.MatchString(f.Preset) || f.Preset == None {
		c.Fail("preset", "want a name of lower case letters, digits, - and _, not %q", f.Preset)
	}
	c.oneOf("confidence", f.Confidence, "high", "medium", "low")
	if f.Enabled && len(f.Hosts) == 0 {
		c.Fail("enabled", "a preset without hosts is used only where a route or policy names it: leave this out")
	}
	headers := []string{policy.HeaderKey, policy.HeaderRetryCount, policy.HeaderShop, policy.HeaderShopTier, policy.HeaderTaskType, HeaderVia}
	for i, h := range f.Forward {
		c.oneOf(fmt.Sprintf("forward_headers[%d]", i), h, headers...)
	}
	c.oneOf("answer.format", f.Answer.Format, "auto", "json", "xml")
	if err := inspect.CheckCharset(f.Answer.Charset); err != nil {
		c.Fail("answer.charset", "%v", err)
	}
}

// HeaderVia is Via among forward_headers.
const HeaderVia = "via"

func (c compiler) sign(f *file) *signer.Scheme {
	c.oneOf("replay", f.Replay, "window", "handback", "resign")
	if f.Sign.Family == "" {
		if c.Given("sign") {
			c.Fail("sign.family", "is missing")
		}
		return nil
	}
	if err := f.Sign.Validate(); err != nil {
		c.Fail("sign", "%v", err)
	}
	return &f.Sign
}

func (c compiler) idempotent(t *idempotentText, path string) Idempotent {
	d := Idempotent{Operation: t.Operation}
	if t.Operation == "" {
		c.Fail(path+".operation", "is missing; * is every operation")
	}
	for i, w := range t.Where {
		at := fmt.Sprintf("%s.where[%d]", path, i)
		if len(w.Is)+len(w.Not) == 0 && !w.Absent && !w.Present && w.Matches == "" {
			c.Fail(at, "want one of is, not, absent, present, matches")
		}
		d.Where = append(d.Where, RequestCondition{w.At, w.Is, w.Not, w.Absent, w.Present, c.pattern(at+".matches", w.Matches)})
	}
	return d
}

// perSecond are the units of rates.
var perSecond = map[string]float64{"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}

func (c compiler) limit(t *limitText, path string) Limit {
	if t.Operation == "" {
		c.Fail(path+".operation", "is missing; * is every operation")
	}
	c.oneOf(path+".scope", t.Scope, "shop", "all")
	l := Limit{Operation: t.Operation, Scope: t.Scope}
	if l.Scope == "" {
		l.Scope = "shop"
	}
	number, unit, _ := strings.Cut(t.Rate, "/")
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || n == 0 || perSecond[unit] == 0 {
		c.Fail(path+".rate", "want a rate such as 20/s, 6000/m, 100/h or 1000/d, not %q", t.Rate)
		return l
	}
	l.Rate, l.Burst = float64(n)/perSecond[unit], int(n)
	return l
}

// pattern compiles RE2; an empty text is none.
func (c compiler) pattern(path, text string) *regexp.Regexp {
	if text == "" {
		return nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		c.Fail(path, "not RE2: %v", err)
	}
	return re
}

// answerPlace reads $.a.b or header:Name.
func (c compiler) answerPlace(path, text string) (p document.Path, header string) {
	if name, ok := strings.CutPrefix(text, "header:"); ok {
		if name == "" {
			c.Fail(path, "want a header name after header:")
		}
		return p, name
	}
	p, err := document.ParsePath(text)
	if err != nil {
		c.Fail(path, "want header:Name or a path such as $.a.b: %v", err)
	}
	return p, ""
}

func (c compiler) condition(t *conditionText, path string) classify.Condition {
	d := classify.Condition{Is: t.Is, Not: t.Not, Only: t.Only, Absent: t.Absent, Present: t.Present}
	d.Path, d.Header = c.answerPlace(path+".at", t.At)
	d.Matches = c.pattern(path+".matches", t.Matches)
	if len(t.Is)+len(t.Not)+len(t.Only) == 0 && !t.Absent && !t.Present && t.Matches == "" {
		c.Fail(path, "want one of is, not, only, absent, present, matches")
	}
	if t.Absent && (t.Present || len(t.Is) > 0 || t.Matches != "") {
		c.Fail(path, "what is absent has no value")
	}
	return d
}

// rules compiles those that are on.
func (c compiler) rules(f *file, p *Preset) {
	before, names := len(f.RulesBefore), map[string]bool{}
	for i := range f.Rules {
		t := &f.Rules[i]
		path := fmt.Sprintf("rules[%d]", i-before)
		if i < before {
			path = fmt.Sprintf("rules_before[%d]", i)
		}
		if t.Name == "" || names[t.Name] {
			c.Fail(path+".name", "want a name of its own, not %q", t.Name)
		}
		names[t.Name] = true
		if r := c.rule(t, path); t.Enabled {
			p.Book.Rules = append(p.Book.Rules, r)
		}
	}
}

func (c compiler) rule(t *RuleText, path string) classify.Rule {
	r := classify.Rule{
		Name: t.Name, Everywhere: !t.Failover, Code: t.Code, Sub: t.Sub, Operation: t.Operation, Calls: t.Calls, Scope: t.Scope,
		Message: c.pattern(path+".message", t.Message), Body: c.pattern(path+".body", t.Body),
	}
	is, ok := classify.ParseKind(t.Is)
	if !ok {
		c.Fail(path+".is", "%q is none of the verdicts of docs/presets.md", t.Is)
	}
	r.Is = is
	c.oneOf(path+".confidence", t.Confidence, "high", "medium", "low")
	c.oneOf(path+".calls", t.Calls, "read", "write")
	c.oneOf(path+".scope", t.Scope, "operation", "shop", "all")
	if t.Scope != "" && is != classify.QuotaExhausted {
		c.Fail(path+".scope", "only quota_exhausted has one")
	}
	if len(t.Status) > 0 {
		set, err := classify.ParseStatuses(t.Status)
		if err != nil {
			c.Fail(path+".status", "%v", err)
		}
		r.Status = &set
	}
	for i := range t.Where {
		r.Where = append(r.Where, c.condition(&t.Where[i], fmt.Sprintf("%s.where[%d]", path, i)))
	}
	for i := range t.Wait {
		r.Wait = append(r.Wait, c.hint(&t.Wait[i], fmt.Sprintf("%s.wait[%d]", path, i)))
	}
	if r.Status == nil && len(r.Code)+len(r.Sub)+len(r.Operation)+len(r.Where) == 0 && r.Message == nil && r.Body == nil && r.Calls == "" {
		c.Fail(path, "names nothing that an answer could have; it would match every one")
	}
	return r
}

func (c compiler) hint(t *hintText, path string) classify.Hint {
	h := classify.Hint{Base: t.Base, Message: c.pattern(path+".message", t.Message)}
	if h.Message != nil && h.Message.NumSubexp() < 1 {
		c.Fail(path+".message", "has no group around the number")
	}
	ways := 0
	for _, given := range []bool{t.At != "", t.Message != "", t.Until != "", t.Cost.given(), t.Base > 0} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		c.Fail(path, "want one of at, message, until, cost, base")
	}
	if t.At != "" {
		h.Path, h.Header = c.answerPlace(path+".at", t.At)
	}
	h.Unit = c.unit(path+".unit", t.Unit)
	if t.Until != "" {
		h.Daily = c.daily(t, path)
	}
	if t.Cost.given() {
		h.Cost = &classify.Cost{Need: t.Cost.Need, Have: t.Cost.Have, Rate: t.Cost.Rate}
	}
	return h
}

// units of hints.
var units = map[string]classify.Unit{
	"": classify.Seconds, "s": classify.Seconds, "ms": classify.Milliseconds,
	"epoch": classify.EpochSeconds, "epoch_ms": classify.EpochMilliseconds,
}

func (c compiler) unit(path, text string) classify.Unit {
	u, ok := units[text]
	if !ok {
		c.Fail(path, "want s, ms, epoch or epoch_ms, not %q", text)
	}
	return u
}

func (c compiler) daily(t *hintText, path string) *classify.Daily {
	at, err := time.Parse("15:04", t.Until)
	if err != nil {
		c.Fail(path+".until", "want a time of day such as 00:00, not %q", t.Until)
	}
	zone, err := time.Parse("-07:00", t.Zone)
	if err != nil {
		c.Fail(path+".zone", "want a zone such as +08:00, not %q", t.Zone)
	}
	_, offset := zone.Zone() // its Location may be that of this machine, with a summer time
	return &classify.Daily{
		After: time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute, Zone: time.FixedZone(t.Zone, offset),
	}
}

func (c compiler) fixture(f *Fixture, path string) {
	if f.Name == "" {
		c.Fail(path+".name", "is missing")
	}
	c.oneOf(path+".calls", f.Calls, "read", "write")
	if _, ok := classify.ParseKind(f.Is); !ok && !slices.Contains([]string{classify.NewCode.String(), classify.Unreadable.String(), byStatus}, f.Is) {
		c.Fail(path+".is", "%q is none of the verdicts of docs/presets.md, nor status", f.Is)
	}
	if f.Body != "" && f.BodyBase64 != "" {
		c.Fail(path+".body_base64", "the fixture has a body already")
	}
}
