package query

import (
	"testing"
	"time"
)

func TestNext(t *testing.T) {
	t0 := time.Unix(1000, 0)
	p := Plan{FirstAfter: 60 * time.Second, Every: 60 * time.Second, Max: 6, Grace: 5 * time.Minute, NotFoundAnswers: 2}
	if got := p.First(t0); !got.Equal(t0.Add(time.Minute)) {
		t.Errorf("First = %s", got)
	}
	const nf, pr, un = NotFound, Processing, Unanswered
	for _, c := range []struct {
		name    string
		answers []Answer
		late    time.Duration // of the last one, after t0
		want    Do
	}{
		{"done", []Answer{Done}, time.Minute, Conclude},
		{"failed", []Answer{Failed}, time.Minute, NotExecuted},
		{"unclear is a person's", []Answer{Unclear}, time.Minute, Person},
		{"at work", []Answer{pr}, time.Minute, AskAgain},
		{"not known yet", []Answer{nf, nf, nf}, 4 * time.Minute, AskAgain},
		{"not known for long enough", []Answer{nf, nf}, 5 * time.Minute, NotExecuted},
		{"not known for long enough, said once", []Answer{nf}, 6 * time.Minute, AskAgain},
		{"at work in between", []Answer{nf, pr, nf}, 6 * time.Minute, AskAgain},
		{"known once, and then no more", []Answer{pr, nf, nf, nf}, time.Hour, AskAgain},
		{"known once, and failed", []Answer{pr, nf, Failed}, time.Hour, NotExecuted},
		{"a question that failed in between", []Answer{nf, un, nf}, 6 * time.Minute, NotExecuted},
		{"no answer for ever", []Answer{un, un, un, un, un, un}, time.Hour, Person},
		{"at work for ever", []Answer{pr, pr, pr, pr, pr, pr}, time.Hour, Person},
		{"done in the end", []Answer{pr, pr, pr, pr, pr, Done}, time.Hour, Conclude},
		{"known once, and never found again", []Answer{pr, pr, pr, pr, nf, nf}, time.Hour, Person},
	} {
		s, do, at := State{Since: t0}, Do(0), time.Time{}
		for _, a := range c.answers {
			s = s.Add(a)
			do, at = p.Next(s, a, t0.Add(c.late))
		}
		if do != c.want {
			t.Errorf("%s: %d, want %d", c.name, do, c.want)
		}
		if do == AskAgain && !at.Equal(t0.Add(c.late+time.Minute)) {
			t.Errorf("%s: again at %s", c.name, at.Sub(t0))
		}
	}
}

// An order that the supplier took is not sent again because it does not find it.
func TestNextOfAnAcceptedOrder(t *testing.T) {
	t0 := time.Unix(1000, 0)
	p := Plan{Every: time.Minute, Max: 4, NotFoundAnswers: 2}
	s := State{Since: t0, Known: true}
	for i, want := range []Do{AskAgain, AskAgain, AskAgain, Person} {
		s = s.Add(NotFound)
		if do, _ := p.Next(s, NotFound, t0.Add(time.Hour)); do != want {
			t.Errorf("answer %d: %d, want %d", i+1, do, want)
		}
	}
}

func TestAnswers(t *testing.T) {
	for a := Unanswered; a <= Unclear; a++ {
		if got, ok := ParseAnswer(a.String()); got != a || !ok {
			t.Errorf("ParseAnswer(%s) = %v, %v", a, got, ok)
		}
	}
	if _, ok := ParseAnswer("maybe"); ok {
		t.Error("ParseAnswer takes maybe")
	}
}
