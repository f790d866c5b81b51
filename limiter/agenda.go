package limiter

import "time"

// alarm is the next date of something that time alone changes: a call's
// NotBefore, a bucket's next token, a gate's next probe or deadline.
type alarm struct {
	at    time.Time // zero: not set
	seq   uint64    // breaks ties
	owner interface{ wake(b *board) }
}

// agenda is every alarm that is set, in order of date.
type agenda struct{ line[*alarm] }

func newAgenda() agenda {
	return agenda{newLine(func(x, y *alarm) bool {
		if c := x.at.Compare(y.at); c != 0 {
			return c < 0
		}
		return x.seq < y.seq
	})}
}

// set moves an alarm to another date; the zero date takes it off.
func (a *agenda) set(x *alarm, at time.Time) {
	if x.at.Equal(at) {
		return
	}
	if !x.at.IsZero() {
		a.remove(x)
	}
	if x.at = at; !at.IsZero() {
		a.insert(x)
	}
}

// next is the earliest date; zero when there is none.
func (a *agenda) next() time.Time {
	if x, ok := a.first(); ok {
		return x.at
	}
	return time.Time{}
}

// due takes off the earliest alarm if its date has come.
func (a *agenda) due(now time.Time) *alarm {
	x, ok := a.first()
	if !ok || x.at.After(now) {
		return nil
	}
	a.set(x, time.Time{})
	return x
}
