package alert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// View is what an operator sees of the alerts.
type View struct {
	Rules   []RuleView   `json:"rules"`
	Firing  []GroupView  `json:"firing"`
	Targets []TargetView `json:"targets"`
}

// RuleView is one rule.
type RuleView struct {
	Name   string   `json:"name"`
	On     string   `json:"on"`
	Groups int      `json:"groups"` // that it keeps count of
	Firing int      `json:"firing"`
	To     []string `json:"to"`
	// LearningUntil is when a rule on the usual has seen enough to speak; zero: it has.
	LearningUntil time.Time `json:"learning_until,omitzero"`
}

// GroupView is a group that is firing.
type GroupView struct {
	Rule   string    `json:"rule"`
	Labels Labels    `json:"labels"`
	What   string    `json:"what"`
	Since  time.Time `json:"since"`
	Told   time.Time `json:"told"`            // the newest message about it
	Ended  time.Time `json:"ended,omitzero"`  // it is over since then, not yet told
	Total  int       `json:"total,omitempty"` // events since it began
	Call   string    `json:"call_id,omitempty"`
}

// TargetView is one target.
type TargetView struct {
	Name    string        `json:"name"`
	Format  string        `json:"format"`
	Waiting int           `json:"waiting"` // messages, those that are being tried included
	Sent    int           `json:"sent"`
	Failed  int           `json:"failed"`
	Dropped int           `json:"dropped"`
	Last    *DeliveryView `json:"last"` // null: there was none
}

// DeliveryView is the newest try of a request to a target.
type DeliveryView struct {
	At       time.Time `json:"at"`
	Messages int       `json:"messages"`
	Tries    int       `json:"tries"`
	Status   int       `json:"status"` // 0: no answer
	Answer   string    `json:"answer,omitempty"`
	Error    string    `json:"error,omitempty"` // empty: it was taken
}

// View shows rules, what is firing and how deliveries went.
func (a *Alerts) View() View {
	now := time.Now()
	v := View{Rules: []RuleView{}, Firing: []GroupView{}, Targets: []TargetView{}}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.rules.books {
		r := RuleView{Name: b.rule.Name, On: b.rule.On, Groups: len(b.groups), To: b.rule.To}
		if until := b.start.Add(leastHours * time.Hour); b.rule.Factor > 0 && now.Before(until) {
			r.LearningUntil = until
		}
		for _, g := range b.sorted() {
			if g.firing {
				r.Firing++
				v.Firing = append(v.Firing, b.view(g, now))
			}
		}
		v.Rules = append(v.Rules, r)
	}
	for _, name := range slices.Sorted(maps.Keys(a.targets)) {
		v.Targets = append(v.Targets, a.targets[name].view())
	}
	return v
}

func (b *book) view(g *group, now time.Time) GroupView {
	return GroupView{
		Rule: b.rule.Name, Labels: g.labels.cleaned(), What: b.message(g, Firing, now).What,
		Since: g.began, Told: g.sent, Ended: g.ended, Total: g.total, Call: g.callID,
	}
}

func (t *target) view() TargetView {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := TargetView{
		Name: t.way.Name, Format: t.way.Format, Waiting: len(t.queue) + t.trying,
		Sent: t.counts.sent, Failed: t.counts.failed, Dropped: t.counts.dropped,
	}
	if d := t.last; !d.at.IsZero() {
		v.Last = &DeliveryView{At: d.at, Messages: d.messages, Tries: d.tries, Status: d.status, Answer: d.answer}
		if d.err != nil {
			v.Last.Error = d.err.Error()
		}
	}
	return v
}

// ErrNoRule is wrapped by Test.
var ErrNoRule = errors.New("alert: no such rule")

// Tested is what a target said to a test message.
type Tested struct {
	Target     string `json:"target"`
	Format     string `json:"format"`
	OK         bool   `json:"ok"`
	Status     int    `json:"status"` // 0: no answer
	Answer     string `json:"answer,omitempty"`
	Error      string `json:"error,omitempty"`
	DurationMS int64  `json:"duration_ms"`
}

// testFor bounds a test: somebody waits for it.
const testFor = 8 * time.Second

// Test sends a message to each target of a rule, or of all when it is empty,
// once and past the queue. It fails with ErrNoRule.
func (a *Alerts) Test(ctx context.Context, rule string) ([]Tested, error) {
	ways, err := a.waysOf(rule)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, testFor)
	defer cancel()
	m := Message{Rule: cmp.Or(rule, "test"), State: Test, On: "test", At: time.Now()}
	out := make([]Tested, len(ways))
	var wg sync.WaitGroup
	for i := range ways {
		wg.Go(func() { out[i] = ways[i].test(ctx, m) })
	}
	wg.Wait()
	return out, nil
}

// waysOf are the targets of a rule by name, of all when it is empty.
func (a *Alerts) waysOf(rule string) ([]way, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := slices.Sorted(maps.Keys(a.targets))
	if rule != "" {
		i := slices.IndexFunc(a.config.Rules, func(r Rule) bool { return r.Name == rule })
		if i < 0 {
			return nil, fmt.Errorf("%w: %q", ErrNoRule, clean(rule))
		}
		names = a.config.Rules[i].To
	}
	var out []way
	for _, name := range names {
		if t := a.targets[name]; t != nil {
			t.mu.Lock()
			out = append(out, t.way)
			t.mu.Unlock()
		}
	}
	return out, nil
}

func (w *way) test(ctx context.Context, m Message) Tested {
	began := time.Now()
	_, seal := w.pack([]Message{m}, 0, began)
	o := w.post(ctx, w.client, seal(began))
	t := Tested{Target: w.Name, Format: w.Format, OK: o.err == nil, Status: o.status, Answer: o.answer, DurationMS: time.Since(began).Milliseconds()}
	if o.err != nil {
		t.Error = o.err.Error()
	}
	return t
}
