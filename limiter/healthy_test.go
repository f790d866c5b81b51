package limiter

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"retryproxy/breaker"
	"retryproxy/internal/race"
)

// spa is a host that is well: it takes any number of calls at a time, each for as long as
// it takes.
type spa struct {
	*desk
	dice  *rand.Rand
	open  int // calls begun or in line
	line  []*Ticket
	ends  endings
	began int // attempts ever
	done  int
	wait  time.Duration // in all, for a slot

	clients func(since time.Duration) int                   // calls open at a time
	took    func(s *spa, since time.Duration) time.Duration // of the next attempt
	result  func(s *spa) breaker.Result
	kind    string
}

type endings []ending

func (e endings) Len() int           { return len(e) }
func (e endings) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e endings) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *endings) Push(x any)        { *e = append(*e, x.(ending)) }
func (e *endings) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func (s *spa) send(g Grant) {
	s.began++
	took := max(time.Millisecond, s.took(s, s.now.Sub(t0)))
	heap.Push(&s.ends, ending{s.now.Add(took), g})
}

// run goes on until a time, call by call, at ticks of 5 ms at least.
func (s *spa) run(span time.Duration) {
	for until := t0.Add(span); s.now.Before(until); s.pass() {
		s.l.Tick(s.now)
		for len(s.ends) > 0 && !s.ends[0].at.After(s.now) {
			e := heap.Pop(&s.ends).(ending)
			r := breaker.Served
			if s.result != nil {
				r = s.result(s)
			}
			s.l.Report(e.grant, r, s.now)
			s.l.Release(e.grant, s.now)
			s.done++
			s.open--
		}
		line := s.line[:0]
		for _, x := range s.line {
			if s.waits(x) {
				line = append(line, x)
			} else if a := x.Answer(); a.Refused == "" {
				s.wait += a.AtGate
				s.send(a.Grant)
			} else {
				s.Fatalf("%+v", a)
			}
		}
		for s.line = line; s.open < s.clients(s.now.Sub(t0)); s.open++ {
			if a, ticket := s.l.Ask(s.claim(Claim{TaskType: s.kind, MaxWait: time.Hour}), s.now); ticket != nil {
				s.line = append(s.line, ticket)
			} else {
				s.send(a.Grant)
			}
		}
	}
}

// pass lets time pass until the next call ends.
func (s *spa) pass() {
	next := s.now.Add(time.Second)
	if len(s.ends) > 0 && s.ends[0].at.Before(next) {
		next = s.ends[0].at
	}
	s.now = later(next, s.now.Add(5*time.Millisecond))
}

func steadily(n int) func(time.Duration) int { return func(time.Duration) int { return n } }

// one in so many times.
func (s *spa) oneIn(n int) bool { return s.dice.IntN(n) == 0 }

// A limit that is learnt costs next to nothing at a host that is well, whatever its
// answers take: that is not the queue of too many calls.
func TestHealthyHostsAreNotStrangled(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine, and long: make test runs it without the race detector")
	}
	const ms = time.Millisecond
	jitter := func(s *spa, d time.Duration) time.Duration {
		return time.Duration(float64(d) * (0.8 + 0.4*s.dice.Float64()))
	}
	for _, tt := range []struct {
		name    string
		span    time.Duration
		clients func(time.Duration) int
		took    func(*spa, time.Duration) time.Duration
		result  func(*spa) breaker.Result
	}{
		{"queries and reports without task types", 3 * time.Minute, steadily(60), func(s *spa, _ time.Duration) time.Duration {
			if s.oneIn(10) {
				return jitter(s, 10*time.Second)
			}
			return jitter(s, 5*ms)
		}, nil},
		{"few reports", 2 * time.Minute, steadily(60), func(s *spa, _ time.Duration) time.Duration {
			if s.oneIn(100) {
				return jitter(s, 10*time.Second)
			}
			return jitter(s, 100*ms)
		}, nil},
		{"by the size of the body", 2 * time.Minute, steadily(60), func(s *spa, _ time.Duration) time.Duration {
			return time.Duration(float64(200*ms) * math.Exp(1.5*s.dice.NormFloat64()))
		}, nil},
		{"bursts after idle time, on new connections", 5 * time.Minute, func(d time.Duration) int {
			if d%time.Minute < 10*time.Second {
				return 100
			}
			return 1
		}, func(s *spa, d time.Duration) time.Duration {
			if d%time.Minute < 300*ms {
				return jitter(s, 500*ms)
			}
			return jitter(s, 200*ms)
		}, nil},
		{"slow calls only", 3 * time.Hour, steadily(200), func(s *spa, _ time.Duration) time.Duration { return jitter(s, 90*time.Second) }, nil},
		{"slower and faster by itself", 7 * time.Minute, steadily(60), func(s *spa, d time.Duration) time.Duration {
			return jitter(s, time.Duration(float64(200*ms)*math.Exp(2*math.Sin(d.Seconds()/60))))
		}, nil},
		{"slow at full load for a while, then mostly idle, then full load", 10 * time.Minute, func(d time.Duration) int {
			if d > 3*time.Minute && d < 8*time.Minute {
				return 2
			}
			return 200
		}, func(s *spa, d time.Duration) time.Duration {
			if d > time.Minute && d < 2*time.Minute {
				return jitter(s, 2*time.Second)
			}
			return jitter(s, 500*ms)
		}, nil},
		{"a queue, then mostly idle, then full load of slow calls", 30 * time.Minute, func(d time.Duration) int {
			if d > 5*time.Minute && d < 15*time.Minute {
				return 2
			}
			return 200
		}, func(s *spa, d time.Duration) time.Duration {
			if d < 5*time.Minute {
				return jitter(s, 500*ms*time.Duration(max(1, len(s.ends)/10)))
			}
			return jitter(s, 5*time.Second)
		}, nil},
		{"many queries and reports without task types", 15 * time.Minute, steadily(200), func(s *spa, _ time.Duration) time.Duration {
			if s.oneIn(5) {
				return jitter(s, 10*time.Second)
			}
			return jitter(s, 50*ms)
		}, nil},
		{"many, by the size of the body", 20 * time.Minute, steadily(200), func(s *spa, _ time.Duration) time.Duration {
			return time.Duration(float64(500*ms) * math.Exp(1.5*s.dice.NormFloat64()))
		}, nil},
		{"reports at night", 8 * time.Minute, steadily(100), func(s *spa, d time.Duration) time.Duration {
			if d > time.Minute && d < 7*time.Minute && s.oneIn(2) {
				return jitter(s, 8*time.Second)
			}
			return jitter(s, 200*ms)
		}, nil},
		{"throttled", time.Minute, steadily(100), func(s *spa, _ time.Duration) time.Duration { return jitter(s, 200*ms) }, func(s *spa) breaker.Result {
			return [...]breaker.Result{breaker.Served, breaker.Alive}[s.dice.IntN(2)]
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var done [2]int
			waited, limit := time.Duration(0), 0
			for i, adaptive := range []bool{false, true} {
				c := slots(256)
				c.Adaptive, c.MaxWait = adaptive, time.Hour
				s := &spa{desk: newDesk(t, c), dice: rand.New(rand.NewPCG(1, 2)), clients: tt.clients, took: tt.took, result: tt.result}
				s.run(tt.span)
				done[i], waited, limit = s.done, s.wait/time.Duration(s.began), s.l.Hosts(s.now)[0].Limit
			}
			if float64(done[1]) < 0.95*float64(done[0]) {
				t.Errorf("%d calls, each %v in line, limit %d in the end, want the %d calls of a fixed limit", done[1], waited, limit, done[0])
			}
		})
	}
}
