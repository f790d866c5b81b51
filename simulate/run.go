// Package simulate answers one question: what would a configuration do in an outage?
//
// The proxy's own rules (policies, verdicts, retry rule, gate, tokens, breakers) run
// on virtual time against a scripted platform and a population of bots. It is one
// heap of events in one goroutine: nothing sleeps, and the same seed gives the same
// numbers.
package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"retryproxy/config"
)

// run is one way of calling the platform, while it is simulated.
type run struct {
	clock    clock
	platform platform
	caller   caller
	tally    *tally
}

// caller is what stands between bots and platform.
type caller interface {
	begin(e *errand)         // takes a call
	waiting() int            // calls of which nothing is at the platform
	tick() (time.Time, bool) // does what is due, and says when it is to be called next
}

// Simulate runs a scenario to its end, one run after the other; when ctx ends, it
// fails with its error. opt is for reading the configurations of its runs.
func Simulate(ctx context.Context, s *Scenario, opt config.Options) (*Report, error) {
	report := &Report{Scenario: s.Name, About: s.About, Seed: s.Seed, scenario: s}
	configs := make([]*config.Config, len(s.Runs))
	for i := range s.Runs { // all faults before the first long run
		c, err := s.Runs[i].configuration(s.file, opt)
		if err != nil {
			return nil, err
		}
		configs[i] = c
	}
	for i := range s.Runs {
		r, err := newRun(s, &s.Runs[i], configs[i])
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", s.Runs[i].Name, err)
		}
		if err := r.loop(ctx); err != nil {
			return nil, err
		}
		report.Runs = append(report.Runs, r.tally.result(s.Runs[i].Name))
	}
	return report, nil
}

// configuration is that of a run; nil: a peer has none.
func (r *Run) configuration(scenario string, opt config.Options) (*config.Config, error) {
	switch {
	case r.Peer != "":
		return nil, nil
	case r.ConfigFile == "":
		return r.Config.Parse(scenario, opt)
	}
	data, err := os.ReadFile(r.ConfigFile)
	if err != nil {
		return nil, err
	}
	return config.Parse(r.ConfigFile, data, opt)
}

// The streams of chance: bots do the same in every run of a scenario, whatever the
// proxy does with its own dice.
const (
	dicePlatform = 1 << 32
	diceCaller   = 2 << 32
	diceBots     = 3 << 32
)

// begins is the virtual date of the beginning. A scenario without one begins at the
// same hour everywhere, so that the same policies hold.
func (s *Scenario) begins(cfg *config.Config) time.Time {
	zone := time.UTC
	if cfg != nil {
		zone = cfg.Location()
	}
	if s.Start.IsZero() {
		return time.Date(2026, 12, 1, 10, 0, 0, 0, zone)
	}
	return s.Start
}

func newRun(s *Scenario, how *Run, cfg *config.Config) (*run, error) {
	dice := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(uint64(s.Seed), stream)) }
	r := &run{clock: clock{start: s.begins(cfg)}, tally: newTally(s)}
	r.platform = platform{clock: &r.clock, dice: dice(dicePlatform), base: s.Platform, phases: s.Phases, tally: r.tally}
	if cfg == nil {
		r.caller = &peer{run: r, retries: how.Retries, timeout: how.Timeout, delay: how.Delay}
	} else if i, err := newInstance(r, cfg, dice(diceCaller)); err != nil {
		return nil, err
	} else {
		r.caller = i
	}
	for i := range s.Phases {
		r.clock.when(s.Phases[i].From, r.platform.pump)
		r.clock.when(s.Phases[i].To, r.platform.pump)
	}
	for i := range s.Bots {
		g := &group{Bots: &s.Bots[i], index: i, run: r, dice: dice(diceBots + uint64(i))}
		g.begin()
	}
	return r, nil
}

// lookEvery is after how many steps the loop looks whether it is to stop: it makes
// about a million a second.
const lookEvery = 1 << 14

// loop lets everything happen, until no call is under way and the platform is idle.
func (r *run) loop(ctx context.Context) error {
	for n := 1; ; n++ {
		if n%lookEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		date, due := r.caller.tick()
		at, more := r.clock.next()
		// The proxy's own timer is no finer than a millisecond either.
		if wakes := r.clock.at + max(date.Sub(r.clock.now()), time.Millisecond); due && (!more || wakes < at) {
			if !more && r.tally.open == 0 {
				return nil // what is left changes nothing
			}
			r.pass(wakes)
			r.clock.at = wakes
			continue
		}
		if !more {
			return nil
		}
		r.pass(at)
		r.clock.step()
	}
}

// pass books the seconds that are over before time goes on to at.
func (r *run) pass(at time.Duration) {
	for r.tally.ends() <= at {
		is := r.platform.now()
		r.tally.endSecond(Second{Waiting: r.caller.waiting(), InFlight: r.platform.inFlight(), Slots: is.Slots, Capacity: is.capacity()})
	}
}
