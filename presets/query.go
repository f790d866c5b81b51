package presets

import (
	"fmt"
	"time"

	"retryproxy/classify"
	"retryproxy/inspect"
	"retryproxy/query"
	"retryproxy/signer"
	"retryproxy/template"
)

// Query says how a supplier is asked what became of an order.
type Query struct {
	Request template.Template
	Sign    *signer.Scheme // nil: the question is not signed
	Plan    query.Plan
	Rate    float64 // questions a second, of all calls
	Burst   int
	book    classify.Book
	means   map[string]query.Answer // what a rule of book means
}

// queryText is a query as it is written.
type queryText struct {
	Request         template.Template `key:"request"`
	Sign            signer.Scheme     `key:"sign"`
	FirstAfter      time.Duration     `key:"first_after"`
	Every           time.Duration     `key:"every"`
	Max             int               `key:"max"`
	Grace           time.Duration     `key:"grace"`
	NotFoundAnswers int               `key:"not_found_answers"`
	Rate            string            `key:"rate"`
	Rules           []queryRuleText   `key:"rules"`
}

// queryRuleText is one rule on the answer to a question.
type queryRuleText struct {
	Status []string        `key:"status"`
	Where  []conditionText `key:"where"`
	Body   string          `key:"body"`
	Is     string          `key:"is"`
}

// Bounds of a query: what a supplier takes, and what the notes of a record hold.
const (
	leastEvery    = time.Second
	mostQuestions = 12
)

// query compiles what a file says of questions; nil: nothing.
func (c compiler) query(f *file, sign *signer.Scheme) *Query {
	if !c.Given("query") && len(f.Query.Rules) == 0 {
		return nil
	}
	t := &f.Query
	q := &Query{Request: t.Request, Sign: sign, means: map[string]query.Answer{}, Plan: query.Plan{
		FirstAfter: t.FirstAfter, Every: t.Every, Max: t.Max, Grace: t.Grace, NotFoundAnswers: t.NotFoundAnswers,
	}}
	for _, fault := range t.Request.Validate() {
		c.Fail("query.request."+fault.Path, "%s", fault.Rule)
	}
	if t.Sign.Family != "" {
		if err := t.Sign.Validate(); err != nil {
			c.Fail("query.sign", "%v", err)
		}
		q.Sign = &t.Sign
	}
	l := c.limit(&limitText{Operation: "*", Rate: t.Rate}, "query")
	q.Rate, q.Burst = l.Rate, l.Burst
	c.plan(t)
	for i := range t.Rules {
		path := fmt.Sprintf("query.rules[%d]", i)
		c.queryRule(q, &t.Rules[i], path)
	}
	if len(t.Rules) == 0 {
		c.Fail("query.rules", "is missing: without rules every answer is a person's")
	}
	return q
}

func (c compiler) plan(t *queryText) {
	if t.Every < leastEvery {
		c.Fail("query.every", "%s is below %s", t.Every, leastEvery)
	}
	if t.Max < 1 || t.Max > mostQuestions {
		c.Fail("query.max", "%d must be from 1 to %d", t.Max, mostQuestions)
	}
	if t.NotFoundAnswers < 2 {
		c.Fail("query.not_found_answers", "%d must be 2 or more: one answer may be early", t.NotFoundAnswers)
	}
}

func (c compiler) queryRule(q *Query, t *queryRuleText, path string) {
	means, ok := query.ParseAnswer(t.Is)
	if !ok {
		c.Fail(path+".is", "want done, failed, not_found, processing, unanswered or unclear, not %q", t.Is)
	}
	r := c.rule(&RuleText{Name: path, Status: t.Status, Where: t.Where, Body: t.Body, Is: classify.Done.String()}, path)
	q.book.Rules = append(q.book.Rules, r)
	q.means[path] = means
}

// Hear says what the answer to a question means. What no rule knows is unclear; an answer
// that is no success of HTTP and that no rule knows is none.
func (q *Query) Hear(p *Preset, r *Response, most int, now time.Time) (a query.Answer, message string) {
	o := p.Answers
	o.Limit = most
	in := inspect.Read(r.Fields, r.Head, r.Whole, o)
	book := q.book
	book.Code, book.Sub, book.Message = p.Book.Code, p.Book.Sub, p.Book.Message
	said := book.Read(&classify.Answer{Status: r.Status, Fields: r.Fields, Doc: in.Doc, Text: in.Text, Fault: in.Fault}, now)
	message = said.Code + " " + said.Message
	switch {
	case said.Rule != "":
		return q.means[said.Rule], message
	case r.Status < 200 || r.Status > 299 || in.Doc == "", p.putsOff(r, &in, now):
		return query.Unanswered, message
	}
	return query.Unclear, message
}

// putsOff says whether the preset's own rules know the answer for one that has nothing to
// do with the order: too fast, not now, or not by this token or signature.
func (p *Preset) putsOff(r *Response, in *inspect.Reading, now time.Time) bool {
	switch p.Book.Read(&classify.Answer{Status: r.Status, Fields: r.Fields, Doc: in.Doc, Text: in.Text, Fault: in.Fault}, now).Kind {
	case classify.Throttled, classify.NotNow, classify.QuotaExhausted, classify.AuthExpired, classify.SignatureRefused:
		return true
	}
	return false
}
