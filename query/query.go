// Package query answers one question: when is a supplier asked what became of an order,
// and what follows from what it says?
//
// It is told the time. An order in doubt is never sent again because nobody knows better:
// only a definite no, or not being known long enough and often enough, makes a repeat safe.
package query

import "time"

// Plan says when to ask.
type Plan struct {
	FirstAfter      time.Duration // after the attempt that left the doubt
	Every           time.Duration
	Max             int           // questions
	Grace           time.Duration // so long after the attempt not_found means nothing
	NotFoundAnswers int           // so many of them in a row mean that it was not executed
}

// Answer is what one question brought.
type Answer uint8

// Answers.
const (
	Unanswered Answer = iota // the question itself failed
	Done                     // the order was executed
	Failed                   // it was not, and never will be
	NotFound                 // the supplier does not know it
	Processing               // it is at work on it
	Unclear                  // it says what no rule knows
)

var answerNames = [...]string{"unanswered", "done", "failed", "not_found", "processing", "unclear"}

// String returns the token of docs/presets.md.
func (a Answer) String() string { return answerNames[a] }

// ParseAnswer is the way back from String.
func ParseAnswer(text string) (Answer, bool) {
	for a, name := range answerNames {
		if name == text {
			return Answer(a), true
		}
	}
	return Unanswered, false
}

// State is what was asked so far about one order.
type State struct {
	Since    time.Time // the attempt that left the doubt ended
	Asked    int
	NotFound int // in a row, at the end
	// Known: the supplier took the order, or said once that it is at work on it. That it
	// does not find it then says nothing: only its word that it failed makes a repeat safe.
	Known bool
}

// Add is the state after one more answer.
func (s State) Add(a Answer) State {
	s.Asked++
	switch a {
	case NotFound:
		s.NotFound++
	case Processing:
		s.NotFound, s.Known = 0, true
	case Unanswered: // says nothing
	default:
		s.NotFound = 0
	}
	return s
}

// Do is what follows.
type Do uint8

// What follows from an answer.
const (
	AskAgain    Do = iota + 1
	Conclude       // it was executed
	NotExecuted    // it was not: a repeat is safe
	Person         // nobody can tell but a person
)

// First is when the first question is asked.
func (p *Plan) First(since time.Time) time.Time { return since.Add(p.FirstAfter) }

// Next says what follows from the newest answer, which s has; at is when to ask again.
func (p *Plan) Next(s State, a Answer, now time.Time) (do Do, at time.Time) {
	switch {
	case a == Done:
		return Conclude, now
	case a == Failed:
		return NotExecuted, now
	case a == Unclear:
		return Person, now
	case a == NotFound && !s.Known && s.NotFound >= p.NotFoundAnswers && now.Sub(s.Since) >= p.Grace:
		return NotExecuted, now
	case s.Asked >= p.Max:
		return Person, now
	}
	return AskAgain, now.Add(p.Every)
}
